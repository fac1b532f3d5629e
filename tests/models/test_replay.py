"""Risk: an error names an episode that nobody can play again."""

from __future__ import annotations

import random
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import ToyError
from faults import PAIRS, SETTINGS, seed_of, toy
from processes import run_fastes
from training import assert_same_state, learn

from fastes import FastES, WorkerCrashed, WorkerError
from fastes.cli.main import main
from fastes.pools.serial_pool import SerialPool
from fastes.rollout.job import Request


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("changes", [{}, {"episodes_per_candidate": 3, "action_noise": 0.2}, {"sigma": "lin_0.2"}], ids=str)
def test_a_replayed_job_is_the_one_that_was_trained_on(
    changes: dict[str, Any], n_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generations: list[Any] = []
    evaluations: dict[int, float] = {}
    asked: dict[int, Request] = {}
    submit, collect = SerialPool.submit, SerialPool.collect

    def noting(pool: SerialPool, request: Request) -> int:
        ticket = submit(pool, request)
        asked[ticket] = request
        return ticket

    def watched(pool: SerialPool, ticket: int) -> Any:
        request, batch = asked[ticket], collect(pool, ticket)
        if request.perturbations is not None:
            generations.append(batch)
        else:
            evaluations[request.generation] = batch.returns[0]
        return batch

    monkeypatch.setattr(SerialPool, "submit", noting)
    monkeypatch.setattr(SerialPool, "collect", watched)
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, **changes}) as model:
        model.learn(2000, lambda m, r: r.generation < 3)
        trained = generations[2]
    with FastES(toy(), preset="default", n_workers=n_workers, **{**SETTINGS, **changes}) as model:
        model.learn(2000, lambda m, r: r.generation < 2)
        before = model.snapshot()
        for job in range(2 * PAIRS):
            played = model.replay(3, job)
            assert played.episode_return == trained.returns[job // 2, job % 2]
            assert played.length == trained.lengths[job // 2, job % 2]
        assert model.replay(3, 2 * PAIRS).episode_return == evaluations[2]
        assert model.replay(2, 2 * PAIRS).episode_return == evaluations[1], "it is not told yet"
        assert_same_state(before, model.snapshot())
        learn(model, 4)  # and training continues


def test_the_error_says_how_and_the_replay_raises_the_exception_itself(tmp_path: Path) -> None:
    with FastES(toy(fail_seeds=[seed_of(2, 1)]), preset="default", n_workers=2, **SETTINGS) as model:
        with pytest.raises(WorkerError) as caught:
            learn(model, 4)
        model.save(tmp_path / "m")
    error = caught.value
    (call,) = re.findall(r"model\.replay\(\d+, \d+\)", str(error))
    assert call == f"model.replay({error.generation}, {error.job})"
    with FastES.load(tmp_path / "m", env=toy(fail_seeds=[seed_of(2, 1)]), n_workers=0) as model:
        with pytest.raises(ToyError):
            eval(call)
        other = 2 * ((error.job or 0) // 2 - 1)
        assert model.replay(error.generation, other).length > 0


@pytest.mark.slow
def test_a_job_that_kills_its_worker_kills_the_process_that_replays_it(tmp_path: Path) -> None:
    """Through the command line, as the error message of a training says."""
    seed = 3
    with FastES(
        "Toy-v0", preset="default", n_workers=0, seed=seed, population_size=4, policy_kwargs={"net_arch": [4]}
    ) as model:
        learn(model, 1)
        victim = int(model.strategy.ask().env_seed[1, 0])
    flags = ["--seed", str(seed), "--workers", "1", "--population-size", "4", "--net-arch", "4", "--quiet"]
    env = "envs_for_tests:Toy-v0"
    result = run_fastes("train", env, *flags, "--env-kwargs", f"kill_seeds=[{victim}]", "death=exit", cwd=tmp_path)
    assert result.returncode == 1
    (command,) = re.findall(r"fastes (replay .*)", result.stderr)
    assert "--generation 2" in command
    words = command.split()
    assert words[words.index("--env") + 1] == env
    replayed = run_fastes(*words, "--env-kwargs", f"kill_seeds=[{victim}]", "death=exit", cwd=tmp_path)
    assert replayed.returncode == 7, replayed.stderr
    assert run_fastes(*words, cwd=tmp_path).returncode == 7, "the arguments are those of the run"
    failing = run_fastes(*words, "--env-kwargs", f"fail_seeds=[{victim}]", cwd=tmp_path)
    assert failing.returncode == 1
    assert "_misbehave" in failing.stderr, "the traceback is what one wants to see"
    harmless = run_fastes(*words, "--env-kwargs", "length=20", cwd=tmp_path)
    assert harmless.returncode == 0, harmless.stderr
    assert "return" in harmless.stdout


def test_an_evaluation_that_crashes_can_be_played_again_too() -> None:
    with (
        FastES(toy(kill_seeds=[3], death="exit"), preset="default", n_workers=1, **SETTINGS) as model,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        with pytest.raises(WorkerCrashed) as caught:
            model.evaluate(5, first_seed=0)
        assert caught.value.generation == 0
        assert "model.evaluate(1, first_seed=3)" in str(caught.value)


def test_only_the_running_generation_can_be_played_again() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        for generation in (1, 2, 4):
            with pytest.raises(ValueError, match="expected 3"):
                model.replay(generation, 0)
        for job in (-1, 2 * PAIRS + 1):
            with pytest.raises(ValueError, match="job"):
                model.replay(3, job)


def test_the_command_refuses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    assert main(["replay", str(tmp_path / "m.zip"), "--generation", "5", "--job", "0"]) == 2
    assert "expected 1" in capsys.readouterr().err


def test_playing_again_leaves_the_global_random_state(tmp_path: Path) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        expected = random.random(), np.random.random()  # noqa: NPY002
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        model.replay(1, 0)
        learn(model, 1)
        assert (random.random(), np.random.random()) == expected  # noqa: NPY002
