"""Risk: tuning on the seeds that are reported, work lost in a kill, a preset that says other settings than were tried."""

from __future__ import annotations

import csv
import errno
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from processes import environment

from fastes import FastES
from fastes.cli.main import main
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.errors import FolderInUse
from fastes.settings.preset_loader import load_preset, tomllib
from fastes.settings.recipes import recipes_for
from fastes.settings.search_space import SearchSpace
from fastes.settings.settings import Settings
from fastes.training import trainer
from fastes.training.final_selection import select
from fastes.tuning.candidates import Candidate, train_candidates
from fastes.tuning.results import write_plots
from fastes.tuning.tune import REPORT_EPISODES

optuna = pytest.importorskip("optuna")

SMALL: dict[str, Any] = {"total_timesteps": 300, "n_seeds": 2, "episodes": 2, "n_workers": 0, "verbose": 0}


@pytest.fixture(autouse=True)
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds: one test has them drawn."""
    monkeypatch.setattr("fastes.tuning.tune.write_plots", lambda *_: [])


def tune(folder: Path, n_trials: int, **more: Any) -> Any:
    return FastES.tune("CartPole-v1", study=folder / "own.journal", n_trials=n_trials, **{**SMALL, **more})


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "own.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def states(folder: Path) -> list[str]:
    return [row["state"] for row in rows(folder)]


def results(folder: Path) -> list[tuple[str, ...]]:
    """What depends on no process: everything but the time, of the trials that count."""
    return [
        tuple(value for key, value in row.items() if key not in ("trial", "seconds")) for row in rows(folder) if row["score"]
    ]


def test_the_preset_has_the_settings_that_were_chosen_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the plots are drawn
    tuned = tune(tmp_path, 5)
    assert tuned.preset == tmp_path / "own.toml"
    ((name, table),) = tomllib.loads(tuned.preset.read_text(encoding="utf-8")).items()
    assert name == "CartPole-v1"
    assert {key: value for key, value in table.items() if key != "source"} == tuned.settings == load_preset(str(tuned.preset))
    tried = Settings().changed(**tuned.settings)
    trial = int(table["source"].partition("trial ")[2].split()[0])
    (row,) = (row for row in rows(tmp_path) if int(row["trial"]) == trial)
    assert row["state"] == "complete"
    assert (tried.population_size, tried.optimizer) == (int(row["population_size"]), row["optimizer"])
    assert float(row["learning_rate"]) == float(str(tried.learning_rate).removeprefix("lin_").partition("_")[0])
    assert all(int(row["population_size"]) % 2 == 0 for row in rows(tmp_path))
    with FastES("CartPole-v1", preset=str(tuned.preset), n_workers=0, seed=tuned.fresh.seeds[0], target_return="none") as model:
        assert model.settings == tried.changed(target_return="none")
        assert model.learn().num_timesteps >= 300
        assert model.evaluate(20, first_seed=2**30 + 2 * 10**6).mean == tuned.fresh.scores[0], "a reported score is repeatable"
    command = [
        "train",
        "CartPole-v1",
        "--preset",
        str(tuned.preset),
        "--workers",
        "0",
        "--quiet",
        "--runs",
        str(tmp_path / "r"),
    ]
    assert main(command) == 0
    for file in ("own-history.png", "own-importance.png"):
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scores", [[500.0, 300.0, 500.0, 500.0, 499.0], [500.0, -9000.0, 490.0, 480.0]])
def test_the_history_says_what_lies_below_it(scores: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, seen = pytest.importorskip("matplotlib.figure").Figure, list[Any]()
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda own, *given, **named: (seen.append(own.axes[0]), save(own, *given, **named)))
    study = optuna.create_study(direction="maximize")
    x = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    for score in scores:
        study.add_trial(optuna.trial.create_trial(params={"x": 0.5}, distributions=x, value=score))
    write_plots(tmp_path / "history.png", tmp_path / "importance.png", study)
    low, high = seen[0].get_ylim()
    below = sum(not low <= score <= high for score in scores)
    said = [text.get_text() for text in seen[0].texts]
    assert said == ([f"{below} of {len(scores)} scores lie below"] if below else [])
    assert below == (min(scores) < 0.0)


def test_a_picture_that_cannot_be_drawn_loses_no_search(tmp_path: Path) -> None:
    """Matplotlib's ticks overflow."""
    pytest.importorskip("matplotlib")
    study = optuna.create_study(direction="maximize")
    for score in (1.7e308, -1.7e308):
        study.add_trial(optuna.trial.create_trial(value=score))
    write_plots(tmp_path / "history.png", tmp_path / "importance.png", study)
    assert not (tmp_path / "history.png").exists()


