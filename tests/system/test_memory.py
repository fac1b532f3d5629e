"""Risk: a setting, a large observation or a file asks for more memory than there is, and the system kills the training."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import SETTINGS, toy
from gymnasium import spaces
from images_for_tests import ACTIONS, SMALL, Dots
from images_for_tests import SETTINGS as IMAGES
from training import learn, train

from fastes import CallablePolicy, CheckpointError, EvolutionStrategy, FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.policy_description import describe_policy, spec_from
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.policies.choose_policy import check_model_memory
from fastes.policies.layers import Convolution, ImageConvolution, VirtualBatchNorm
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec
from fastes.rollout.shared_block import anonymous_file, open_nameless
from fastes.sb3.policy import Policy
from fastes.system.limits import available_memory, check_memory, in_bytes, memory_limit

GB = 10**9


class Machine:
    """A made-up /sys/fs/cgroup, /proc/self/cgroup and /proc/meminfo."""

    def __init__(self, folder: Path) -> None:
        self.root, self.membership, self.meminfo = folder / "cgroup", folder / "self", folder / "meminfo"
        self.meminfo.write_text("MemTotal: 64000000 kB\nMemFree: 100 kB\nMemAvailable:   32000000 kB\n")

    def group(self, folder: str, **files: object) -> None:
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (self.root / folder / name.replace("_", ".", 1)).write_text(f"{value}\n")

    def left(self) -> int | None:
        return available_memory(str(self.root), str(self.membership), str(self.meminfo))

    def limit(self) -> int | None:
        return memory_limit(str(self.root), str(self.membership), str(self.meminfo))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_machine_s_memory(machine: Machine) -> None:
    assert machine.left() == 32_000_000 * 1024
    machine.meminfo.unlink()
    assert machine.left() is None
    assert available_memory() is None or available_memory() > 0


def test_the_tightest_group_of_version_2_counts(machine: Machine) -> None:
    machine.membership.write_text("0::/slice/docker/abc\n")
    machine.group("slice/docker/abc", memory_max="max", memory_current=GB)
    assert machine.left() == 32_000_000 * 1024
    machine.group("slice/docker", memory_max=8 * GB, memory_current=5 * GB)
    assert machine.left() == 3 * GB
    machine.group("slice", memory_max=20 * GB, memory_current=18 * GB)
    assert machine.left() == 2 * GB
    machine.group("slice", memory_stat=f"anon 5\ninactive_file {GB // 2}\nactive_file {GB}")
    assert machine.left() == 2 * GB + GB // 2, "pages of files are given back on demand"
    machine.group("slice", memory_current=21 * GB)
    assert machine.left() == 0
    machine.group("other", memory_max=1, memory_current=1)
    assert machine.left() == 0
    assert machine.limit() == 8 * GB


def test_groups_of_version_1(machine: Machine) -> None:
    machine.membership.write_text("9:cpu:/\n4:memory:/docker/abc\n0::/\n")
    machine.group("memory/docker/abc")
    for name, value in (("limit_in_bytes", 2**63 - 4096), ("usage_in_bytes", GB)):
        (machine.root / "memory/docker/abc" / f"memory.{name}").write_text(f"{value}\n")
    assert machine.left() == 32_000_000 * 1024
    (machine.root / "memory/docker/abc/memory.limit_in_bytes").write_text(f"{4 * GB}\n")
    (machine.root / "memory/docker/abc/memory.stat").write_text(f"cache 5\ninactive_file 7\ntotal_inactive_file {GB // 4}\n")
    assert machine.left() == 3 * GB + GB // 4
    assert machine.limit() == 4 * GB


def test_a_limit_above_the_machines_memory_is_none(machine: Machine) -> None:
    machine.membership.write_text("0::/docker\n")
    assert machine.limit() is None
    machine.group("docker", memory_max=100 * 10**12)
    assert machine.limit() is None
    machine.group("docker", memory_max=GB)
    assert machine.limit() == GB


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (823, "823 B"), (4096, "4.1 kB"), (999_600, "1 MB"), (14_700_000_000, "14.7 GB"), (5 * 10**20, "500000 PB")],
)
def test_sizes_in_sensible_units(size: int, text: str) -> None:
    assert in_bytes(size) == text


def test_the_check_names_the_largest_parts(memory_of: Callable[[int], None]) -> None:
    memory_of(GB)
    check_memory({"all": GB}, "")
    with pytest.raises(
        OSError, match=r"2.01 GB needed \(1.5 GB for frames, 500 MB for noise\), 1 GB available; ask for less"
    ) as e:
        check_memory({"noise": GB // 2, "frames": 3 * GB // 2, "crumbs": 10**7}, "ask for less")
    assert e.value.errno == errno.ENOMEM
    memory_of(0)
    check_memory({"a toy": 1000}, "")


@pytest.fixture
def memory_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes this process believe that so many bytes are available."""
    return lambda size: monkeypatch.setattr("fastes.system.limits.available_memory", lambda: size)


