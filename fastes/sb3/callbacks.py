"""Stable-Baselines3's callbacks, which count environment steps, in a loop that counts generations.

Nothing here imports SB3. Its callbacks are known by their methods `init_callback`, `on_training_start`, `on_rollout_start`,
`on_step`, `on_rollout_end`, `on_training_end` and `update_locals`.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastes.errors import warn_user
from fastes.reports.callbacks import Callback
from fastes.reports.monitor_files import keywords_in
from fastes.rollout.last_infos import LEFT_OUT
from fastes.training.record import Record

# attributes that hold the period of a callback in calls
_PERIODS = ("eval_freq", "save_freq", "check_freq", "model_save_freq")
# packages whose callbacks need no `locals` between their calls
_LIBRARIES = {"stable_baselines3", "sb3_contrib", "rl_zoo3", "wandb"}
# SB3's callbacks that need only sums of a generation
_SUMS = {"ProgressBarCallback", "EveryNTimesteps"}

_ENDS = "StopTrainingOnMaxEpisodes"  # needs only the ends of episodes


class StepInfo(dict[str, Any]):
    """The info of one step. Its KeyError says which steps have an info, and what is in it."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(
            f"{key!r} is not in this info: FastES tells of each episode the last step's info alone, and of that its numbers, "
            f"truth values and words. Look where dones is true, or ask with info.get({key!r})"
        )


def counts_steps(callback: object) -> bool:
    """Return whether an object has the methods of SB3's callbacks."""
    return all(callable(getattr(callback, name, None)) for name in ("init_callback", "on_step", "on_training_start"))


