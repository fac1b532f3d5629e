"""Risk: the maze can be solved without a memory, is not what its docstring says, or is not solved by who remembers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fastes import FastES
from fastes.envs.tasks.t_maze import AHEAD, LEFT, RIGHT, TMaze

ID = "fastes/TMaze-v0"
# tuned on seeds from 1000 up
TUNED: dict[str, Any] = {"preset": "default", "population_size": 64, "sigma": 0.2, "learning_rate": 0.05}


def walked(seed: int, turn: int | None, length: int = 10, wasted: int = 0) -> tuple[list[Any], list[float], bool]:
    """Observations and rewards of a walk to the end, and whether it ended there. turn: None for the sign's side."""
    env = TMaze(length)
    first, _ = env.reset(seed=seed)
    side = LEFT if first[0] < 0 else RIGHT
    steps = [env.step(action) for action in [*[LEFT] * wasted, *[AHEAD] * length, side if turn is None else turn]]
    observations = [first.tolist(), *(step[0].tolist() for step in steps)]
    return observations, [step[1] for step in steps], steps[-1][2]


def test_the_sign_decides_and_nothing_else_shows_it() -> None:
    both = {seed: walked(seed, None) for seed in range(20)}
    assert {tuple(seen[0]) for seen, _, _ in both.values()} == {(-1.0, 0.0), (1.0, 0.0)}
    for seen, rewards, ended in both.values():
        assert seen[1:] == [[0.0, 0.0]] * 9 + [[0.0, 1.0]] * 2
        assert (rewards, ended) == ([0.0] * 10 + [1.0], True)
    for seed, (seen, _, _) in both.items():
        wrong = RIGHT if seen[0][0] < 0 else LEFT
        assert walked(seed, wrong)[1][-1] == -1.0


def test_a_policy_without_a_memory_has_a_mean_return_of_0_at_best() -> None:
    for turn in (LEFT, RIGHT):
        ends = [walked(seed, turn)[1][-1] for seed in range(400)]
        assert abs(np.mean(ends)) < 0.15


def test_steps_that_lead_nowhere() -> None:
    seen, rewards, ended = walked(0, None, length=3, wasted=2)
    assert rewards == [-1 / 3, -1 / 3, 0.0, 0.0, 0.0, 1.0]
    assert ended
    assert seen[:3] == [seen[0]] * 3, "the sign is there as long as the first place is"
    env = TMaze(3)
    env.reset(seed=0)
    steps = [env.step(AHEAD) for _ in range(9)]
    assert [step[1] for step in steps] == [0.0] * 3 + [-1 / 3] * 6, "less than a wrong turn costs"
    assert [step[3] for step in steps] == [False] * 8 + [True]


def test_it_is_an_environment_as_gymnasium_wants_one() -> None:
    env = gymnasium.make(ID, length=4, render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=1)
    assert env.render().shape == (48, 80, 3)
    text = gymnasium.make(ID, render_mode="ansi")
    text.reset(seed=0)
    text.step(AHEAD)
    assert text.render() == ".@......... right"
    for wrong in ({"length": 0}, {"length": 2.5}, {"render_mode": "human"}):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))} = "):
            TMaze(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"action = 3: expected 0 \(ahead\), 1"):
        text.unwrapped.step(3)


@pytest.mark.parametrize(("cell", "seed"), [("lstm", 4), ("gru", 1)])
def test_who_remembers_solves_it(cell: str, seed: int) -> None:
    with FastES(ID, "MlpLstmPolicy", n_workers=0, seed=seed, policy_kwargs={"cell": cell}, **TUNED) as model:
        model.learn(50_000)
        assert model.solved
        assert model.evaluate(100, first_seed=10**6).mean == 1.0


def test_who_does_not_cannot_solve_it() -> None:
    with FastES(ID, "MlpPolicy", n_workers=0, seed=4, **TUNED) as model:
        model.learn(50_000)
        assert not model.solved
        assert model.evaluate(400, first_seed=10**6).mean < 0.15