def test_reported_seeds_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training, with its stage: the fresh ones come last, and share no seed with the others."""
    seeds: list[int] = []
    begin = FastES.__init__

    def noted(self: FastES, *arguments: Any, **named: Any) -> None:
        seeds.append(named["seed"])
        begin(self, *arguments, **named)

    monkeypatch.setattr(FastES, "__init__", noted)
    tuned = tune(tmp_path, 6, seed=20)
    fresh = list(tuned.fresh.seeds)
    assert len(fresh) == 5
    first = seeds.index(fresh[0])
    assert seeds[first : first + 5] == fresh
    assert set(seeds[first:]) == set(fresh), "nothing is trained after them"
    assert set(seeds[:first]) == set(range(20, 26)), "two for candidates, four for the play-off"
    assert tuned.worst == min(tuned.fresh.scores) <= tuned.score


def short_pendulum() -> Any:
    """An environment without a preset: recipes race."""
    return gymnasium.make("Pendulum-v1", max_episode_steps=20)


def test_a_search_is_compared_with_what_the_user_would_have_without_it(tmp_path: Path, capsys: Any) -> None:
    """With the race of recipes, within the same budget, if there is no preset."""
    budget = {"total_timesteps": 8000, "n_workers": 0}
    with FastES(short_pendulum, seed=0, **budget) as model:
        assert len(model.learn().selection.last_rung.recipes) > 1, "the budget is large enough for a race"
    arguments = {**SMALL, **budget, "n_seeds": 1, "n_trials": 1, "verbose": 1, "study": tmp_path / "own.journal"}
    tuned = FastES.tune(short_pendulum, **arguments)
    assert tuned.usual.name == "auto"
    for seed, score in zip(tuned.usual.seeds, tuned.usual.scores, strict=True):
        with FastES(short_pendulum, seed=seed, **budget) as model:
            assert model.learn().evaluate(20, first_seed=2**30 + 2 * 10**6).mean == score
    assert tuned.fresh.scores != tuned.usual.scores
    assert re.search(r"\n  auto +median ", capsys.readouterr().out)
    assert "; auto: median " in tomllib.loads((tmp_path / "own.toml").read_text())["short_pendulum"]["source"]


def test_a_race_that_the_users_settings_leave_one_recipe_of_is_that_recipe() -> None:
    kept = {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 2}, "population_size": 4, "sigma": 0.1}
    kept |= {"learning_rate": 0.1, "optimizer": "adam", "momentum": 0.9, "shaping": "centered_ranks", "top_fraction": 1.0}
    kept |= {"obs_clip": 5.0, "episode_cap": "none", "episode_cap_start": 9}
    assert FastES.tune(short_pendulum, **{**SMALL, "n_trials": 1, **kept}).usual.name == "memory"


def test_fixed_settings_are_kept_in_all_candidates(tmp_path: Path) -> None:
    tuned = tune(tmp_path, 5, optimizer="adam", policy="LinearPolicy", sigma=0.2, eval_episodes=2)
    assert {name: tuned.settings[name] for name in ("policy", "sigma", "eval_episodes")} == {
        "policy": "LinearPolicy",
        "sigma": 0.2,
        "eval_episodes": 2,
    }
    assert "optimizer" not in tuned.settings, "the default, adam"
    assert not {"optimizer", "sigma"} & set(rows(tmp_path)[0])
    assert {row["network"] for row in rows(tmp_path)} <= {"linear", "unbiased"}


def test_the_network_of_the_presets_file_is_the_one_that_was_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = list[tuple[int, ...]]()

    def note(candidates: Any, *rest: Any) -> None:
        trained.extend(model.policy_spec.layer_sizes for candidate in candidates for model in candidate.models)
        train_candidates(candidates, *rest)

    monkeypatch.setattr("fastes.tuning.tune.train_candidates", note)
    more: dict[str, Any] = {**SMALL, "n_seeds": 1, "episodes": 1, "n_trials": 1, "policy_kwargs": {"use_bias": False}}
    tuned = FastES.tune("Reacher-v5", study=tmp_path / "own.journal", **more)
    with FastES("Reacher-v5", preset=tuned.preset, n_workers=0) as model:
        assert set(trained) == {model.policy_spec.layer_sizes}
        assert len(model.policy_spec.layer_sizes) > 2, "the preset's network, without biases"


def test_a_function_among_the_settings_is_told_and_resumed(tmp_path: Path) -> None:
    for trials in (1, 2):  # the function is another object each time

        def rate(remaining: float) -> float:
            return 0.05 * remaining

        tuned = tune(tmp_path, trials, learning_rate=rate)
        assert tuned.trials == trials
    assert "learning_rate as a function, which no file holds: pass it again" in (tmp_path / "own.toml").read_text()


def test_pruned_candidates_end_early_and_are_not_chosen(tmp_path: Path) -> None:
    tune(tmp_path, 12, pruner="halving", total_timesteps=2000)
    pruned = [row for row in rows(tmp_path) if row["state"] == "pruned"]
    assert pruned
    assert all(int(row["eighths"]) < 8 for row in pruned)
    assert all(int(row["eighths"]) == 8 for row in rows(tmp_path) if row["state"] == "complete")


def test_settings_with_trials_are_searched_too(tmp_path: Path) -> None:
    """A rung of the search ends within one of theirs, whose other trials still play; then the training continues."""
    tuned = tune(tmp_path, 2, trials=3, trials_fraction=0.9, total_timesteps=3000, n_seeds=1)
    assert tuned.settings["trials"] == 3
    assert states(tmp_path) == ["complete"] * 2


def test_scores_are_those_of_a_whole_training_with_its_final_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    monkeypatch.setattr(trainer, "select", lambda training, player: chosen.append(player) or select(training, player))
    tuned = tune(tmp_path, 1, archive_size=4, sigma=0.1, n_seeds=1)
    assert len(chosen) == 1 + 5, "of the candidate, and of its fresh seeds"
    with FastES("CartPole-v1", preset=str(tuned.preset), n_workers=0, seed=tuned.fresh.seeds[0], target_return="none") as model:
        model.learn()
        assert model.evaluate(20, first_seed=2**30 + 2 * 10**6).mean == tuned.fresh.scores[0]


class Endless(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that never ends: a reward of 1 per step, and none that is finite from step 3000 on."""

    def reset(self, **arguments: Any) -> Any:
        self.steps = 0
        return super().reset(**arguments)

    def step(self, _: Any) -> Any:
        self.steps += 1
        return self.env.reset()[0], math.nan if self.steps >= 3000 else 1.0, False, False, {}


