"""An environment that obeys orders: to hang in a step, or to end its process there. Undisturbed trainings use it, too."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium

EXIT, SYS_EXIT, HANG = "exit", "sys-exit", "hang"
_STEPS_PER_LOOK = 50  # a look for an order costs a microsecond or two


class ObedientEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Looks every few steps whether the file `order` is there; the process that can rename it does what it says."""

    def __init__(self, env: gymnasium.Env[Any, Any], order: Path) -> None:
        super().__init__(env)
        self.order, self.steps = order, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps % _STEPS_PER_LOOK == 0 and os.path.exists(self.order):
            _obey(self.order)
        return self.env.step(action)


def make_env(env_id: str, order: Path) -> gymnasium.Env[Any, Any]:
    """The environment of a Gymnasium id, ready for orders."""
    return ObedientEnv(gymnasium.make(env_id, disable_env_checker=True), order)


def give_order(order: Path, kind: str) -> None:
    """Let the first worker that looks hang or exit."""
    draft = order.with_name(f".{order.name}")
    draft.write_text(kind, encoding="utf-8")
    draft.rename(order)


def takers(order: Path) -> list[int]:
    """Process ids of the workers that took an order since the last call."""
    taken = list(order.parent.glob(f"{order.name}.*"))
    for path in taken:
        path.unlink()
    return [int(path.suffix[1:]) for path in taken]


def _obey(order: Path) -> None:
    try:
        with open(order, encoding="utf-8") as file:
            kind = file.read()
        order.rename(f"{order}.{os.getpid()}")
    except FileNotFoundError:
        return  # another worker was faster
    if kind == EXIT:
        os._exit(3)
    if kind == SYS_EXIT:
        sys.exit(4)
    while True:
        time.sleep(3600.0)
