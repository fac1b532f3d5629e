"""The environments of a training as an SB3 VecEnv, whose calls reach every environment that plays, in any process."""

from __future__ import annotations

import contextlib
import difflib
import sys
from functools import cache
from typing import Any, NoReturn

import gymnasium

from fastes.envs.env_facts import EnvFacts
from fastes.envs.source import EnvSource
from fastes.errors import warn_user
from fastes.rollout.called_env import CalledEnv
from fastes.rollout.env_calls import ENV_METHOD, FORGET, SET_ATTR, SET_OPTIONS, EnvCalls, in_force
from fastes.system.near_paths import in_words
from fastes.training.evaluator import Evaluator

Env = gymnasium.Env[Any, Any]
_OF_GYMNASIUM = {  # attributes of the wrappers around every environment
    *("env", "has_reset", "close_called", "checked_reset", "checked_step", "checked_render", "checked_data_reuse"),
}
_OF_VEC_ENV = {"reset", "step", "step_async", "step_wait", "seed", "render", "get_images"}  # that play in this process
_REFUSED = {
    "reset": "each episode begins with a reset in its own process: set_options(options) gives it options",
    "step": "episodes are played in the workers: get_env().step() plays one here, apart from the training",
    "close": "model.close() ends the workers and closes their environments",
}