def endless(**settings: Any) -> FastES:
    return FastES(lambda: Endless(gymnasium.make("CartPole-v1").unwrapped), preset="default", n_workers=0, **settings)


def test_a_candidate_without_finite_returns_ends_alone() -> None:
    long, short = ([endless(max_episode_steps=steps, population_size=2)] for steps in (4000, 50))
    candidates = [Candidate(0, long), Candidate(1, short)]
    train_candidates(candidates, 20_000, 1, 0, (1, 2), lambda candidate, _: math.isinf(candidate.score))
    assert [each.returns for each in candidates] == [[[-math.inf]], [[50.0], [50.0]]]
    assert "returns of this generation is finite" in candidates[0].failure
    assert not candidates[1].failure


def test_candidates_of_an_endless_environment_are_scored_on_as_many_steps() -> None:
    """Their training episodes are shorter with more candidates per generation."""
    candidates = [Candidate(number, [endless(population_size=size)]) for number, size in enumerate((4, 64))]
    train_candidates(candidates, 100_000, 1, 0, (1, 100), lambda *_: True)
    assert candidates[0].returns == candidates[1].returns


SCRIPT = """
import os, signal, sys
from fastes import FastES
from fastes.tuning import candidates
folder, kill_at = sys.argv[1], int(sys.argv[2])
train, count = candidates.train_candidates, [0]
begin = FastES.__init__
def counted(self, *arguments, **named):
    count[0] += 1
    if count[0] == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    begin(self, *arguments, **named)
FastES.__init__ = counted
FastES.tune("CartPole-v1", study=f"{folder}/own.journal", n_trials=6, total_timesteps=300, n_seeds=2, episodes=2, n_workers=0,
            parallel=2, verbose=0)
"""


