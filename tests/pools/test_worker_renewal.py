"""Workers that are replaced after so many episodes, and files and warnings of several workers."""

from __future__ import annotations

import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from exclusive_env import ThreeSteps
from processes import sent_by_value
from training import assert_same, label, train

from fastes import FastES
from fastes.envs.worker_imports import own_registrations, register

sent_by_value(__name__)
SMALL: dict[str, Any] = {"seed": 0, "noise_table_size": 10_000, "population_size": 8, "preset": "default", "eval_episodes": 1}


class Counted(ThreeSteps):
    """Fails once it has played more episodes than one may."""

    def __init__(self, folder: str, most: int) -> None:
        self.folder, self.most, self.episodes = folder, most, 0
        with open(Path(folder) / "built", "a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        assert self.episodes <= self.most, "this one leaks"
        return super().reset(seed=seed)

    def close(self) -> None:
        with open(Path(self.folder) / "closed", "a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")


@pytest.mark.parametrize("n_workers", [0, 1, 2], ids=label)
def test_a_worker_that_has_played_enough_is_replaced_with_the_same_results(
    n_workers: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    endless = train(partial(Counted, str(tmp_path), 10**6), 2, 0, **SMALL)
    for name in ("built", "closed"):
        (tmp_path / name).unlink()
    renewed = train(partial(Counted, str(tmp_path), 5), 2, n_workers, worker_max_episodes=5, **SMALL)
    renewed.state.data["settings"]["worker_max_episodes"] = 0
    assert_same(endless, renewed)
    built, closed = ((tmp_path / name).read_text().split() for name in ("built", "closed"))
    assert len(built) >= 18 // 5 + n_workers, "beside those at the start"
    assert sorted(built) == sorted(closed), "each is closed"
    assert n_workers == 0 or len(set(built)) == len(built), "each is another process"
    assert [str(warning.message) for warning in recwarn if "died" in str(warning.message)] == []


def test_a_vector_environment_is_not_renewed() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    with pytest.raises(ValueError, match=r"worker_max_episodes = 5 needs environments of FastES's own"):
        FastES(envs, preset="unbiased", worker_max_episodes=5)
    envs.close()


class Drawn(Counted):
    """Has pictures."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_no_video_of_a_worker_is_written_over(n_workers: int, tmp_path: Path) -> None:
    """Neither by another worker, nor by what takes its place after 6 of 16 episodes."""
    pytest.importorskip("moviepy")
    videos = tmp_path / "videos"

    def make() -> Any:
        return gymnasium.wrappers.RecordVideo(Drawn(str(tmp_path), 10**6), str(videos), lambda episode: episode == 0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the folder is there
        with FastES(make, n_workers=n_workers, worker_max_episodes=6, **{**SMALL, "eval_every": 100}) as model:
            model.learn(24 * 2)
    names = {path.name for path in videos.glob("*.mp4")}
    assert len(names) >= 3
    known = {f"rl-video{worker}{further}-episode-0.mp4" for worker in ("", "-worker-1") for further in ("", "-2", "-3", "-4")}
    assert names <= known


def test_what_a_worker_registers_again_is_not_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    """Its module does, when it is imported; the parent's registration is there already."""
    gymnasium.register("Again-v0", Counted)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            register(own_registrations())
            gymnasium.register("Again-v0", Counted)
    finally:
        gymnasium.registry.pop("Again-v0")
    assert [str(warning.message) for warning in recwarn if "Overriding" in str(warning.message)] == []
