"""Risk: stages side by side show other episodes than each policy plays alone, or not the policies that their labels say."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import caught_warnings
from processes import environment, fastes_command
from terminals import shown

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.cli.main import main
from fastes.runs.captions import captioned
from fastes.runs.run_folder import RunFolder
from fastes.runs.stages import Stage, make_current, play_stages, side_by_side
from fastes.runs.video import VideoWriter, play

TINY: dict[str, Any] = {"population_size": 4, "preset": "default", "n_workers": 0}
TRAIN = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none", "--workers", "0"]


def _train(root: Path, *more: str) -> Path:
    assert main(["train", "CartPole-v1", *TRAIN, "--seed", "3", "--quiet", "--runs", str(root), *more]) == 0
    return root / "CartPole-v1" / "1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _train(tmp_path_factory.mktemp("stages"), "--total-timesteps", "4000")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The frames that go into videos, as they were before H.264."""
    frames: list[Any] = []
    write = VideoWriter.write

    def noting(self: VideoWriter, frame: Any) -> None:
        frames.append(frame)
        write(self, frame)

    monkeypatch.setattr(VideoWriter, "write", noting)
    return frames


def test_frames_stand_beside_each_other_with_a_gap() -> None:
    frames = [np.full((6, width, 3), width, np.uint8) for width in (5, 7, 9)]
    whole = side_by_side(frames)
    assert whole.shape == (6, 5 + 4 + 7 + 4 + 9, 3)
    assert whole[2, :, 1].tolist() == [5] * 5 + [128] * 4 + [7] * 7 + [128] * 4 + [9] * 9


# --- panels ----------------------------------------------------------------------------------------------------------


class Noisy(Toy):
    """Rewards, and the grey of pictures, that the global random state decides."""

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, random.random() + np.random.random(), terminated, truncated, info  # noqa: NPY002

    def render(self) -> Any:
        return np.full((90, 120, 3), random.randrange(256), np.uint8)


@pytest.mark.slow
def test_each_stage_plays_what_it_plays_alone(tmp_path: Path) -> None:
    """Episodes that take turns do not draw from each other's random state, nor from the caller's."""
    with FastES(Noisy, seed=1, **TINY) as first, FastES(partial(Noisy, length=40), seed=2, **TINY) as second:
        alone = [
            [episode[:3] for episode in play(model, 2, first_seed=5, video=tmp_path / "a.mp4")] for model in (first, second)
        ]
        before = random.getstate(), str(np.random.get_state())  # noqa: NPY002
        together = list(
            play_stages([Stage("untrained", first), Stage("best", second)], 2, first_seed=5, video=tmp_path / "v.mp4")
        )
        assert (random.getstate(), str(np.random.get_state())) == before  # noqa: NPY002
    assert [[episode[:3] for episode in episodes] for episodes in zip(*together, strict=True)] == alone
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "v.mp4"))
    assert frames == sum(episodes[0].frames for episodes in together)


