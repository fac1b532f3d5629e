"""Risk: the batch that batch normalisation rests on is not a function of the seed, cannot be drawn, or is lost on the way."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from images_for_tests import NORMED, SETTINGS, SMALL, Dots
from processes import run_script
from training import assert_same_state, learn, train
from uneven import assert_same_results

from fastes import CheckpointError, FastES, WorkerError
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.policies.layers import REFERENCE_SIZE


def test_the_batch_is_what_a_random_policy_sees_of_as_many_episodes_as_it_takes() -> None:
    with (
        FastES(Dots, preset="default", n_workers=0, seed=1, **SETTINGS) as model,
        FastES(Dots, preset="default", n_workers=0, seed=1, **SETTINGS) as same,
        FastES(Dots, preset="default", n_workers=0, seed=2, **SETTINGS) as other,
    ):
        batch = model.training.reference
        assert (batch.shape, batch.dtype) == ((REFERENCE_SIZE, 8, 9, 2), np.uint8)
        assert batch.tobytes() == same.training.reference.tobytes() != other.training.reference.tobytes()
        assert len({image.tobytes() for image in batch}) > 30, "many episodes, with goals and places of their own"
        assert len(np.unique(batch[:, 0, :, 0] == 250, axis=0)) >= 7, "most goals"
        assert not batch.flags.writeable
        model.set_random_seed(9)
        assert model.training.reference is batch
        model.set_env(Dots)
        assert model.evaluate(1).returns == same.evaluate(1).returns


def test_a_file_brings_its_batch_with_it(tmp_path: Path) -> None:
    class Dark(Dots):
        def _shown(self) -> Any:
            return super()._shown() // 2

    image = Dots().observation_space.sample()
    with FastES(Dots, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        expected = model.predict(image, deterministic=True)[0]
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Dark, n_workers=0) as loaded:
        assert loaded.predict(image, deterministic=True)[0] == expected
        assert loaded.training.reference.tobytes() == model.training.reference.tobytes()


def test_policies_without_batch_normalisation_draw_and_keep_none(tmp_path: Path) -> None:
    with FastES(Dots, preset="default", n_workers=0, seed=1, **{**SETTINGS, "policy_kwargs": SMALL}) as model:
        assert model.training.reference is None
        model.save(tmp_path / "m")
    assert set(read_checkpoint(tmp_path / "m").arrays) == {"trainings"}


@pytest.mark.filterwarnings("ignore:.*saw observations that are not finite")
@pytest.mark.parametrize("normalize_obs", [True, False])
def test_values_without_end_that_an_environment_shows_survive_a_file(normalize_obs: bool, tmp_path: Path) -> None:
    class Lidar(Dots):
        def _shown(self) -> Any:
            return {**super()._shown(), "where": np.array([np.inf, self.at])}

    env, given = partial(Lidar, dictionary=True), {"seed": 5, "target_return": "none", "preset": "default", **SETTINGS}
    with FastES(env, n_workers=0, normalize_obs=normalize_obs, **given) as model:
        assert np.isinf(model.training.reference).any()
        model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", env, n_workers=0) as loaded:
            learn(model, 2)
            learn(loaded, 2)
            assert_same_state(model.snapshot(), loaded.snapshot())


@pytest.mark.parametrize("damage", ["missing", "shape", "dtype", "empty", "another policy's"])
def test_a_damaged_batch_is_refused(damage: str, tmp_path: Path) -> None:
    kwargs = SMALL if damage == "another policy's" else NORMED
    with FastES(Dots, preset="default", n_workers=0, seed=1, **{**SETTINGS, "policy_kwargs": kwargs}) as model:
        data, arrays = model.snapshot()
    batch = arrays.pop("reference", {"observations": np.zeros((3, 8, 9, 2), np.uint8)})["observations"]
    changed = {
        "missing": None,
        "shape": batch[:, 1:],
        "dtype": batch.astype(np.int32),
        "empty": batch[:0],
        "another policy's": batch,
    }[damage]
    if changed is not None:
        arrays["reference"] = {"observations": changed}
    write_checkpoint(tmp_path / "m", Checkpoint(data, arrays))
    with pytest.raises(CheckpointError, match="the checkpoint's reference batch has"):
        FastES.load(tmp_path / "m", Dots)


def test_replays_see_the_same_batch() -> None:
    with FastES(Dots, n_workers=0, seed=3, preset="default", target_return="none", **SETTINGS) as model:
        learn(model, 1)
        assert model.evaluator.pool_spec().layout(1).shared()["reference 0"] == ((REFERENCE_SIZE, 8, 9, 2), "|u1")
        played = model.replay(2, 1)
        learn(model, 2)
        assert model.last_episodes[1] == (played.episode_return, played.length)


def test_lanes_without_a_job_act_all_the_same() -> None:
    """All environments of a vector environment step together, and its policies act only once they are folded."""
    lanes = SyncVectorEnv([Dots] * 5)
    expected = train(Dots, 1, **SETTINGS)
    assert_same_results(expected, train(lanes, 1, **SETTINGS))
    given = {"seed": 5, "target_return": "none", "preset": "default", **SETTINGS}
    with FastES(Dots, n_workers=0, **given) as alone, FastES(lanes, **given) as model:
        assert model.evaluate(1).returns == alone.evaluate(1).returns
        assert model.replay(1, 2) == alone.replay(1, 2)
    lanes.close()


class Drawing(Dots):
    """Its pictures are drawn from NumPy's global random state."""

    def _shown(self) -> Any:
        return np.random.randint(0, 256, (8, 9, 2), np.uint8)  # noqa: NPY002


