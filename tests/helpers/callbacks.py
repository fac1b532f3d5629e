"""Callbacks as Stable-Baselines3 knows them, without a need of it."""

from __future__ import annotations

from typing import Any


class Quiet:
    """SB3's protocol without SB3: notes when it is called, and reads no `locals`."""

    def __init__(self, stop_at: int = 10**9) -> None:
        self.n_calls = self.num_timesteps = 0
        self.stop_at, self.events, self.seen = stop_at, [], []  # type: ignore[var-annotated]

    def init_callback(self, model: Any) -> None:
        self.model = model
        self.events.append("init")

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals = locals_
        self.events.append("start")

    def on_rollout_start(self) -> None:
        self.events.append("rollout")

    def on_rollout_end(self) -> None:
        self.events.append("rollout end")

    def on_training_end(self) -> None:
        self.events.append("end")

    def update_locals(self, locals_: dict[str, Any]) -> None:
        self.locals.update(locals_)

    def on_step(self) -> bool:
        self.n_calls += 1
        return True


class Counter(Quiet):
    """Notes each step, too."""

    def on_step(self) -> bool:
        super().on_step()
        self.num_timesteps = self.model.num_timesteps
        self.seen.append((bool(self.locals["dones"][0]), float(self.locals["rewards"][0]), self.locals["infos"][0]))
        return self.n_calls < self.stop_at
