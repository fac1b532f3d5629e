"""Risk: a trial learns something else than alone, the wrong ones are dropped, the order of work changes a bit, a stop does."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS
from training import MANY, assert_same_records, assert_same_state, learn

from fastes import Callback, CheckpointError, CheckpointMismatch, FastES, Settings, train_seeds
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.pools.serial_pool import SerialPool
from fastes.reports.callbacks import CallbackListener
from fastes.reports.progress_rows import read_progress
from fastes.runs.curves import read_curve
from fastes.runs.run_config import PROGRESS
from fastes.runs.run_folder import RunFolder
from fastes.training.evaluator import Evaluator
from fastes.training.player import Player
from fastes.training.record import Generation, Pace, Record, Stretch
from fastes.training.selection import Rung, Selection, rung_sizes, trial_seed
from fastes.training.trainer import Silent, Trainer, trainings_of
from fastes.training.training import Training

TOY, BUDGET = "Toy-v0", 2000
TRIALS: dict[str, Any] = {**SETTINGS, "trials": 4, "rungs": 2, "trials_fraction": 0.6}


class Watch(Callback):
    """The records of a training."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def on_generation(self, model: FastES, record: Record) -> None:
        self.records.append(record)


class Rungs(Callback):
    """The rungs that a training has told of, and what each generation was of."""

    def __init__(self) -> None:
        self.rungs: list[Rung] = []
        self.at: list[int] = []
        self.order: list[tuple[int, int]] = []
        self.thetas: dict[tuple[int, int], bytes] = {}

    def on_rung(self, model: FastES, rung: Rung) -> None:
        self.rungs.append(rung)
        self.at.append(model.num_timesteps)

    def on_generation(self, model: FastES, record: Record) -> None:
        self.order.append((record.trial, record.generation))
        self.thetas[self.order[-1]] = model.theta.tobytes()
        assert model.generation == record.generation
        assert model.num_timesteps == record.timesteps


@pytest.mark.parametrize(
    ("trials", "rungs", "sizes"),
    [(1, 3, (1,)), (2, 1, (2,)), (2, 9, (2,)), (3, 9, (3, 2)), (8, 2, (8, 4)), (9, 9, (9, 5, 3, 2)), (10_000, 1, (10_000,))],
)
def test_half_of_the_trials_are_left_in_each_rung(trials: int, rungs: int, sizes: tuple[int, ...]) -> None:
    assert rung_sizes(trials, rungs) == sizes


def test_a_trial_is_the_training_of_its_seed_alone() -> None:
    """Each generation of each trial, the winner's last ones too: nothing depends on the others."""
    watch = Rungs()
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, watch)
        winner, generations = model.selection.present.number, model.generation
    assert len({trial for trial, _ in watch.order}) == 4
    for trial in range(4):
        own = Rungs()
        with FastES(TOY, preset="default", n_workers=0, **{**{**TRIALS, "trials": 1}, "seed": trial_seed(5, trial)}) as alone:
            learn(alone, 1 + max(g for t, g in watch.order if t == trial + 1), on_record=None)
        with FastES(TOY, preset="default", n_workers=0, **{**{**TRIALS, "trials": 1}, "seed": trial_seed(5, trial)}) as alone:
            alone.learn(BUDGET, own)
        ours = {generation: theta for (t, generation), theta in watch.thetas.items() if t == trial + 1}
        assert ours.items() <= {generation: theta for (_, generation), theta in own.thetas.items()}.items()
        assert trial != winner or max(ours) == generations


