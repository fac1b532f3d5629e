"""The Optuna study of a search: its file, its first candidates, and what stays of it after a kill."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastes.errors import FolderInUse, suggest
from fastes.system.installation import install_command

if TYPE_CHECKING:
    import optuna

SAMPLERS = ("tpe", "random")
PRUNERS = ("median", "halving", "hyperband", "none")
EIGHTHS = (1, 2, 4, 8)  # eighths of a training after which it is evaluated, as the pruners' resource
TRIALS = 40  # if neither a number nor a time was given
TIMESTEPS = 200_000  # of each training in an environment without a preset
_EXAMPLES = {"sampler": "TPESampler", "pruner": "HyperbandPruner"}  # of Optuna's objects
_NAME = "tune"
_STRIDE = 1_000_003  # between the sampler's seeds of two studies


def import_optuna() -> Any:
    """Import Optuna without its messages. ImportError, which says how to install it, without it."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(f"tuning needs the package optuna: {install_command('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def check_choice(argument: str, value: object, expected: Sequence[str], kind: type) -> None:
    """Raise ValueError unless a name is one that an argument may have; TypeError for what is neither a name nor of the kind.

    Args:
        argument, value: The argument.
        expected: Its names.
        kind: The class of Optuna's whose objects it may be, too.
    """
    if not isinstance(value, (str, kind)):
        raise TypeError(
            f"{argument} = {value!r}: expected one of {tuple(expected)}, or an object of a class of optuna.{argument}s, as in "
            f"{argument}=optuna.{argument}s.{_EXAMPLES[argument]}()"
        )
    if isinstance(value, str) and value not in expected:
        raise ValueError(f"{argument} = {value!r}: expected one of {tuple(expected)}{suggest(value, expected)}")


class Study:
    """An Optuna study whose candidates depend on its seed and on what is finished, and on no process.

    Args:
        study: Optuna's.
        sampler: One of SAMPLERS, or an Optuna sampler, which is used as it is.
        seed: The search's.
    """

    def __init__(self, study: optuna.Study, sampler: Any, seed: int) -> None:
        self.study, self.sampler, self.seed = study, sampler, seed
        self._fail_interrupted()

    @property
    def finished(self) -> list[optuna.trial.FrozenTrial]:
        """Trials that ended, pruned ones too, in their order."""
        states = import_optuna().trial.TrialState
        found: list[Any] = self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
        return found

    @property
    def complete(self) -> list[optuna.trial.FrozenTrial]:
        """Trials that reached the last rung, the best first, of equal ones the earlier."""
        states = import_optuna().trial.TrialState
        found: list[Any] = self.study.get_trials(deepcopy=False, states=(states.COMPLETE,))
        return sorted(found, key=lambda each: (-float(each.value or 0.0), each.number))

    def _fail_interrupted(self) -> None:
        """Mark the trials of a process that was killed as failed, and queue their parameters again."""
        states = import_optuna().trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            self.study.tell(trial.number, state=states.FAIL)
            if trial.params:
                self.study.enqueue_trial(dict(trial.params), user_attrs={**trial.user_attrs, "retry_of": trial.number})

    def ask(self, number: int, attempt: int, start: tuple[str, Mapping[str, Any]] | None) -> optuna.Trial:
        """Return the next trial: an interrupted one again, or a start, or one that the sampler draws.

        Args:
            number: The candidate's, among those that count; the sampler's seed follows from it.
            attempt: How many draws for this candidate were refused.
            start: Name and parameters of the settings to try; None for the sampler's.
        """
        optuna = import_optuna()
        waiting = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
        if start is not None and not waiting:
            self.study.enqueue_trial(dict(start[1]), user_attrs={"start": start[0]})
        seed = (self.seed * _STRIDE + number + attempt * 2**20) % 2**32
        if self.sampler == "tpe":
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        elif self.sampler == "random":
            self.study.sampler = optuna.samplers.RandomSampler(seed=seed)
        return self.study.ask()


@contextlib.contextmanager
def opened_study(path: Path | None, about: Mapping[str, Any], sampler: Any, pruner: Any, seed: int) -> Iterator[Study]:
    """Open the study of a file, a new one or that of the same search.

    Args:
        path: The file; None for a study in memory.
        about: Everything that scores depend on, as JSON has it.
        sampler, pruner: Names, or Optuna's objects.
        seed: The search's.

    Raises:
        ValueError: The file is the study of another search, or none.
        FolderInUse: Another process works on it.
    """
    optuna = import_optuna()
    with _locked(path), _quiet():
        storage = None if path is None else _journal(path)
        try:
            study = optuna.create_study(
                storage=storage, study_name=_NAME, direction="maximize", pruner=_pruner(pruner), load_if_exists=True
            )
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged ({error}): give another study (--study)") from error
        known = study.user_attrs.get("about")
        if known is not None:
            known = {**{name: about[name] for name in ("wrappers", "policy") if name not in known}, **known}  # an older file
        if known is not None and known != about:
            differ = [
                f"{name} {known.get(name)!r} (now {about.get(name)!r})"
                for name in dict.fromkeys([*known, *about])
                if known.get(name) != about.get(name)
            ]
            raise ValueError(f"{path} is the study of another search, of {', '.join(differ)}: give another study (--study)")
        study.set_user_attr("about", dict(about))
        yield Study(study, sampler, seed)


def _journal(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a study of Optuna's: give another study (--study)") from error


@contextlib.contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    """Keep other processes from the file, and take off what a killed one has left: half a line, and Optuna's lock."""
    if path is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab+")  # noqa: SIM115
    except OSError as error:
        raise OSError(f"the study {path} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUse(f"another process works on the study {path}") from error
        except OSError:  # a file system without locks
            pass
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            if not whole and not content.startswith(b"{"):
                raise ValueError(f"{path} is not a study of Optuna's: give another study (--study)")
            os.truncate(path, whole)
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.lock")
        yield


def _pruner(pruner: Any) -> Any:
    """Return Optuna's pruner of a name, in eighths of a training."""
    pruners = import_optuna().pruners
    if pruner == "median":
        return pruners.MedianPruner(n_startup_trials=5)
    if pruner == "halving":
        return _Halving(pruners.SuccessiveHalvingPruner(min_resource=EIGHTHS[0], reduction_factor=2))
    if pruner == "hyperband":
        return pruners.HyperbandPruner(min_resource=EIGHTHS[0], max_resource=EIGHTHS[-1], reduction_factor=2)
    return pruners.NopPruner() if pruner == "none" else pruner


class _Halving:
    """Optuna's halving among trials that count: one that a kill has ended is trained again, and would compete twice."""

    def __init__(self, pruner: optuna.pruners.BasePruner) -> None:
        self.pruner = pruner

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        return bool(self.pruner.prune(_WithoutFailed(study), trial))


class _WithoutFailed:
    """A study without its failed trials."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(self, **arguments: Any) -> list[optuna.trial.FrozenTrial]:
        failed = import_optuna().trial.TrialState.FAIL
        return [trial for trial in self._study.get_trials(**arguments) if trial.state != failed]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out Optuna's warnings that a feature is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", import_optuna().exceptions.ExperimentalWarning)
        yield
