"""The files of a search: preset, table of trials, and Optuna's plots."""

from __future__ import annotations

import contextlib
import csv
import io
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fastes.settings.search_space import trained
from fastes.settings.settings import Settings
from fastes.system.atomic_files import write_bytes, write_text

if TYPE_CHECKING:
    import optuna

_SHOWN = 5.0  # times the distance from the median to the best, the range that the history shows
_OF_A_SEARCH = ("target_return", "eval_every")  # settings of candidates alone


def preset_values(settings: Settings, policy_is_custom: bool = False) -> dict[str, Any]:
    """Return the settings that differ from the defaults, and the policy, as a preset holds them."""
    defaults, values = Settings().to_dict(), settings.to_dict()
    changed = {name: value for name, value in values.items() if value != defaults[name] and name not in _OF_A_SEARCH}
    named = {} if policy_is_custom else {"policy": values["policy"]}
    tables = {name: value for name, value in changed.items() if isinstance(value, dict)}  # TOML has them last
    plain = {name: value for name, value in changed.items() if name not in tables and name != "policy" and value != "function"}
    return {**named, **plain, **tables}


def write_preset(path: Path, env: str, source: str, values: Mapping[str, Any]) -> None:
    """Write a preset's file: one table with the environment's name."""
    write_text(path, tomli_w.dumps({env: {"source": source, **values}}))


def write_table(path: Path, study: optuna.Study) -> None:
    """Write one row per trial: its state, its start, score, seconds, and each parameter."""
    trials = study.get_trials(deepcopy=False)
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("trial", "state", "start", "score", "worst_seed", "eighths", "seconds", *names))
    for trial in trials:
        reached = max(trial.intermediate_values, default=0)
        score = trial.intermediate_values.get(reached, "")
        attrs, params = trial.user_attrs, trained(trial.params)
        own = (trial.number, trial.state.name.lower(), attrs.get("start", ""), score, attrs.get("worst", ""), reached)
        writer.writerow((*own, attrs.get("seconds", ""), *(params.get(name, "") for name in names)))
    write_text(path, text.getvalue())


def write_plots(history: Path, importance: Path, study: optuna.Study) -> list[Path]:
    """Write Optuna's plots. Returns those that could be drawn: both need Matplotlib, and importance several complete trials."""
    try:
        import matplotlib.pyplot as plt
        from optuna.importance import PedAnovaImportanceEvaluator
        from optuna.visualization import matplotlib as plots
    except ImportError:
        return []
    with contextlib.suppress(ValueError, RuntimeError, OverflowError), _figure(plt, history):
        axes = plots.plot_optimization_history(study, target_name="mean noise-free return")
        values = sorted(trial.value for trial in study.get_trials(deepcopy=False) if trial.value is not None)
        middle, best = values[len(values) // 2], values[-1]
        lowest = best - _SHOWN * (best - middle)
        if values[0] < lowest < best:  # one that failed would press all others together
            axes.set_ylim(lowest, best + 0.1 * (best - lowest))
            below = sum(value < lowest for value in values)
            axes.annotate(f"{below} of {len(values)} scores lie below", (0.01, 0.01), xycoords="axes fraction", fontsize=9)
    with contextlib.suppress(ValueError, RuntimeError, OverflowError), _figure(plt, importance):
        plots.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return [path for path in (history, importance) if path.exists()]


@contextlib.contextmanager
def _figure(plt: Any, path: Path) -> Iterator[None]:
    """Write the figure that the block draws, and close it. The user's backend and style stay."""
    with plt.rc_context(), plt.ioff(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of parameters that few trials have
        warnings.simplefilter("ignore", RuntimeWarning)  # of scores near the largest float64
        before = set(plt.get_fignums())
        try:
            yield
            figure = plt.gcf()
            figure.set_size_inches(9, 5)
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=120, bbox_inches="tight")
            write_bytes(path, content.getvalue())
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
