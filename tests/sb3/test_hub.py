"""Risk: a model cannot be put on the Hugging Face Hub with SB3's tool, or what comes back from there acts otherwise."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fastes import FastES
from fastes.system.installation import install_command


@pytest.fixture(scope="module")
def model() -> Any:
    with FastES("CartPole-v1", n_workers=0, preset="default", population_size=4, seed=1) as model:
        yield model.learn(500)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """huggingface_sb3's module, with tmp_path / 'hub' in the place of the network."""
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("huggingface_sb3")
    module = importlib.import_module("huggingface_sb3.push_to_hub")

    class Url(str):
        repo_id = "someone/es"

    def upload_folder(folder_path: Path, **arguments: Any) -> str:
        shutil.copytree(folder_path, tmp_path / "hub", dirs_exist_ok=True)
        return "url"

    class Api:
        def __init__(self, **arguments: Any) -> None: ...

        def create_repo(self, **arguments: Any) -> str:
            (tmp_path / "hub").mkdir()
            return Url("url")

        def upload_folder(self, folder_path: Path, **arguments: Any) -> str:
            return upload_folder(folder_path)

        def upload_file(self, path_or_fileobj: str, path_in_repo: str, **arguments: Any) -> None:
            shutil.copy(path_or_fileobj, tmp_path / "hub" / path_in_repo)

    monkeypatch.setattr(module, "HfApi", Api)
    if hasattr(module, "upload_folder"):  # huggingface_sb3 3.0; the SB3 team's 3.2 asks the Api
        monkeypatch.setattr(module, "upload_folder", upload_folder)
    monkeypatch.setenv("TRUST_REMOTE_CODE", "True")  # 3.2 loads nothing without: other models are pickles
    if importlib.util.find_spec("moviepy") is None:  # SB3's VecVideoRecorder looks for it at once
        monkeypatch.setitem(sys.modules, "moviepy", ModuleType("moviepy"))
    return module


def actions(model: FastES) -> list[int]:
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    return model.predict(observations, deterministic=True)[0].tolist()


def test_a_checkpoint_has_the_json_member_that_sb3s_tools_read(model: FastES, tmp_path: Path) -> None:
    model.save(tmp_path / "es-CartPole-v1")
    with zipfile.ZipFile(tmp_path / "es-CartPole-v1.zip") as archive:
        archive.extractall(tmp_path / "es-CartPole-v1")
    with open(tmp_path / "es-CartPole-v1" / "data") as file:
        data = json.load(file)
    assert data["env_name"] == "CartPole-v1"
    assert data["settings"]["population_size"] == 4
    assert data["policy"]["layer_sizes"] == [4, 64, 64, 2]
    json.dumps(data, allow_nan=False)


def test_package_to_hub_uploads_a_model_that_plays_the_same(model: FastES, hub: ModuleType, tmp_path: Path) -> None:
    """The video may be left out: 3.0 asks for video_recorder, which SB3 no longer has; 3.2 needs the program ffmpeg."""
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env("CartPole-v1")
    arguments = {"repo_id": "someone/es", "commit_message": "", "n_eval_episodes": 2, "video_length": 5}
    with contextlib.closing(env):
        assert hub.package_to_hub(model, "es-CartPole-v1", "FastES", "CartPole-v1", env, **arguments) == "url"
    uploaded = tmp_path / "hub"
    names = {path.name for path in uploaded.iterdir()}
    assert names - {"replay.mp4"} == {"README.md", "config.json", "results.json", "es-CartPole-v1.zip", "es-CartPole-v1"}
    results = json.loads((uploaded / "results.json").read_text())
    assert results["n_eval_episodes"] == 2
    assert results["is_deterministic"]
    config = json.loads((uploaded / "config.json").read_text())
    assert config["seed"] == 1
    assert "system_info" in config
    card = (uploaded / "README.md").read_text()
    assert f"value: {results['mean_reward']:.2f} +/- {results['std_reward']:.2f}" in card
    with FastES.load(uploaded / "es-CartPole-v1.zip", n_workers=0) as loaded:
        assert loaded.theta.tobytes() == model.theta.tobytes()
        assert actions(loaded) == actions(model)


def test_load_from_hub_gives_a_file_that_loads(
    model: FastES, hub: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's cache is folders of links to files that are named by their checksums, without .zip."""
    from huggingface_sb3 import load_from_hub

    model.save(tmp_path / "model")
    (tmp_path / "model.zip").rename(tmp_path / "3f2a")
    (tmp_path / "es.zip").symlink_to(tmp_path / "3f2a")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo_id, filename, **_: str(tmp_path / filename))
    with FastES.load(load_from_hub("someone/es", "es.zip"), n_workers=0) as loaded:
        assert actions(loaded) == actions(model)


def test_push_to_hub_takes_a_saved_file(
    model: FastES, hub: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model.save("es")
    assert hub.push_to_hub("someone/es", "es.zip", "") == "url"
    with FastES.load(tmp_path / "hub" / "es.zip", n_workers=0) as loaded:
        assert actions(loaded) == actions(model)


def test_our_package_to_hub_leaves_no_todo_in_the_card(
    model: FastES, hub: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the card tells readers to type gives the model back."""
    from stable_baselines3.common.env_util import make_vec_env

    from fastes.sb3.hub import package_to_hub

    env = make_vec_env("CartPole-v1")
    arguments = {"repo_id": "someone/es", "commit_message": "", "n_eval_episodes": 2, "video_length": 5}
    with contextlib.closing(env):
        assert package_to_hub(model, "es-CartPole-v1", "FastES", "CartPole-v1", env, **arguments) == "url"
    uploaded = tmp_path / "hub"
    card = (uploaded / "README.md").read_text()
    results = json.loads((uploaded / "results.json").read_text())
    assert "TODO" not in card
    assert "..." not in card.partition("## Usage")[2]
    assert f"value: {results['mean_reward']:.2f} +/- {results['std_reward']:.2f}" in card, "the tool's own statistics stay"
    assert f"{model.num_timesteps:,} environment steps, seed 1" in card
    monkeypatch.setattr("huggingface_sb3.load_from_hub", lambda repo_id, filename: str(uploaded / filename))
    names: dict[str, Any] = {}
    exec(card.partition("```python\n")[2].partition("```")[0], names)
    assert names["model"].theta.tobytes() == model.theta.tobytes()


def test_a_card_names_the_environment_where_the_file_does_not(model: FastES) -> None:
    from fastes.sb3.hub import model_card, package_to_hub

    assert "FastES.load(path) as model" in model_card(model, "es", "FastES", "CartPole-v1", "someone/es")
    with FastES(lambda: model.source(), n_workers=0, preset="default", population_size=4) as other:
        assert "FastES.load(path, env='my:Env-v0') as model" in model_card(other, "es", "FastES", "my:Env-v0", "someone/es")
    if importlib.util.find_spec("huggingface_sb3") is None:
        with pytest.raises(ImportError, match=re.escape(install_command("hub"))):
            package_to_hub(model, "es", "FastES", "CartPole-v1", None, "someone/es", "")


def test_the_extras_have_what_the_hub_needs() -> None:
    """SB3 films with moviepy, which it does not install itself."""
    from fastes.settings.preset_loader import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert any(name.startswith("moviepy") for name in extras["sb3"])
    assert "fastes[sb3]" in extras["hub"]
    assert any(name.startswith("huggingface-sb3") for name in extras["hub"])
