"""Risk: a study compares something else than it says: a wrapper that adds wrongly, settings not found."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.contestant import Acting, base_of, preset_model
from benchmarks.learning.runs.evaluation import Task, play
from benchmarks.learning.runs.results import FINAL, POINT, Row, append_row, read_rows
from benchmarks.learning.studies import cyclic_mdp, episode_reward, frame_skip, memory, perturbed_share, settings
from benchmarks.learning.studies.__main__ import NAMES, main, study_named
from benchmarks.learning.studies.changed import ActionRepeat, LateReward, cut_after, of_length, paid_late, repeated
from benchmarks.learning.studies.short import SHORT, contestant_name, fastes_for
from benchmarks.peers.zoo import algorithm_of, changed_settings, settings_for
from fastes import FastES
from fastes.settings.preset_loader import choose_settings

REWARDS = [0.1, 0.2, 0.3, 0.7, 1e-9, 3.3, 0.1]


class Scripted(gymnasium.Env[Any, Any]):
    """Observes the number of steps taken, pays REWARDS in turn, and ends after the last."""

    observation_space, action_space = spaces.Box(0.0, 10.0, (1,), np.float32), spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.taken: list[Any] = []
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        count = len(self.taken)
        return np.full(1, count, np.float32), REWARDS[count - 1], count == len(REWARDS), False, {"count": count}


def played(env: gymnasium.Env[Any, Any]) -> list[tuple[float, float, bool]]:
    env.reset()
    steps: list[tuple[float, float, bool]] = []
    while not steps or not steps[-1][2]:
        observation, reward, terminated, _, _ = env.step(len(steps))
        steps.append((float(observation[0]), float(reward), terminated))
    return steps


# --- environments ---------------------------------------------------------------------------------------------------


def test_an_action_is_repeated_until_the_episode_ends() -> None:
    env = Scripted()
    assert played(ActionRepeat(env, 3)) == [
        (3.0, 0.1 + 0.2 + 0.3, False),
        (6.0, 0.7 + 1e-9 + 3.3, False),
        (7.0, 0.1, True),
    ]
    assert env.taken == [0, 0, 0, 1, 1, 1, 2]
    assert played(ActionRepeat(env, 1)) == played(env)
    with pytest.raises(ValueError, match="repeat = 0"):
        ActionRepeat(env, 0)


def test_late_rewards_add_up_to_the_same_bits_in_every_episode() -> None:
    late = LateReward(Scripted())
    for _ in range(2):
        steps = played(late)
        assert [reward for _, reward, _ in steps[:-1]] == [0.0] * (len(REWARDS) - 1)
        assert sum(reward for _, reward, _ in steps) == sum(REWARDS)
        assert [seen for seen, _, _ in steps] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_fastes_does_not_notice_late_rewards_on_workers_too(env: str) -> None:
    thetas = []
    for each in (env, paid_late(env)):
        with FastES(each, preset=env, n_workers=1, seed=3, target_return="none") as model:
            model.learn(10**12, lambda _, record: record.generation < 2)
        thetas.append(model.theta)
    assert np.array_equal(*thetas)
    assert not np.array_equal(thetas[0], FastES(env, preset=env, n_workers=0, seed=3).theta)


def test_the_study_of_late_rewards_runs_nothing_when_fastes_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = frame_skip.argparse.Namespace(env=["CartPole-v1"], first_seed=0)
    assert "bit for bit" in episode_reward.check(arguments)
    monkeypatch.setattr(episode_reward, "paid_late", lambda env: repeated(env, 2))
    with pytest.raises(SystemExit, match="nothing is run"):
        episode_reward.check(arguments)


def test_changed_environments_are_what_their_ids_say() -> None:
    env = gymnasium.make(repeated("CartPole-v1", 4))
    assert isinstance(env.unwrapped, type(gymnasium.make("CartPole-v1").unwrapped))
    assert repeated("CartPole-v1", 1) == "CartPole-v1"
    assert (base_of(repeated("CartPole-v1", 4)), base_of("CartPole-v1")) == ("CartPole-v1", "CartPole-v1")
    pendulum = gymnasium.make(repeated("Pendulum-v1", 4))
    pendulum.reset(seed=0)
    decisions, over = 0, False
    while not over:
        over = pendulum.step(np.zeros(1, np.float32))[3]
        decisions += 1
    assert decisions == 50, "200 steps of the pendulum's own, four at a time"


@pytest.mark.parametrize("steps", [30, 99, 300, 999])
def test_the_optimum_of_the_cycle_is_what_walking_it_gives(steps: int) -> None:
    env = gymnasium.make(cut_after(steps))
    observation, _ = env.reset()
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step((int(observation.argmax()) + 1) % 3)
        total, over = total + float(reward), terminated or truncated
    assert total == cyclic_mdp.optimum(steps)
    assert cyclic_mdp.steps_of(cut_after(steps)) == steps


def test_changed_environments_keep_the_settings_of_their_base() -> None:
    late = paid_late("InvertedPendulum-v5")
    assert settings_for("ppo", late) == settings_for("ppo", "InvertedPendulum-v5")
    assert settings_for("ppo+CartPole-v1", cut_after(30)) == settings_for("ppo", "CartPole-v1")
    with pytest.raises(ValueError, match="no peer"):
        settings_for("sac+CartPole-v1", "CartPole-v1")
    task = Task(paid_late("CartPole-v1"), "fastes+sigma=0.25", 0, Budget(steps=1))
    with preset_model(task, 0) as model:
        expected = choose_settings("CartPole-v1", None, {"sigma": 0.25, "target_return": "none"})
        assert model.settings == expected


def test_a_contestants_name_may_change_several_settings() -> None:
    changed = {"sigma": 1e-05, "learning_rate": "lin_0.1_1e-3", "starts": 1, "reward_clip": 1e20, "normalize_obs": False}
    changed["policy_kwargs"] = {"cnn": [[16, 3, 1]], "features_extractor_kwargs": {"features_dim": 8}}
    assert changed_settings(fastes_for("CartPole-v1", **changed)) == changed
    assert "1e+20" in fastes_for("CartPole-v1", **changed)


def test_what_a_contestant_remembers_is_of_one_episode() -> None:
    for name, algo in memory.POLICIES.items():
        with preset_model(Task(of_length(30), algo, 0, Budget(steps=1)), 0) as model:
            assert model.settings.policy == ("MlpPolicy" if name == "MLP" else "MlpLstmPolicy")
            assert model.env.unwrapped.length == 30
            size = len(model.policy.parameters_to_vector())
            model.policy.load_from_vector(np.random.default_rng(0).normal(size=size))
            acting = Acting(model)
            returns = play(model.env, acting.act, range(4), acting.begin)
            assert returns == model.evaluate(4, first_seed=0).returns.tolist()


def test_studies_of_a_preset_for_long_trainings_have_settings_for_short_ones() -> None:
    expected = dataclasses.replace(choose_settings("Swimmer-v5", None, {"target_return": "none"}), **SHORT["Swimmer-v5"])
    task = Task(repeated("Swimmer-v5", 2), contestant_name("fastes", "Swimmer-v5"), 0, Budget(steps=1))
    with preset_model(task, 0) as model:
        assert model.settings == expected
    assert contestant_name("ppo", "Swimmer-v5") == "ppo"


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env", "candidates"), [("Swimmer-v5", [2, 4, 8, 16, 32]), ("Hopper-v5", [4, 8, 16, 32, 64])])
def test_one_setting_is_varied_at_a_time_and_the_middle_runs_once(env: str, candidates: list[int]) -> None:
    found, middle = settings.contestants(env), settings.middle(env)
    assert list(found["population_size"]) == candidates
    assert found["sigma"][middle.sigma] == found["learning_rate"][middle.learning_rate] == fastes_for(env)
    arguments = frame_skip.argparse.Namespace(env=env, timesteps=10, points=2, episodes=1, final_episodes=1)
    tasks = settings.tasks(arguments, range(2))
    assert len(tasks) == len({(task.algo, task.seed) for task in tasks}) == 2 * 13
    row = Row(env, fastes_for(env, sigma=0.2), 0, "", 1, FINAL, 0, 0, 0, 0, 0, 0, "", "")
    assert settings.condition(row) == {
        "env": env,
        "population_size": candidates[2],
        "sigma": 0.2,
        "learning_rate": middle.learning_rate,
    }


def test_settings_are_multiplied() -> None:
    assert [settings.times_factor("population_size", own, 0.25) for own in (12, 4, 2)] == [4, 2, 2]
    assert settings.times_factor("sigma", "lin_0.02_0.005", 2.0) == "lin_0.04_0.01"


@pytest.fixture
def _quick_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy", "matplotlib"):
        pytest.importorskip(module)
    monkeypatch.setattr("benchmarks.learning.reports.curves.RESAMPLES", 9)


# --- from end to end ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_quick_intervals")
def test_a_study_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_reward, "ALGOS", ("fastes",))
    command = ["episode_reward", "--env", "CartPole-v1", "--timesteps", "300", "--cores", "1"]
    command += ["--points", "2", "--episodes", "1", "--final-episodes", "2", "--seeds", "1", "--out", str(tmp_path)]
    main(command)
    folder = tmp_path / "episode_reward"
    rows = read_rows(folder / "results.csv")
    assert [row.kind for row in rows] == [POINT, FINAL] * 2
    assert rows[-1].steps >= 300
    main([*command, "--first-seed", "0"])
    assert read_rows(folder / "results.csv") == rows, "what is finished is not run again"
    with open(folder / "episode_reward.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["reward"], float(line["score"])) for line in lines] == [
        ("each step", rows[1].score),
        ("at the end", rows[3].score),
    ]
    assert all("fastes" in line["machine"] for line in lines)
    assert (folder / "episode_reward.png").stat().st_size > 5_000
    assert "bit for bit" in (folder / "report.md").read_text()
    main([*command, "--report-only"])
    assert "bit for bit" in (folder / "report.md").read_text()
    with pytest.raises(SystemExit):
        main([*command, "--episodes", "0"])
    assert "argument --episodes: '0'" in capsys.readouterr().err


def report_of(name: str, folder: Path, score: Any, given: list[str]) -> str:
    """The report of runs that are made up: score(task, at the end) gives a score."""
    study = study_named(name)
    parser = frame_skip.argparse.ArgumentParser()
    study.add_options(parser)
    (folder / name).mkdir()
    for task in study.tasks(parser.parse_args(given), range(2)):
        key = (task.env, task.algo, task.seed, str(task.budget), 1)
        for kind, at in ((POINT, 0), (POINT, 500), (FINAL, 1000)):
            statistics = (at, at / 100, at / 100, score(task, at), 1.0, 3, "a machine", "")
            append_row(folder / name / "results.csv", Row(*key, kind, *statistics))
    main([name, "--report-only", "--out", str(folder), *given])
    assert (folder / name / f"{name}.png").stat().st_size > 5_000
    return (folder / name / "report.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("_quick_intervals")
def test_every_study_reports_who_wins(tmp_path: Path) -> None:
    def cycle(task: Task, at: int) -> float:
        solved = at == 1000 or (at and (task.algo == "ppo+CartPole-v1" or task.seed == 0))
        return 0.0 if task.algo == "ppo" or not solved else float(task.stop_at or 0)

    text = report_of("cyclic_mdp", tmp_path, cycle, ["--steps", "99"])
    cells = {
        line.split("|")[2].strip(): [cell.strip() for cell in line.split("|")[3:7]]
        for line in text.splitlines()
        if "| 99" in line
    }
    assert cells["FastES"] == ["2 of 2", "1 of 2", "7.50", "10.00"]
    assert cells["PPO, Zoo's settings for CartPole"] == ["2 of 2", "2 of 2", "5.00", "5.00"]
    assert cells["PPO, SB3's defaults (Zoo has none)"] == ["0 of 2", "0 of 2", "never", "never"]
    assert "missed (1 of 2 runs)" in text

    def by_repeat(task: Task, at: int) -> float:
        repeat = frame_skip.condition(Row(task.env, task.algo, 0, "", 1, "", 0, 0, 0, 0, 0, 0, "", ""))["repeat"]
        return at / (1 if algorithm_of(task.algo) == "fastes" else repeat)

    text = report_of("frame_skip", tmp_path, by_repeat, ["--env", "Swimmer-v5"])
    ratios = {line.split("|")[1].strip(): line.split("|")[6].strip() for line in text.splitlines() if line.startswith("| ")}
    assert (ratios["fastes"], ratios["ppo"]) == ("1.00", "0.25")

    text = report_of("episode_reward", tmp_path, lambda task, at: at + len(task.env), ["--env", "CartPole-v1", "Swimmer-v5"])
    assert "FastES differs, which must not be: CartPole-v1 seed 0, Swimmer-v5 seed 0, CartPole-v1 seed 1" in text
    (tmp_path / "same").mkdir()
    text = report_of("episode_reward", tmp_path / "same", lambda _, at: at, ["--env", "CartPole-v1"])
    assert "Every evaluation of FastES is the same." in text

    def remembered(task: Task, at: int) -> float:
        return float(at > 0 and task.algo != memory.POLICIES["MLP"] and (task.seed == 0 or at == 1000))

    text = report_of("memory", tmp_path, remembered, ["--lengths", "30"])
    cells = {
        line.split("|")[2].strip(): [cell.strip() for cell in line.split("|")[3:6]]
        for line in text.splitlines()
        if "| 30" in line
    }
    assert cells["MLP"] == ["0 of 2", "never", "never"]
    assert cells["LSTM"] == cells["GRU"] == ["2 of 2", "750", "1,000"]

    def by_share(task: Task, at: int) -> float:
        share = changed_settings(task.algo)["perturbed_share"]
        return perturbed_share.TASKS[task.env].solved if at * share >= 100 else -1.0

    text = report_of("perturbed_share", tmp_path, by_share, ["--envs", "fastes/Catch-v0"])
    lines = [[cell.strip() for cell in line.split("|")[1:6]] for line in text.splitlines() if line.startswith("| fastes/")]
    assert [line[1:3] for line in lines] == [["1", "2 of 2"], ["0.5", "2 of 2"], ["0.1", "2 of 2"], ["0.01", "0 of 2"]]
    assert int(lines[0][3].replace(",", "")) < int(lines[2][3].replace(",", ""))

    text = report_of("settings", tmp_path, lambda task, at: at + task.seed, ["--env", "CartPole-v1"])
    assert text.count("(middle)") == 3
    assert "1000.5 (1000.0 to 1001.0)" in text


def test_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["frame-skip"])
    told = capsys.readouterr().err
    assert "'frame-skip' is no study" in told
    assert all(name in told for name in NAMES)