def test_trials_draw_far_apart() -> None:
    seeds = [trial_seed(seed, number) for seed, number in itertools.product(range(50), range(50))]
    assert len(set(seeds)) == len(seeds)
    assert trial_seed(7, 0) == 7
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets the scores of trials, in the order in which they are scored."""

    def put(*values: float) -> list[tuple[int, tuple[int, ...]]]:
        asked: list[tuple[int, tuple[int, ...]]] = []
        real, waiting = Player.evaluate, list(values)

        async def scripted(player: Player, training: Training, seeds: Any, of: Any = None) -> Any:
            score = waiting.pop(0)
            asked.append((player.number, tuple(seeds.tolist())))
            evaluation = await real(player, training, seeds, of)
            return evaluation._replace(returns=np.full(len(seeds), score))

        monkeypatch.setattr(Player, "evaluate", scripted)
        return asked

    return put


def test_the_worse_half_is_dropped_and_the_others_go_on_from_their_own_state(scores: Any) -> None:
    watch, asked = Rungs(), scores(1.0, 4.0, 3.0, 2.0, 5.0, 6.0)
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, watch)
        assert not model.selection.is_open
        assert model.selection.present.number == 2
    first, second = watch.rungs
    assert first.scores == ((2, 4.0), (3, 3.0), (4, 2.0), (1, 1.0))
    assert (first.number, first.of, first.kept, first.winner) == (1, 2, 2, 0)
    assert second.scores == ((3, 6.0), (2, 5.0))
    assert (second.number, second.kept, second.winner) == (2, 1, 3)
    assert [number for number, _ in asked] == [0, 1, 2, 3, 1, 2]
    by_rung = [{seeds for _, seeds in asked[:4]}, {seeds for _, seeds in asked[4:]}]
    assert [len(seeds) for seeds in by_rung] == [1, 1], "the same episodes for all of a rung"
    assert by_rung[0] != by_rung[1], "luck with one set does not win twice"
    for trial in (2, 3):
        generations = [generation for t, generation in watch.order if t == trial]
        assert generations == list(range(1, len(generations) + 1)), "no generation twice, none left out"


def test_a_score_that_is_not_finite_is_the_worst(scores: Any) -> None:
    scores(math.nan, 1.0, -math.inf, 2.0, 3.0, 4.0)
    watch = Rungs()
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, watch)
    assert {trial for trial, _ in watch.rungs[0].scores[:2]} == {2, 4}


def test_each_rung_has_an_equal_part_of_the_budget() -> None:
    watch = Rungs()
    settings = {**TRIALS, "population_size": 2, "episode_cap": "none"}
    with FastES(TOY, preset="default", n_workers=0, **settings) as model:
        model.learn(BUDGET, watch)
        parts = [model.selection.rung_budget(rung) for rung in (0, 1)]
    assert parts == pytest.approx([BUDGET * 0.6 / 2 / 4, BUDGET * 0.6 / 2 / 2])
    taken = [at - before for before, at in itertools.pairwise([0, *watch.at])]
    longest = 2 * 20  # of a generation, in steps
    assert 4 * parts[0] <= taken[0] < 4 * (parts[0] + longest)
    assert 2 * parts[1] <= taken[1] < 2 * (parts[1] + longest)


def test_the_schedule_of_a_trial_is_that_of_what_it_has_if_it_wins() -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, lambda *_: False)
        own = [trial.training.counters.budget for trial in model.selection.trials]
    expected = BUDGET * (0.6 / 2 / 4 + 0.6 / 2 / 2 + 0.4)
    assert own == pytest.approx([expected] * 4, abs=25)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_no_number_of_workers_changes_a_bit_or_the_order(n_workers: int) -> None:
    found = []
    for workers in (0, n_workers):
        with FastES(TOY, preset="default", n_workers=workers, **TRIALS) as model:
            records: list[Record] = []
            model.learn(BUDGET, lambda _, record, into=records: into.append(record))
            found.append((model.snapshot(), records))
    assert_same_state(found[0][0], found[1][0])
    assert_same_records(found[0][1], found[1][1])


@pytest.fixture(scope="module")
def expected() -> Checkpoint:
    """The result of a training that nothing disturbs."""
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET)
        return model.snapshot()


@pytest.mark.parametrize("records", [1, 2, 5, 8, 9, 11, 14, 17])
def test_a_stop_anywhere_changes_nothing(records: int, expected: Checkpoint, tmp_path: Path) -> None:
    """The others of the rung are left in the middle of a generation, which they play again."""
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        told = itertools.count(1)
        model.learn(BUDGET, lambda *_: next(told) < records)
        was_open = model.selection.is_open
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert model.selection.is_open == was_open
        assert_same_state(read_checkpoint(tmp_path / "m.zip"), model.snapshot())
        model.learn(BUDGET - model.num_timesteps, reset_num_timesteps=False)
        assert_same_state(expected, model.snapshot())


def test_the_stops_are_in_both_rungs_and_behind() -> None:
    """So that the test above says what its name does."""
    rungs: list[int] = []
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, lambda m, _: rungs.append(m.selection.rung if m.selection.is_open else 2))
    assert {rungs[record - 1] for record in (1, 2, 5, 8, 9, 11, 14, 17)} == {0, 1, 2}


@pytest.mark.parametrize(("values", "winner"), [([5.0, 4.0, 3.0, 1.0], 1), ([1.0, 4.0, 3.0, 4.0], 2)])
def test_a_budget_that_ends_within_a_rung_gives_the_best(values: list[float], winner: int, scores: Any) -> None:
    """The first trial of equal ones."""
    scores(*values)
    watch = Rungs()
    with FastES(TOY, preset="default", n_workers=0, **{**TRIALS, "trials_fraction": 1.0, "rungs": 1}) as model:
        model.learn(200, watch)
        assert not model.selection.is_open
    assert watch.rungs[-1].winner == winner


def test_a_solved_trial_is_the_model() -> None:
    with FastES(TOY, preset="default", n_workers=0, **{**TRIALS, "target_return": -1e9}) as model:
        model.learn(BUDGET)
        assert model.solved
        assert not model.selection.is_open
        with FastES(
            TOY, preset="default", **{**{**TRIALS, "trials": 1}, "seed": trial_seed(5, model.selection.present.number)}
        ) as alone:
            assert (alone.theta == model.theta).all(), "the first parameters were solved already"


def test_parameters_that_are_set_end_the_trials() -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        theta = model.theta + 1.0
        model.set_parameters(model.get_parameters())
        assert not model.selection.is_open
        model.set_theta(theta)
        model.learn(BUDGET, lambda *_: False)
        assert {trial.number for trial in model.selection.trials} == {0}


@pytest.mark.filterwarnings("ignore:the parameters from before this training reach")
@pytest.mark.parametrize("how", ["set", "solved"])
def test_a_trial_that_wins_without_a_rung_has_the_budget_of_the_others(how: str, tmp_path: Path) -> None:
    """Its schedules end with the budget, and not where its part of the rungs would have."""
    watch, told = Watch(), itertools.count(1)
    target = -1e9 if how == "solved" else "none"
    with FastES(TOY, preset="default", n_workers=0, **{**TRIALS, "target_return": target, "sigma": "lin_0.1"}) as model:
        model.learn(BUDGET, lambda *_: next(told) < (4 if how == "set" else 100))
        if how == "set":
            assert model.selection.is_open
            model.set_parameters(model.get_parameters())
        assert not model.selection.is_open
        own = model.training.counters
        assert own.budget == own.num_timesteps + BUDGET - model.num_timesteps
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0, target_return="none") as model:
        model.learn(BUDGET - model.num_timesteps, watch, reset_num_timesteps=False)
        assert model.num_timesteps >= BUDGET
    assert watch.records[0].sigma > 0.05
    assert 0.0 < watch.records[-1].sigma < 0.02


def test_several_seeds_of_several_trials() -> None:
    """Each is what it is alone."""
    rest = {name: value for name, value in TRIALS.items() if name != "seed"}
    models = train_seeds(TOY, [5, 6], total_timesteps=BUDGET, n_workers=2, preset="default", **rest)
    for model in models:
        with FastES(TOY, preset="default", n_workers=0, **{**TRIALS, "seed": model.seed}) as alone:
            alone.learn(BUDGET)
            assert_same_state(alone.snapshot(), model.snapshot())


def test_the_tallies_are_those_of_all_trials() -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        steps: dict[int, int] = {}
        model.learn(BUDGET, lambda m, record: steps.update({record.trial: m.training.counters.num_timesteps}))
        assert model.num_timesteps == sum(steps.values())
        assert model.steps_played().candidates == model.num_timesteps
        assert model.eval_timesteps > model.training.counters.eval_timesteps


# --- callbacks in the middle of a rung -------------------------------------------------------------------------------

ACTS: dict[str, Any] = {
    "evaluate": lambda model: model.evaluate(3),
    "close": lambda model: model.close(),
    "set_env": lambda model: model.set_env(TOY),
}


@pytest.mark.parametrize("act", ["evaluate", "close"])
@pytest.mark.parametrize("n_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_callback_may_use_the_pool_between_two_commits(act: str, n_workers: int, expected: Checkpoint) -> None:
    """The other trials of the rung play their generations again, if they have to."""
    told = itertools.count(1)
    with FastES(TOY, preset="default", n_workers=n_workers, **TRIALS) as model:
        model.learn(BUDGET, lambda m, _: ACTS[act](m) and None if next(told) in (3, 6, 11) else None)
        assert_same_state(expected, model.snapshot())


@pytest.mark.parametrize("trials", [1, 4])
@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_callback_may_set_another_environment(trials: int, n_workers: int) -> None:
    """Training goes on in it, in the same model, to the end of the budget."""
    told, seen = itertools.count(1), []

    def note(model: FastES, record: Record) -> None:
        seen.append((record.timesteps, model.num_timesteps))
        if next(told) == 3:
            model.set_env(TOY)

    with FastES(TOY, preset="default", n_workers=n_workers, **{**TRIALS, "trials": trials}) as model:
        model.learn(BUDGET, note)
        assert model.num_timesteps >= BUDGET
        assert [one for one, _ in seen] == [other for _, other in seen]
        assert not model.selection.is_open


def test_a_resumed_rung_goes_on_in_the_same_order(tmp_path: Path) -> None:
    rows: list[tuple[int, int, int]] = []
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, lambda _, r: rows.append((r.trial, r.generation, r.timesteps)))
    for stop in range(1, len(rows)):
        found: list[tuple[int, int, int]] = []
        with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
            note = lambda _, r, into=found: into.append((r.trial, r.generation, r.timesteps))  # noqa: E731
            model.learn(BUDGET, lambda m, r, n=note, end=stop, into=found: n(m, r) or len(into) < end)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m.zip", n_workers=0) as model:
            model.learn(BUDGET - model.num_timesteps, note, reset_num_timesteps=False)
        assert found == rows, stop


def test_time_that_ends_in_a_rung_leaves_all_trials(tmp_path: Path) -> None:
    """What is chosen aside is not what goes on, also with a pool that is opened anew."""
    with FastES(TOY, preset="default", n_workers=1, **TRIALS) as model:
        model.learn(BUDGET, max_minutes=1e-9)
        assert model.out_of_time
        assert len(model.selection.trials) == 4
        with model.as_judged():
            assert len(model.selection.trials) == 1
        model.close()
        model.evaluate(2)
        with model.as_judged():
            assert len(model.selection.trials) == 1
        model.learn(BUDGET - model.num_timesteps, reset_num_timesteps=False)
        assert not model.selection.is_open


def test_a_schedule_ends_with_the_budget_that_is_left() -> None:
    """In a later rung the earlier ones are paid for."""
    told = itertools.count(1)
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        model.learn(BUDGET, lambda m, _: not (m.selection.rung and next(told)))
        assert model.selection.rung == 1
        model.learn(10 * BUDGET, lambda *_: False)
        own = [trial.training.counters for trial in model.selection.trials]
        parts = sum(model.selection.rung_budget(1) - trial.rung_timesteps for trial in model.selection.trials)
    for counters, trial in zip(own, model.selection.trials, strict=True):
        first = counters.num_timesteps  # of the generation that was played before the stop
        left = model.selection.rung_budget(1) - trial.rung_timesteps + first
        assert counters.budget == pytest.approx(left + 10 * BUDGET - parts - first, rel=0.05)


def test_steps_that_are_set_are_kept(tmp_path: Path) -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        told = itertools.count(1)
        model.learn(BUDGET, lambda *_: next(told) < 6)
        for value in (7, 0, 12_345):
            model.num_timesteps = value
            model.save(tmp_path / "m")
            with FastES.load(tmp_path / "m.zip", n_workers=0) as loaded:
                assert loaded.num_timesteps == model.num_timesteps


# --- trainings that differ -------------------------------------------------------------------------------------------


def recipes() -> list[Training]:
    """Trainings on one environment that differ in policy, search, statistics and size."""
    found = []
    for seed, settings in enumerate(
        (
            {"policy": "LinearPolicy", "policy_kwargs": {}, "optimizer": "sgd", "shaping": "standardized"},
            {"policy_kwargs": {"net_arch": [4]}, "population_size": 6, "sigma": 0.3},
            {"policy_kwargs": {"net_arch": [3, 3]}, "normalize_obs": False, "episodes_per_candidate": 2},
            {"sigma_adaptation": "per_parameter", "episode_cap": "grow", "episode_cap_start": 3, "archive_size": 2},
        )
    ):
        with FastES(TOY, preset="default", n_workers=0, **{**{**SETTINGS, **settings}, "seed": seed}) as model:
            found.append(model.training)
    return found


class Noting(Silent):
    """Keeps what each generation was of."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def on_generation(self, record: Record, generation: Generation) -> bool:
        self.records.append(record)
        assert generation.perturbations.generation + 1 == record.generation
        return True