class Wide(gymnasium.Env[Any, Any]):
    """Many observed values, which nobody makes."""

    def __init__(self, size: int = 10_000_000) -> None:
        low = np.broadcast_to(np.float32(-1.0), (size,))
        self.observation_space = spaces.Box(low, -low, (size,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


def test_a_policy_that_does_not_fit_is_not_made(memory_of: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    memory_of(4 * GB)
    monkeypatch.setattr("fastes.policies.policy_spec.PolicySpec.initial_theta", lambda *_: pytest.fail("it was made"))
    with pytest.raises(OSError, match=r"10\.\d GB needed \(.*640,004,\d+ parameters.*\), 4 GB available; use a smaller policy"):
        FastES(Wide, "MlpPolicy", preset="default", n_workers=0)
    with pytest.raises(OSError, match="parameters"):
        FastES("CartPole-v1", "MlpPolicy", n_workers=0, policy_kwargs={"net_arch": [10**9, 10**9]})
    with pytest.raises(OSError, match=r"4 TB needed \(4 TB for 1,000,000,000,000 parameters\)"):
        CallablePolicy(lambda p, o: 0, 10**12)


def test_room_for_what_layers_read_and_write_is_counted(memory_of: Callable[[int], None]) -> None:
    memory_of(4 * GB)
    head, most = make_policy_spec("LinearPolicy", spaces.Box(-1.0, 1.0, (1,)), spaces.Box(-1.0, 1.0, (1,))).head, 2**31 - 1
    for layer, observed, told in (
        (ImageConvolution(1, most, 1, 1, 1, most, "tanh", True, 0, 1, 1), (1, most), "8.59 GB for activations"),
        (Convolution(1448, 1448, 1, 1000, 1, 1, "tanh", True), (1448 * 1448,), "16.8 GB for activations"),
        (VirtualBatchNorm(10**7, 1, "tanh"), (10**7,), "5.12 GB for activations of 128 observations"),
    ):
        wide = PolicySpec((layer, Convolution(1, layer.outputs, 1, 1, 1, most, "tanh", False)), head, observed)
        with pytest.raises(OSError, match=rf"not enough memory: .*{told}"):
            check_model_memory(wide)


def test_trials_that_do_not_fit_are_not_made(
    memory_of: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, "policy": "LinearPolicy", "policy_kwargs": {}, "preset": "default", "trials": 5}
    with FastES(partial(Wide, 1_000), n_workers=0, **settings) as model:
        size = model.num_params * 16
        model.save(tmp_path / "m")
    memory_of(3 * size)
    monkeypatch.setattr("fastes.system.limits.WORTH_A_LOOK", 0)
    expected = r"not enough memory: .* [\d,]+ parameters in each of 5 trials.*, or fewer trials"
    with pytest.raises(OSError, match=expected):
        FastES(partial(Wide, 1_000), n_workers=0, **settings)
    with pytest.raises(OSError, match=expected):
        FastES.load(tmp_path / "m", partial(Wide, 1_000), n_workers=0)


@pytest.mark.parametrize("load", [partial(FastES.load, n_workers=0), Policy.load])
def test_a_small_file_with_a_wide_image_asks_for_no_room(load: Any, memory_of: Callable[[int], None], tmp_path: Path) -> None:
    most = 2**31 - 1
    with FastES(
        Dots, preset="default", n_workers=0, **{**IMAGES, "policy_kwargs": {"cnn": [[1, 8, 9]], "batch_norm": "none"}}
    ) as model:
        data, arrays = model.snapshot()
    sizes = {"height": 1, "width": most, "channels": 1, "filters": 1, "kernel": 1, "stride": most, "activation": "relu"}
    image = {"kind": "image_convolution", **sizes, "use_bias": False, "first": 0, "planes": 1, "divisor": 1}
    dense = {"kind": "dense", "inputs": 1, "outputs": 1, "activation": "identity", "use_bias": False}
    policy = {**data["policy"], "obs_shape": [1, most], "layers": [image, {**dense, "activation": "relu"}, dense]}
    size = arrays["trainings"]["0.theta"].shape
    fitting = {name: np.zeros(3, np.float32) if a.shape == size else a for name, a in arrays["trainings"].items()}
    network = {"cnn": [[1, 1, most]], "features_extractor_kwargs": {"features_dim": 1}, "use_bias": False, "batch_norm": "none"}
    settings = {**data["settings"], "policy_kwargs": network}
    write_checkpoint(tmp_path / "m", Checkpoint({**data, "policy": policy, "settings": settings}, {"trainings": fitting}))
    memory_of(4 * GB)
    with pytest.raises(OSError, match=r"not enough memory: 8\.59 GB needed .* for activations"):
        load(tmp_path / "m")


def test_values_beside_an_image_are_numbered_once_theta_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.checkpoints.policy_description.check_memory", lambda *_: pytest.fail("they were made"))
    spec = make_policy_spec("CnnPolicy", Dots(dictionary=True).observation_space, ACTIONS, SMALL)
    described = json.loads(json.dumps(describe_policy(spec)))
    arrays = {"trainings": {"0.theta": spec.initial_theta(0)}}
    described["obs_shape"] = [40_000_000]
    with pytest.raises(CheckpointError, match=r"layers append \[5\] observed values to an image's, expected \[39999856\]"):
        spec_from(Checkpoint({"policy": described, "settings": {}}, arrays))
    described["layers"][2]["appended"] = 40_000_000 - 144
    described["layers"][3]["inputs"] = 40_000_000 - 144 + 12
    with pytest.raises(CheckpointError, match=r"it has 199999534 parameters .*, theta has 279"):
        spec_from(Checkpoint({"policy": described, "settings": {}}, arrays))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_generation_that_does_not_fit_is_not_started(
    n_workers: int, memory_of: Callable[[int], None], no_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_of(GB)
    settings: dict[str, Any] = {"population_size": 100, "noise_table_size": 3_000_000}
    with FastES(partial(Wide, 1_000_000), "LinearPolicy", n_workers=n_workers, **settings) as model:
        monkeypatch.setattr("fastes.rollout.shared_block.mmap.mmap", lambda *_, **__: pytest.fail("memory was asked for"))
        with pytest.raises(OSError, match=r"GB for 100 candidates x observations of 1,000,000 values.*fewer candidates"):
            model.learn(100)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"population_size": 2**31 - 2}, "2,147,483,646 candidates"),
        ({"noise_table_size": 2**36}, "a noise table of 68,719,476,736 values"),
        ({"episodes_per_candidate": 2**62}, "8 candidates x 4,611,686,018,427,387,904 episodes"),
        ({"eval_episodes": 10**10}, "30,000,000,000 evaluations"),
        ({"generation_timesteps": 10**9, "max_population_size": 2**31 - 8}, "2,147,483,640 candidates"),
    ],
)
def test_what_settings_or_a_file_ask_for_is_bounded(
    settings: dict[str, Any], told: str, memory_of: Callable[[int], None], no_process: None, tmp_path: Path
) -> None:
    memory_of(20 * GB)
    with FastES(toy(), n_workers=2, preset="default", **{**SETTINGS, **settings}) as model:
        with pytest.raises(OSError, match=f"not enough memory: .*{told}"):
            learn(model, 1)
        with pytest.raises(OSError, match=f"not enough memory: .*{told}"):
            model.replay(1, 0)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", toy(), 2) as model, pytest.raises(OSError, match="not enough memory"):
        learn(model, 1)


