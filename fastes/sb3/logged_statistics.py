"""The statistics of each generation under the keys that SB3's dashboards and plot scripts read, and those of ES beside them."""

from __future__ import annotations

from typing import Any

from fastes.reports.callbacks import Callback
from fastes.training.record import Record

# key of the logger -> field of the record
_KEYS = {
    "train/learning_rate": "learning_rate",
    "train/n_updates": "generation",
    "es/sigma": "sigma",
    "es/eval_return": "eval_return",
    "es/return_max": "return_max",
    "es/return_std": "return_std",
    "es/eval_rank": "eval_rank",
    "es/elite_fraction": "elite_fraction",
    "es/theta_norm": "theta_norm",
    "es/gradient_norm": "gradient_norm",
    "es/update_ratio": "update_ratio",
    "es/num_nonfinite": "num_nonfinite",
    "es/utilisation": "utilisation",
}


class LogStatistics(Callback):
    """Records a generation's statistics in model.logger and dumps them every log_interval generations.

    Of an evaluation the last one that is known, whichever generation it was told with.
    """

    def __init__(self) -> None:
        self._iterations = 0
        self._told: Record | None = None  # the last one with an evaluation

    def on_start(self, model: Any, total_timesteps: int) -> None:  # noqa: ARG002
        self._iterations, self._told = 0, None

    def on_generation(self, model: Any, record: Record) -> None:
        self._iterations += 1
        if record.eval_generation:
            self._told = record
        if (
            not model.log_interval
            or self._iterations % model.log_interval
            or not (model.logger_was_set or model.logger.output_formats)
        ):
            return
        for key, field in _KEYS.items():
            of = self._told if field.startswith("eval_") else record
            if of is not None:
                model.logger.record(key, getattr(of, field))
        if model.settings.episode_cap != "none":
            model.logger.record("es/episodes_cut", record.episodes_cut)
        if model.settings.trials > 1:
            model.logger.record("es/trial", record.trial)
        model.dump_logs(self._iterations)
