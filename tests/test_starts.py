"""Risk: another start than the best goes on, or not as it was; a start knows of the one before; a stop changes the choice."""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from training import MANY, assert_same, assert_same_state, learn, train

from fastes import CallablePolicy, Callback, CheckpointError, FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.settings.settings import Settings
from fastes.training.evaluation import Evaluation
from fastes.training.starts.starts import Starts

BUDGET = 6000
SETTINGS: dict[str, Any] = {
    "preset": "default",
    "seed": 5,
    "n_workers": 0,
    "target_return": "none",
    "population_size": 8,
    "policy_kwargs": {"net_arch": [5]},
    "episode_cap": "grow",
    "episode_cap_start": 5,
    "episode_cap_factor": 1.3,
    "starts": 3,
    "starts_share": 0.5,
}


NAMES = ("theta", "optimizer.", "normalizer.", "sigma", "cap", "blocks")


class Watch:
    """What a model had each time it was judged and each time it asked for a generation."""

    def __init__(self, model: FastES, scores: list[float] | None = None) -> None:
        self.model, self.scores = model, scores
        self.judged: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self._evaluate, self._run = model.evaluator.evaluate, model.evaluator.begin_generation
        model.evaluator.evaluate = self.evaluate  # type: ignore[method-assign]
        model.evaluator.begin_generation = self.run  # type: ignore[method-assign]

    def now(self) -> dict[str, Any]:
        state = {name: array.tobytes() for name, array in self.model.state.arrays().items()}
        return {**state, "cap": self.model.cap.steps, "blocks": self.model.population.first}

    async def evaluate(self, theta: Any, normalizer: Any, seeds: Any, episodes: Any) -> Evaluation:
        found = await self._evaluate(theta, normalizer, seeds, episodes)
        if self.scores is not None:
            found = found._replace(returns=np.full(len(seeds), self.scores[len(self.judged)]))
        said = {"score": found.mean, "seeds": seeds.tolist(), "at": self.model.num_timesteps, "steps": found.lengths.sum()}
        self.judged.append({**self.now(), **said})
        return found

    def run(self, *arguments: Any) -> Any:
        if not self.asked or self.asked[-1]["generation"] != self.model.generation:
            told = {"at": self.model.num_timesteps, "judged": self.model.starts.judged}
            self.asked.append({**self.now(), "generation": self.model.generation, **told})
        return self._run(*arguments)

    def first_of(self, judged: int) -> dict[str, Any]:
        """The first generation after so many starts were judged."""
        return next(asked for asked in self.asked if asked["judged"] == judged)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether all that a start has learned is the same, bit by bit."""
    return all(first[name] == second[name] for name in first if name.startswith(NAMES))


@pytest.mark.parametrize("scores", [[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [-math.inf] * 3])
def test_the_best_start_goes_on_as_it_was(scores: list[float]) -> None:
    """The first of those that are equal."""
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model, scores)
        model.learn(BUDGET)
        assert [judged["score"] for judged in watch.judged] == scores
        assert same(watch.first_of(3), watch.judged[scores.index(max(scores))])
        assert not model.starts.has_unjudged_starts
        assert not model.starts.kept


def test_the_best_start_goes_on_with_its_cap_and_population(tmp_path: Path) -> None:
    """Through a checkpoint, too."""
    with FastES("Toy-v0", **{**SETTINGS, "population_size": 4, "generation_timesteps": 60}) as model:
        Watch(model, [3.0])
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        (best,) = model.starts.kept
        model.starts.kept = (best._replace(episode_cap=777, first_blocks=5),)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        watch = Watch(model, [2.0, 1.0])
        learn(model, 10**6, BUDGET)
    assert [(judged["cap"], judged["blocks"]) == (777, 5) for judged in watch.judged] == [False, False]
    assert (watch.first_of(3)["cap"], watch.first_of(3)["blocks"]) == (777, 5)


def test_each_start_is_one_from_scratch() -> None:
    settings = {**SETTINGS, "sigma_adaptation": "per_parameter", "population_size": 4, "generation_timesteps": 60}
    with FastES("Toy-v0", **settings) as model:
        watch = Watch(model)
        fresh = watch.now()
        model.learn(BUDGET)
    first, second, third = (watch.first_of(judged) for judged in range(3))
    assert same(first, fresh)
    for other in (second, third):
        assert [name for name in fresh if other[name] != fresh[name]] == ["theta"], "and of theta only what is drawn"
    drawn = [model.policy_spec.initial_theta((5 + start * 0x9E3779B97F4A7C15) % 2**63).tobytes() for start in range(3)]
    assert [start["theta"] for start in (first, second, third)] == drawn, "seeds that are far apart: no other run begins there"
    assert len({judged["theta"] for judged in watch.judged}) == 3


def test_a_policy_that_starts_at_zero_has_other_noise_in_each_start() -> None:
    with FastES("Toy-v0", **{**SETTINGS, "policy": "LinearPolicy", "policy_kwargs": {}}) as model:
        watch = Watch(model)
        model.learn(BUDGET)
    assert len({watch.first_of(judged)["theta"] for judged in range(3)}) == 1
    assert len({judged["theta"] for judged in watch.judged}) == 3


def test_another_seed_leaves_the_episodes_that_judge(tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model)
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        model.set_random_seed(7)
        model.learn(BUDGET, lambda m, _: m.starts.judged < 2, reset_num_timesteps=False)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0, seed=9) as model:
        later = Watch(model)
        model.learn(BUDGET, reset_num_timesteps=False)
    assert len({tuple(judged["seeds"]) for judged in [*watch.judged, *later.judged]}) == 1
    assert len(watch.judged) + len(later.judged) == 3


def test_all_are_judged_by_the_same_episodes_after_equal_parts() -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model)
        records = learn(model, 10**6, BUDGET)
        assert len({tuple(judged["seeds"]) for judged in watch.judged}) == 1
        assert len(watch.judged[0]["seeds"]) == model.settings.starts_episodes == 10
        ends = [0] + [judged["at"] for judged in watch.judged]
        steps = [0] + [record.timesteps for record in records]
        for begin, end in itertools.pairwise(ends):
            before = steps[steps.index(end) - 1]
            assert end - begin >= BUDGET * 0.5 / 3 > before - begin, "the first generation that spends it"


def test_the_steps_that_judge_are_counted() -> None:
    """A generation's own evaluation is one episode of 20 steps at most; each start is judged between two of them."""
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model)
        told = [0, *(record.eval_timesteps for record in learn(model, 10**6, BUDGET))]
        assert len(watch.judged) == 3
        costs = [after - before for before, after in itertools.pairwise(told) if after - before > 20]
        assert all(0 < cost - judged["steps"] <= 20 for cost, judged in zip(costs, watch.judged, strict=True))


