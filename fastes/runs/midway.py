"""The parameters of a training's midst, which `fastes play --stages` shows."""

from __future__ import annotations

from fastes.checkpoints.file_format import Checkpoint
from fastes.models.model import Model


class Midway:
    """Keeps a snapshot from the second quarter of a training, whenever that ends: at its target, its budget or by Ctrl-C.

    A snapshot is taken each time the steps have doubled. The one before it is then at half of the steps at most, and stays
    above a quarter of them until they have doubled again.

    Attributes:
        due: The snapshot that a file should hold now; None if there is no new one.
    """

    def __init__(self) -> None:
        self.due: Checkpoint | None = None
        self._newest: Checkpoint | None = None
        self._next = 1  # steps of the next snapshot

    def on_start(self, model: Model) -> None:
        """Begin, or continue a training that has made steps: what an earlier session has kept stays until they double."""
        self.due, self._newest, self._next = None, None, 1
        if model.num_timesteps:
            self._keep(model)

    def on_generation(self, model: Model) -> None:
        if model.num_timesteps >= self._next:
            self.due = self._newest
            self._keep(model)

    def _keep(self, model: Model) -> None:
        self._newest, self._next = model.snapshot(), 2 * model.num_timesteps
