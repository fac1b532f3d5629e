"""The interface by which a pool drives a vector environment: several environments of one kind that step together."""

from __future__ import annotations

import contextlib
import copy
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from fastes.envs.layers import CHANGE_REWARDS, layers, limit_of_vector_env
from fastes.envs.likeness import same
from fastes.errors import EnvironmentUnavailable, shown, warn_user
from fastes.system.interrupts import interrupts_deferred

Rows = npt.NDArray[Any]

# classes of other packages: SuperSuit's, whose rows are agents, and EnvPool's, which play in threads from their own seeds
AGENTS = {"MarkovVectorEnv", "ConcatVecEnv", "ProcConcatVec"}
SEEDED_BEFORE = {"EnvPoolMixin"}


class VectorEnv(ABC):
    """A vector environment, driven as it is.

    Attributes:
        env: The vector environment as it was given.
        num_envs: The number of its environments.
        observation_space, action_space: Spaces of one environment.
        spec: Spec of each environment; None if it is unknown.
        plain: Whether spec says everything: no wrapper changes what the environments show, and all are alike.
        changes_rewards: Whether a wrapper changes rewards, so that the registered threshold does not apply.
        wrapped_in: Classes of the wrappers around and inside it; only their names if they are in other processes.
        alike: Whether its environments are alike, as far as is known.
        episode_limit: Steps after which the environments end every episode; None if there is no known limit.
        normalizes: Whether a wrapper normalises observations by running statistics.
        restarts_alone: Whether one environment can start an episode while the others continue theirs.
        in_processes: Whether they are other processes or threads; a call must not return before they have answered.
        made_in: Id of the process that started them.
        info_keywords: The info_keywords of SB3's Monitors and VecMonitors in it.
    """

    env: Any
    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    spec: EnvSpec | None
    plain: bool
    changes_rewards: bool
    wrapped_in: tuple[type | str, ...]
    alike: bool
    episode_limit: int | None
    normalizes: bool
    restarts_alone: bool
    in_processes: bool
    made_in: int
    info_keywords: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the vector environment for a message."""
        return shown(self.env)

    def check_process(self) -> None:
        """Raise EnvironmentUnavailable in a forked copy of the process that started the environments: both would use them."""
        if self.in_processes and os.getpid() != self.made_in:
            raise EnvironmentUnavailable(
                f"{self} has processes or threads of its own, which belong to process {self.made_in}; this is a forked "
                f"copy of it, process {os.getpid()}. Make another vector environment here and pass it to set_env, or start "
                "this process with multiprocessing's method 'spawn'"
            )

    def whole_call(self) -> contextlib.AbstractContextManager[None]:
        """Hold Ctrl-C back while other processes answer: the next call would read their answer to this one."""
        return interrupts_deferred() if self.in_processes else contextlib.nullcontext()

    @abstractmethod
    def reset(self, seeds: list[int]) -> None:
        """Start an episode in every environment."""

    def part(self, seed: int) -> None:  # noqa: B027
        """Give each environment another seed for a reset that is the user's: those that had no job share one."""

    @abstractmethod
    def restart(self, seeds: Mapping[int, int]) -> None:
        """Start an episode in some environments, if `restarts_alone`. seeds: index -> seed."""

    @abstractmethod
    def observations(self) -> Iterable[Any]:
        """Return the current observations: for a Box an array (num_envs, *shape), else one per environment."""

    @abstractmethod
    def step(self, actions: Rows) -> tuple[Rows, Rows]:
        """Step every environment. Return rewards (num_envs,), and which ended their episode, bool (num_envs,)."""

    @abstractmethod
    def info(self, index: int) -> Mapping[str, Any]:
        """Return the info that one environment gave for the last step, if that step ended an episode or began none."""

    @abstractmethod
    def timed_out(self, index: int) -> bool:
        """Return whether a limit of one environment has ended its episode in the last step."""

    @abstractmethod
    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """Keep the running statistics of wrappers unchanged in a block."""

    def has_method(self, name: str) -> bool:  # noqa: ARG002
        """Return whether the environments are known to have a method."""
        return False

    def has_seen_nothing(self) -> bool:
        """Return whether the statistics that normalise observations are new."""
        return False

    def _describe(self, wrappers: Sequence[Any], base: Any, ask: Callable[[], Any]) -> None:
        """Set spec, plain, changes_rewards, wrapped_in, alike and episode_limit.

        Args:
            wrappers: Wrappers around the vector environment.
            base: The vector environment without them.
            ask: Asks another process how one of its environments prints.
        """
        envs = getattr(base, "envs", None)
        envs = envs if isinstance(envs, (list, tuple)) else ()
        printed = _as_printed(ask) if self.in_processes else ""
        self.spec, alike = _spec_of(base, envs, printed)
        self.plain = alike and not wrappers
        self.changes_rewards = _changes_rewards(wrappers, envs, printed)
        self.wrapped_in, self.alike = _wrapped_in(wrappers, envs, printed), alike or not envs
        self.episode_limit = limit_of_vector_env(base, self.spec, envs, printed)


