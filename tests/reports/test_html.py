"""Risk: a notebook shows a wall of numbers in place of a model or a result, or runs what a name holds."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy

from fastes import Evaluation, FastES
from fastes.system.html_tables import html_table
from fastes.training.record import Record
from fastes.tuning.tune import Scored, Tuned

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "n_workers": 0, "target_return": "none"}
EVIL = "<script>alert('x')</script>&amp;"


def _rows(html: str) -> dict[str, str]:
    """Name -> value of a table, whose markup is checked."""
    tags = {re.sub(r' (colspan="2"|scope="row"|style="text-align: left")', "", tag) for tag in re.findall(r"<[^>]*>", html)}
    assert {tag.strip("</>") for tag in tags} == {"table", "thead", "tbody", "tr", "th", "td"}, "no scripts, no colours"
    assert html.count("<tr>") == html.count("</tr>")
    found = re.findall(r'<tr><th scope="row"[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td></tr>', html)
    assert len(found) == html.count("<tr>") - 1, "a title, and rows of text alone"
    return {unescape(name): unescape(value) for name, value in found}


def test_text_is_escaped() -> None:
    assert _rows(html_table(EVIL, [(EVIL, EVIL), ("path", Path("a<b>"))])) == {EVIL: EVIL, "path": "a<b>"}
    assert "&lt;script&gt;" in html_table(EVIL, [])


def test_the_name_of_an_environment_is_escaped() -> None:
    class Odd(Toy):
        pass

    Odd.__qualname__ = Odd.__name__ = EVIL
    with FastES(Odd, **TINY) as model:
        assert EVIL[1:] in _rows(model._repr_html_())["environment"]


def test_a_model_tells_its_task_policy_and_progress() -> None:
    with FastES("CartPole-v1", n_workers=0, seed=3, sigma=0.3) as model:
        assert _rows(model._repr_html_()) == {
            "environment": "CartPole-v1",
            "policy": "LinearPolicy 4-2, 8 parameters",
            "status": "not trained yet",
            "steps": "0, 0 generations",
            "best evaluation": "none yet",
            "settings": "preset CartPole-v1, sigma=0.3",
            "seed": "3",
        }


def test_how_far_a_model_is(tmp_path: Path) -> None:
    with FastES(Toy, **TINY) as model:
        model.learn(400, lambda _, record: record.generation < 3)
        rows = _rows(model._repr_html_())
        assert rows["status"] == "trained in part"
        assert rows["steps"] == f"{model.num_timesteps:,} of 400, 3 generations"
        assert rows["best evaluation"] == f"{model.best_eval_return:.4g}"
        model.learn(10**9, max_minutes=1e-6)
        assert _rows(model._repr_html_())["status"] == "ended by max_minutes"
        model.learn(100)
        assert _rows(model._repr_html_())["status"] == "trained to the end of its budget"
        model.save(tmp_path / "model")
    with FastES.load(tmp_path / "model", Toy, 0) as loaded:
        assert _rows(loaded._repr_html_())["settings"] == "the defaults, population_size=4 target_return=none"
    with FastES(Toy, **{**TINY, "target_return": -1e9}) as model:
        with pytest.warns(UserWarning, match="the parameters from before this training reach"):
            model.learn(10_000)
        assert _rows(model._repr_html_())["status"] == "solved: fresh episodes reach -1e+09"


def test_a_race_tells_how_many_are_left() -> None:
    with FastES(Toy, n_workers=0, seed=0) as model:
        model.learn(100_000, lambda _, record: False)
        assert re.fullmatch(r"\d recipes race", _rows(model._repr_html_())["status"])
        assert _rows(model._repr_html_())["settings"].startswith("recipe ")


def test_a_model_of_a_preset_file_is_shown_without_the_file(tmp_path: Path) -> None:
    preset = tmp_path / "own.toml"
    preset.write_text("[Toy-v0]\nsigma = 0.3\npopulation_size = 4\n")
    with FastES(Toy, preset=str(preset), n_workers=0, seed=0) as model:
        preset.unlink()
        shown = _rows(model._repr_html_())["settings"]
        assert shown == f"preset {preset}; compared with the defaults, population_size=4 sigma=0.3"


def test_showing_a_model_builds_no_environment() -> None:
    built = []

    def make() -> gymnasium.Env[Any, Any]:
        built.append(1)
        return Toy()

    with FastES(make, **TINY) as model:
        before = len(built)
        model._repr_html_()
        assert len(built) == before


def test_an_evaluation_tells_its_statistics() -> None:
    evaluation = Evaluation(np.array([1.0, 3.0]), np.array([8, 1200]), np.array([0, 1]))
    assert _rows(evaluation._repr_html_()) == {
        "mean return": "2.00",
        "standard deviation": "1.00",
        "worst": "1.00",
        "best": "3.00",
        "episodes": "2 of 8 to 1,200 steps",
    }
    assert repr(evaluation) == "Evaluation(mean=2.00, std=1.00, min=1.00, max=3.00, episodes=2)"
    none = Evaluation(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert _rows(none._repr_html_()) == {"episodes": "0"}
    assert _rows(evaluation._replace(returns=np.array([np.nan, 1.0]))._repr_html_())["mean return"] == "-inf"


def test_a_record_has_a_row_per_field() -> None:
    records = list[Record]()
    with FastES(Toy, **TINY) as model:
        model.learn(100, lambda _, record: records.append(record))
    rows = _rows(records[0]._repr_html_())
    assert tuple(rows) == Record._fields
    assert float(rows["return_mean"]) == pytest.approx(records[0].return_mean, rel=1e-3)


def test_a_search_tells_its_settings_and_what_they_gain() -> None:
    fresh, usual = Scored("trial 3", (6, 7), (490.0, 500.0)), Scored(EVIL, (6, 7), (100.0, 120.0))
    tuned = Tuned({"sigma": 0.1, "policy": EVIL}, 495.0, 490.0, Path("study<1>.toml"), fresh, usual, 12)
    rows = _rows(tuned._repr_html_())
    assert rows["score"] == "495.00, worst 490.00 of 2 trainings with fresh seeds"
    assert rows["without a search"] == f"110.00, worst 100.00 ({EVIL})"
    assert rows["preset"] == "study<1>.toml"
    assert (rows["sigma"], rows["policy"]) == ("0.1", repr(EVIL))