def test_a_billion_evaluations_of_a_file_take_no_room_before_they_are_played(
    memory_of: Callable[[int], None], tmp_path: Path
) -> None:
    memory_of(GB)
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "target_episodes": 10**9}) as model:
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", toy(), 0) as model:
        learn(model, 1)
        assert model.evaluate(3).returns.shape == (3,)
        assert sum(slot.returns.size for slot in model.evaluator.start().block.slots) < 4000
        with pytest.raises(OSError, match=r"64 GB for seeds and results of 1,000,000,000 episodes"):
            model.evaluate(10**9)


def test_a_target_that_a_billion_episodes_confirm_is_refused_when_it_is_reached(memory_of: Callable[[int], None]) -> None:
    memory_of(GB)
    settings = {**SETTINGS, "target_episodes": 10**9, "target_return": -1e9}
    made = FastES(toy(), preset="default", n_workers=0, **settings)
    with made as model, pytest.raises(OSError, match="64 GB for seeds and results"):
        learn(model, 1)


def test_evaluations_in_parts_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        whole = model.evaluate(7)
    monkeypatch.setattr("fastes.training.evaluator.EPISODES_AT_ONCE", 3)
    with FastES(toy(), preset="default", n_workers=2, **SETTINGS) as model:
        learn(model, 1)
        parts = model.evaluate(7)
    assert parts.returns.tobytes() == whole.returns.tobytes()
    assert parts.lengths.tobytes() == whole.lengths.tobytes()