@pytest.mark.parametrize("num_envs", [0, 1, 2])
def test_the_batch_rests_on_the_seed_alone(num_envs: int) -> None:
    """And not on what was drawn from the global random state before. Environments beside the first one share that state."""
    batches = []
    for before in (1, 2):
        np.random.seed(before)  # noqa: NPY002
        env = SyncVectorEnv([Drawing] * num_envs) if num_envs else Drawing
        with FastES(env, preset="default", n_workers=None if num_envs else 0, seed=1, **SETTINGS) as model:
            batches.append(model.training.reference.tobytes())
    assert batches[0] == batches[1]
    if num_envs == 1:
        with FastES(Drawing, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
            assert model.training.reference.tobytes() == batches[0]


class Failing(Dots):
    """Some episodes raise, at their second step; with always all do, in reset."""

    built = 0

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        Failing.built += 1
        self.always, self.failed = always, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.always or self.failed:
            raise OSError("no picture" if self.always else "it failed before, and was not built anew")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if self.steps == 1 and self.length == 8:
            self.failed = True
            raise OSError("no step")
        return super().step(action)


def test_failures_that_are_penalised_leave_a_batch() -> None:
    Failing.built = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = [FastES(Failing, preset="default", n_workers=0, seed=1, on_env_error="penalise", **SETTINGS) for _ in range(2)]
    messages = [str(each.message) for each in caught]
    assert len(messages) == 2, "one of each model's kinds"
    assert "OSError: no step: the rest of this episode is left out" in messages[0]
    batches = [model.training.reference for model in models]
    assert batches[0].shape == (REFERENCE_SIZE, 8, 9, 2)
    assert batches[0].tobytes() == batches[1].tobytes()
    assert Failing.built > 4
    for model in models:
        model.close()


def test_other_failures_say_where_they_were() -> None:
    for env, kwargs, said in (
        (Failing, {"n_workers": 0}, "no step"),
        (SyncVectorEnv([Failing]), {}, "no step"),
        (partial(Failing, always=True), {"n_workers": 0, "on_env_error": "penalise"}, "no picture"),
    ):
        told = pytest.warns() if "on_env_error" in kwargs else contextlib.nullcontext()
        with told, pytest.raises(WorkerError, match=rf"OSError: {said}\n\[.*reference batch .* seed \d+\]") as raised:
            FastES(env, preset="default", seed=1, **kwargs, **SETTINGS)
        assert f"seed {raised.value.env_seed}]" in str(raised.value)
        assert isinstance(raised.value.__cause__, OSError)


def test_the_batch_holds_values_of_every_dtype_that_was_seen() -> None:
    class Late(Dots):
        """It begins with whole numbers."""

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            image, info = super().reset(seed=seed, options=options)
            return np.zeros_like(image), info

        def step(self, action: Any) -> Any:
            image, *rest = super().step(action)
            return (image / 256).astype(np.float32), *rest

    with FastES(Late, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        batch = model.training.reference
        assert batch.dtype == np.float32
        assert len(np.unique(batch)) == 4, "0, 20, 250, 255 of 256"


def test_batches_of_several_dtypes_lie_side_by_side() -> None:
    with FastES(Dots, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        images = model.training.reference
        batches = images, (images / 256).astype(np.float32)
        spec = model.evaluator.pool_spec()
        several = replace(spec, trainings=tuple(replace(spec.trainings[0], reference=batch) for batch in batches))
        block = several.block(0, shared=False)
        for found, batch in zip(block.references, batches, strict=True):
            assert found.dtype == batch.dtype
            assert found.tobytes() == batch.tobytes()


def test_an_environment_that_is_false_is_played() -> None:
    class Empty(Dots):
        def __len__(self) -> int:
            return 0

    with FastES(Empty, preset="default", n_workers=0, seed=1, **SETTINGS) as model:
        assert len(model.training.reference) == REFERENCE_SIZE


def test_a_forked_copy_of_trainings_side_by_side_evaluates(tmp_path: Path) -> None:
    """It has a pool of its own, with one noise table and one batch, whichever of several its model used."""
    script = """
        import os, sys
        from images_for_tests import SETTINGS, Dots
        from fastes import FastES
        from fastes.models.one_pool import one_pool

        models = [FastES(Dots, n_workers=0, seed=seed, preset="default", **SETTINGS) for seed in (1, 2)]
        expected = models[1].evaluate(1).returns.tolist()
        with one_pool(models):
            assert models[1].evaluate(1).returns.tolist() == expected
            child = os.fork()
            if child == 0:
                assert models[1].evaluate(1).returns.tolist() == expected
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