def test_a_budget_that_ends_among_the_starts_gives_the_best_of_them() -> None:
    """One generation is more than a start's part: the second start is the last that there are steps for."""
    for scores in ([2.0, 1.0], [1.0, 2.0]):
        with FastES("Toy-v0", **{**SETTINGS, "episode_cap": "none"}) as model:
            watch = Watch(model, scores)
            records = learn(model, 10**6, 200)
            assert [record.generation for record in records] == [1, 2]
            assert same(watch.now(), watch.judged[scores.index(2.0)])
            assert not model.starts.has_unjudged_starts


def test_starts_may_have_the_whole_budget() -> None:
    with FastES("Toy-v0", **{**SETTINGS, "starts_share": 1}) as model:
        watch = Watch(model, [2.0, 3.0, 1.0])
        model.learn(BUDGET)
        assert len(watch.judged) == 3
        assert same(watch.now(), watch.judged[1])


@pytest.mark.parametrize("seed", range(4))
def test_the_last_start_is_judged_though_those_before_took_of_its_part(seed: int) -> None:
    with FastES("Toy-v0", **{**SETTINGS, "seed": seed, "starts": 2, "starts_share": 1}) as model:
        watch = Watch(model, [3.0, 1.0])
        model.learn(1000)
        assert len(watch.judged) == 2
        assert same(watch.now(), watch.judged[0])
        assert not model.starts.has_unjudged_starts


def test_one_start_is_no_start() -> None:
    plain = {name: value for name, value in SETTINGS.items() if not name.startswith("starts")}
    with FastES("Toy-v0", **plain) as model:
        model.learn(BUDGET)
        expected = model.snapshot()
    with FastES("Toy-v0", **plain, starts_share=0.9) as model:
        model.learn(BUDGET)
        found = model.snapshot()
    assert "starts" not in expected.data
    assert expected.data["settings"].pop("starts_share") != found.data["settings"].pop("starts_share")
    assert_same_state(expected, found)


def test_no_number_of_workers_changes_the_choice() -> None:
    settings = {**SETTINGS, "starts_share": 2e-6}
    del settings["n_workers"], settings["preset"], settings["target_return"], settings["seed"]
    alone = train("Toy-v0", 40, 0, **settings)
    assert "starts" not in alone.state.data, "one was chosen"
    assert_same(alone, train("Toy-v0", 40, 2, **settings))


