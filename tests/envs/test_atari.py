"""Risk: an Atari episode depends on those before it, or is another one than Gymnasium's, SB3's or ale-py's that it equals."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from training import assert_same, train

from fastes import EnvironmentUnavailable, FastES, play
from fastes._core import AreaResize
from fastes.checkpoints.env_description import from_json, to_json
from fastes.envs.atari import options
from fastes.envs.source import make_env_source, vector_env_of

ale_py = pytest.importorskip("ale_py", reason="the extra atari is not installed")
from fastes.envs.atari.game import AtariGame  # noqa: E402

TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}  # ROMs that ale-py has and does not load
SMALL = {"screen_size": 8, "frame_stack": 2, "frame_skip": 8, "noop_max": 2}
PLAYED: dict[str, Any] = {"policy": "LinearPolicy", "population_size": 4, "max_episode_steps": 5}


def ours(game: str, **own: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("fastes/Atari-v0", game=game, **own)


def wrapped(game: str, sticky: float = 0.0, **own: Any) -> gymnasium.Env[Any, Any]:
    """Gymnasium's preprocessing of the same game."""
    pytest.importorskip("cv2", reason="Gymnasium's preprocessing needs OpenCV")
    env = gymnasium.make(options.ale_id(game), frameskip=1, repeat_action_probability=sticky)
    return FrameStackObservation(AtariPreprocessing(env, **own), 4)


def played(env: Any, seed: int | None, steps: int, actions: int = 3) -> Iterator[tuple[Any, ...]]:
    """What an episode shows up to its end, whose last observation nobody acts on."""
    obs, info = env.reset(seed=seed)
    yield obs.copy(), info["lives"], info["episode_frame_number"]
    for action in np.random.default_rng(seed).integers(actions, size=steps).tolist():
        obs, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        yield None if over else obs.copy(), reward, terminated, truncated, info["lives"], info["episode_frame_number"]
        if over:
            return


def assert_same_episode(first: Iterator[tuple[Any, ...]], second: Iterator[tuple[Any, ...]]) -> int:
    steps = 0
    for (obs, *told), (other, *other_told) in zip(first, second, strict=True):
        assert told == other_told, f"step {steps}"
        assert np.array_equal(obs, other), f"step {steps}"
        steps += 1
    return steps


# the same episodes


@pytest.mark.parametrize(
    ("game", "mine", "theirs", "steps"),
    [
        ("pong", {}, {}, 40),
        ("breakout", {"fire_reset": False, "repeat_action_probability": 0.1}, {"sticky": 0.1}, 60),
        ("seaquest", {"frame_skip": 1, "screen_size": (40, 60), "noop_max": 0}, {}, 40),
        ("qbert", {"terminal_on_life_loss": True, "frame_skip": 3}, {}, 300),
    ],
)
def test_episodes_are_those_of_gymnasium(game: str, mine: dict[str, Any], theirs: dict[str, Any], steps: int) -> None:
    shared = {name: value for name, value in mine.items() if name not in ("fire_reset", "repeat_action_probability")}
    env, other = ours(game, **mine), wrapped(game, **theirs, **shared)
    assert env.observation_space == other.observation_space
    assert env.action_space == other.action_space
    for seed in (3, 4):
        length = assert_same_episode(played(env, seed, steps), played(other, seed, steps))
        assert length < steps if "terminal_on_life_loss" in mine else length > 20


@pytest.mark.parametrize(("game", "sticky"), [("pong", 0.0), ("breakout", 0.25)])
def test_memories_are_those_of_ale_py(game: str, sticky: float) -> None:
    env = ours(game, obs_type="ram", noop_max=0, fire_reset=False, repeat_action_probability=sticky)
    other = gymnasium.make(options.ale_id(game), obs_type="ram", repeat_action_probability=sticky)
    assert env.observation_space == other.observation_space
    for seed in (3, 4):
        assert assert_same_episode(played(env, seed, 100), played(other, seed, 100)) == 101


def test_a_game_that_is_known_by_its_memory_can_be_drawn() -> None:
    drawn, blind = ours("pong", obs_type="ram", render_mode="rgb_array"), ours("pong", obs_type="ram")
    screens = ours("pong", render_mode="rgb_array")
    assert_same_episode(played(drawn, 5, 50), played(blind, 5, 50))
    assert len(list(played(screens, 5, 50))) == 51
    assert np.array_equal(drawn.render(), screens.render())


