"""The environment behind `model.env`: one of this process, which is given the same calls as those that play."""

from __future__ import annotations

from collections.abc import Callable

from fastes.envs.closing import close_env
from fastes.envs.given.later_changes import WatchedEnv
from fastes.rollout.env_calls import FORGET, Env, EnvCalls, make_call


class CalledEnv:
    """An environment of this process that has been given all calls so far. It is built when it is first asked for.

    Args:
        build: Makes one, after the calls so far.
        calls: The training's.
    """

    def __init__(self, build: Callable[[], Env], calls: EnvCalls) -> None:
        self._build, self._calls = build, calls
        self._env: Env | None = None
        self._watched: WatchedEnv | None = None
        self._count = 0  # how many calls it was given

    def get(self) -> Env:
        """Return it; another object after calls that build it again or put a wrapper around it."""
        made = self._calls.sent()
        if FORGET in [call.kind for call in made[self._count :]]:
            self.close()
        if self._env is None:
            self._env, self._count, self._watched = self._build(), len(made), None
        for call in made[self._count :]:
            self._env, self._watched = make_call(self._env, call), None
            self._count += 1
        if self._watched is None:
            self._watched = WatchedEnv(self._env, "model.env")
        return self._env

    def warn_of_changes(self) -> None:
        """Warn about changes made other than by calls: they reach no environment that plays."""
        if self._env is not None and self._watched is not None:
            self._watched.warn_of_changes(self._build)

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            close_env(env)
