"""Risk: the page shows other returns than the population's, or the file stops a training."""

from __future__ import annotations

import json
import math

import pytest

from fastes import FastES
from fastes.reports import population_file
from fastes.reports.population_file import PopulationFile, histogram


def test_a_histogram_counts_every_finite_return() -> None:
    shown = histogram([*map(float, range(100)), math.nan, math.inf])
    assert shown == {"low": 0.0, "high": 99.0, "counts": [4] * 25}


def test_equal_returns_have_a_bin() -> None:
    shown = histogram([7.0] * 8)
    assert shown is not None
    assert (shown["low"], shown["high"], sum(shown["counts"])) == (6.5, 7.5, 8)  # type: ignore[call-overload]


@pytest.mark.parametrize("returns", [[], [math.nan], [1e308, -1e308], [1e17, 1e17]])
def test_returns_that_no_histogram_holds(returns: list[float]) -> None:
    assert histogram(returns) is None


def test_the_newest_population_is_in_the_file(tmp_path, monkeypatch) -> None:
    """The last one, too, which comes sooner after another than files are written."""
    monkeypatch.setattr(population_file, "SECONDS", math.inf)
    seen = []
    model = FastES("CartPole-v1", n_workers=0, seed=0, verbose=0, population_size=16, target_return="none")

    class Watching(PopulationFile):
        def on_generation(self, model, record) -> None:
            seen.append([episode_return for episode_return, _ in model.training.report.episodes])
            super().on_generation(model, record)
            if len(seen) == 1:
                assert json.loads(self.path.read_text())["generation"] == 1

    file = Watching(tmp_path / "population.json")
    model.learn(3_000, callback=file)
    written = json.loads(file.path.read_text())
    assert len(seen) > 2
    assert written == {"generation": len(seen), "trial": 1, "timesteps": model.num_timesteps, **histogram(seen[-1])}