@pytest.mark.parametrize(("game", "sticky"), [("beam_rider", 0.0), ("qbert", 0.25)])
def test_a_reset_forgets_the_episodes_before(game: str, sticky: float) -> None:
    """Beam Rider depends on what it finds in its memory, and Qbert on more than what ale-py keeps of a state."""
    env = ours(game, repeat_action_probability=sticky)
    first = list(played(env, 7, 30))
    for seed in (1, None):
        list(played(env, seed, 300))
    assert_same_episode(iter(first), played(env, 7, 30))


def test_adventure_draws_where_things_lie_from_the_seed_alone() -> None:
    env = AtariGame("adventure", mode=2)
    memories = []
    for seed in (7, 8, 7):
        env.reset(seed=seed)
        memories.append(env.ale.getRAM().tobytes())
    assert memories[0] != memories[1]
    assert memories[0] == memories[2]


def test_frames_are_those_of_the_vector_environment() -> None:
    vector = ale_py.AtariVectorEnv("pong", 1, noop_max=0, use_fire_reset=False, reward_clipping=False)
    env = ours("pong", noop_max=0)
    env.reset(seed=0), vector.reset(seed=0)
    for step in range(12):
        obs, reward, *_ = env.step(step % 3)
        other, rewards, *_ = vector.step(np.array([step % 3]))
        assert reward == rewards[0]
        past = max(0, 3 - step)  # where the vector environment still shows nothing
        assert np.array_equal(obs[past:], other[0, past:])
    assert other[0].std() > 0.0


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_games_of_the_vector_environment_start_alone_each_with_its_seed(mode: str) -> None:
    both = vector_env_of(ale_py.AtariVectorEnv("pong", 2, max_num_frames_per_episode=12, autoreset_mode=mode))
    assert both is not None

    def shown(index: int) -> Any:
        return np.asarray(both.observations())[index]

    def stepped(action: int) -> list[bool]:
        return both.step(np.full(2, action))[1].tolist()

    with caught_warnings() as caught:
        both.reset([4, 9])
    assert not caught, "of one seed for all"
    frames = [shown(0)]
    assert not np.array_equal(*both.observations())
    assert stepped(2) == [False, False]
    frames.append(shown(0))
    both.restart({1: 4})
    assert np.array_equal(shown(0), frames[1]), "goes on"
    assert np.array_equal(shown(1), frames[0])
    assert stepped(2) == [False, False]
    assert np.array_equal(shown(1), frames[1])
    assert stepped(2) == [True, False]
    both.restart({0: 4})
    assert np.array_equal(shown(0), frames[0])
    assert stepped(2) == [False, True]
    assert np.array_equal(shown(0), frames[1]), "nobody starts it a second time"


def test_a_vector_environment_that_answers_in_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="answers for 1 of its 2 games"):
        FastES(ale_py.AtariVectorEnv("pong", 2, batch_size=1), preset="unbiased")


def test_scores_are_those_of_sb3() -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("cv2")
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    whole = {"terminal_on_life_loss": False, "clip_reward": False}
    vec_env = VecFrameStack(make_atari_env("FreewayNoFrameskip-v4", wrapper_kwargs=whole), 4)
    env, up = ours("freeway"), 1
    vec_env.seed(5), vec_env.reset(), env.reset(seed=5)
    scores = [(env.step(up)[1], float(vec_env.step(np.array([up]))[1][0])) for _ in range(150)]
    assert all(mine == theirs for mine, theirs in scores)
    assert sum(mine for mine, _ in scores) > 0
    with pytest.warns(UserWarning, match="EpisodicLifeEnv continues"):
        FastES(make_atari_env("FreewayNoFrameskip-v4"), "LinearPolicy", preset="unbiased")
    with caught_warnings() as caught:
        FastES(vec_env, "LinearPolicy", preset="unbiased")
    assert not [each for each in caught if "EpisodicLifeEnv" in each]


class Watched:
    """An emulator that keeps a frame as ale-py draws it in grey whenever its screen is read."""

    def __init__(self, ale: Any, frames: list[Any]) -> None:
        self.ale, self.frames = ale, frames

    def getScreen(self, screen: Any) -> None:
        self.ale.getScreen(screen)
        self.frames.append(self.ale.getScreenGrayscale())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ale, name)