def test_a_kill_loses_no_finished_trial(tmp_path: Path) -> None:
    """Killed while the third batch begins: its trial is marked as failed and done again, and all results are the same."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir(), whole.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(killed), str(1 + 2 * (2 + 2) + 3)]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert result.returncode == -signal.SIGKILL, result.stderr
    with open(killed / "own.journal", "ab") as file:
        file.write(b'{"op_code": 4, "wor')  # half a line, as a kill in the middle of writing leaves it
    os.symlink("own.journal", killed / "own.journal.lock")  # and Optuna's lock
    done = [trial.state.name for trial in _trials_in(killed)]
    assert done[:4] == ["COMPLETE"] * 4
    assert done[4:], "the script was killed before the third batch began"
    assert set(done[4:]) == {"RUNNING"}
    tune(killed, 6, parallel=2)
    tune(whole, 6, parallel=2)
    assert states(killed)[4 : len(done)] == ["fail"] * len(done[4:])
    assert results(killed) == results(whole)
    again_of = [trial.user_attrs.get("retry_of") for trial in _trials_in(killed)]
    assert again_of[len(done) : 2 * len(done) - 4] == list(range(4, len(done)))
    before = (killed / "own.csv").read_bytes()
    again = tune(killed, 6, parallel=2)
    assert (killed / "own.csv").read_bytes() == before, "nothing is left to do"
    assert again == tune(whole, 6, parallel=2)._replace(preset=again.preset)


def _trials_in(folder: Path) -> list[Any]:
    content = (folder / "own.journal").read_bytes()
    copy = folder / "copy.journal"
    copy.write_bytes(content[: content.rfind(b"\n") + 1])
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(copy)))
    return list(optuna.load_study(study_name="tune", storage=storage).trials)


def test_ctrl_c_leaves_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    count, begin = [0], FastES.__init__

    def interrupted(self: FastES, *arguments: Any, **named: Any) -> None:
        count[0] += 1
        if count[0] == 1 + 4 * 2 + 2:
            raise KeyboardInterrupt
        begin(self, *arguments, **named)

    monkeypatch.setattr(FastES, "__init__", interrupted)
    command = ["tune", "CartPole-v1", "--study", str(tmp_path / "own.journal"), "--trials", "6", "--total-timesteps", "300"]
    assert main([*command, "--seeds", "2", "--episodes", "2", "--workers", "0"]) == 130
    assert "\n\nthe best so far is trial " in (printed := capsys.readouterr().out), "below the ^C of a terminal"
    assert "no fresh seed was tried" in printed
    assert "median" not in load_preset(str(tmp_path / "own.toml")).get("source", "")
    monkeypatch.undo()
    assert tune(tmp_path, 6).trials == 6


def test_ctrl_c_before_the_first_result_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is searched is said before, while nothing has been trained yet."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastes.tuning.tune.train_candidates", interrupted)
    study = tmp_path / "own.journal"
    command = ["tune", "CartPole-v1", "--study", str(study), "--budget", "30m", "--trials", "6", "--total-timesteps", "3000"]
    assert main([*command, "--seeds", "2", "--parallel", "3", "--workers", "0"]) == 130
    assert capsys.readouterr().out.splitlines() == [
        "search for settings of CartPole-v1: at most 6 trials in 30 minutes, 3 side by side; each trial is 2 trainings of "
        "3,000 steps, with seeds 0 to 1",
        f"study: {study}",
        "trials 0 to 2 in training: start 'CartPole-v1', 'linear', 'unbiased'",
        "",
        "stopped before any trial was trained to its end: the same command starts again",
    ]
    assert main([*command, "--seeds", "2", "--parallel", "3", "--workers", "0", "--quiet"]) == 130
    assert capsys.readouterr().out == ""


def test_stages_are_said_when_they_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    clock, seen, printed = Clock(), list[str](), list[str]()
    monkeypatch.setattr("fastes.tuning.tune.time", clock)

    def noted(*arguments: Any) -> None:
        printed.extend(capsys.readouterr().out.splitlines())
        seen.append(printed[-1])
        clock.train(*arguments)

    monkeypatch.setattr("fastes.tuning.tune.train_candidates", noted)
    tune(tmp_path, 8, verbose=1)
    assert seen == [
        "trials 0 to 3 in training: start 'CartPole-v1', 'linear', 'unbiased', 'sampled'",
        "trials 4 to 7 in training: start 'network', 'memory' and 2 drawn by Optuna",
        "play-off of trials 7, 6, 5, 4, 3 with new seeds",
        "trial 7 is the best: now it and 'CartPole-v1' are trained with fresh seeds 6 to 10",
    ]
    tune(tmp_path, 9, verbose=1)
    assert seen[4] == "trial 8 in training: drawn by Optuna"
    assert printed[printed.index(seen[4]) - 1].endswith("own.journal; 8 trials finished before")


def test_a_file_system_without_locks_has_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fastes.tuning.study.fcntl.flock", unsupported)
    assert tune(tmp_path, 1).trials == 1


def test_two_processes_do_not_share_a_study(tmp_path: Path) -> None:
    from fastes.tuning.study import opened_study

    with opened_study(tmp_path / "own.journal", {}, "tpe", "none", 0), pytest.raises(FolderInUse, match=r"own\.journal"):
        tune(tmp_path, 1)


@pytest.mark.slow
def test_results_depend_on_the_seed_alone(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("none", "one", "other")]
    for folder in folders:
        folder.mkdir()
    for folder, more in zip(folders, ({}, {"n_workers": 1}, {"seed": 1}), strict=True):
        tune(folder, 5, **more)
    none, one, other = map(results, folders)
    assert none == one
    assert none != other


def test_no_batch_begins_that_the_time_does_not_allow(tmp_path: Path) -> None:
    assert tune(tmp_path, 100, max_minutes=1e-6).trials == 4, "one batch always"


class Clock:
    """A clock on which each training takes a second, and nothing else any time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trained: list[int] = []  # number of trainings in each stage

    def monotonic(self) -> float:
        return self.now

    def train(self, candidates: Any, _: int, __: int, ___: int, rungs: Any, judge: Any = None) -> None:
        for candidate in candidates:
            for model in candidate.models:
                model.close()
            candidate.returns += [[float(candidate.number)] * len(candidate.models)] * len(rungs)
        self.trained.append(sum(len(candidate.models) for candidate in candidates))
        self.now += self.trained[-1]