@pytest.mark.parametrize("rungs", [1, 2])
def test_trainings_may_differ_in_any_setting(rungs: int) -> None:
    """On one pool, with the result that each has alone."""
    with FastES(TOY, preset="default", n_workers=0, **SETTINGS) as model:
        source = model.source
    selection = Selection.start(recipes(), 9, rungs, 0.8).with_budget(4000, anew=True)
    evaluator = Evaluator(source, trainings_of(selection), SerialPool())
    trainer, noting = Trainer(selection, evaluator), Noting()
    evaluator.run(trainer.run(noting))
    evaluator.close()
    assert {record.trial for record in noting.records} == {1, 2, 3, 4}
    winner = trainer.selection.present
    alone = recipes()[winner.number].with_budget(winner.training.counters.budget, anew=True)
    alone_evaluator = Evaluator(source, {0: alone}, SerialPool())
    player = Player(alone_evaluator)

    async def again() -> Training:
        training = alone
        while training.generation < winner.training.generation:
            generation = await player.generation(training)
            due, waiting = training.due(generation.batch)
            for pending in due:
                finished, _ = await player.finished(training, pending)
                training = training.after_evaluation(finished)
            training, _ = training.tell(generation.batch, waiting)
        return training

    same = alone_evaluator.run(again())
    alone_evaluator.close()
    assert (same.strategy.theta == winner.training.strategy.theta).all()
    assert (same.normalizer.mean == winner.training.normalizer.mean).all()


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_run_folder_has_each_trial_and_each_rung(tmp_path: Path) -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        folder = RunFolder(tmp_path)
        folder.write_config(model, {})
        model.learn(BUDGET, folder)
        winner = model.selection.present.number + 1
    progress = read_progress(tmp_path / PROGRESS)
    assert set(progress["trial"]) == {1.0, 2.0, 3.0, 4.0}
    assert progress["timesteps"].tolist() == sorted(progress["timesteps"])
    curve = read_curve(tmp_path)
    assert curve.leader == curve.rung_ends[-1].winner == winner
    assert len(curve.rung_ends) == 2
    assert 0.0 < curve.rung_ends[0].at < curve.rung_ends[1].at < curve.steps[-1]


