"""Risk: tuning on the seeds that are reported, a preset that does not load or says other settings than were tried."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fastes.es.fitness_shaping import SHAPINGS
from fastes.es.optimizers import OPTIMIZERS
from fastes.settings.preset_loader import choose_settings, load_preset, tomllib
from fastes.settings.settings import Settings

optuna = pytest.importorskip("optuna")

from benchmarks.learning import tune  # noqa: E402

SEARCH = tune.Search("CartPole-v1", (100, 101), 300, 3, 2, "area", 0.0)
COMMAND = ["--env", "CartPole-v1", "--timesteps", "300", "--seeds", "100", "101", "--points", "3", "--episodes", "2"]


def run(folder: Path, trials: int, *more: str) -> None:
    tune.main([*COMMAND, "--workers", "0", "--trials", str(trials), "--out", str(folder), *more])


@pytest.mark.parametrize(("seeds", "said"), [(("100", "99"), "99: seeds below 100"), (("100", "100"), "twice")])
def test_reported_seeds_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seeds: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path / "out", 1, "--seeds", *seeds)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_search_goes_on_and_its_best_loads_as_a_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, 2)
    first = tune.open_study(SEARCH, tmp_path)
    cut_off = first.ask().number
    run(tmp_path, 3)
    study = tune.open_study(SEARCH, tmp_path)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE"], "what was cut off is done again, what is done is not"
    assert cut_off == 2
    assert len({str(trial.params) for trial in study.trials if trial.params}) == 3, "a continuation draws anew"
    best = max((trial for trial in study.trials if trial.value is not None), key=lambda trial: trial.value)
    (name, table), *others = tomllib.loads((tmp_path / "best.toml").read_text(encoding="utf-8")).items()
    assert (name, others) == ("CartPole-v1", [])
    source = table.pop("source")
    for part in ("--seeds 100 101", f"trial {best.number}", f"{best.value:.1f}", "area under", "fastes ", "numpy "):
        assert part in source
    tried = choose_settings("CartPole-v1", "default", {**best.user_attrs["settings"], "total_timesteps": 300})
    assert Settings().changed(**table) == tried
    assert table["policy"] == tried.policy, "a preset's policy is always named"
    lines = (tmp_path / "trials.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["complete", "complete", "fail", "complete"]
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, 3, "--episodes", "3")
    assert "another search" in capsys.readouterr().err


def drawn(**changes: Any) -> dict[str, Any]:
    fixed = {
        "shaping": "standardized",
        "network": "linear",
        "population_size_pow": 4,
        "top_fraction": 0.123456,
        "sigma": 0.0123456,
        "learning_rate": 0.3456,
        "optimizer": "adam",
        "normalize_obs": False,
        "alive_bonus_share": 0.75,
    }
    return tune.draw_settings(optuna.trial.FixedTrial({**fixed, **changes}), 2.0)


def test_what_is_drawn_is_what_is_tried() -> None:
    adam = drawn()
    assert (adam["shaping"], adam["optimizer"], adam["momentum"]) == ("standardized", "adam", 0.9)
    assert (adam["sigma"], adam["learning_rate"], adam["top_fraction"]) == (0.012, 0.35, 0.12), "few digits, to be written down"
    assert (adam["alive_bonus"], adam["normalize_obs"], adam["population_size"]) == (1.5, False, 16)
    assert drawn(optimizer="sgd", shaping="centered_ranks")["momentum"] == 0.0
    assert drawn(shaping="signed_ranks")["top_fraction"] == 1.0
    for settings in [drawn(optimizer=optimizer, shaping=shaping) for optimizer in OPTIMIZERS for shaping in SHAPINGS]:
        Settings().changed(**settings)
    assert tune.alive_bonus_of("CartPole-v1") == 0.0


def test_shares_that_a_generation_jumps_over_have_the_next_evaluation() -> None:
    told: list[float] = []
    settings = {"population_size": 32, "policy": "LinearPolicy"}
    scores = tune.train(SEARCH._replace(timesteps=200, points=9), settings, "default", 100, 0, told.append)
    assert scores == told
    assert len(scores) == 9
    assert scores[0] == scores[1], "a generation has more steps than a share"
    assert SEARCH.score([[1.0, 3.0, 8.0], [0.0, 0.0, 6.0]]) == 3.0
    assert SEARCH._replace(objective="last").score([[1.0, 3.0, 8.0], [0.0, 0.0, 6.0]]) == 7.0


def test_a_folder_of_a_release_with_other_shapings_is_another_search(tmp_path: Path) -> None:
    study = tune.open_study(SEARCH, tmp_path)
    before = dict(study.user_attrs["search"])
    del before["shapings"]
    study.set_user_attr("search", before)
    with pytest.raises(ValueError, match="another search"):
        tune.open_study(SEARCH, tmp_path)


def test_a_score_that_is_no_number_prunes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(*given: Any) -> list[float]:
        given[-1](math.inf)
        return [math.inf]

    monkeypatch.setattr(tune, "train", train)
    study = tune.open_study(SEARCH, tmp_path)
    study.optimize(tune.objective(SEARCH, 0), n_trials=1)
    assert study.trials[0].state.name == "PRUNED"
    assert tune.best_trial(study) is None
    assert tune.write_results(SEARCH, study, tmp_path) is None
    assert load_preset("CartPole-v1")