@pytest.mark.parametrize(
    ("seconds", "played_off", "said", "chosen_on"),
    [
        (8 + 16 + 10, 16, "play-off of trials 3, 2, 1, 0 with new seeds", "seeds 0 to 5"),
        (8 + 15 + 10, 12, "there is time for a play-off of 3 of them", "seeds 0 to 5"),
        (8 + 7 + 10, 0, "there is no time for a play-off", "seeds 0 to 1"),
        (8 + 9.5, 0, "this goes beyond the budget: it takes about 10 s, and 9.5 s are left", "seeds 0 to 1"),
    ],
)
def test_the_last_stages_fit_in_the_budget(
    seconds: float, played_off: int, said: str, chosen_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Four candidates with two seeds each, four seeds for each of a play-off, and five each for the report's two."""
    clock = Clock()
    monkeypatch.setattr("fastes.tuning.tune.time", clock)
    monkeypatch.setattr("fastes.tuning.tune.train_candidates", clock.train)
    tuned = tune(tmp_path, 4, max_minutes=seconds / 60, verbose=1)
    assert clock.trained == [8, *([played_off] if played_off else []), 10]
    printed = capsys.readouterr().out
    assert said in printed
    assert ("beyond the budget" in printed) == (clock.now > seconds)
    (table,) = tomllib.loads(tuned.preset.read_text(encoding="utf-8")).values()
    assert f"; chosen on {chosen_on}, 300 steps each; " in table["source"]


def test_a_search_that_is_resumed_knows_how_long_trainings_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock()
    monkeypatch.setattr("fastes.tuning.tune.time", clock)
    monkeypatch.setattr("fastes.tuning.tune.train_candidates", clock.train)
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:  # noqa: PT012
        train = lambda *given: _interrupt() if clock.trained else clock.train(*given)  # noqa: E731
        patch.setattr("fastes.tuning.tune.train_candidates", train)
        tune(tmp_path, 4)
    tune(tmp_path, 8, max_minutes=(7 + 10) / 60, verbose=1)
    assert clock.trained == [8, 10], "no batch, and no play-off"
    assert "there is no time for a play-off" in capsys.readouterr().out
    tune(tmp_path, 4)
    assert clock.trained == [8, 10, 16], "and no other winner"
    tune(tmp_path, 4, max_minutes=1e-6)
    assert clock.trained == [8, 10, 16], "a play-off that was played counts"


def test_a_killed_candidate_does_not_compete_with_its_repetition(tmp_path: Path) -> None:
    """In halving, with what it had scored before the kill."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir(), whole.mkdir()
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:  # noqa: PT012
        patch.setattr(optuna.Study, "tell", _interrupt)  # once all are trained
        tune(killed, 4, pruner="halving")
    tune(killed, 8, pruner="halving")
    tune(whole, 8, pruner="halving")
    assert states(killed)[:4] == ["fail"] * 4
    assert [trial.intermediate_values for trial in _trials_in(killed)[4:]] == [t.intermediate_values for t in _trials_in(whole)]


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_without_a_study_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tuned = FastES.tune("CartPole-v1", n_trials=2, **SMALL)
    assert tuned.preset is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"n_trials": 0}, "n_trials = 0"),
        ({"n_seeds": 0}, "n_seeds = 0"),
        ({"parallel": 0}, "parallel = 0"),
        ({"max_minutes": 0}, "max_minutes = 0"),
        ({"sampler": "tpw"}, "sampler = 'tpw': expected one of .* did you mean 'tpe'"),
        ({"pruner": "medium"}, "pruner = 'medium': expected one of .* did you mean 'median'"),
        ({"sampler": None}, "sampler = None: expected one of .* or an object of a class of optuna.samplers"),
        ({"sampler": optuna.samplers.TPESampler}, "sampler = <class .*TPESampler'>: expected one of "),
        ({"pruner": 3}, "pruner = 3: expected one of .* as in pruner=optuna.pruners.HyperbandPruner"),
        ({"sigma": -1.0}, "sigma = -1.0"),
        ({"population_scale": 2}, "population_scale = 2: a search chooses population_size itself"),
        ({"study": "own.toml"}, "the preset gets a name that ends in .toml"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        FastES.tune("CartPole-v1", **{**SMALL, **more})


def test_the_command_that_is_told_trains_in_the_same_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my studies").mkdir()
    more: dict[str, Any] = {**SMALL, "n_trials": 1, "verbose": 1, "study": tmp_path / "my studies" / "own.journal"}
    env = make_wrapped_source("CartPole-v1", {"sutton_barto_reward": True, "render_mode": None}, [f"{__name__}:Slower"])
    FastES.tune(env, **more)
    (said,) = re.findall("to train with them: (.*)", capsys.readouterr().out)
    told = ["fastes", "train", "CartPole-v1", "--preset", str(tmp_path / "my studies" / "own.toml")]
    told += ["--env-kwargs", "sutton_barto_reward=true", "render_mode=null", "--wrapper", f"{__name__}:Slower"]
    assert shlex.split(said) == told
    FastES.tune(lambda: gymnasium.make("CartPole-v1"), **{**more, "study": tmp_path / "other.journal"})
    assert "to train with them: FastES(env, preset=" in capsys.readouterr().out


def test_a_worse_worst_seed_and_the_end_of_the_time_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores that are made up: the last candidate is the best, and on fresh seeds good in the median alone."""

    def score(candidates: Any, _: int, episodes: int, *__: Any) -> None:
        for place, candidate in enumerate(candidates):
            for model in candidate.models:
                model.close()
            candidate.returns.append([float(candidate.number)] * len(candidate.models))
            if episodes == REPORT_EPISODES:
                candidate.returns.append([5.0] * 5 if place else [1.0, 9.0, 9.0, 9.0, 9.0])

    monkeypatch.setattr("fastes.tuning.tune.train_candidates", score)
    tune(tmp_path, 7, verbose=1)
    said = capsys.readouterr().out
    assert "trial   6 (7 of 7 done):        6.0  best 6.0 (trial 6)" in said
    assert "better than 'CartPole-v1' in the median, but its worst seed is worse" in said
    FastES.tune("CartPole-v1", **{**SMALL, "verbose": 1}, max_minutes=1e-6)
    said = capsys.readouterr().out
    assert re.search(r"trial   3:        3.0  ", said)
    assert re.search(
        r"the time is up after 4 candidates, .*: another batch takes .* s, .* fresh seeds .* s, and 0 s are left", said
    )


def test_another_search_is_refused(tmp_path: Path) -> None:
    tune(tmp_path, 1)
    with pytest.raises(ValueError, match=r"own\.journal is the study of another search, of total_timesteps 300 \(now 400\)"):
        tune(tmp_path, 1, total_timesteps=400)


class Slower(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Another environment of the same spaces."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": "MlpPolicy"}, r"policy 'LinearPolicy' \(now 'MlpPolicy'\)"),
        ({"env": lambda: make_wrapped_source("CartPole-v1", {}, [f"{__name__}:Slower"])}, r"wrappers \[\] \(now \[.*:Slower"),
        ({"env_kwargs": {"sutton_barto_reward": True}}, r"arguments .*sutton_barto_reward"),
    ],
    ids=["policy", "wrapper", "arguments"],
)
def test_a_search_in_another_environment_or_policy_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"env": "CartPole-v1", "policy": "LinearPolicy"}
    common = {**SMALL, "study": tmp_path / "own.journal", "n_trials": 1}
    FastES.tune(**given, **common)
    changed = {name: value() if callable(value) else value for name, value in change.items()}
    with pytest.raises(ValueError, match=f"is the study of another search, of {said}"):
        FastES.tune(**{**given, **changed}, **common)