@pytest.fixture(scope="module")
def expected() -> Checkpoint:
    """What a training that nothing disturbs comes to."""
    with FastES("Toy-v0", **SETTINGS) as model:
        learn(model, 40, BUDGET)
        return model.snapshot()


@pytest.mark.parametrize("generations", range(1, 13))
def test_a_stop_anywhere_changes_nothing(generations: int, expected: Checkpoint, tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        learn(model, generations, BUDGET)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert_same_state(read_checkpoint(tmp_path / "m.zip"), model.snapshot())
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())


def linear(parameters: Any, observation: Any) -> Any:
    return np.clip(parameters.reshape(2, 3) @ observation, -1.0, 1.0).astype(np.float32)


CUSTOM = {name: value for name, value in SETTINGS.items() if name != "policy_kwargs"}


@pytest.mark.parametrize("generations", [0, 1, 3, 9])
def test_a_custom_policy_with_other_first_parameters_goes_on_exactly(generations: int, tmp_path: Path) -> None:
    """As a torch module has that was built again for loading."""
    policy = CallablePolicy(linear, 6, np.full(6, 0.1))
    with FastES("Toy-v0", policy, **CUSTOM) as model:
        learn(model, 40, BUDGET)
        expected = model.snapshot()
    with FastES("Toy-v0", policy, **CUSTOM) as model:
        if generations:
            learn(model, generations, BUDGET)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", policy=CallablePolicy(linear, 6, np.full(6, 0.5)), n_workers=0) as model:
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())


@pytest.mark.parametrize("value", [None, np.zeros(5, np.float32), np.full(6, np.nan, np.float32)])
def test_damaged_first_parameters_of_a_custom_policy_are_refused(value: Any, tmp_path: Path) -> None:
    path, policy = tmp_path / "m.zip", CallablePolicy(linear, 6)
    with FastES("Toy-v0", policy, **CUSTOM) as model:
        model.save(path)
    checkpoint = read_checkpoint(path)
    start = {} if value is None else {"given_theta": value}
    write_checkpoint(path, checkpoint._replace(arrays={**checkpoint.arrays, "start": start}))
    with pytest.raises(CheckpointError, match="given_theta"):
        FastES.load(path, policy=policy, n_workers=0)


def test_ctrl_c_while_a_start_is_judged_changes_nothing(expected: Checkpoint) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        evaluate = model.evaluator.evaluate

        def interrupted(*_: Any) -> Evaluation:
            raise KeyboardInterrupt

        for _ in range(3):
            model.evaluator.evaluate = interrupted  # type: ignore[assignment,method-assign]
            with pytest.raises(KeyboardInterrupt):
                learn(model, 40, BUDGET)
            judged = model.starts.judged
            model.evaluator.evaluate = evaluate  # type: ignore[method-assign]
            learn(model, model.generation + 1, BUDGET)
            assert model.starts.judged == judged + 1
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())


def test_statistics_warm_up_for_each_start() -> None:
    with FastES("Toy-v0", **SETTINGS, obs_warmup=True) as model:
        watch = Watch(model)
        learn(model, 40, BUDGET)
        untouched = np.zeros(2, dtype=np.int64).tobytes()
        # a warm-up asks for the generation, too: with statistics that know nothing, and then the generation has some
        starts = [watch.first_of(judged) for judged in range(3)]
        assert [start["normalizer.counts"] for start in starts] == [untouched] * 3
        assert model.num_episodes == 8 * (model.generation + 3)


class TooFar(Toy):
    """Observations too large to square: statistics leave them all out."""

    def _observation(self) -> Any:
        return super()._observation() + 1e200


@pytest.mark.filterwarnings("ignore:.*too large to square:RuntimeWarning")
def test_each_start_warms_up_once_where_statistics_stay_empty() -> None:
    with FastES(TooFar, **SETTINGS, obs_warmup=True) as model:
        learn(model, 4, BUDGET)
        assert (model.normalizer.count, model.starts.judged) == (0, 0)
        assert model.num_episodes == 8 * (model.generation + 1)


def test_timesteps_that_are_counted_anew_leave_the_parts_equal() -> None:
    """As in a notebook: Ctrl-C, and learn() again with the same budget."""
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model)
        model.learn(BUDGET, lambda m, _: m.num_timesteps < 1600)
        before, first = model.num_timesteps, watch.judged[0]["at"]
        model.learn(BUDGET)
        part, generation = BUDGET * 0.5 / 3, 8 * 20
        second, third = watch.judged[1]["at"] + before - first, watch.judged[2]["at"] - watch.judged[1]["at"]
        assert all(part <= steps < part + generation for steps in (first, second, third))