def process_of(base: Any) -> int:
    """Return the id of the process that started a vector environment's processes; this one if that is unknown."""
    started = next(iter(vars(base).get("processes") or vars(base).get("procs") or ()), None)  # procs: SuperSuit's
    return int(getattr(started, "_parent_pid", os.getpid()))


def in_processes(base: Any, kind: str) -> bool:
    """Return whether environments play in processes or threads of their own. kind: the package's class for processes."""
    return bool(kinds_of(base) & {kind, "ProcConcatVec", *SEEDED_BEFORE})


def warn_of_seeds(base: Any, takes_none: bool) -> None:
    """Warn of environments that cannot be seeded one by one. takes_none: nor all together."""
    name, agents = type(base).__name__, kinds_of(base) & AGENTS
    takes = "takes no seed once it is made" if takes_none else "takes one seed for all of its environments"
    beside = ". Each agent plays a candidate of its own, in one world with the others" if agents else ""
    warn_user(
        f"{name} {takes}: candidates of a pair do not meet the same episodes, and results depend on the number of "
        f"environments{beside}",
    )


def check_envpool(base: Any) -> None:
    """Raise ValueError for an EnvPool that steps only a part of its environments at a time, or has several players in one."""
    if not kinds_of(base) & SEEDED_BEFORE:
        return
    config = base.config
    if base.is_async or config.get("max_num_players", 1) != 1:
        raise ValueError(
            f"{type(base).__name__} has num_envs = {config['num_envs']}, batch_size = {config['batch_size']} and "
            f"max_num_players = {config.get('max_num_players', 1)}: FastES steps all environments at once, and each has one "
            "player. Leave batch_size out of envpool.make, and take a task with one player"
        )


def chain_of(env: Any, inner: str) -> list[Any]:
    """Return a vector environment's wrappers from the outside in; the last item is the environment itself."""
    found = [env]
    while (within := vars(found[-1]).get(inner)) is not None:
        found.append(within)
    return found


def _wrapped_in(wrappers: Sequence[Any], envs: Sequence[Any], printed: str) -> tuple[type | str, ...]:
    """Return the classes or names of wrappers around a vector environment and in its first environment."""
    within: list[type | str] = []
    if envs:
        *around, _ = layers(envs[0])
        within += map(type, around)
    elif printed:
        names = re.findall(r"<([^<>]+)", printed)
        has_id = not printed.rstrip(">").endswith(" instance")
        within += names[: -2 if has_id else -1]  # then come the environment's own class and its id
    return (*map(type, wrappers), *within)


def _changes_rewards(wrappers: Sequence[Any], envs: Sequence[Any], printed: str) -> bool:
    """Return whether a known wrapper around a vector environment, or in its environments, changes rewards."""
    inner = [layer for env in envs for layer in layers(env)]
    kinds = set().union(*(kinds_of(layer) for layer in (*wrappers, *inner)))
    return bool(kinds & CHANGE_REWARDS or set(re.findall(r"<([^<>]+)", printed)) & _reward_wrappers(gymnasium.RewardWrapper))


def _reward_wrappers(kind: type) -> set[str]:
    """Return the names of wrappers that change rewards, as far as this process has imported them."""
    return CHANGE_REWARDS.union({kind.__name__}, *map(_reward_wrappers, kind.__subclasses__()))


def _as_printed(ask: Callable[[], Any]) -> str:
    """Return how an environment in another process prints, such as '<TimeLimit<CartPoleEnv<CartPole-v1>>>', or ''.

    Its spec is not requested: one that cannot be pickled would end the process.
    """
    with contextlib.suppress(Exception):
        return str(ask())
    return ""


def _spec_of(base: Any, envs: Sequence[Any], printed: str) -> tuple[EnvSpec | None, bool]:
    """Return the spec of the environments in a vector environment, and whether it says how to build each of them."""
    with contextlib.suppress(Exception):
        if envs:
            specs = [_without_monitor(env.spec) for env in envs]
            return specs[0], specs[0] is not None and all(same(spec, specs[0]) for spec in specs)
        if found := re.search(r"<([^<>]+)>*$", printed):
            return gymnasium.registry.get(found[1]), False
    own = getattr(base, "spec", None)
    return (own if isinstance(own, EnvSpec) else None), False


def _without_monitor(spec: EnvSpec | None) -> EnvSpec | None:
    """Return a copy of a spec without SB3's Monitor, which changes nothing that it wraps, and without a render mode."""
    if spec is None:
        return None
    spec = copy.deepcopy(spec)
    spec.kwargs.pop("render_mode", None)
    spec.additional_wrappers = tuple(w for w in spec.additional_wrappers or () if w.name != "Monitor")
    return spec


@contextlib.contextmanager
def switched_off(wrappers: list[Any], switch: str) -> Iterator[None]:
    """Set an attribute of some wrappers to False in a block."""
    before = [(wrapper, getattr(wrapper, switch)) for wrapper in wrappers]
    try:
        for wrapper, _ in before:
            setattr(wrapper, switch, False)
        yield
    finally:
        for wrapper, value in before:
            setattr(wrapper, switch, value)


def kinds_of(wrapper: object) -> set[str]:
    """Return the names of a wrapper's classes: the packages that it may come from need not be installed."""
    return {base.__name__ for base in type(wrapper).__mro__}