def test_a_strategy_s_own_noise_table_and_draws(memory_of: Callable[[int], None]) -> None:
    memory_of(GB)
    es = EvolutionStrategy(np.zeros(3), table_size=2**36)
    with pytest.raises(OSError, match=r"275 GB for a noise table of 68,719,476,736 values"):
        next(iter(es.ask()))
    many = EvolutionStrategy(np.zeros(3), population_size=2**31 - 2)
    with pytest.raises(OSError, match="what 1,073,741,823 pairs x 1 episodes draw"):
        many.ask()


def test_observations_that_a_file_makes_up(tmp_path: Path) -> None:
    policy = CallablePolicy(lambda p, o: p[:2] * o[:2], 3)
    with FastES(toy(), policy, preset="default", n_workers=0, **{**SETTINGS, "policy_kwargs": {}}) as model:
        model.save(tmp_path / "m")
    file = read_checkpoint(tmp_path / "m")
    file.data["policy"]["obs_shape"] = [2**31 - 1]
    write_checkpoint(tmp_path / "m", file)
    with pytest.raises(CheckpointError, match="observations of 2147483647 values, statistics of 3"):
        FastES.load(tmp_path / "m", toy(), 0, policy=policy)


def test_statistics_of_evaluations_take_no_memory() -> None:
    """They are not counted: with wide observations they would take more than all the rest."""
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        assert model.evaluator.pool_spec(training=False).layout(0).trainings[0].evaluation.arrays()["moments"][0] == (0, 2, 3)


# --- memory and disks that cannot be reserved -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_systems_without_fallocate(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fallocate(*_: int) -> None:
        raise OSError(number, "not here")

    expected = train(toy(), 1, 0, **SETTINGS)
    monkeypatch.setattr("os.posix_fallocate", fallocate)
    assert train(toy(), 1, 2, **SETTINGS).state.arrays["trainings"]["0.theta"].tobytes() == (
        expected.state.arrays["trainings"]["0.theta"].tobytes()
    )


def test_too_little_room_names_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def fallocate(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", fallocate)
    with pytest.raises(OSError, match=r"no room for 300 kB of memory \(No space left on device\)") as error:
        anonymous_file(300_000)
    assert error.value.errno == errno.ENOSPC


def forbidden(*_: object) -> int:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_memory_without_memfd_is_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.memfd_create", forbidden, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fd, way = open_nameless()
    assert way == f"a file in {tmp_path}"
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)
    assert not list(tmp_path.iterdir())
    with FastES("CartPole-v1", preset="default", population_size=4, seed=0, n_workers=1) as model:
        model.learn(1)
        assert model.generation > 0


def test_no_memfd_and_no_folder_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder(**_: object) -> tuple[int, str]:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("os.memfd_create", forbidden, raising=False)
    monkeypatch.setattr("tempfile.mkstemp", no_folder)
    with pytest.raises(OSError, match=r"no shared memory: memfd_create: Operation not permitted; No usable .* TMPDIR"):
        open_nameless()