def assert_greys_of_ale_py(game: str, steps: int) -> int:
    """Observations are the last two frames that ale-py draws in grey. Returns the height of its screen."""
    env = AtariGame(game)
    env.reset(seed=0)
    shape, frames = env.ale.getScreenDims(), list[Any]()
    resize, expected = AreaResize(shape, (84, 84)), np.zeros((84, 84), np.uint8)
    env.ale = Watched(env.ale, frames)  # type: ignore[assignment]
    for step in range(steps):
        frames.clear()
        seen = env.step(step % env.action_space.n)[0][-1]
        resize.brighter(*frames, expected)
        assert np.array_equal(seen, expected), f"{game}, step {step}"
    return int(shape[0])


def test_greys_are_those_of_ale_py() -> None:
    assert [assert_greys_of_ale_py(game, 20) for game in ("pong", "air_raid")] == [210, 250]


@pytest.mark.slow
def test_greys_of_all_games_are_those_of_ale_py() -> None:
    games = [game for game in ale_py.roms.get_all_rom_ids() if game not in TWO_PLAYERS]
    assert {assert_greys_of_ale_py(game, 60) for game in games} == {210, 214, 220, 230, 250}


# how a game is played


def test_fire_starts_a_game_that_waits_for_it() -> None:
    for fire, screens in ((True, 10), (False, 1)):
        env = ours("breakout", fire_reset=fire)
        env.reset(seed=0)
        assert len({env.step(0)[0].tobytes() for _ in range(12)} - {env.reset(seed=0)[0].tobytes()}) >= screens - 1
        assert (env.step(0)[0][-1] != env.step(0)[0][-1]).any() == fire


def test_options_change_what_they_say() -> None:
    env = ours("space_invaders", full_action_space=True, clip_reward=True, max_num_frames_per_episode=400, difficulty=1)
    assert env.action_space.n == 18
    fire, over, rewards = 1, False, set()
    env.reset(seed=0)
    while not over:
        _, reward, terminated, over, info = env.step(fire)
        rewards.add(reward)
    assert rewards == {0.0, 1.0}, "aliens are worth more"
    assert (terminated, info["episode_frame_number"]) == (False, 400)


def test_observations_stay_as_they_were_returned() -> None:
    env = ours("pong")
    seen = [env.reset(seed=0)[0], *(env.step(2)[0] for _ in range(5))]
    kept = [obs.copy() for obs in seen]
    seen[-1][:] = 0
    env.step(2)
    assert all(map(np.array_equal, seen[:-1], kept[:-1]))
    assert all(np.array_equal(a[1:], b[:-1]) for a, b in pairwise(kept))
    assert np.array_equal(env.step(2)[0][1], kept[-1][3]), "what the caller writes into stays his"


def test_the_real_screen_is_drawn() -> None:
    env = make_env_source("ALE/Pong-v5")(render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(5):
        env.step(2)
    frame = env.render()
    assert (frame.shape, frame.dtype) == ((210, 160, 3), np.uint8)
    assert env.metadata["render_fps"] == 15
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) >= 4
    for _ in range(60):
        env.step(3)
        if differ := (env.render() != env.unwrapped.ale.getScreenRGB()).any(axis=-1).sum():
            break
    assert 0 < differ < 400, "what was brighter a frame before, and nothing else"


def test_the_guide_has_every_option_with_its_default() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "atari.md").read_text(encoding="utf-8")
    told = {
        name: default
        for names, default in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\S+) \|", text, re.MULTILINE)
        for name in re.findall(r"\w+", names)
    }
    assert told == {name: str(value) for name, value in options.DEFAULTS.items()}


# which environment an id gets


def test_an_id_gets_the_environment_that_it_names() -> None:
    def spec_of(env: Any, **kwargs: Any) -> tuple[str, str]:
        source = make_env_source(env, kwargs)
        return source.name, source.spec.id if source.spec else "-"

    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "ale_py:ALE/Pong-v5"):
        assert spec_of(name) == ("ALE/Pong-v5", "fastes/Atari-v0")
    assert spec_of("fastes/Atari-v0", game="space_invaders") == ("ALE/SpaceInvaders-v5", "fastes/Atari-v0")
    assert spec_of("ALE/Pong-v5", obs_type="ram") == ("ALE/Pong-v5", "fastes/Atari-v0")
    for obs_type in ("rgb", "grayscale"):
        assert spec_of("ALE/Pong-v5", obs_type=obs_type, frameskip=2) == ("ALE/Pong-v5", "ALE/Pong-v5")
    assert spec_of("Pong-v4") == ("Pong-v4", "Pong-v4")
    assert spec_of(gymnasium.spec("ALE/Pong-v5")) == ("ALE/Pong-v5", "ALE/Pong-v5")
    assert spec_of(gymnasium.make("ALE/Pong-v5")) == ("ALE/Pong-v5", "ALE/Pong-v5")
    stacked = FrameStackObservation(gymnasium.make("ALE/Pong-v5", obs_type="grayscale"), 4)
    assert make_env_source(stacked)().observation_space.shape == (4, 210, 160)