def test_an_episode_that_has_ended_holds_its_last_frame(tmp_path: Path, written: list[Any]) -> None:
    """Toy's pictures are of the grey 10 * step."""
    with FastES(partial(Toy, length=9), seed=1, **TINY) as short, FastES(partial(Toy, length=14), seed=1, **TINY) as long:
        ends = [play(model, 1)[0].length for model in (short, long)]
        ((left, right),) = play_stages([Stage("a", short), Stage("b", long)], video=tmp_path / "v.mp4", caption=False)
    assert [left.length, right.length] == ends
    assert ends[0] < ends[1]
    last = [length - 1 for length in ends]
    assert [int(frame[0, 0, 0]) // 10 for frame in written] == [min(step, last[0]) for step in range(ends[1] + 1)]
    assert [int(frame[0, -1, 0]) // 10 for frame in written] == [min(step, last[1]) for step in range(ends[1] + 1)]


def test_panels_are_labelled_and_the_last_frame_has_the_results(tmp_path: Path, written: list[Any]) -> None:
    class Wide(Toy):
        def render(self) -> Any:
            return np.full((100, 100, 3), 50, np.uint8)

    with FastES(Wide, seed=1, **TINY) as one, FastES(Wide, seed=2, **TINY) as other:
        ((left, right),) = play_stages([Stage("untrained", one), Stage("best", other)], video=tmp_path / "v.mp4")
    bare = np.full((300, 300, 3), 50, np.uint8)  # small pictures are enlarged
    assert (written[0] == side_by_side([captioned(bare, 0.0, 0, "untrained"), captioned(bare, 0.0, 0, "best")])).all()
    ended = [captioned(bare, end.episode_return, end.length, word) for end, word in ((left, "untrained"), (right, "best"))]
    assert (written[-1] == side_by_side(ended)).all()


def test_frames_are_bounded_and_episodes_are_not(tmp_path: Path, written: list[Any]) -> None:
    with FastES(Toy, seed=1, **TINY) as one:
        ((left, right),) = play_stages([Stage("a", one), Stage("b", one)], video=tmp_path / "v.mp4", max_frames=4)
        assert len(written) == left.frames == right.frames == 4
        assert left.length == play(one, 1)[0].length


def test_each_mujoco_environment_draws_in_its_own_graphics_context() -> None:
    made_current: list[str] = []

    def env(name: str) -> Any:
        viewer = SimpleNamespace(make_context_current=lambda: made_current.append(name))
        return SimpleNamespace(unwrapped=SimpleNamespace(mujoco_renderer=SimpleNamespace(viewer=viewer)))

    for name in ("a", "b", "a"):
        make_current(env(name))
    assert made_current == ["a", "b", "a"]
    make_current(SimpleNamespace(unwrapped=SimpleNamespace(mujoco_renderer=SimpleNamespace(viewer=None))))
    make_current(SimpleNamespace(unwrapped=object()))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_stages_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: list[Any]) -> None:
    video = tmp_path / "v.mp4"
    assert main(["play", str(run), "--video", str(video), "--stages", "--first-seed", "7", "--max-frames", "12"]) == 0
    said = capsys.readouterr().out
    with FastES("CartPole-v1", seed=3, policy_kwargs={"net_arch": [4]}, **TINY) as untrained:
        first = play(untrained, 1, first_seed=7)[0]
    with FastES.load(run / "midway.zip", n_workers=0) as midway, FastES.load(run, n_workers=0) as best:
        assert f"midway.zip is the policy after {midway.num_timesteps:,} steps, best.zip after {best.num_timesteps:,}" in said
        ends = first, play(midway, 1, first_seed=7)[0], play(best, 1, first_seed=7)[0]
    assert len({end.episode_return for end in ends}) > 1, "the stages differ"
    words = zip(("untrained", "midway", "best"), ends, strict=True)
    line = "; ".join(f"{label} return {end.episode_return:.2f}, {end.length} steps" for label, end in words)
    assert f"env seed 7: {line}\n" in said
    assert written[0].shape == (400, 3 * 600 + 2 * 4, 3)
    assert imageio_ffmpeg.count_frames_and_secs(str(video))[0] == 12


def test_a_bar_on_a_terminal_is_full_at_the_end(run: Path, tmp_path: Path) -> None:
    flags = ["--video", str(tmp_path / "v.mp4"), "--stages", "--first-seed", "7"]
    lines = shown([*fastes_command(), "play", str(run), *flags], 60, tmp_path, environment(), lambda _: None)
    (bar,) = (line for line in lines if "frame/s" in line)
    frames = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "v.mp4"))[0]
    assert bar.startswith("100%")
    assert f"{frames}/{frames}" in bar
    assert all(len(line) <= 60 for line in lines)
    assert lines[-1].endswith("s"), "the last line is of the video"