@pytest.mark.slow
def test_files_of_a_study_have_names_of_their_own(tmp_path: Path) -> None:
    for name in ("own.csv", "s.v1", "s.v2"):
        FastES.tune("CartPole-v1", study=tmp_path / name, n_trials=1, **SMALL)
    FastES.tune("CartPole-v1", study=tmp_path / "own.csv", n_trials=2, **SMALL)
    found = {path.name for path in tmp_path.iterdir() if path.suffix in (".csv", ".toml")}
    assert found >= {"own.csv", "own.csv.csv", "own.csv.toml", "s.v1.csv", "s.v1.toml", "s.v2.csv", "s.v2.toml"}


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own.journal").write_text("a letter")
    with pytest.raises(ValueError, match=r"own\.journal is not a study"):
        tune(tmp_path, 1)
    assert (tmp_path / "own.journal").read_text() == "a letter"


@pytest.mark.parametrize(("budget", "said"), [("2", "is not a time"), ("0s", "is not a time"), ("2 days", "is not a time")])
def test_a_wrong_budget_is_named(budget: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tune", "CartPole-v1", "--budget", budget])
    assert said in capsys.readouterr().err


def test_recipes_are_in_the_space_exactly() -> None:
    """Otherwise the sampler would learn from other settings than were tried."""
    with FastES("CartPole-v1", n_workers=0) as model:
        spaces = model.observation_space, model.action_space
    space = SearchSpace(has_choices=True)
    for name, settings in recipes_for(*spaces, {"trials": 6, "rungs": 1}):
        plain = settings.changed(trials=1, rungs=1, trials_fraction=Settings().trials_fraction)
        assert Settings().changed(**space.settings_of(space.params_of(plain))) == plain, name


def test_every_draw_is_a_setting() -> None:
    fixed: list[dict[str, Any]] = [
        {"shaping": "nes"},
        {"sigma_adaptation": "per_parameter"},
        {"sigma_adaptation": "per_parameter", "sigma": 0.1},
        {"generation_timesteps": 8000, "max_population_size": 512},
        {"generation_timesteps": 8000, "max_population_size": 1000},
    ]
    of_fixed = [SearchSpace(fixed=settings) for settings in fixed]
    for space in (SearchSpace(has_choices=True, alive_bonus=1.0), SearchSpace("images"), *of_fixed):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for _ in range(75):
            trial = study.ask()
            drawn = space.draw(trial)
            assert drawn == trial.params
            space.settings_of(drawn)