def test_a_checkpoint_says_how_its_game_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_env_source("ALE/Pong-v5", {"frame_skip": 2, "screen_size": [42, 40], "max_episode_steps": 9})
    data = json.loads(json.dumps(to_json(source)))
    assert data["kwargs"].items() >= {"game": "pong", "noop_max": 30, "repeat_action_probability": 0.0}.items()
    monkeypatch.setitem(options.DEFAULTS, "noop_max", 7)  # of another version
    again = from_json(data)
    assert again.name == source.name
    env = again()
    assert env.unwrapped.options == options.Options(frame_skip=2, screen_size=(42, 40))
    assert env.observation_space.shape == (4, 40, 42)
    assert to_json(again) == data
    given = make_env_source(gymnasium.make("fastes/Atari-v0", game="pong"))
    assert to_json(given)["kwargs"].items() >= {"game": "pong", "noop_max": 7}.items()  # type: ignore[index]
    of_memory = json.loads(json.dumps(to_json(make_env_source("ALE/Pong-v5", {"obs_type": "ram"}))))
    assert not {"frame_stack", "screen_size"} & set(of_memory["kwargs"]), "they would be refused once their defaults change"
    assert from_json(of_memory)().observation_space.shape == (128,)
    old = from_json({"id": "ALE/Pong-v5", "kwargs": {}})
    assert old().observation_space.shape == (210, 160, 3), "of a file that was written before there was another"


def test_training_goes_on_from_its_file_on_any_number_of_workers(tmp_path: Path) -> None:
    own = {**PLAYED, "env_kwargs": {**SMALL, "repeat_action_probability": 0.2}}
    alone, beside = (train("ALE/Pong-v5", 2, n_workers, **own) for n_workers in (0, 1))
    assert_same(alone, beside)
    assert [record.episodes_cut for record in alone.records] == [4, 4]
    with FastES("ALE/Pong-v5", seed=5, n_workers=0, **own) as model:
        model.save(tmp_path / "model")
    for env in (None, "ALE/Pong-v5", "PongNoFrameskip-v4", "fastes/Atari-v0"):
        with FastES.load(tmp_path / "model", env, n_workers=0) as loaded:
            assert loaded.source.make_kwargs == own["env_kwargs"]


# bad input