@pytest.mark.parametrize("anew", [False, True])
def test_another_budget_moves_schedules_and_leaves_draws(anew: bool) -> None:
    """They do not come to their end among the starts because less is to come."""
    with FastES("Toy-v0", **SETTINGS, sigma="lin_1_0.1") as model:
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        before = model.state
        after = before.begun(BUDGET // 4 - (0 if anew else model.num_timesteps), anew)
    assert after.starts.judged == 1
    assert before.progress_remaining == pytest.approx(after.progress_remaining, abs=0.03)
    drawn = [state.perturbations().noise_index.tolist() for state in (before, after)]
    assert drawn[0] == drawn[1]
    assert before.begun(BUDGET - before.counters.num_timesteps, anew=False).starts.strides == before.starts.strides


def test_a_new_model_that_learns_nothing_has_its_starts_still(expected: Checkpoint, tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        model.learn(0, reset_num_timesteps=False)
        assert model.starts.has_unjudged_starts
        model.save(tmp_path / "m")
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())


def test_parameters_that_are_given_are_kept(tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        model.set_parameters(model.get_parameters())
        assert not model.starts.has_unjudged_starts
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert not model.starts.has_unjudged_starts


def test_parameters_that_are_solved_are_kept() -> None:
    """No start is judged in a training that comes after it."""
    with FastES("Toy-v0", **{**SETTINGS, "target_return": -1e9, "eval_lag": 0}) as model:
        with pytest.warns(UserWarning, match="nothing was trained"):
            model.learn(BUDGET)
        assert model.solved
        assert not model.starts.has_unjudged_starts


def test_an_environment_that_is_set_again_changes_nothing(expected: Checkpoint, tmp_path: Path) -> None:
    """SB3's load and set_env, among the starts."""
    with FastES("Toy-v0", **SETTINGS) as model:
        learn(model, 12, BUDGET)
        assert model.starts.judged > 0
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        model.set_env("Toy-v0")
        learn(model, 40, BUDGET)
        assert_same_state(expected, model.snapshot())


def test_only_an_untrained_model_begins_when_starts_are_asked_for(tmp_path: Path) -> None:
    with FastES("Toy-v0", **{**SETTINGS, "starts": 1}) as model:
        model.save(tmp_path / "new")
        learn(model, 3, BUDGET)
        model.save(tmp_path / "trained")
    for name in ("new", "trained"):
        with FastES.load(tmp_path / name, n_workers=0, starts=4) as model:
            assert model.starts.has_unjudged_starts == (name == "new")


@pytest.mark.parametrize("starts", [1, 2])
def test_fewer_starts_than_were_judged_lose_nothing(starts: int, tmp_path: Path) -> None:
    """The present one is judged at once, and the best goes on."""
    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model, [1.0, 20.0])
        model.learn(BUDGET, lambda m, _: m.starts.judged < 2)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0, starts=starts) as model:
        assert model.starts.has_unjudged_starts
        later = Watch(model, [3.0])
        learn(model, model.generation + 1, BUDGET)
        assert not model.starts.has_unjudged_starts
        assert same(later.asked[0], watch.judged[1])


def older(checkpoint: Checkpoint) -> Checkpoint:
    """As a version wrote it that knew one round, and named no start."""
    data, start = copy.deepcopy(checkpoint.data), checkpoint.arrays.get("start", {})
    starts = data["starts"]
    (best,) = starts.pop("kept") or [dict.fromkeys(("score", "episode_cap", "first_blocks"))]
    (stride,) = starts.pop("strides")
    for name in ("round", "running", "waiting"):
        del starts[name]
    starts |= {name: best[name] for name in ("score", "episode_cap", "first_blocks")} | {"stride": stride}
    for pending in data.get("pending", []):
        del pending["alternatives"]
    for name in ("starts_rounds", "starts_episodes", "starts_alternatives"):
        del data["settings"][name]
    arrays = {**checkpoint.arrays, "start": {name.removeprefix("kept.0."): array for name, array in start.items()}}
    return Checkpoint(data, {group: each for group, each in arrays.items() if each})