class StepCallback(Callback):
    """A callback of SB3's kind as a callback of FastES.

    The episodes of a generation end before the parent process knows of them. So their steps are reported afterwards, in job
    order, as those of one environment (`training_env.num_envs` is 1), and n_calls counts the steps of candidates. For a
    vector environment a call has num_envs steps, as in SB3; the last call of a generation may have fewer. num_timesteps is
    always the model's, including the steps of the generation.

    Callbacks with a period in calls (`eval_freq`, `save_freq`, `check_freq`, `model_save_freq`: EvalCallback,
    CheckpointCallback, WandbCallback and subclasses that do not read `locals`) are called once in a generation in which they
    are due; EveryNTimesteps and progress bars once per generation; StopTrainingOnMaxEpisodes for each step that ends an
    episode, until it has enough; all others for each step. `locals` has dones, infos, rewards and new_obs of a step as arrays
    of n_envs. The reward of an episode's last step is its return, and that step's info has SB3's
    {'episode': {'r', 'l', 't'}}, TimeLimit.truncated and the scalars of the environment's own info. new_obs is zeros, since
    observations stay in the workers.
    """

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self._locals: dict[str, Any] = {}
        self._reported: Record | None = None

    @property
    def reads_infos(self) -> bool:  # type: ignore[override]
        return _reads_infos(self.callback)

    def on_start(self, model: Any, total_timesteps: int) -> None:
        shape, n_envs = model.policy_spec.obs_shape, model.n_envs
        self._locals = {
            "self": model,
            "callback": self.callback,
            "total_timesteps": total_timesteps,
            "tb_log_name": model.tb_log_name,
            "log_interval": model.log_interval,
            **_no_end(n_envs),
            "new_obs": np.zeros((n_envs, *shape), dtype=np.float32),
        }
        _watch_no_gradients(self.callback)
        self.callback.init_callback(model)
        self.callback.on_training_start(self._locals, globals())
        self.callback.on_rollout_start()

    def on_generation(self, model: Any, record: Record) -> bool:
        self._locals["record"] = self._reported = record
        if model.solved:  # its steps do not count
            return True
        if not self._tell(self.callback, model):
            return False
        self.callback.on_rollout_end()
        if model.num_timesteps < model.budget:
            self.callback.on_rollout_start()
        return True

    def on_end(self, model: Any) -> None:
        if model.unreported_record is not None and model.unreported_record is not self._reported and not model.solved:
            self._tell(self.callback, model)  # an exception in an earlier callback came first
        self.callback.on_training_end()

    def _tell(self, callback: Any, model: Any) -> bool:
        """Report the generation's steps to a callback. Returns False if it stops the training."""
        steps = sum(length for _, length in model.last_episodes)
        calls = -(-steps // model.n_envs)
        if _is_list(callback):
            callback.n_calls += calls
            callback.num_timesteps = model.num_timesteps
            answers = [self._tell(child, model) for child in callback.callbacks]  # all are called, whatever the others answer
            return all(answers)
        if _is_periodic(callback):
            return _tell_periodic(callback, model, calls)
        kinds = _kinds(callback)
        if _ENDS in kinds:
            return _tell_ends(callback, model, calls)
        if kinds & _SUMS:
            callback.n_calls += calls - 1
            if "ProgressBarCallback" in kinds:
                callback.pbar.update(steps - model.n_envs)  # on_step adds the rest
            return bool(callback.on_step())
        for step in _steps(model):
            callback.update_locals(step)
            if not callback.on_step():
                return False
        return True


def _reads_infos(callback: Any) -> bool:
    """Return whether a callback of SB3's kind, or one in it, is called for each step, and so with infos."""
    if _is_list(callback):
        return any(map(_reads_infos, callback.callbacks))
    return counts_steps(callback) and not _is_periodic(callback) and not _kinds(callback) & {*_SUMS, _ENDS}


def _kinds(callback: Any) -> set[str]:
    """Return the names of a callback's class and its bases."""
    return {kind.__name__ for kind in type(callback).__mro__}


def _is_list(callback: Any) -> bool:
    """Return whether a callback only calls those in its attribute `callbacks`."""
    inner = getattr(callback, "callbacks", None)
    return isinstance(inner, list) and ("CallbackList" in _kinds(callback) or (bool(inner) and all(map(counts_steps, inner))))


def _is_periodic(callback: Any) -> bool:
    return any(isinstance(getattr(callback, name, None), int) for name in _PERIODS) and not _uses_locals(type(callback))


def _uses_locals(kind: type[Any]) -> bool:
    """Return whether the step of a user's callback class reads `self.locals`, which only a call for each step keeps up to date.

    It may do so in other methods, which count as called if their names are mentioned.
    """
    codes: dict[str, list[types.CodeType]] = {}
    for base in kind.__mro__:
        for name, member in vars(base).items() if base.__module__.partition(".")[0] not in _LIBRARIES else ():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function):
                codes.setdefault(name, []).append(function.__code__)
    todo = ["_on_step", "on_step"]
    for name in todo:
        mentioned = {other for code in codes.get(name, ()) for other in _names_in(code)}
        if "locals" in mentioned:
            return True
        todo += sorted(mentioned.intersection(codes).difference(todo))
    return False


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names that a function mentions, and those in functions inside it."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _watch_no_gradients(callback: Any) -> None:
    """Switch off gradient_save_freq of W&B's callback, which hooks into the gradients of a torch module."""
    for child in (*(callback.callbacks if _is_list(callback) else ()), getattr(callback, "callback", None)):
        if counts_steps(child):
            _watch_no_gradients(child)
    if frequency := getattr(callback, "gradient_save_freq", 0):
        callback.gradient_save_freq = 0
        warn_user(
            f"gradient_save_freq = {frequency} is ignored: FastES has no torch module whose gradients could be watched; its "
            "estimate's norm is logged as es/gradient_norm"
        )


def _tell_ends(callback: Any, model: Any, calls: int) -> bool:
    """Report the steps in which episodes end to a callback that counts episodes, until it has enough."""
    before, is_training = callback.n_calls, True
    for call, step in enumerate(_steps(model)):
        if is_training and step["dones"].any():
            callback.n_calls = before + call
            callback.update_locals(step)
            is_training = bool(callback.on_step())
    callback.n_calls, callback.num_timesteps = before + calls if is_training else callback.n_calls, model.num_timesteps
    return is_training