def test_the_most_frames_that_a_video_can_have(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A frame of each episode's end comes after those of its steps."""
    flags = ["--video", str(tmp_path / "v.mp4"), "--stages", "--episodes", "2", "--max-seconds", "inf"]
    assert main(["play", str(run), *flags]) == 0
    assert "drawing 1002 frames at most" in capsys.readouterr().out, "two episodes of 500 steps"


@pytest.mark.parametrize("which", ["best", "last", "copied.zip"])
def test_a_run_without_a_midway_file(
    which: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: list[Any]
) -> None:
    (tmp_path / "old").mkdir()
    for name in ("best.zip", "checkpoint.zip"):
        (tmp_path / "old" / name).write_bytes((run / name).read_bytes())
    (tmp_path / "old" / "copied.zip").write_bytes((run / "best.zip").read_bytes())
    of = [f"{tmp_path}/old/{which}"] if which.endswith(".zip") else [f"{tmp_path}/old", "--checkpoint", which]
    assert main(["play", *of, "--video", str(tmp_path / "v.mp4"), "--stages", "--max-frames", "2"]) == 0
    label = "trained" if which.endswith(".zip") else which
    reason = f"{of[0]} is not a run folder" if label == "trained" else f"{of[0]} has no midway.zip, which trainings write"
    said = capsys.readouterr().out
    assert f"{reason}: the stages are untrained and {label}\n" in said
    assert re.search(rf"^env seed 0: untrained return [^;]*; {label} return [^;]*$", said, re.MULTILINE)
    assert written[0].shape[1] == 2 * 600 + 4


def test_stages_need_a_video(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--render"]):
        assert main(["play", str(run), "--stages", *more]) == 2
        assert "--stages goes into a video: add --video FILE" in capsys.readouterr().err


def test_midway_shows_the_trial_that_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file holds all trials that were left then, and shows the one whose generation it was."""
    shown: list[tuple[int, bytes]] = []

    def noting(stages: Any, *_: object, **__: object) -> Any:
        shown.extend((stage.model.selection.present.number, stage.model.theta.tobytes()) for stage in stages)
        return iter(())

    run = _train(tmp_path, "--total-timesteps", "3000", "--trials", "3", "--trials-fraction", "0.9")
    monkeypatch.setattr("fastes.runs.stages.play_stages", noting)
    saved = read_checkpoint(run / "midway.zip")
    numbers = [trial["number"] for trial in saved.data["selection"]["trials"]]
    assert len(numbers) > 1
    winner = read_checkpoint(run / "best.zip").data["selection"]["trials"][0]["number"]
    for focus in range(len(numbers)):  # whichever it was
        saved.data["selection"]["focus"] = focus
        write_checkpoint(run / "midway.zip", saved)
        assert main(["play", str(run), "--video", str(tmp_path / "v.mp4"), "--stages"]) == 0
    assert {number for number, _ in shown} == {winner}
    place = numbers.index(winner)
    assert {theta for _, theta in shown[1::3]} == {saved.arrays["trainings"][f"{place}.theta"].tobytes()}


def test_what_a_training_began_with_is_made_again() -> None:
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}, "trials": 2, "normalize_obs": True, "target_return": "none"}
    with FastES("Pendulum-v1", seed=11, **settings, **TINY) as model:
        begun = {trial.number: trial.training for trial in model.selection.trials}
        model.learn(20_000)
        trained = model.training
        again, number = trained.as_begun(), model.selection.present.number
    assert again.strategy.theta.tobytes() == begun[number].strategy.theta.tobytes()
    assert again.strategy.theta.tobytes() != trained.strategy.theta.tobytes()
    assert again.normalizer.count == 0 < trained.normalizer.count
    assert again.counters == trained.counters


# --- midway.zip ------------------------------------------------------------------------------------------------------


def _timesteps(path: Path) -> int:
    data = read_checkpoint(path).data
    return sum(training["counters"]["num_timesteps"] for training in data["trainings"])


@pytest.mark.parametrize("generations", [2, 3, 5, 8, 9, 15, 16, 17])
def test_midway_is_in_the_second_quarter_of_a_training_whenever_it_ends(generations: int, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with FastES(Toy, seed=1, **TINY) as model:
        model.learn(10**6, [folder, lambda model, _: model.generation < generations])
        folder.save(model)
        total, longest = model.num_timesteps, 4 * 20
    assert total / 4 - longest <= _timesteps(tmp_path / "midway.zip") <= total / 2


def test_a_training_of_one_generation_has_no_midst(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with FastES(Toy, seed=1, **TINY) as model:
        model.learn(1, folder)
        folder.save(model)
    assert not (tmp_path / "midway.zip").exists()


def test_midway_stays_on_resume_until_the_steps_have_doubled(run: Path, tmp_path: Path) -> None:
    for name in ("best.zip", "checkpoint.zip", "midway.zip", "progress.csv", "config.toml"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    kept, at_first = (run / "midway.zip").read_bytes(), _timesteps(run / "checkpoint.zip")
    resume = ["train", "--resume", str(tmp_path), "--workers", "0", "--quiet", "--total-timesteps"]
    assert main([*resume, "6000"]) == 0
    assert (tmp_path / "midway.zip").read_bytes() == kept
    at_second = _timesteps(tmp_path / "checkpoint.zip")
    assert main([*resume, str(2 * at_second + 500)]) == 0
    assert _timesteps(tmp_path / "midway.zip") == at_second > at_first


def test_a_midway_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "midway.zip").mkdir()
    folder = RunFolder(tmp_path, checkpoint_seconds=0.0)
    with FastES(Toy, seed=1, **TINY) as model, caught_warnings() as told:
        model.learn(10**6, [folder, lambda model, _: model.generation < 10])
        folder.save(model)
    assert len(told) == 1
    assert f"{tmp_path / 'midway.zip'} cannot be written" in told[0]
    assert _timesteps(tmp_path / "checkpoint.zip") == model.num_timesteps
