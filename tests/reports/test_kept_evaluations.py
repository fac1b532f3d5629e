"""Risk: model.plot() shows another curve than the run folder has, or a long training fills the memory with it."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy

from fastes import FastES, FastESError
from fastes.reports.kept_evaluations import MOST, KeptEvaluations
from fastes.runs.curves import Curve, read_curve
from fastes.runs.run_folder import RunFolder

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "n_workers": 0, "target_return": "none"}
TRIALS: dict[str, Any] = {"trials": 3, "rungs": 2, "trials_fraction": 0.6}


LAG = 3


def _same(curve: Curve, other: Curve) -> None:
    """Whether a model's curve is that of its run folder, which has the last evaluation alone of those that still played."""
    assert curve.leader == other.leader
    assert curve.rung_ends == other.rung_ends
    assert other.recipes.items() <= curve.recipes.items(), "those of a rung that has not ended are known, too"
    for trial in {*curve.trials.tolist(), *other.trials.tolist()}:
        own, others = (list(zip(*each.of_trial(trial), strict=True)) for each in (curve, other))
        assert own == sorted({*own})
        assert {*others} <= {*own}
        assert own[: len(others) - 1] == others[:-1]
        assert len(own) - len(others) < LAG


@pytest.mark.parametrize("how", [{}, {"eval_lag": LAG}, TRIALS, {"preset": "auto"}], ids=["one", "lag", "trials", "race"])
def test_the_curve_is_that_of_the_run_folder(how: dict[str, Any], tmp_path: Path) -> None:
    """With the evaluation that no generation came with, in sessions that follow each other."""
    with FastES(Toy, **{**TINY, **how}) as model:
        _learn_in(tmp_path, model, 1500)
        curve = model.curve()
        assert len(curve.steps) > 3
        _same(curve, read_curve(tmp_path))
        _learn_in(tmp_path, model, 800, reset_num_timesteps=False)
        assert len(model.curve().steps) > len(curve.steps)
        _same(model.curve(), read_curve(tmp_path))


def _learn_in(run: Path, model: FastES, timesteps: int, **how: Any) -> None:
    with RunFolder(run) as folder:
        folder.write_config(model, {"at_timesteps": model.num_timesteps})
        model.learn(timesteps, folder, **how)


def test_a_training_that_counts_anew_has_a_curve_of_its_own() -> None:
    with FastES(Toy, **TINY) as model:
        model.learn(1500)
        model.learn(300)
        steps = model.curve().steps
        assert steps.tolist() == sorted({*steps.tolist()})
        assert steps[-1] < model.num_timesteps < 1500
        model.learn(300, reset_num_timesteps=False)
        assert model.curve().steps[: len(steps)].tolist() == steps.tolist()
        model.num_timesteps = 100
        model.learn(300, reset_num_timesteps=False)
        assert len(model.curve().steps) > 0
        assert model.curve().steps.min() >= 100 - 40


def test_the_last_evaluation_before_counting_anew_is_left_out() -> None:
    with FastES(Toy, **TINY, eval_every=10) as model:
        model.learn(3000)
        assert model.curve().steps[-1] > 1000
        model.learn(1)
        assert model.curve().steps.max(initial=0.0) < model.num_timesteps < 1000


def _evaluated(kept: KeptEvaluations, count: int, trials: int = 1) -> None:
    """Tell of evaluations at 10, 20, ... steps, of each trial in turn."""
    for number in range(count):
        trial, at = 1 + number % trials, 10 * (1 + number // trials)
        kept.on_generation(None, SimpleNamespace(eval_generation=1, trial=trial, eval_at=at, eval_return=float(at)))  # type: ignore[arg-type]


@pytest.mark.parametrize("trials", [1, 7])
def test_a_long_training_needs_bounded_memory(trials: int) -> None:
    kept = KeptEvaluations()
    _evaluated(kept, MOST, trials)
    assert len(kept) == MOST
    _evaluated(kept := KeptEvaluations(), 5 * MOST, trials)
    assert MOST // 2 <= len(kept) <= MOST
    steps, returns, of = kept.columns()
    for trial in range(1, trials + 1):
        own = steps[of == trial]
        assert own[0] == 10, "the first one stays"
        assert len({*np.diff(own).tolist()}) == 1, "as dense at the start as at the end"
        assert own[-1] >= 10 * (5 * MOST // trials) - np.diff(own)[0]
    assert returns.tolist() == steps.tolist()


def test_returns_that_are_not_finite_are_left_out() -> None:
    kept = KeptEvaluations()
    for at, mean in ((1, -math.inf), (2, math.nan), (3, 5.0)):
        kept.on_generation(None, SimpleNamespace(eval_generation=1, trial=1, eval_at=at, eval_return=mean))  # type: ignore[arg-type]
    assert [column.tolist() for column in kept.columns()] == [[3.0], [5.0], [1.0]]


def test_a_model_without_evaluations_says_what_makes_them(tmp_path: Path) -> None:
    with FastES(Toy, **TINY) as model:
        with pytest.raises(FastESError, match=r"has no evaluations to plot: learn\(\) makes them"):
            model.plot()
        model.learn(200)
        model.save(tmp_path / "model")
        with copy.deepcopy(model) as other, pytest.raises(FastESError, match="a checkpoint does not hold them"):
            other.plot()
    with FastES.load(tmp_path / "model", Toy, 0) as loaded:
        assert not len(loaded.curve().steps)
        loaded.learn(200, reset_num_timesteps=False)
        assert loaded.curve().steps.min() > 100, "it goes on counting"


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES(Toy, **TINY) as model:
        model.learn(200)
        monkeypatch.delitem(sys.modules, "fastes.runs.shown_figure", raising=False)
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(ImportError, match=r"plot\(\) needs Matplotlib: pip install .*plots"):
            model.plot()


def test_a_figure_is_no_window_of_pyplots_and_draws_itself() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    with FastES(Toy, **TINY) as model:
        model.learn(200)
        before = pyplot.get_fignums()
        figure = model.plot()
    assert pyplot.get_fignums() == before
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes[0].get_title() == f"{model.source.name}, seed 5"
    assert pickle.loads(pickle.dumps(figure)).axes[0].get_title() == figure.axes[0].get_title()
    assert importlib.import_module("matplotlib.figure").Figure in type(figure).__mro__
