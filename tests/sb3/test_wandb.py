"""Risk: a script that logs SB3's training to Weights & Biases fails with FastES, or nothing arrives there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, caught_warnings, toy
from processes import run_script
from training import learn

from fastes import FastES
from fastes.sb3 import logger as logging

# as in wandb's own example, without a network
_SCRIPT = """
    import glob, json, sys, warnings
    import wandb
    from wandb.integration.sb3 import WandbCallback
    from fastes import FastES

    class Noting(FastES):
        saves = 0

        def save(self, path):
            Noting.saves += 1
            super().save(path)

    run = wandb.init(project="test", mode="offline", dir=".", sync_tensorboard=True)
    model = Noting("MlpPolicy", "CartPole-v1", n_workers=0, preset="default", population_size=4, seed=1, tensorboard_log="tb")
    callback = WandbCallback(model_save_path="models", model_save_freq=10, gradient_save_freq=100, log="all", verbose=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(1000, callback)
    config = {key: str(value) for key, value in run.config.as_dict().items()}
    run.finish()
    wandb.teardown()  # waits for the service, which may still be writing its record when finish returns
    (record,) = glob.glob("wandb/offline-run-*/run-*.wandb")
    content = open(record, "rb").read()
    keys = [key for key in ("rollout/ep_rew_mean", "es/eval_return", "time/fps", "global_step") if key.encode() in content]
    said = [str(warning.message) for warning in caught if "gradient" in str(warning.message)]
    json.dump([Noting.saves, model.generation, config, keys, said], open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an offline run of the script leaves; in a process of its own, since wandb patches modules and starts a service."""
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboardX")
    folder = tmp_path_factory.mktemp("wandb")
    result = run_script(_SCRIPT, folder)
    assert result.returncode == 0, result.stderr
    return folder, json.loads((folder / "found.json").read_text())


def test_the_model_is_saved_once_in_a_generation_and_loads(found: Any) -> None:
    folder, (saves, generations, *_) = found
    assert saves == generations + 1, "in each generation, and at the end"
    with FastES.load(folder / "models" / "model.zip", n_workers=0) as model:
        assert model.generation == generations
    (copy,) = folder.glob("wandb/offline-run-*/files/model.zip")
    assert copy.read_bytes() == (folder / "models" / "model.zip").read_bytes()


def test_the_configuration_has_the_settings(found: Any) -> None:
    config = found[1][2]
    assert config["algo"] == "Noting"
    assert config["seed"] == "1"
    assert "population_size=4" in config["settings"]


def test_statistics_arrive_through_sync_tensorboard(found: Any) -> None:
    assert found[1][3] == ["rollout/ep_rew_mean", "es/eval_return", "time/fps", "global_step"]


def test_gradients_are_declined_in_words(found: Any) -> None:
    (message,) = found[1][4]
    assert message.startswith("gradient_save_freq = 100 is ignored")


# --- the same without wandb -------------------------------------------------------------------------------------------


class Watcher:
    """SB3's protocol with the attributes of WandbCallback."""

    def __init__(self, model_save_freq: int) -> None:
        self.model_save_freq, self.gradient_save_freq = model_save_freq, 100
        self.n_calls, self.num_timesteps, self.calls = 0, 0, 0

    def init_callback(self, model: FastES) -> None:
        assert self.gradient_save_freq == 0, "it would call wandb.watch(model.policy) now"

    def on_training_start(self, *_: object) -> None: ...

    on_rollout_start = on_rollout_end = on_training_end = update_locals = on_training_start

    def on_step(self) -> bool:
        self.n_calls += 1
        self.calls += 1
        return self.calls < 3


class Parent(Watcher):
    """A callback list of SB3's kind."""

    def __init__(self, children: list[Any]) -> None:
        super().__init__(0)
        self.callbacks = children

    def init_callback(self, model: FastES) -> None:
        for child in self.callbacks:
            child.init_callback(model)


def test_saving_is_due_once_a_generation_and_watching_never() -> None:
    alone, child, never = Watcher(1), Watcher(1), Watcher(0)
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, caught_warnings() as messages:
        model.learn(10**6, [alone, Parent([child, never])])
        assert model.generation == 3
    assert (alone.calls, child.calls, never.calls) == (3, 3, 0)
    assert len([message for message in messages if "gradient_save_freq = 100 is ignored" in message]) == 4


def test_a_writer_put_in_place_of_tensorboardxs_hears_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = pytest.importorskip("tensorboardX.writer")
    heard: list[str] = []

    class Patched(writer.EventFileWriter):  # type: ignore[name-defined, misc]
        def __init__(self, folder: str, *arguments: Any) -> None:
            heard.append(folder)
            super().__init__(folder, *arguments)

    logging.configure(tmp_path / "before", ["tensorboard"]).close()
    assert len(list((tmp_path / "before").iterdir())) == 1
    monkeypatch.setattr(writer, "EventFileWriter", Patched)
    with FastES(toy(), preset="default", n_workers=0, tensorboard_log=str(tmp_path), **SETTINGS) as model:
        learn(model, 2)
        model.logger.close()
    assert heard == [str(tmp_path / "FastES_0")]