class TrainingEnvs:
    """All environments of a training: the result of `get_env`, which callbacks know as `training_env`.

    Calls of `set_attr`, `env_method` and `set_options` are recorded, and every environment gets them, in order, before it plays
    a request that begins afterwards. `get_attr`, `reset`, `step` and `render` use an environment of this process, which is
    built at their first use and gets the same calls.

    Args:
        evaluator: The model's.
        seed: Seed of the first reset in this process.
    """

    num_envs = 1

    def __init__(self, evaluator: Evaluator, seed: int) -> None:
        self._evaluator, self._first_seed = evaluator, seed
        seen = self._seen
        self.observation_space, self.action_space = seen.observation_space, seen.action_space
        self.render_mode = "rgb_array" if "rgb_array" in seen.render_modes else seen.render_mode
        self.metadata = {"render_modes": list(seen.render_modes)}
        self._own = CalledEnv(self._built, evaluator.env_calls)

    def stands_for(self, evaluator: Evaluator) -> bool:
        """Whether its calls reach the environments of a model with this evaluator."""
        same_calls = self._calls is evaluator.env_calls  # `set_env` makes another evaluator, which has them
        return same_calls and self._evaluator.source is evaluator.source

    @property
    def _seen(self) -> EnvFacts:
        return self._evaluator.look()

    @property
    def _calls(self) -> EnvCalls:
        return self._evaluator.env_calls

    @property
    def training_source(self) -> EnvSource:
        """The source of the environments, for another model; ValueError after calls, which the other model would lack."""
        if in_force(self._calls.made):
            raise ValueError(
                "the environments of this get_env() were given calls, such as set_attr, and another model would not know of "
                "them: give it the environment's id or the function that builds one, and make the calls on its own get_env()"
            )
        return self._evaluator.source

    # --- calls to all -----------------------------------------------------------------------------------------------

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute in every environment, in the outermost layer that has it.

        It takes effect with the next request: candidates of the next generation, and evaluations after that.
        """
        _check_all(indices)
        if attr_name not in self._seen.names and not self._was_set(attr_name):
            warn_user(
                f"set_attr({attr_name!r}, ...): the environment had no such attribute when it was built, so it is set in "
                f"the innermost one{_suggestion(attr_name, self._seen)}",
                UserWarning,
            )
        self._calls.record(SET_ATTR, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of every environment, with the next request as for `set_attr`.

        Returns:
            An object that raises an error when it is used, since the method is called in the workers.

        Raises:
            AttributeError: If environments have no such method.
        """
        _check_all(indices)
        if method_name in _REFUSED:
            raise ValueError(f"env_method({method_name!r}) cannot be called in workers: {_REFUSED[method_name]}")
        if method_name == "render":
            return [self._own.get().render()]
        if method_name not in self._seen.names and not self._was_set(method_name) and "__getattr__" not in self._seen.names:
            raise AttributeError(
                f"the environment has no method {method_name!r}, nor has a wrapper{_suggestion(method_name, self._seen)}"
            )
        self._calls.record(ENV_METHOD, method_name, *method_args, **method_kwargs)
        return [_NotKnown(method_name)]

    def set_options(self, options: dict[str, Any] | list[dict[str, Any]] | None = None) -> None:
        """Set the options for `reset` of all episodes, from the next request on; None or {} for none.

        In SB3's VecEnvs they apply to one reset only.
        """
        given = options[0] if isinstance(options, list) and len(options) == 1 else options
        if not isinstance(given, dict | None):
            raise TypeError(f"options = {options!r} is a {type(options).__name__}: expected a dict for reset(options=...)")
        self._calls.record(SET_OPTIONS, "", given or None)

    def forget_calls(self) -> None:
        """Forget all calls so far: environments are rebuilt without them."""
        self._calls.record(FORGET, "forget_calls()")

    def _was_set(self, name: str) -> bool:
        return any(call.name == name for call in self._calls.made if call.kind == SET_ATTR)

    # --- one of this process ----------------------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return [the value] in an environment of this process, which got the same calls and has not played."""
        _check_all(indices)
        if attr_name == "render_mode":
            return [self.render_mode]
        return [self._own.get().get_wrapper_attr(attr_name)]

    def has_attr(self, attr_name: str) -> bool:
        return attr_name in self._seen.names or self._was_set(attr_name)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return [whether one of the environments' wrappers is of this class]."""
        _check_all(indices)
        return [any(issubclass(kind, wrapper_class) for kind in (*self._seen.kinds[:-1], *self._around()))]

    def _around(self) -> tuple[type, ...]:
        """Return additional wrappers of the environment of this process."""
        return ()

    @property
    def envs(self) -> list[Env]:
        """[the environment of this process]."""
        return [self._own.get()]

    def _built(self) -> Env:
        """Build an environment that renders frames if it can, as SB3 does; those of the workers do not."""
        if self.render_mode == "rgb_array" != self._seen.render_mode:
            with contextlib.suppress(Exception):
                return self._evaluator.build(render_mode="rgb_array")
            self.render_mode = None
        return self._evaluator.build()

    def close(self) -> None:
        """Close the environment of this process, and none that plays."""
        self._own.close()

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property that has raised AttributeError: again, with its own words
            return object.__getattribute__(self, name)
        hint = ""
        if name in _OF_VEC_ENV:
            hint = (
                ": it is a VecEnv of SB3 only if stable_baselines3 is imported before get_env(); model.env can be played, too"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)


class _NotKnown:
    """A value that a method returned in the workers. Any use of it is an error that says so."""

    def __init__(self, method: str) -> None:
        object.__setattr__(self, "_method", method)

    def __repr__(self) -> str:
        return f"<what env_method({object.__getattribute__(self, '_method')!r}) returns in the workers>"


def _not_known(answer: _NotKnown, *_: Any, **__: Any) -> NoReturn:
    name = object.__getattribute__(answer, "_method")
    raise TypeError(
        f"what env_method({name!r}) returns is not known: it is called in the environments of workers, before they play the "
        "next generation. Read an attribute with get_attr(name), put numbers into infos, or give the model a VecEnv, whose "
        "environments are in reach"
    )


for _name in ("bool", "len", "iter", "getitem", "call", "int", "float", "index", "array", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(_NotKnown, f"__{_name}__", _not_known)
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "getattr", "contains", "format"):
    setattr(_NotKnown, f"__{_name}__", _not_known)


def _check_all(indices: Any) -> None:
    """Raise ValueError for a part of the environments: it is left to chance which of them plays an episode."""
    if indices is None or (indices == 0 if isinstance(indices, int) else list(indices) == [0]):
        return
    raise ValueError(
        f"indices = {indices!r}: get_env() stands for all environments of the training as one, number 0, since any of them may "
        "play any episode: leave indices out"
    )


def _suggestion(name: str, seen: EnvFacts) -> str:
    """Return a hint with the most similar name, or with the environment's own names."""
    public = [each for each in seen.names if not each.startswith("_")]
    if close := difflib.get_close_matches(name, public, n=1):
        return f"; did you mean {close[0]!r}?"
    own = sorted(set(public).difference(dir(gymnasium.Env), dir(gymnasium.Wrapper), _OF_GYMNASIUM))
    return f"; it has {in_words(sorted(own, key=lambda each: not name.startswith(each)))}" if own else ""


def as_sb3_shows(env: Any) -> Any:
    """Wrap a VecEnv in VecTransposeImage if its images have channels last, as SB3's algorithms do."""
    vec_env = sys.modules.get("stable_baselines3.common.vec_env")
    if vec_env is None or not isinstance(env, vec_env.VecEnv) or vec_env.is_vecenv_wrapped(env, vec_env.VecTransposeImage):
        return env
    from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

    space = env.observation_space
    parts = space.spaces.values() if isinstance(space, gymnasium.spaces.Dict) else [space]
    firsts = [is_image_space_channels_first(part) for part in parts if is_image_space(part)]
    if all(firsts) or any(firsts):
        return env
    return _transposing_kind()(env) if isinstance(env, TrainingEnvs) else vec_env.VecTransposeImage(env)


@cache
def _transposing_kind() -> Any:
    from stable_baselines3.common.vec_env import VecTransposeImage

    class TransposedTrainingVecEnv(VecTransposeImage):  # type: ignore[misc]
        """VecTransposeImage around a TrainingEnvs."""

        @property
        def training_source(self) -> EnvSource:
            return self.venv.training_source  # type: ignore[no-any-return]

    return TransposedTrainingVecEnv


def training_envs_kind() -> type[TrainingEnvs]:
    """Return the class for `get_env`: also an SB3 VecEnv if SB3 is imported."""
    return TrainingEnvs if sys.modules.get("stable_baselines3") is None else _vec_env_kind()


@cache
def _vec_env_kind() -> type[TrainingEnvs]:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    class TrainingVecEnv(TrainingEnvs, DummyVecEnv):  # type: ignore[misc]
        """A TrainingEnvs that can be played on, as the VecEnv that SB3's algorithms make of one environment.

        It is a DummyVecEnv because EvalCallback compares its type with that of eval_env.
        """

        def __init__(self, evaluator: Evaluator, seed: int) -> None:
            TrainingEnvs.__init__(self, evaluator, seed)  # SB3's would ask for attributes of an environment
            self.reset_infos: list[dict[str, Any]] = [{}]
            self.metadata = {"render_modes": ["human", "rgb_array"] if self.render_mode == "rgb_array" else []}
            self._seeds: list[int | None] = [None]
            self._options: list[dict[str, Any]] = [{}]
            self._played: Any = None

        def _around(self) -> tuple[type, ...]:
            return (Monitor,)

        def _vec_env(self) -> Any:
            env = self._own.get()
            if self._played is None or self._played.envs[0].env is not env:
                self._played = DummyVecEnv([lambda: Monitor(env)])
                self._played.seed(self._first_seed)
            return self._played

        def seed(self, seed: int | None = None) -> Any:
            """Seed the next reset in this process. The training's seeds are the model's: set_random_seed."""
            return self._vec_env().seed(seed)

        def reset(self) -> Any:
            observations = self._vec_env().reset()
            self.reset_infos = self._vec_env().reset_infos
            return observations

        def step_async(self, actions: Any) -> None:
            self._vec_env().step_async(actions)

        def step_wait(self) -> Any:
            answer = self._vec_env().step_wait()
            self.reset_infos = self._vec_env().reset_infos
            return answer

        def get_images(self) -> Any:
            return self._vec_env().get_images()

        def close(self) -> None:
            self._played = None
            TrainingEnvs.close(self)

    return TrainingVecEnv
