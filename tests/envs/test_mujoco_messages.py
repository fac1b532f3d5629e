"""Risk: MuJoCo's warnings fill the console with what no user can act on, hide what matters, and leave a log file behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from faults import caught_warnings

from fastes import FastES
from fastes.envs import mujoco_messages

mujoco = pytest.importorskip("mujoco")
SMALL: dict[str, Any] = {
    "seed": 0,
    "population_size": 2,
    "target_return": "none",
    "preset": "default",
    "noise_table_size": 10_000,
}


class Exploding(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Speeds that no simulation stands."""

    def step(self, action: Any) -> Any:
        self.env.unwrapped.data.qvel[:] = 1e12  # type: ignore[attr-defined]
        return self.env.step(action)


def exploding() -> Any:
    return Exploding(gymnasium.make("HalfCheetah-v5", max_episode_steps=5))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco_messages, "told", set())


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_simulation_that_is_unstable_is_told_once_with_what_to_do(n_workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    with FastES(exploding, n_workers=n_workers, **SMALL) as model:
        model.learn(40)
    out, err = capfd.readouterr()
    said = [line for line in (out + err).splitlines() if "unstable" in line]
    assert len(said) == 1, said
    assert said[0].startswith("fastes: warning: MuJoCo says: Nan, Inf or huge value in QVEL. The simulation is unstable. ")
    assert "smaller timestep" in said[0]
    assert not Path("MUJOCO_LOG.TXT").exists()


@pytest.mark.slow
def test_what_only_gymnasium_can_change_is_not_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its XML has an attribute that MuJoCo 4 calls deprecated. Of a copy of one's own, that is told once, and where."""
    env: Any = gymnasium.make("HalfCheetah-v5")
    own = shutil.copy(env.unwrapped.fullpath, tmp_path / "own.xml")
    Path("MUJOCO_LOG.TXT").unlink(missing_ok=True)  # Gymnasium's own call
    capfd.readouterr()
    for kwargs, times in (({}, 0), ({"xml_file": str(own)}, 1)):
        with caught_warnings() as messages, FastES("HalfCheetah-v5", env_kwargs=kwargs, n_workers=1, **SMALL) as model:
            model.learn(10)
            model.evaluate(1)
            gymnasium.make("HalfCheetah-v5").close()  # as a script plays a model
        said = [message for message in messages if "MuJoCo" in message]
        if mujoco.__version__ >= "4":
            assert len(said) == times, said
            assert all(message.startswith(f"MuJoCo says of {own}: compiler attribute 'settotalmass'") for message in said)
        out, err = capfd.readouterr()
        assert "settotalmass" not in out + err
    assert not Path("MUJOCO_LOG.TXT").exists()


def test_a_handler_of_the_users_own_stays() -> None:
    heard = list[str]()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(heard.append)
    try:
        with FastES(exploding, n_workers=0, **SMALL) as model:
            model.learn(10)
    finally:
        mujoco.set_mju_user_warning(before)
    assert any("unstable" in message for message in heard)
