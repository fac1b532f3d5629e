"""Risk: the task is not what its docstring says, or CnnPolicy does not learn from images. The everyday test of pixels."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fastes import FastES
from fastes.envs.tasks.catch import Catch

ID = "fastes/Catch-v0"


def played(seed: int, action: int | None, **sizes: int) -> tuple[list[np.ndarray], list[float]]:
    """Pictures and rewards of an episode. action: None to follow the ball."""
    env = Catch(**sizes)
    picture, _ = env.reset(seed=seed)
    pictures, rewards, over = [picture], list[float](), False
    while not over:
        ball = int(np.flatnonzero(pictures[0][0])[0])
        paddle = int(np.flatnonzero(pictures[-1][-1])[0])
        chosen = 1 + (ball > paddle) - (ball < paddle) if action is None else action
        picture, reward, over, truncated, _ = env.step(chosen)
        assert not truncated
        pictures.append(picture)
        rewards.append(reward)
    return pictures, rewards


def test_who_follows_the_ball_catches_it_from_everywhere() -> None:
    columns = set()
    for seed in range(30):
        pictures, rewards = played(seed, None)
        columns.add(int(np.flatnonzero(pictures[0][0])[0]))
        assert rewards == [0.0] * 8 + [1.0]
        assert [int(picture.sum()) for picture in pictures] == [510] * 9 + [255], "ball and paddle, and one on the other"
    assert columns == set(range(5))


def test_the_ball_falls_straight_and_the_paddle_stops_at_the_edge() -> None:
    pictures, rewards = played(0, 0, rows=6, columns=4)
    ball = int(np.flatnonzero(pictures[0][0])[0])
    assert all(picture[row, ball] == 255 for row, picture in enumerate(pictures))
    assert [int(np.flatnonzero(picture[-1])[0]) for picture in pictures[:-1]] == [2, 1, 0, 0, 0]
    assert rewards == [0.0] * 4 + [1.0 if ball == 0 else -1.0]


def test_to_stand_still_catches_a_fifth() -> None:
    assert np.mean([played(seed, 1)[1][-1] for seed in range(1000)]) == pytest.approx(-0.6, abs=0.1)


def test_it_is_a_gymnasium_environment() -> None:
    check_env(gymnasium.make(ID).unwrapped, skip_render_check=True)
    env = Catch()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action = 3"):
        env.step(3)
    for name in ("rows", "columns"):
        with pytest.raises(ValueError, match=name):
            Catch(**{name: 0})


def test_what_is_rendered() -> None:
    text, frames = (gymnasium.make(ID, rows=4, columns=3, render_mode=mode) for mode in ("ansi", "rgb_array"))
    (picture, _), _ = text.reset(seed=1), frames.reset(seed=1)
    lines = str(text.render()).split("\n")
    assert [line.count("o") for line in lines] == [1, 0, 0, 0]
    assert lines[-1] == ".=."
    frame = np.asarray(frames.render())
    assert frame.shape == (64, 48, 3)
    assert np.array_equal(frame[::16, ::16, 0], picture)


@pytest.mark.slow
def test_the_preset_solves_it() -> None:
    """About a second: it stops when 20 episodes of new seeds were all caught."""
    with FastES(ID, n_workers=0, seed=0) as model:
        assert model.settings.policy == "CnnPolicy"
        model.learn()
        assert model.evaluate(50).mean == 1.0
        assert model.num_timesteps < 400_000
