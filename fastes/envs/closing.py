"""Close an environment: an error then is a warning, and does no harm to what has been trained."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from gymnasium.wrappers import RecordVideo

from fastes.envs.layers import layers
from fastes.errors import summary_of, warn_user
from fastes.system.forks import CopiesEndHere

LATE_SECONDS = 20.0  # workers are killed earlier, with a warning of their parent


def close_env(env: Any, name: str | None = None) -> None:
    """Close an environment. An exception, SystemExit included, becomes a RuntimeWarning; Ctrl-C is raised.

    Args:
        env: The environment.
        name: Its name in messages; by default that of its class.
    """
    name = type(getattr(env, "unwrapped", env)).__name__ if name is None else name
    try:
        with _lateness_said(name), CopiesEndHere(f"env.close of {name}"):
            env.close()
    except (Exception, SystemExit) as error:
        warn_user(f"env.close of {name} raised {summary_of(error)}; nothing else is lost; what it has started may still run")


@contextlib.contextmanager
def closed_after(env: Any) -> Iterator[Any]:
    """Close an environment after the block. In it, no videos are filmed: they would replace existing ones."""
    for layer in layers(env):
        if isinstance(layer, RecordVideo):
            layer.episode_trigger = layer.step_trigger = None
    try:
        yield env
    finally:
        close_env(env)


@contextlib.contextmanager
def _lateness_said(name: str) -> Iterator[None]:
    """Say on stderr that the block takes long: this process cannot end it, the user can."""
    timer = threading.Timer(
        LATE_SECONDS, _say, (f"env.close of {name} has not returned for {LATE_SECONDS:g} s: Ctrl-C ends it",)
    )
    timer.daemon = True
    if not sys.is_finalizing():  # a thread would never begin, but be waited for
        with contextlib.suppress(RuntimeError):  # no thread can be started
            timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    with contextlib.suppress(Exception):
        print(text, file=sys.stderr, flush=True)