def _tell_periodic(callback: Any, model: Any, calls: int) -> bool:
    periods = [p for name in _PERIODS if isinstance(p := getattr(callback, name, None), int) and p > 0]
    after = callback.n_calls + calls
    due = [p * (after // p) for p in periods if after // p > callback.n_calls // p]
    if not due:
        callback.n_calls, callback.num_timesteps = after, model.num_timesteps
        return True
    is_training = True
    for call in sorted(set(due)):
        callback.n_calls = call - 1
        is_training = bool(callback.on_step()) and is_training
    callback.n_calls = after
    return is_training


def _no_end(n_envs: int) -> dict[str, Any]:
    """Return the entries of `locals` for a call in which no episode ends."""
    return {
        "dones": np.zeros(n_envs, dtype=bool),
        "rewards": np.zeros(n_envs, dtype=np.float32),
        "infos": [StepInfo() for _ in range(n_envs)],
    }


def _steps(model: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of `locals` for each call of the generation; one object for all calls in which no episode ends."""
    between, n_envs = _no_end(model.n_envs), model.n_envs
    row, at = between, 0  # at: how many steps of the row are taken
    keywords, infos = model.info_keywords, model.last_infos or [{}] * len(model.last_episodes)
    for (episode_return, length), success, info in zip(model.last_episodes, model.last_successes, infos, strict=True):
        if not length:  # its reset has failed
            continue
        at += length
        while at > n_envs:
            yield row
            row, at = between, at - n_envs
        row = _no_end(n_envs) if row is between else row
        row["dones"][at - 1], row["rewards"][at - 1] = True, episode_return
        episode = {"r": episode_return, "l": length, "t": model.elapsed}
        row["infos"][at - 1] = _info_of(info, episode, success, keywords)
    if at:
        yield row


def _info_of(info: dict[str, Any], episode: dict[str, Any], success: float, keywords: Sequence[str]) -> StepInfo:
    """Return the info of an episode's last step under the names that SB3's Monitor and VecEnvs use.

    Args:
        info: The scalars of the environment's own info.
        episode: r, l and t.
        success: 1.0 or 0.0; NaN if it is not known.
        keywords: The model's info_keywords.
    """
    inner = info.get("episode", {})
    more = {**(inner if isinstance(inner, dict) else {}), **keywords_in(info, keywords)}
    found = StepInfo({**info, "episode": {**more, **episode}})
    found.pop(LEFT_OUT, None)
    if not math.isnan(success):
        found["is_success"] = success > 0.5
    return found


def step_callback(callback: Any) -> Callback | None:
    """Make a Callback of an object that is called at each step: a callback of SB3's, or a function of (locals, globals).

    A function gets (locals, globals) if it takes two arguments and the first is called locals, _locals or locals_. If it
    returns a false value other than None, training stops.

    Returns:
        None for any other object.
    """
    if counts_steps(callback):
        return StepCallback(callback)
    return StepCallback(_Function(callback)) if callable(callback) and takes_locals(callback) else None


class _Function:
    """A function of (locals, globals) as a callback of SB3's kind."""

    def __init__(self, function: Callable[[dict[str, Any], dict[str, Any]], Any]) -> None:
        self.function = function
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    def init_callback(self, model: Any) -> None: ...

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals, self.globals = locals_, globals_

    def on_rollout_start(self) -> None: ...

    def on_rollout_end(self) -> None: ...

    def on_training_end(self) -> None: ...

    def update_locals(self, locals_: dict[str, Any]) -> None:
        self.locals.update(locals_)

    def on_step(self) -> bool:
        answer = self.function(self.locals, self.globals)
        return answer is None or bool(answer)


def takes_locals(function: Any) -> bool:
    """Return whether a callable takes (locals, globals), as SB3's functions do.

    It does if it takes at least two positional arguments and the first is called locals, with or without underscores.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return len(names) >= 2 and names[0].strip("_") == "locals"