def test_a_run_that_went_on_past_its_checkpoint_has_each_row_once(tmp_path: Path) -> None:
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        told = itertools.count(1)
        model.learn(BUDGET, [RunFolder(tmp_path), lambda *_: next(told) < 6])
        model.save(tmp_path / "early")
        model.learn(BUDGET - model.num_timesteps, [RunFolder(tmp_path), lambda *_: next(told) < 15], reset_num_timesteps=False)
    with FastES.load(tmp_path / "early.zip", n_workers=0) as model:
        model.learn(BUDGET - model.num_timesteps, RunFolder(tmp_path), reset_num_timesteps=False)
    progress = read_progress(tmp_path / PROGRESS)
    rows = list(zip(progress["trial"], progress["generation"], strict=True))
    assert len(rows) == len(set(rows))
    assert progress["timesteps"].tolist() == sorted(progress["timesteps"])


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in the first rung."""
    path = tmp_path_factory.mktemp("halfway") / "m.zip"
    with FastES(TOY, preset="default", n_workers=0, **TRIALS) as model:
        told = itertools.count(1)
        model.learn(BUDGET, lambda *_: next(told) < 6)
        model.save(path)
    return path


@pytest.mark.parametrize("name", ["trials", "rungs", "trials_fraction"])
def test_other_trials_are_refused_while_several_are_left(name: str, halfway: Path) -> None:
    with pytest.raises(CheckpointMismatch, match=f"{name} = .* while several trials are left"):
        FastES.load(halfway, **{name: {"trials": 3, "rungs": 1, "trials_fraction": 0.1}[name]})


def test_other_trials_are_refused_once_training_has_begun(tmp_path: Path) -> None:
    """They would be noted as settings, and change nothing."""
    with FastES(TOY, preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "new")
        learn(model, 1)
        model.save(tmp_path / "begun")
    with FastES.load(tmp_path / "new", n_workers=0, trials=3) as model:
        assert model.settings.trials == 3
    with pytest.raises(CheckpointMismatch, match=r"trials = 3 cannot change on loading since training has begun: .* has 1"):
        FastES.load(tmp_path / "begun", trials=3)
    FastES.load(tmp_path / "begun", n_workers=0, trials=1).close()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("focus",), 4),
        (("focus",), -1),
        (("turn",), 4),
        (("turn",), None),
        (("rung",), 2),
        (("sizes",), [4, 3]),
        (("sizes",), [2]),
        (("sizes",), []),
        (("fraction",), 0.0),
        (("fraction",), 1.5),
        (("budget",), -1),
        (("trials", 1, "number"), 0),
        (("trials", 1, "number"), 4),
        (("trials", 1, "rung_timesteps"), -5),
        (("trials", 1, "eval_return"), "0"),
        (("trials",), []),
        (("dropped",), {}),
        (("dropped", "num_timesteps"), 0.5),
    ],
)
def test_damage_is_refused(path: tuple[Any, ...], value: object, halfway: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(halfway)
    place: Any = checkpoint.data["selection"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    write_checkpoint(tmp_path / "m", checkpoint)
    with pytest.raises(CheckpointError, match="selection"):
        FastES.load(tmp_path / "m.zip", n_workers=0)


def test_a_file_from_before_a_stop_showed_the_best_trial_is_resumed(halfway: Path, tmp_path: Path) -> None:
    """It showed the trial whose turn was last, and kept no evaluations."""
    checkpoint = read_checkpoint(halfway)
    selection = checkpoint.data["selection"]
    selection["focus"] = selection.pop("turn")
    for trial in selection["trials"]:
        del trial["eval_return"]
    write_checkpoint(tmp_path / "m", checkpoint)
    with FastES.load(halfway, n_workers=0) as new, FastES.load(tmp_path / "m.zip", n_workers=0) as old:
        assert old.selection.turn == new.selection.turn
        for model in (new, old):
            model.learn(BUDGET - model.num_timesteps, reset_num_timesteps=False)
        assert_same_state(new.snapshot(), old.snapshot())


def test_settings_of_trials_are_checked() -> None:
    for name, wrong in (("trials", 0), ("rungs", 0), ("trials_fraction", 0.0), ("trials_fraction", 1.1)):
        with pytest.raises(ValueError, match=name):
            Settings(**{name: wrong})


def test_the_listener_gets_what_callbacks_get() -> None:
    """A type checker holds the two protocols together; this holds their names."""
    names = {name for name in vars(Silent) if name.startswith("on_")}
    assert names == {name for name in vars(CallbackListener) if name.startswith("on_")}
    assert names <= {name for name in vars(Callback) if name.startswith("on_")}
    assert MANY > BUDGET


def test_the_pace_of_trials_is_that_of_the_whole_pool() -> None:
    """Two trials that commit in turn: the time of each generation holds one of either, until one goes on alone."""
    pace, turns = Pace(0.0), ((0, 10), (1, 20), (0, 30), (1, 40), (0, 50), (0, 60))
    found = [pace.after(number, now, steps, 0.5) for now, (number, steps) in enumerate(turns, start=1)]
    assert found == [
        Stretch(1.0, 10, 0.5),
        Stretch(2.0, 30, 1.0),
        Stretch(2.0, 50, 1.0),
        Stretch(2.0, 70, 1.0),
        Stretch(2.0, 90, 1.0),
        Stretch(1.0, 60, 0.5),
    ]
    assert pace.after(0, 6, 5, 0.0).seconds == 0.0, "a clock that stands still"


def test_a_trial_reports_the_speed_of_all() -> None:
    watch = Watch()
    with FastES(TOY, preset="default", n_workers=0, **{**TRIALS, "trials": 2, "trials_fraction": 1.0}) as model:
        model.learn(BUDGET, watch)
    played = sum(record.episode_length * 2 * model.strategy.num_pairs for record in watch.records)
    told = sum(record.steps_per_second * record.seconds for record in watch.records if record.trial == 2)
    assert told > 0.7 * played, "of both, not of its own"