@pytest.mark.parametrize(
    ("kwargs", "kind", "words"),
    [
        (
            {"frameskip": 2},
            ValueError,
            ("'frameskip'", "did you mean 'frame_skip'", "noop_max = 30", "gymnasium.make('ALE/Pong-v5', ...)"),
        ),
        ({"game": "pong"}, ValueError, ("'game'", "not an option")),
        ({"frame_skip": 0}, ValueError, ("frame_skip = 0", "from 1 to")),
        ({"frame_stack": 2.5}, TypeError, ("frame_stack = 2.5", "int")),
        ({"screen_size": [84, 84, 1]}, ValueError, ("screen_size = [84, 84, 1]", "(width, height)")),
        ({"repeat_action_probability": 25}, ValueError, ("repeat_action_probability = 25", "0 to 1")),
        ({"fire_reset": "yes"}, TypeError, ("fire_reset = 'yes'", "True or False")),
        ({"mode": 9}, ValueError, ("mode = 9", "pong has 0, 1")),
        ({"difficulty": -1}, ValueError, ("difficulty = -1", "at least 0")),
        ({"render_mode": "ansi"}, ValueError, ("render_mode = 'ansi'", "rgb_array")),
        ({"obs_type": "rma"}, ValueError, ("obs_type = 'rma'", "'screens'", "'ram'", "'grayscale'")),
        ({"obs_type": "ram", "screen_size": 42}, ValueError, ("screen_size = 42", "for screens", "leave it out")),
        ({"obs_type": "ram", "frame_stack": 4}, ValueError, ("frame_stack = 4", "for screens", "leave it out")),
    ],
)
def test_options_that_cannot_be(kwargs: dict[str, Any], kind: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(kind) as caught:
        FastES("ALE/Pong-v5", "LinearPolicy", n_workers=0, env_kwargs=kwargs)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_options_that_ale_pys_own_environment_does_not_know() -> None:
    wrong = {"obs_type": "rgb", "mode": 99}
    with pytest.raises(ValueError, match=f"ALE/Pong-v5 cannot be made with {re.escape(str(wrong))}: .*game mode"):
        FastES("ALE/Pong-v5", env_kwargs=wrong)


def test_a_video_of_ale_pys_own_environment_is_as_fast_as_the_game(tmp_path: Path) -> None:
    """Its render_fps counts frames, and a step has four of them."""
    imageio_ffmpeg, video = pytest.importorskip("imageio_ffmpeg"), tmp_path / "v.mp4"
    env = gymnasium.make("ALE/Pong-v5", obs_type="ram", render_mode="rgb_array")
    with FastES(env, preset="unbiased", n_workers=0) as model:
        play(model, 1, video=video, max_frames=6)
    assert imageio_ffmpeg.count_frames_and_secs(str(video)) == (6, pytest.approx(6 / 15, abs=0.02))


@pytest.mark.parametrize("fault", ["no folder", "no file", "another game"])
def test_a_rom_that_is_missing_or_another_says_what_to_do(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "roms"
    if fault != "no folder":
        folder.mkdir()
    if fault == "another game":
        shutil.copy(ale_py.roms.get_rom_path("breakout"), folder / "pong.bin")
    monkeypatch.setenv("ALE_ROMS_DIR", str(folder))
    with pytest.raises(
        OSError, match=rf"game = 'pong': ale-py .* no ROM that it knows in {folder}; put pong.bin there, or unset"
    ):
        ours("pong")
    monkeypatch.delenv("ALE_ROMS_DIR")
    assert ours("pong").reset(seed=0)[0].any()


def test_a_rom_that_is_replaced_while_a_game_runs_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores() -> list[float]:
        env.reset(seed=3)
        return [env.step(action)[1] for action in [0, 2, 3] * 40]

    rom = tmp_path / "pong.bin"
    shutil.copy(ale_py.roms.get_rom_path("pong"), rom)
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    env = ours("pong")
    before = scores()
    rom.write_bytes(b"x" * 2048)
    assert any(before)
    assert scores() == before
    with pytest.raises(OSError, match=r"hash of pong\.bin"):
        ours("pong")


def test_games_that_are_not_there() -> None:
    with pytest.raises(EnvironmentUnavailable, match="did you mean 'ALE/Pong-v5'"):
        FastES("ALE/Pogn-v5")
    with pytest.raises(EnvironmentUnavailable, match=r"did you mean 'ALE/Pong-v5'\?$"):
        FastES("pong", preset="unbiased")
    for game in ("SpaceInvaders", "ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4", "SPACE_INVADERS"):
        with pytest.raises(ValueError, match=r"did you mean 'space_invaders'\?"):
            AtariGame(game)
    with pytest.raises(ValueError, match="did you mean 'pong' or"):
        AtariGame("Pogn")
    with pytest.raises(ValueError, match="game = None: fastes/Atari-v0 needs the name of a game's ROM"):
        FastES("fastes/Atari-v0", preset="unbiased")
    for make in (AtariGame, lambda game: FastES("fastes/Atari-v0", preset="unbiased", env_kwargs={"game": game})):
        with pytest.raises(ValueError, match="game = 5, of type int: fastes/Atari-v0 needs the name of a game's ROM"):
            make(5)
    for game in TWO_PLAYERS:
        with pytest.raises(ValueError, match=f"game = '{game}': it is for two players"):
            AtariGame(game)
    env = AtariGame("pong")
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    assert env.render() is None
    for action in (-1, 6):
        with pytest.raises(ValueError, match=f"action = {action}: expected 0 to 5"):
            env.step(action)


def test_opencv_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fastes.envs.atari.game")
    monkeypatch.setitem(sys.modules, "cv2", None)
    env = ours("pong")
    assert env.reset(seed=0)[0].shape == (4, 84, 84)
    monkeypatch.undo()
    importlib.import_module("fastes.envs.atari.game")
