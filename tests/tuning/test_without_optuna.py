"""Risk: a missing package is met by a traceback, or by a message that does not say what to install."""

from __future__ import annotations

import sys

import pytest

from fastes import FastES
from fastes.cli.main import main


def test_a_missing_optuna_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"tuning needs the package optuna: pip install .*tune\]"):
        FastES.tune("CartPole-v1", n_trials=1)
    assert main(["tune", "CartPole-v1"]) == 1
    assert "optuna: pip install" in capsys.readouterr().err
