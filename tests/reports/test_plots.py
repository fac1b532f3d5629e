"""Risk: one evaluation that falls looks like a collapse; a run that was stopped has no picture; runs are mixed up in one."""

from __future__ import annotations

import math
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from processes import run_fastes, started_script, wait_until
from written_runs import progress_line, write_progress, write_race, write_run

from fastes import FastES
from fastes.cli.main import main
from fastes.reports.callbacks import Callback
from fastes.reports.progress_rows import Clock, read_progress
from fastes.runs.curve_picture import plot_curves, running, smoothed
from fastes.runs.curves import Curve, Outcome, RungEnd, read_curve, read_curves, title_of
from fastes.runs.overview import read_overview
from fastes.runs.run_folder import RunFolder
from fastes.settings.preset_loader import tomllib
from fastes.training.record import Record
from fastes.training.selection import Rung
from fastes.watch.followed_progress import FollowedProgress

pytest.importorskip("matplotlib")

SMALL = [
    "--preset",
    "default",
    "--population-size",
    "4",
    "--net-arch",
    "4",
    "--target-return",
    "none",
    "--workers",
    "0",
    "--quiet",
]
TRIALS = ["--trials", "3", "--rungs", "2", "--trials-fraction", "0.6"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs of CartPole: two seeds with three trials, and one with another sigma."""
    root = tmp_path_factory.mktemp("plots")
    for seed, more in (("0", TRIALS), ("1", TRIALS), ("2", ["--sigma", "0.2"])):
        flags = ["--seed", seed, "--total-timesteps", "1500", "--runs", str(root), *SMALL, *more]
        assert main(["train", "CartPole-v1", *flags]) == 0
    return root / "CartPole-v1"


def _curve(run: Path) -> Curve:
    return read_curve(run)


def _drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of pictures that are drawn from now on."""
    from matplotlib.figure import Figure

    axes: list[Any] = []
    add = Figure.add_subplot
    monkeypatch.setattr(Figure, "add_subplot", lambda self: axes.append(add(self)) or axes[-1])
    return axes


def _labels(axes: Any) -> list[str]:
    (legend,) = axes.figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_single_falls_move_no_line() -> None:
    returns = np.linspace(0.0, 4500.0, 40)
    fallen = returns.copy()
    fallen[[12, 25, 39]] = -300.0
    steps = np.arange(40.0)
    assert np.abs(smoothed(steps, fallen)[1] - smoothed(steps, returns)[1]).max() < 300.0
    assert smoothed(steps, returns)[1][0] == returns[0]
    few = np.array([1.0, 9.0, 2.0])
    assert smoothed(steps[:3], few)[1].tolist() == few.tolist()


def test_most_evaluations_lie_within_the_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returns = np.random.default_rng(0).normal(size=500) + np.linspace(0.0, 5.0, 500)
    steps = np.arange(500.0)
    at, (low, median, high) = running(steps, returns, 0.1, 0.5, 0.9)
    assert (at == steps).all()
    assert 0.7 < np.mean((low <= returns) & (returns <= high)) < 0.9
    assert (median == smoothed(steps, returns)[1]).all()
    assert (low <= median).all()
    assert (median <= high).all()
    seen = _drawn(monkeypatch)
    plot_curves([Curve("x", steps, returns)], tmp_path / "curve.png", "band")
    assert _labels(seen[0]) == ["one evaluation", "running median", "10% to 90% of the evaluations around"]
    (band,) = seen[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() == high.max()


def test_a_picture_has_points_line_outcome_rungs_and_target(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _drawn(monkeypatch)
    curve = _curve(runs / "2")._replace(target=475.0)
    plot_curves([curve], tmp_path / "curve.png", "CartPole-v1")
    (picture,) = seen
    labels = _labels(picture)
    assert curve.outcome is not None
    kept = tomllib.loads((runs / "2" / "config.toml").read_text())["run"]["result"]
    assert (curve.outcome.mean, curve.outcome.worst, curve.outcome.episodes) == (kept["mean"], kept["worst"], 20)
    assert curve.outcome.at == read_progress(runs / "2" / "progress.csv")["timesteps"][-1]
    mean, std, worst = (f"{kept[name]:.{0 if kept[name] >= 100 else 1}f}" for name in ("mean", "std", "worst"))
    assert len(curve.of_trial(curve.leader)[0]) < 10
    outcome = f"kept: {mean} ± {std}, worst {worst}, over 20 episodes"
    assert labels == ["another trial", "one evaluation", "evaluations, joined", "target 475", outcome]
    assert [text.get_text() for text in picture.texts] == ["rung 1", "rung 2", "the best trial continues"]
    assert picture.get_xlabel() == "environment steps"
    assert "return" in picture.get_ylabel()
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_rungs_end_when_trials_were_scored_and_the_last_evaluation_is_the_winners(tmp_path: Path) -> None:
    ended: list[RungEnd] = []
    winner: list[int] = []

    class Noting(Callback):
        def on_rung(self, model: Any, rung: Rung) -> None:
            ended.append(RungEnd(model.num_timesteps, rung.winner))

        def on_generation(self, model: Any, record: Record) -> None:
            if ended and ended[-1].winner:
                winner.append(record.trial)

    settings: dict[str, Any] = {"population_size": 4, "target_return": "none", "trials": 3, "rungs": 2, "trials_fraction": 0.6}
    for fraction in (0.6, 1.0):
        ended.clear()
        run = tmp_path / str(fraction)
        run.mkdir()
        settings["trials_fraction"] = fraction
        with (
            FastES("CartPole-v1", preset="default", seed=1, n_workers=0, total_timesteps=4000, **settings) as model,
            RunFolder(run) as folder,
        ):
            folder.write_config(model, {"at_timesteps": 0})
            model.learn(callback=[folder, Noting()])
            own, others = model.last_evaluation_of, model.num_timesteps - model.training.counters.num_timesteps
        curve = _curve(run)
        assert [bool(rung.winner) for rung in ended] == [False, True]
        assert list(curve.rung_ends) == ended
        assert curve.leader == curve.trials[-1] == model.selection.present.number + 1
        assert own is not None
        assert curve.steps[-1] == own.timesteps + others
        assert own.generation == model.generation - 1
    assert set(winner) == {ended[-1].winner}


def test_each_trial_has_a_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thick one is that of the trial that was left; of several it is the best, as training was stopped among them."""
    seen, steps = _drawn(monkeypatch), np.arange(60.0)
    trials = 1.0 + steps % 3  # trial 2 is the best, trial 3 the last
    returns = np.where(trials == 2, 9.0, 5.0 - trials)
    open_, decided = (RungEnd(20.0, 0),), (RungEnd(20.0, 0), RungEnd(40.0, 3))
    for rung_ends, leader, parts in (
        ((), 2, []),
        (open_, 2, ["rung 1", "rung 2"]),
        (decided, 3, ["rung 1", "rung 2", "the best trial continues"]),
    ):
        curve = Curve("x", steps, returns, trials=trials, rung_ends=rung_ends)
        plot_curves([curve], tmp_path / "curve.png", "trials")
        lines = {line.get_label(): set(line.get_ydata()) for line in seen[-1].lines}
        assert lines["running median"] == lines["one evaluation"] == {9.0 if leader == 2 else 2.0}
        assert sum(len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 20 for line in seen[-1].lines) == 4
        assert _labels(seen[-1])[0] == "another trial"
        assert [text.get_text() for text in seen[-1].texts] == parts
    dropped = np.where((trials == 2) & (steps > 20), 1.0, trials)  # trial 2 went out with the first rung
    assert Curve("x", steps, returns, trials=dropped, rung_ends=open_).leader == 1


def test_the_leader_is_the_one_that_the_training_would_show() -> None:
    """A running mean since the last rung, to which each evaluation gives a third: a lucky one makes no leader."""
    steps, trials = np.arange(8.0), np.array([1.0, 2.0] * 4)
    returns = np.array([6.0, 0.0, 6.0, 0.0, 6.0, 0.0, 6.0, 9.0])
    assert Curve("x", steps, returns, trials=trials).leader == 1
    rungs, scores = (RungEnd(5.0, 0),), {1: 6.0, 2: 5.0}
    assert Curve("x", steps, returns, trials=trials, rung_ends=rungs, scores=scores).leader == 2
    assert Curve("x", steps[:6], returns[:6], trials=trials[:6], rung_ends=rungs, scores=scores).leader == 1
    one_is_ahead = Curve("x", steps[:7], returns[:7], trials=trials[:7], rung_ends=rungs, scores={1: 2.0, 2: 5.0})
    assert one_is_ahead._replace(returns=np.full(7, 3.0)).leader == 2, "its score counts, although it was not evaluated since"
    assert Curve("x", steps, returns, trials=trials, rung_ends=rungs, scores={1: math.nan, 2: 5.0}).leader == 2
    assert one_is_ahead._replace(shown=1).leader == 1, "training has ended, and says so"
    assert one_is_ahead._replace(shown=9).leader == 2, "no trial has this number"
    assert one_is_ahead._replace(scores={7: 9.0, 2: 5.0}).leader == 2, "the other one has no evaluation to draw"


def test_a_trial_that_was_solved_leads(tmp_path: Path) -> None:
    """It ends the others without a rung, whatever their evaluations were."""
    flags = ["--preset", "default", "--trials", "6", "--rungs", "1", "--eval-episodes", "3", "--total-timesteps", "300000"]
    assert main(["train", "CartPole-v1", "--seed", "6", *flags, "--workers", "0", "--quiet", "--runs", str(tmp_path)]) == 0
    run = tmp_path / "CartPole-v1" / "1"
    curve = _curve(run)
    with FastES.load(run / "checkpoint.zip", n_workers=0) as model:
        assert curve.solved
        assert curve.rung_ends == ()
        assert len({*curve.trials.tolist()}) > 1
        assert curve.leader == curve.shown == model.selection.present.number + 1
        assert read_overview(run).generations == model.generation


def test_a_curve_of_a_single_evaluation_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    trials = Curve("x", np.array([1.0, 2.0, 3.0]), np.array([5.0, 1.0, 6.0]), trials=np.array([1.0, 2.0, 1.0]))
    several = [Curve(name, np.array([1.0]), np.array([2.0])) for name in "ab"]
    for curves, label in (([trials], "another trial"), (several, "a")):
        plot_curves(curves, tmp_path / "curve.png", "one")
        (line,) = (line for line in seen[-1].lines if line.get_label() == label)
        assert line.get_marker() == "o"


def test_trials_that_a_solved_training_never_needed_are_not_shown(tmp_path: Path) -> None:
    run = tmp_path / "CartPole-v1" / "1"
    flags = [flag for flag in SMALL if flag not in ("--target-return", "none")]
    begin = ["train", "CartPole-v1", "--seed", "0", *flags, *TRIALS, "--total-timesteps", "1500", "--runs", str(tmp_path)]
    with pytest.warns(UserWarning, match="the parameters from before this training reach"):
        assert main([*begin, "--target-return=-5"]) == 0
    assert _curve(run).solved
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--target-return", "none"]) == 0
    curve = _curve(run)
    assert not curve.solved
    assert curve.steps[-1] > 1000
    assert curve.rung_ends == ()
    assert len({*curve.trials.tolist()}) == 1


def test_runs_of_other_budgets_are_no_seeds_of_each_other(runs: Path, tmp_path: Path) -> None:
    flags = ["--seed", "5", "--total-timesteps", "1400", "--runs", str(tmp_path), *SMALL, "--sigma", "0.2"]
    assert main(["train", "CartPole-v1", *flags]) == 0
    assert _curve(tmp_path / "CartPole-v1" / "1").alike != _curve(runs / "3").alike


def test_races_are_one_line_whichever_recipe_has_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, out = _drawn(monkeypatch), ["--out", str(tmp_path / "curves.png")]
    for seed, (winner, sigma) in enumerate((("linear", 0.02), ("wide", 0.3), ("linear", 0.02))):
        write_race(tmp_path / "races" / str(seed), seed, winner, sigma=sigma)
    write_race(tmp_path / "clipped", 5, "wide", {"obs_clip": 5.0}, sigma=0.3)
    write_run(tmp_path / "other", seed=7)
    assert main(["plot", str(tmp_path / "races"), *out]) == 0
    assert _labels(seen[-1]) == ["median of 3 runs, lowest to highest"]
    assert main(["plot", str(tmp_path / "races"), str(tmp_path / "clipped"), *out]) == 0
    assert [label.partition(" (")[0] for label in _labels(seen[-1])] == ["obs_clip=-", "obs_clip=5: CartPole-v1, seed 5"]
    assert main(["plot", str(tmp_path / "races"), str(tmp_path / "other"), *out]) == 0
    assert [label.partition(" (")[0] for label in _labels(seen[-1])] == ["recipes=race", "recipes=-: CartPole-v1, seed 7"]
    assert main(["plot", str(tmp_path / "races"), "--compare", "sigma", *out]) == 0
    assert _labels(seen[-1]) == ["sigma=0.02 (median of 2 runs)", "sigma=0.3"]


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_comparison_that_tells_nothing_apart_says_so(seeds: int, tmp_path: Path) -> None:
    """Once, however many pictures are drawn."""
    for seed in range(seeds):
        write_run(tmp_path / "runs" / str(seed), seed=seed, sigma=0.3)
    pictures = [f"--out={tmp_path / name}" for name in ("curves.png", "curves.svg")]
    with pytest.warns(UserWarning, match="every run has sigma=0.3: comparing it tells nothing apart") as said:
        assert main(["plot", str(tmp_path / "runs"), "--compare", "sigma", *pictures]) == 0
    assert len(said) == 1


def test_a_setting_that_is_compared_parts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that else parts none."""
    seen = _drawn(monkeypatch)
    one, other = (_seeds("x", {"env": "A"}, 1.0, 2.0)[0]._replace(settings={"env": "A", "target_return": t}) for t in (1, 2))
    plot_curves([one, other], tmp_path / "curve.png", "x", compare=["target_return"])
    assert _labels(seen[0]) == ["target_return=1", "target_return=2"]


def test_environments_are_named_beside_what_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    groups = [_seeds(env, {"env": env, "sigma": sigma}, 1.0, 2.0) for env in "AB" for sigma in (0.1, 0.2)]
    plot_curves([curve for group in groups for curve in group], tmp_path / "curve.png", "x", compare=["sigma"])
    assert _labels(seen[0]) == [f"{env}, sigma={sigma} (median of 2 runs)" for env in "AB" for sigma in (0.1, 0.2)]


def test_no_evaluation_few_and_odd_ones_are_drawn(tmp_path: Path) -> None:
    for returns in ([], [3.0], [1.0, 2.0]):
        curve = Curve("x", np.arange(len(returns)) + 5.0, np.array(returns))
        plot_curves([curve], tmp_path / "curve.png", "few")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_a_picture_needs_a_folder(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(runs / "1"), "--out", str(tmp_path / "nosuch" / "curve.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_plot_draws_later_what_training_draws(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "1", run)
    (run / "learning_curve.png").unlink()
    assert main(["plot", str(run)]) == 0
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert str(run / "learning_curve.png") in capsys.readouterr().out
    assert main(["plot", str(run), "--out", str(tmp_path / "curve.svg")]) == 0
    assert b"<svg" in (tmp_path / "curve.svg").read_bytes()


def test_runs_that_are_alike_are_one_line_and_others_have_one_each(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _drawn(monkeypatch)
    out = ["--out", str(tmp_path / "curves.png")]
    assert main(["plot", str(runs / "1"), str(runs / "2"), *out]) == 0
    assert main(["plot", str(runs / "1"), str(runs / "3"), *out]) == 0
    assert main(["plot", str(runs), *out]) == 0
    alike, others, both = map(_labels, seen)
    assert alike == ["median of 2 runs, lowest to highest"]
    for label, number in zip(others, (1, 3), strict=True):  # a long one is on several lines
        assert "".join(label.split()) == f"CartPole-v1,seed{number - 1}({runs / str(number)})"
    group, single = ("".join(label.split()) for label in both)
    assert group.startswith("sigma=0.05,trials=3")
    assert group.endswith("(medianof2runs)")
    assert single.startswith("sigma=0.2")
    assert single.endswith(f":CartPole-v1,seed2({runs / '3'})")
    assert title_of([_curve(runs / "1"), _curve(runs / "2")]) == "CartPole-v1, 2 runs"


def _seeds(name: str, settings: dict[str, Any], *heights: float) -> list[Curve]:
    """Curves of a group, each a level line."""
    steps = np.arange(20.0)
    return [
        Curve(f"{name}, seed {seed}", steps, np.full(20, height), alike=sorted(settings.items()), settings=settings)
        for seed, height in enumerate(heights)
    ]


def test_a_group_is_its_median_within_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    curves = [
        *_seeds("a", {"sigma": 0.1}, 1.0, 2.0, 9.0),
        *_seeds("b", {"sigma": 0.2}, 5.0),
        *_seeds("c", {"sigma": 0.3}, 7.0, 8.0),
    ]
    unborn = curves[0]._replace(steps=np.zeros(0), returns=np.zeros(0))
    plot_curves([*curves, unborn], tmp_path / "curves.png", "groups")
    (axes,) = seen
    assert [set(line.get_ydata()) for line in axes.lines] == [{2.0}, {5.0}, {7.5}]
    ranges = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    assert [(values.min(), values.max()) for values in ranges] == [(1.0, 9.0), (7.0, 8.0)]
    colours = [line.get_color() for line in axes.lines]
    assert len({*colours}) == 3
    assert _labels(axes) == ["sigma=0.1 (median of 3 runs)", "sigma=0.2: b, seed 0", "sigma=0.3 (median of 2 runs)"]


def test_seeds_without_a_part_in_common_are_drawn_each_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the first evaluation of each: a median of nothing would be an empty picture."""
    seen = _drawn(monkeypatch)
    firsts = [
        curve._replace(steps=np.array([100.0 + seed]), returns=curve.returns[:1])
        for seed, curve in enumerate(_seeds("a", {"sigma": 0.1}, 1.0, 2.0, 9.0))
    ]
    whole = _seeds("b", {"sigma": 0.2}, 3.0, 5.0)
    plot_curves(firsts, tmp_path / "curves.png", "firsts")
    plot_curves([*firsts, *whole], tmp_path / "curves.png", "groups")
    plot_curves([*firsts, *whole], tmp_path / "curves.png", "groups", compare=["sigma"])
    for axes in seen:
        lines = [(line.get_xdata().tolist(), line.get_ydata().tolist(), line.get_marker()) for line in axes.lines[:3]]
        assert lines == [([100.0 + seed], [height], "o") for seed, height in enumerate((1.0, 2.0, 9.0))]
    assert _labels(seen[0]) == ["a, seed 0", "a, seed 1", "a, seed 2"]
    assert _labels(seen[1]) == [*(f"sigma=0.1: a, seed {seed}" for seed in range(3)), "sigma=0.2 (median of 2 runs)"]
    assert _labels(seen[2]) == _labels(seen[1])


def test_a_line_that_its_environment_tells_apart_names_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    others = _seeds("A-v0", {"env": "A-v0"}, 1.0, 2.0)
    plot_curves([*others, *_seeds("B-v0", {"env": "B-v0"}, 3.0)], tmp_path / "curves.png", "groups")
    assert _labels(seen[-1]) == ["A-v0 (median of 2 runs)", "B-v0, seed 0"]
    more = [_seeds("B-v0", {"env": "B-v0", "sigma": sigma}, 3.0)[0] for sigma in (0.5, 0.6)]
    plot_curves([*others, *more], tmp_path / "curves.png", "groups")
    assert _labels(seen[-1]) == ["A-v0 (median of 2 runs)", "sigma=0.5: B-v0, seed 0", "sigma=0.6: B-v0, seed 0"]
    plot_curves([*others, *_seeds("folder", {"env": "B-v0"}, 3.0)], tmp_path / "curves.png", "groups")
    assert _labels(seen[-1]) == ["A-v0 (median of 2 runs)", "B-v0: folder, seed 0"]


def test_a_seed_that_ends_early_ends_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solved one keeps its value, another one leaves; fewer than half of them are no line."""
    seen = _drawn(monkeypatch)

    def range_of(*curves: Curve) -> dict[float, list[float]]:
        """Steps -> median, lowest and highest, where the median changes and at the ends."""
        plot_curves(curves, tmp_path / "curve.png", "group")
        (line,), (band,) = seen[-1].lines, seen[-1].collections
        at, medians = line.get_xdata(), line.get_ydata()
        corners = band.get_paths()[0].vertices
        edges = [corners[np.isclose(corners[:, 0], x), 1] for x in at]
        told = [[median, edge.min(), edge.max()] for median, edge in zip(medians.tolist(), edges, strict=True)]
        return {at[n]: told[n] for n in range(len(at)) if n in (0, len(at) - 1) or told[n] != told[n - 1]}

    def part(curve: Curve, begin: int, end: int) -> Curve:
        return curve._replace(steps=curve.steps[begin:end], returns=curve.returns[begin:end])

    low, middle, high = _seeds("a", {}, 1.0, 2.0, 9.0)
    assert range_of(low, middle, part(high, 2, 9)._replace(solved=True)) == {2.0: [2.0, 1.0, 9.0], 19.0: [2.0, 1.0, 9.0]}
    (begin, all_three), (left, others), (end, last) = range_of(low, middle, part(high, 0, 9)).items()
    assert (begin, end) == (0.0, 19.0)
    assert left == pytest.approx(8.0, abs=0.1)
    assert (all_three, others, last) == ([2.0, 1.0, 9.0], [1.5, 1.0, 2.0], [1.5, 1.0, 2.0])
    assert list(range_of(low, part(middle, 0, 15), part(high, 0, 9)))[-1] == 14.0


def test_the_settings_that_are_asked_name_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    both = {"learning_rate": 0.02, "net_arch": [64, 64]}
    curves = [
        *_seeds("a", {"sigma": 0.1, **both, "beta2": 0.9}, 1.0, 2.0),
        *_seeds("b", {"sigma": 0.2, **both, "beta2": 0.9}, 3.0),
        *_seeds("c", {"sigma": 0.2, **both, "beta2": 0.99}, 4.0),
    ]
    plot_curves(curves, tmp_path / "curves.png", "groups", compare=["sigma", "net_arch"])
    assert _labels(seen[0]) == [
        "sigma=0.1, net_arch=64x64 (median of 2 runs)",
        "sigma=0.2, net_arch=64x64, beta2=0.9",
        "sigma=0.2, net_arch=64x64, beta2=0.99",
    ]


def test_a_setting_that_no_run_has_is_refused(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plot", str(runs / "1"), str(runs / "3"), "--out", str(tmp_path / "c.png")]
    assert main([*command, "--compare", "sigam"]) == 2
    told = capsys.readouterr().err
    assert "'sigam' is not a setting of these runs" in told
    assert "did you mean 'sigma'" in told
    assert re.search("in which they differ: .*sigma", told)
    assert not (tmp_path / "c.png").exists()
    assert main([*command, "--compare", "sigma", "net_arch"]) == 0


def test_twelve_lines_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    curves = [curve for number in range(12) for curve in _seeds(str(number), {"sigma": number / 10}, float(number))]
    plot_curves(curves, tmp_path / "curves.png", "twelve", compare=["sigma"])
    assert len({(line.get_color(), line.get_linestyle()) for line in seen[0].lines}) == 12


@pytest.mark.parametrize("number", [1, 3, 12])
def test_nothing_of_a_picture_overlaps_or_is_cut(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _drawn(monkeypatch)
    path = "/a/long/path/of/somebody/who/keeps/runs/in/many/folders/runs/HalfCheetah-v5"
    curves = [
        curve for k in range(number) for curve in _seeds(f"HalfCheetah-v5, seed 123456789 ({path}/{k})", {"sigma": k}, 1.0 + k)
    ]
    plot_curves(curves, tmp_path / "curves.png", "HalfCheetah-v5, seed 123456789")
    figure = seen[0].figure
    figure.draw_without_rendering()
    (legend,) = figure.legends
    inner, below, whole = seen[0].get_tightbbox(), legend.get_window_extent(), figure.bbox
    assert inner.ymin >= below.ymax - 1.0, "the legend is below the axis and its name"
    assert below.xmin >= 0.0
    assert below.xmax <= whole.xmax
    assert below.ymin >= 0.0
    assert inner.height > 0.5 * figure.dpi * 3.0, "the legend leaves room for the curves"
    sizes = [text.get_fontsize() for text in (*legend.get_texts(), *seen[0].get_xticklabels(), seen[0].xaxis.label)]
    assert min(sizes) / 72.0 / figure.get_figwidth() * 400.0 > 8.0, "letters of 8 pixels in a picture of 400"


def test_time_takes_the_place_of_steps(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = np.array([0.0, 100.0, 200.0, 300.0])
    clock = Clock()
    rows = {"timesteps": steps[1:], "seconds": [60.0, 0.0, 600.0], "cpu_seconds": [1.0, 3.0, 4.0], "trial": [1.0] * 3}
    clock.add({name: np.array(values) for name, values in rows.items()})
    curve = Curve("x", steps, steps, rung_ends=(RungEnd(150.0, 1),), outcome=Outcome(300.0, 1.0, 0.0, 1.0, 5), clock=clock)
    seen = _drawn(monkeypatch)
    for x, name, places in (
        ("time", "minutes of wall time", [0.0, 1.0, 1.0, 11.0]),
        ("cpu", "seconds of CPU time", [0.0, 1.0, 3.0, 4.0]),
    ):
        plot_curves([curve], tmp_path / "time.png", "time", x)
        assert seen[-1].get_xlabel() == name
        assert seen[-1].lines[1].get_xdata().tolist() == places
        assert max(seen[-1].lines[-1].get_xdata()) == places[-1]
        assert main(["plot", str(runs / "2"), "--x", x, "--out", str(tmp_path / "run.png")]) == 0
    progress = read_progress(runs / "2" / "progress.csv")
    by_trial = [progress["seconds"][progress["trial"] == trial].sum() for trial in (1, 2, 3)]
    assert _curve(runs / "2").clock.seconds == pytest.approx(max(by_trial))


def test_several_files_are_written_or_none(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png, svg, odd = (tmp_path / f"curve.{end}" for end in ("png", "svg", "doc"))
    assert main(["plot", str(runs / "1"), "--out", str(png), "--out", str(odd)]) == 2
    assert not png.exists()
    capsys.readouterr()
    assert main(["plot", str(runs / "1"), "--out", str(png), "--out", str(svg)]) == 0
    assert capsys.readouterr().out.split() == [str(png), str(svg)]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_a_run_that_is_named_twice_counts_once(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _drawn(monkeypatch)
    monkeypatch.chdir(runs)
    with pytest.warns(UserWarning, match="1 is named more than once: it counts once"):
        assert main(["plot", "1", "2", str(runs / "1"), "--out", str(tmp_path / "curve.png")]) == 0
    assert _labels(seen[-1]) == ["median of 2 runs, lowest to highest"]


def test_what_cannot_be_drawn_is_said(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path)]) == 1
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["plot", str(runs / "1"), "--out", str(tmp_path / "curve.doc")]) == 2
    assert ".png" in capsys.readouterr().err
    assert not (tmp_path / "curve.doc").exists()


def test_a_configuration_that_is_lost_or_odd_ends_no_picture(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "1", run)
    config = tomllib.loads((run / "config.toml").read_text())
    config["settings"] |= {"trials": "many", "trials_fraction": "half", "total_timesteps": []}
    config["run"] |= {"target_return": "high", "at_timesteps": "none", "result": {"mean": 1.0, "std": "none"}}
    odd_scores = [{"at_timesteps": 1, "kept": 1, "scores": each} for each in ({"x": 1.0}, {}, 5, {"9" * 99: 1})]
    config["run"]["rungs"] = ["none", {"at_timesteps": "late"}, {}, *odd_scores]
    (run / "config.toml").write_text(tomli_w.dumps(config))
    assert _curve(run).rung_ends == (RungEnd(1.0, 0),)
    assert _curve(run).outcome is None
    assert math.isinf(_curve(run).target)
    config["run"]["rungs"] = "none"
    (run / "config.toml").write_text(tomli_w.dumps(config))
    assert _curve(run).rung_ends == ()
    (run / "config.toml").unlink()
    assert main(["plot", str(run)]) == 0
    progress = read_progress(run / "progress.csv")
    told = [at for at, generation in zip(progress["eval_at"], progress["eval_generation"], strict=True) if generation]
    assert read_curves([run])[0].steps.tolist() == told, "the first rows tell none"


def test_the_evaluation_that_the_end_of_a_training_tells_is_drawn(tmp_path: Path) -> None:
    """Though no generation follows that it could be told with."""
    flags = ["--seed", "1", "--workers", "0", "--quiet", "--runs", str(tmp_path)]
    assert main(["train", "CartPole-v1", *flags, "--total-timesteps", "1"]) == 0
    run = tmp_path / "CartPole-v1" / "1"
    assert read_progress(run / "progress.csv")["eval_generation"] == [0]
    assert _curve(run).steps.tolist() == [0.0]
    assert main(["plot", str(run)]) == 0
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "3000"]) == 0
    steps = _curve(run).steps.tolist()
    assert steps == sorted(set(steps))
    assert len(steps) == len(read_progress(run / "progress.csv")["generation"])


@pytest.mark.slow
def test_a_run_that_sigterm_ends_has_its_picture(tmp_path: Path) -> None:
    command = ["train", "CartPole-v1", "--seed", "1", *SMALL, "--total-timesteps", "100000000"]
    code = f"import sys; from fastes.cli.main import main; sys.argv[1:] = {command!r}; sys.exit(main())"
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    with started_script(code, tmp_path) as process:
        wait_until(
            lambda: (run / "progress.csv").exists() and len(read_progress(run / "progress.csv")["timesteps"]) > 2, "rows"
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert run_fastes("plot", str(run), cwd=tmp_path).returncode == 0


def test_a_very_long_run_is_drawn_from_some_of_its_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has no more places than a picture has pixels, and each is the median of all evaluations around it."""
    returns = np.random.default_rng(0).normal(size=20_000) + np.linspace(0.0, 50.0, 20_000)
    returns[5_000:5_010] = 1e6
    at, (median,) = running(np.arange(20_000.0), returns, 0.5)
    assert len(at) == 2000
    assert (at[0], at[-1]) == (0.0, 19_999.0)
    assert np.abs(median - at / 400.0).max() < 2.0
    seen = _drawn(monkeypatch)
    plot_curves([Curve("x", np.arange(20_000.0), returns)], tmp_path / "curve.svg", "long")
    assert _labels(seen[0])[0] == "one of 11 evaluations"
    assert (tmp_path / "curve.svg").stat().st_size < 2**20


@pytest.mark.parametrize("x", ["time", "cpu"])
def test_picture_and_page_place_an_evaluation_where_its_parameters_were(
    x: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is told generations later, and several are one point of the page."""
    run = write_run(tmp_path / "1")
    told = [{"eval_generation": n - 3, "eval_at": 100.0 * (n - 4), "eval_return": float(n)} for n in range(4, 1501)]
    told = [{"eval_generation": 0, "eval_return": math.nan}] * 3 + told
    lines = [progress_line(n, seconds=0.5 * n, cpu_seconds=7.0 * n * n, **own) for n, own in enumerate(told, start=1)]
    write_progress(run, lines)
    curve = _curve(run)
    followed = FollowedProgress(run / "progress.csv")
    followed.update()
    shown = followed.since({})["trials"]["1"]["evaluations"]
    width, column = shown["width"], ("steps", "time", "cpu").index(x)
    assert width > 1
    seen = _drawn(monkeypatch)
    plot_curves([curve], tmp_path / "curve.png", "x", x)
    drawn = next(line for line in seen[0].lines if line.get_label() == "one evaluation").get_xdata()
    began = [sum(0.5 * n for n in range(1, at + 1)) if x == "time" else 7.0 * at * at for at in range(1497)]
    assert drawn.tolist() == pytest.approx([at / 86400.0 for at in began])
    ours = curve.clock.at(curve.steps)[width - 1 :: width, column]
    assert [row[column] for row in shown["rows"]][: len(ours)] == pytest.approx(ours.tolist())


def test_a_number_that_no_float_holds_ends_no_plot(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "1", target_return=10**400, noted={"last_evaluation": {"trial": 1, "at_timesteps": 10**400, "mean": 1}}
    )
    assert _curve(run).target == math.inf
    assert main(["plot", str(run)]) == 0