GOOD: dict[str, Any] = {"seed": 3, "judged": 1, "begun_at": 9, "score": 1.0, "episode_cap": 5, "first_blocks": 1}
DAMAGE: dict[str, Any] = {
    "no object": [1],
    "another key": {**GOOD, "more": 1},
    "a flag": {**GOOD, "judged": True},
    "none judged": {**GOOD, "judged": 0},
    "a negative number": {**GOOD, "judged": -1},
    "begun at no number": {**GOOD, "begun_at": None},
    "no seed": {**GOOD, "seed": -1},
    "a score that is text": {**GOOD, "score": "1"},
    "no cap": {**GOOD, "episode_cap": None},
    "a cap of nothing": {**GOOD, "episode_cap": 0},
    "no blocks": {**GOOD, "first_blocks": 0},
}


@pytest.fixture(scope="module")
def among_starts() -> Checkpoint:
    """A checkpoint with one start judged, of the version before there were rounds."""
    with FastES("Toy-v0", **SETTINGS) as model:
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        return older(model.snapshot())


def test_an_older_file_that_is_whole_is_read(among_starts: Checkpoint, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m.zip", among_starts._replace(data={**among_starts.data, "starts": GOOD}))
    with FastES.load(tmp_path / "m.zip", n_workers=0) as model:
        (best,) = model.starts.kept
        assert (best.score, model.starts.judged, model.starts.running, model.starts.strides) == (1.0, 1, 1, ())


@pytest.mark.parametrize("damage", [*DAMAGE.values(), None], ids=[*DAMAGE, "missing"])
def test_damaged_starts_are_refused(damage: Any, among_starts: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    data = {name: value for name, value in among_starts.data.items() if name != "starts"}
    write_checkpoint(path, among_starts._replace(data=data if damage is None else {**data, "starts": damage}))
    with pytest.raises(CheckpointError, match="start"):
        FastES.load(path, n_workers=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theta", None),
        ("theta", np.zeros(3, np.float32)),
        ("optimizer.m", np.float32(np.nan)),
        ("normalizer.counts", np.array([-1, 0])),
        ("other", np.zeros(3, np.float32)),
    ],
)
def test_damaged_arrays_of_a_start_are_refused(name: str, value: Any, among_starts: Checkpoint, tmp_path: Path) -> None:
    path, start = tmp_path / "m.zip", dict(among_starts.arrays["start"])
    if value is None:
        del start[name]
    else:
        start[name] = np.full_like(start[name], value) if np.ndim(value) == 0 else value
    write_checkpoint(path, among_starts._replace(arrays={**among_starts.arrays, "start": start}))
    with pytest.raises(CheckpointError, match=name.rpartition(".")[2]):
        FastES.load(path, n_workers=0)


def test_a_start_that_ended_in_nothing_finite_can_be_saved(tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        Watch(model, [-math.inf, -math.inf, 1.0])
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        (best,) = model.starts.kept
        assert best.score == -math.inf


def test_a_snapshot_shares_nothing_with_the_model() -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        for array in model.snapshot().arrays["start"].values():
            array[:] = 7
        (best,) = model.starts.kept
        assert not any((array == 7).all() for array in best.arrays.values())


def test_the_parts_follow_the_budget() -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        spec = model.policy_spec
    starts = Starts(Settings(starts=4, starts_share=0.2), spec, 0)
    assert not starts.due(49, 1000)
    assert starts.due(50, 1000)
    assert not Starts(Settings(starts=1), spec, 0).due(10**9, 1000)
    assert not starts.due(50, MANY)


@pytest.mark.parametrize(("name", "value"), [("starts", 0), ("starts", 10_001), ("starts_share", 0.0), ("starts_share", 1.1)])
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        Settings(**{name: value})


def test_a_verbose_training_says_how_starts_did(capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", **SETTINGS, verbose=1) as model:
        Watch(model, [1.0, 20.0, 3.0])
        model.learn(BUDGET)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("start ")]
    assert said == [
        "start 1 of 3: return 1.0",
        "start 2 of 3: return 20.0",
        "start 3 of 3: return 3.0; the best one is kept",
    ]


def test_callbacks_are_told_when_the_model_holds_what_goes_on() -> None:
    told: list[tuple[int, float, bool]] = []

    class Listener(Callback):
        def on_start_judged(self, model: FastES, start: int, eval_return: float) -> None:
            told.append((start, eval_return, len(watch.judged) > 1 and same(watch.now(), watch.judged[1])))

    with FastES("Toy-v0", **SETTINGS) as model:
        watch = Watch(model, [1.0, 20.0, 3.0])
        model.learn(BUDGET, [Listener()])
    assert told == [(1, 1.0, False), (2, 20.0, False), (3, 3.0, True)]
