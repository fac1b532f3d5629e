"""Risk: RL Baselines3 Zoo trains something else than it says, cannot load what it saved, or hides an error."""

from __future__ import annotations

import contextlib
import csv
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from processes import children, environment

from fastes import Callback, FastES, FastESError, Settings
from fastes.settings.preset_loader import all_presets, load_preset
from fastes.system.installation import install_command
from fastes.zoo import hyperparams as search_space
from fastes.zoo import launcher
from fastes.zoo.algorithm import FastES as ZooFastES

CARTPOLE = ["--env", "CartPole-v1", "-f", "logs", "--seed", "1"]
SMALL = ["population_size:4", "policy_kwargs:{}", "n_envs:2"]


class Hundredfold(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper that no spec can describe."""

    def reward(self, reward: Any) -> float:
        return 100.0 * float(reward)


@pytest.fixture
def zoo() -> Any:
    """The Zoo's exp_manager with FastES registered."""
    pytest.importorskip("rl_zoo3")
    from rl_zoo3 import exp_manager

    from fastes.zoo.algorithm import register

    register("fastes")
    return exp_manager


@pytest.fixture
def vec_env(zoo: Any) -> Iterator[Any]:
    """What the Zoo makes of CartPole-v1 for three vector_env."""
    made = zoo.make_vec_env(lambda **kwargs: zoo.gym.make("CartPole-v1", **kwargs), n_envs=3, seed=0)
    yield made
    made.close()


def run_zoo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {**environment(), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "fastes.zoo", *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=200)


def succeeds(*arguments: str, cwd: Path) -> str:
    result = run_zoo(*arguments, cwd=cwd)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `logs`, where the Zoo has trained CartPole-v1."""
    pytest.importorskip("rl_zoo3")
    folder = tmp_path_factory.mktemp("zoo")
    frequencies = ["--eval-freq", "3000", "--eval-episodes", "2", "--save-freq", "5000"]
    succeeds("train", *CARTPOLE, "-n", "20000", *frequencies, cwd=folder)
    return folder


# --- without the Zoo --------------------------------------------------------------------------------------------------


def test_without_the_zoo_the_launcher_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rl_zoo3", None)
    assert launcher.main(["train"]) == 1
    told = capsys.readouterr().err
    assert f"'rl_zoo3': {install_command('zoo')}" in told
    assert "whl/cpu" in told, "torch without what GPUs need"


def test_the_launcher_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["--help"]) == 0
    assert "record_video" in capsys.readouterr().out
    assert launcher.main(["trian"]) == 2
    assert "unknown command 'trian'" in capsys.readouterr().err
    assert launcher.main([]) == 2


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("train", ["--env", "A-v0"], ["--algo", "fastes", "--conf-file", launcher.HYPERPARAMS]),
        ("train", ["--algo", "fastes", "-params", "sigma:0.1"], ["--algo", "fastes", "--conf-file", launcher.HYPERPARAMS]),
        ("train", ["--algo=ppo"], []),
        ("train", ["--env", "A-v0", "--algo", "ars"], []),
        ("enjoy", ["-f", "logs"], ["--algo", "fastes"]),
        ("all_plots", ["-a", "fastes"], []),
    ],
)
def test_other_algorithms_keep_their_own_hyperparameters(command: str, arguments: list[str], expected: list[str]) -> None:
    assert launcher.defaults(command, arguments) == expected


@pytest.mark.parametrize("preset", all_presets())
def test_entries_mean_the_presets(preset: str) -> None:
    from fastes.zoo.hyperparams import hyperparams

    entry = dict(hyperparams[preset])
    assert entry.pop("n_envs") >= 1
    assert entry.pop("target_return") == "none"
    under = Settings().changed(**load_preset(entry.pop("preset", "default")))
    settings = under.changed(total_timesteps=entry.pop("n_timesteps"), **entry)
    meant = "linear" if preset == "default" else preset  # what an environment without an entry gets
    assert settings == Settings().changed(**load_preset(meant))
    assert "policy" in entry, "the Zoo takes it away when it loads an agent"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "LinearPolicy"),
        ({"sigma": 0.3}, "LinearPolicy"),
        ({"policy_kwargs": {"use_bias": True}}, "LinearPolicy"),
        ({"policy_kwargs": {"net_arch": [8]}}, "MlpPolicy"),
        ({"policy": "MlpPolicy"}, "MlpPolicy"),
    ],
)
def test_a_network_in_params_takes_the_place_of_the_linear_policy(params: dict[str, Any], expected: str) -> None:
    """As without the Zoo, although the entry says that the policy is linear."""
    from fastes.zoo.hyperparams import hyperparams

    entry = {**hyperparams["default"], **params}
    for name in ("n_timesteps", "n_envs"):
        del entry[name]
    with ZooFastES("Toy-v0", entry.pop("policy"), n_workers=0, **entry) as model:
        kept = Settings().changed(**{**load_preset("linear"), **params, "policy": expected, "target_return": "none"})
        assert model.settings.changed(policy_kwargs={}) == kept.changed(policy_kwargs={})


def test_entries_are_new_each_time() -> None:
    """The Zoo deletes from the entry that it reads."""
    from fastes.zoo import hyperparams

    hyperparams.hyperparams["CartPole-v1"].clear()
    assert hyperparams.hyperparams["CartPole-v1"]["policy"] == "LinearPolicy"


class Draws:
    """An Optuna trial that takes the n-th of three choices everywhere: the lowest, the middle one, the highest."""

    def __init__(self, at: int) -> None:
        self.at, self.params = at, {}

    def _choose(self, name: str, choices: list[Any]) -> Any:
        self.params[name] = choices[min(self.at * len(choices) // 2, len(choices) - 1)]
        return self.params[name]

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        return self._choose(name, choices)

    def suggest_int(self, name: str, low: int, high: int, log: bool = False) -> int:
        return int(self._choose(name, [low, (low + high) // 2, high]))

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
        return float(self._choose(name, [low, (low + high) / 2, high]))


class RandomDraws(Draws):
    """An Optuna trial that takes one of three choices everywhere."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(0)
        self.rng = rng

    def _choose(self, name: str, choices: list[Any]) -> Any:
        self.params[name] = self.rng.choice(choices)
        return self.params[name]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_every_corner_of_the_search_space_is_a_setting(at: int) -> None:
    """A ValueError would end the whole study."""
    trial = Draws(at)
    drawn = search_space.sample(trial, 1, 1, {})
    settings = Settings().changed(**drawn)
    assert settings.population_size == [8, 68, 128][at]
    assert search_space.convert(trial.params) == drawn, "what a study has stored means the same"
    FastES("CartPole-v1", n_workers=0, **drawn).close()


@pytest.mark.parametrize("preset", all_presets())
def test_every_draw_goes_with_every_preset(preset: str) -> None:
    """The Zoo puts what is drawn on top of an entry."""
    known = Settings().to_dict()
    given = {name: value for name, value in search_space.entry(preset).items() if name in known}
    rng = random.Random(0)
    for _ in range(30):
        Settings().changed(**{**given, **search_space.sample(RandomDraws(rng), 1, 1, {})})


def test_a_mistake_is_no_pruned_trial() -> None:
    """The Zoo takes ValueError and AssertionError while it learns for a trial that diverged."""

    class Wrong(Callback):
        def on_generation(self, model: Any, record: Any) -> None:
            raise ValueError("a mistake")

    with (
        ZooFastES(Toy, n_workers=0, population_size=4, seed=0) as model,
        pytest.raises(FastESError, match="a mistake") as caught,
    ):
        model.learn(100, Wrong())
    assert not isinstance(caught.value, ValueError)


# --- in this process --------------------------------------------------------------------------------------------------


def test_workers_and_lanes_train_the_same(zoo: Any, vec_env: Any) -> None:
    thetas = []
    for n_workers in (2, 0):
        with ZooFastES(env=vec_env, seed=3, n_workers=n_workers, population_size=6, policy="LinearPolicy") as model:
            assert (model.source.vector_env is None) == bool(n_workers)
            assert model.n_workers == n_workers
            assert model.source.name == "CartPole-v1"
            assert (model.snapshot().data["env"] or {"id": None})["id"] == "CartPole-v1", "enjoy builds it from the checkpoint"
            assert model.env is model.get_env() is vec_env
            assert model.n_envs == 3
            model.learn(1000)
            thetas.append(model.theta.copy())
    np.testing.assert_array_equal(*thetas)


def test_workers_start_no_torch_and_no_checker(zoo: Any, vec_env: Any) -> None:
    from fastes.zoo.algorithm import single_environments

    source = single_environments(vec_env)
    assert source is not None
    assert source.rebuilds
    env = source(render_mode="rgb_array")
    names, mode = str(env), env.render_mode
    env.close()
    assert mode == "rgb_array", "videos need it"
    assert "Monitor" not in names
    assert "Checker" not in names


def test_wrappers_of_the_environment_reach_the_workers(zoo: Any) -> None:
    made = zoo.make_vec_env(
        lambda **kwargs: zoo.gym.make("CartPole-v1", **kwargs),
        n_envs=1,
        env_kwargs={"render_mode": "rgb_array"},
        wrapper_class=Hundredfold,
    )
    try:
        with ZooFastES(env=made, seed=0, n_workers=1, population_size=4) as model:
            assert model.source.vector_env is None
            built = model.source()
            assert "Checker" not in str(built)
            built.close()
            model.learn(100)
            assert max(episode_return for episode_return, _ in model.last_episodes) >= 800.0
    finally:
        made.close()


def test_what_workers_cannot_rebuild_is_driven_as_it_is(zoo: Any, vec_env: Any) -> None:
    normalised = zoo.VecNormalize(vec_env)
    model = ZooFastES(env=normalised, seed=0)
    assert model.source.vector_env is not None
    assert model.get_vec_normalize_env() is normalised
    assert not model.settings.normalize_obs
    assert ZooFastES(env=vec_env, seed=0).source.vector_env is None
    made = zoo.make_vec_env("CartPole-v1", n_envs=1, monitor_kwargs={"override_existing": True})
    assert ZooFastES(env=made, seed=0).source.vector_env is not None
    made.close()


def test_the_entry_of_the_hyper_parameter_file_is_all_there_is(zoo: Any, vec_env: Any) -> None:
    """A preset's settings must not come in between unseen."""
    settings = ZooFastES(env=vec_env, policy="MlpPolicy", sigma=0.3).settings
    assert settings == Settings().changed(policy="MlpPolicy", sigma=0.3)
    assert ZooFastES(env=vec_env, preset="CartPole-v1").settings.policy == "LinearPolicy"
    over = ZooFastES(env=vec_env, preset="Reacher-v5", learning_rate=0.1, policy_kwargs={"net_arch": [8]}).settings
    assert over.learning_rate == 0.1
    assert over.policy_kwargs == {"net_arch": [8], "activation_fn": "relu"}, "merged with the preset's"


@pytest.mark.parametrize(("value", "plain"), [(0.03, 0.03), ("lin_0.03", "lin_0.03"), ("exp_0.02_0.001", "exp_0.02_0.001")])
def test_schedules_survive_a_checkpoint(zoo: Any, vec_env: Any, value: object, plain: object, tmp_path: Path) -> None:
    """The Zoo makes functions of them, which a checkpoint does not hold."""
    ready = zoo.ExperimentManager._preprocess_schedules({"learning_rate": value})
    model = ZooFastES(env=vec_env, **ready)
    assert model.settings.learning_rate == plain
    model.save(tmp_path / "model")
    again = ZooFastES.load(tmp_path / "model", env=vec_env, **ready)
    assert again.settings.learning_rate == plain
    assert again.env is vec_env
    acting = ZooFastES.load(tmp_path / "model", custom_objects={"learning_rate": 0.0, "lr_schedule": lambda _: 0.0})
    assert acting.settings.learning_rate == plain
    assert acting.predict(vec_env.reset())[0].shape == (3,)


def test_a_trial_can_let_go_of_its_environment(zoo: Any, vec_env: Any) -> None:
    """As the Zoo ends a trial: close, then delete."""
    model = ZooFastES(env=vec_env, n_workers=1, population_size=4)
    before = set(children())
    model.learn(50)
    assert set(children()) <= before, "nothing tells the model that the trial is over"
    model.env.close()
    del model.env
    assert not any(each is vec_env for each in vars(model).values()), "its memory is free again"


# --- as users run it --------------------------------------------------------------------------------------------------


def test_train_then_enjoy(trained: Path) -> None:
    folder = trained / "logs" / "fastes" / "CartPole-v1_1"
    assert {"best_model.zip", "CartPole-v1.zip", "evaluations.npz"} <= {path.name for path in folder.iterdir()}
    with open(folder / "0.monitor.csv", newline="") as file:
        assert next(file).startswith("#")
        rows = list(csv.DictReader(file))
    model = FastES.load(folder / "CartPole-v1.zip")
    assert sum(int(row["l"]) for row in rows) == model.num_timesteps >= 20000
    assert [row["r"] for row in rows] == [f"{int(row['l'])}.0" for row in rows]
    output = succeeds("enjoy", *CARTPOLE, "--no-render", "-n", "1100", cwd=trained)
    assert float(output.partition("Mean reward: ")[2].split()[0]) > 400.0


def test_evaluations_come_as_often_as_asked(trained: Path) -> None:
    """The Zoo divides their period by n_envs, which it takes for calls that are that many steps each."""
    folder = trained / "logs" / "fastes" / "CartPole-v1_1"
    with np.load(folder / "evaluations.npz") as stored:
        timesteps = stored["timesteps"]
    with open(folder / "0.monitor.csv", newline="") as file:
        next(file)
        lengths = [int(row["l"]) for row in csv.DictReader(file)]
    generations = np.reshape(lengths, (-1, 16)).sum(axis=1)
    calls = np.cumsum(-(-generations // 8))
    before, steps = [0, *calls[:-1]], np.cumsum(generations)

    def due(period: int) -> list[int]:
        return steps[calls // (period // 8) > np.array(before) // (period // 8)].tolist()

    assert timesteps.tolist() == due(3000)
    assert sorted(int(path.stem.split("_")[2]) for path in folder.glob("rl_model_*_steps.zip")) == due(5000)


def test_a_learning_rate_between_two_numbers_is_trained_with(tmp_path: Path) -> None:
    """The Zoo itself can read no such schedule."""
    pytest.importorskip("rl_zoo3")
    assert load_preset("MountainCar-v0")["learning_rate"].count("_") == 2
    task = ["--env", "MountainCar-v0", "-f", "logs", "--seed", "1"]
    succeeds("train", *task, "-n", "3000", "--eval-freq", "-1", "-params", "sigma:0.25", cwd=tmp_path)
    model = FastES.load(tmp_path / "logs" / "fastes" / "MountainCar-v0_1" / "MountainCar-v0.zip")
    expected = {**load_preset("MountainCar-v0"), "sigma": 0.25, "target_return": "none"}
    del expected["total_timesteps"]  # the Zoo's n_timesteps
    assert model.settings == Settings().changed(**expected)
    assert "Mean reward" in succeeds("enjoy", *task, "--no-render", "-n", "400", cwd=tmp_path)


@pytest.mark.slow
def test_enjoy_loads_what_it_is_asked_for(trained: Path) -> None:
    folder = trained / "logs" / "fastes" / "CartPole-v1_1"
    saved = sorted(int(path.stem.split("_")[2]) for path in folder.glob("rl_model_*_steps.zip"))
    for extra, name in (
        (["--load-best"], "best_model.zip"),
        (["--load-checkpoint", str(saved[0])], f"rl_model_{saved[0]}_steps.zip"),
        (["--load-last-checkpoint"], f"rl_model_{saved[-1]}_steps.zip"),
    ):
        output = succeeds("enjoy", *CARTPOLE, "--no-render", "-n", "600", *extra, cwd=trained)
        assert f"Loading logs/fastes/CartPole-v1_1/{name}" in output
        assert "Mean reward" in output


@pytest.mark.slow
def test_training_goes_on_from_a_trained_agent(trained: Path) -> None:
    agent = "logs/fastes/CartPole-v1_1/CartPole-v1.zip"
    output = succeeds("train", *CARTPOLE[:2], "-f", "more", "-i", agent, "-n", "2000", "--eval-freq", "-1", cwd=trained)
    assert "Loading pretrained agent" in output
    before, after = (FastES.load(trained / path) for path in (agent, "more/fastes/CartPole-v1_1/CartPole-v1.zip"))
    assert after.generation > before.generation
    assert 2000 <= after.num_timesteps < before.num_timesteps


@pytest.mark.slow
def test_plots(trained: Path) -> None:
    pytest.importorskip("seaborn")
    succeeds("train", *CARTPOLE[:4], "-n", "8000", "--eval-freq", "2000", "--eval-episodes", "2", cwd=trained)
    which = ["-a", "fastes", "-e", "CartPole-v1", "-f", "logs"]
    merged = ["-min", "5000", "--no-display", "-o", "curves"]  # generations differ: so do numbers of evaluations
    assert "FASTES" in succeeds("all_plots", *which, *merged, cwd=trained)
    succeeds("plot_from_file", "-i", "curves.pkl", "-o", "curves.svg", cwd=trained)
    assert (trained / "curves.svg").read_text().count("<svg") == 1
    succeeds("plot_train", *which, cwd=trained)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dummy", "subproc"])
def test_normalize_is_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("rl_zoo3")
    normalize = ["-params", "normalize:True", "n_envs:2", "--vec-env", kind]
    frequencies = ["-n", "12000", "--eval-freq", "4000", "--n-eval-envs", "1"]
    output = succeeds("train", *CARTPOLE, *frequencies, *normalize, cwd=tmp_path)
    assert "Normalizing input and reward" in output
    folder = tmp_path / "logs" / "fastes" / "CartPole-v1_1"
    assert (folder / "CartPole-v1" / "vecnormalize.pkl").exists()
    assert not FastES.load(folder / "CartPole-v1.zip").settings.normalize_obs
    output = succeeds("enjoy", *CARTPOLE, "--no-render", "-n", "600", cwd=tmp_path)
    assert "Loading running average" in output
    assert "Mean reward" in output


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_tuning(tmp_path: Path, jobs: str) -> None:
    pytest.importorskip("rl_zoo3")
    budget = ["-n", "1500", "--n-trials", "3", "--n-jobs", jobs, "--n-evaluations", "2", "--eval-episodes", "1"]
    storage = ["--storage", "study.log", "--study-name", "study"]
    output = succeeds("train", *CARTPOLE, "-optimize", *budget, *storage, "--no-optim-plots", cwd=tmp_path)
    assert "Number of finished trials:  3" in output
    assert "population_size: " in output
    (report,) = (tmp_path / "logs" / "fastes").glob("report_*.csv")
    with open(report, newline="") as file:
        assert {row["state"] for row in csv.DictReader(file)} <= {"COMPLETE", "PRUNED"}
    output = succeeds("train", *CARTPOLE, *storage, "--trial-id", "1", "-n", "1000", "--eval-freq", "-1", cwd=tmp_path)
    assert "Loading from Optuna study" in output


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [[], ["-optimize", "--n-trials", "2", "--n-evaluations", "1"]], ids=["train", "optimize"])
def test_a_wrong_hyper_parameter_is_told(tmp_path: Path, optimize: list[str]) -> None:
    pytest.importorskip("rl_zoo3")
    result = run_zoo("train", *CARTPOLE, "-n", "1000", "-params", "sigmaa:0.1", *optimize, cwd=tmp_path)
    assert result.returncode != 0
    assert "unknown setting 'sigmaa'; did you mean 'sigma'" in result.stderr


@pytest.mark.slow
def test_a_hyper_parameter_file_of_the_user_is_used(tmp_path: Path) -> None:
    pytest.importorskip("rl_zoo3")
    (tmp_path / "mine.yml").write_text("CartPole-v1:\n  n_timesteps: 500\n  policy: LinearPolicy\n  population_size: 4\n")
    output = succeeds("train", *CARTPOLE, "-conf", "mine.yml", "--eval-freq", "-1", cwd=tmp_path)
    assert "Loading hyperparameters from: mine.yml" in output
    model = FastES.load(tmp_path / "logs" / "fastes" / "CartPole-v1_1" / "CartPole-v1.zip")
    assert model.settings == Settings().changed(policy="LinearPolicy", population_size=4)
    assert model.n_workers >= 1
    assert 500 <= model.num_timesteps < 5000


@pytest.mark.slow
def test_a_video_is_recorded(trained: Path) -> None:
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    with contextlib.suppress(FileExistsError):
        (trained / "videos").mkdir()
    succeeds("record_video", *CARTPOLE[:4], "-n", "50", "-o", "videos", "--no-render", cwd=trained)
    assert [path.stat().st_size > 1000 for path in (trained / "videos").glob("*.mp4")] == [True]


@pytest.mark.slow
def test_ctrl_c_saves_what_was_learned(tmp_path: Path) -> None:
    pytest.importorskip("rl_zoo3")
    command = [sys.executable, "-m", "fastes.zoo", "train", *CARTPOLE, "-n", "1000000000", "--eval-freq", "-1"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                first, *_ = line.split() or [""]
                if first.isdigit() and int(first) >= 3:
                    break
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Saving to" in output
    assert FastES.load(tmp_path / "logs" / "fastes" / "CartPole-v1_1" / "CartPole-v1.zip").generation >= 3


@pytest.mark.slow
def test_wrappers_and_stacks_of_the_zoo(tmp_path: Path) -> None:
    """Observations that only the Zoo's environments have, in training and in enjoy."""
    pytest.importorskip("rl_zoo3")
    common = ["--env", "Pendulum-v1", "-f", "logs"]
    for number, extra in enumerate(("env_wrapper:['rl_zoo3.wrappers.TimeFeatureWrapper']", "frame_stack:2"), 1):
        succeeds("train", *common, "-n", "3000", "--eval-freq", "1000", "-params", extra, cwd=tmp_path)
        model = FastES.load(tmp_path / "logs" / "fastes" / f"Pendulum-v1_{number}" / "Pendulum-v1.zip")
        assert model.policy_spec.obs_size == (4, 6)[number - 1]
        assert "Mean reward" in succeeds("enjoy", *common, "--no-render", "-n", "200", cwd=tmp_path)
