"""Risk: a training ends with a theta that is not its best, for a lucky episode; a final selection is lost or not repeatable."""

from __future__ import annotations

import copy
import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, toy
from training import assert_same, assert_same_records, assert_same_state, learn, theta_of, train

from fastes import Callback, CheckpointError, FastES, train_seeds
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.cli.main import main
from fastes.runs.run_folder import RunFolder
from fastes.settings.preset_loader import tomllib
from fastes.settings.settings import MOST_RUNGS, Settings
from fastes.training.archive import FINAL_EPISODES, SCREENING_EPISODES, Archive
from fastes.training.checkpoint_room import largest_gathered
from fastes.training.evaluation import Evaluation, FinishedEvaluation, PendingEvaluation
from fastes.training.final_selection import FinalSelection, episodes_of_selection
from fastes.training.player import Player
from fastes.training.training import Training

BUDGET = 2000
FEW: dict[str, Any] = {**SETTINGS, "preset": "default", "n_workers": 0, "archive_size": 3}


class Listener(Callback):
    """Keeps the final selections, with theta and the mean of the statistics that the model had when it was told."""

    def __init__(self) -> None:
        self.selections: list[tuple[FinalSelection, Any, Any]] = []

    def on_final_selection(self, model: Any, result: FinalSelection) -> None:
        self.selections.append((result, model.theta, model.normalizer.mean))


class Watch:
    """What is evaluated beside generations. scores: the returns of each finalist's screening, then of each final."""

    def __init__(self, model: FastES, *scores: float | list[float]) -> None:
        self.scores, self.asked = list(scores), list[tuple[bytes, bytes, list[int]]]()
        self._evaluate = model.evaluator.evaluate
        model.evaluator.evaluate = self.evaluate  # type: ignore[method-assign]

    async def evaluate(self, theta: Any, normalizer: Any, seeds: Any, *how: Any) -> Evaluation:
        self.asked.append((theta.tobytes(), normalizer.mean.tobytes(), seeds.tolist()))
        found = await self._evaluate(theta, normalizer, seeds, *how)
        return found._replace(returns=np.resize(self.scores.pop(0), len(seeds)).astype(float)) if self.scores else found


def told(archive_of: FastES, timesteps: int, mean: float) -> FinishedEvaluation:
    """An evaluation after so many timesteps, which are its generation's number, too."""
    theta = np.full(archive_of.num_params, timesteps, np.float32)
    pending = PendingEvaluation(timesteps, timesteps, theta, archive_of.normalizer, np.zeros(0))
    return FinishedEvaluation(pending, Evaluation(np.array([mean]), np.array([1]), np.array([0])))


@pytest.fixture
def model() -> FastES:
    return FastES(Toy, **FEW)


@pytest.fixture
def archive(model: FastES) -> Archive:
    return Archive(2)


def test_off_it_leaves_every_bit() -> None:
    settings = {name: value for name, value in FEW.items() if name not in ("archive_size", "n_workers")}
    without, off, on = (train(Toy, 9, **settings, **more) for more in ({}, {"archive_size": 0}, {"archive_size": 4}))
    assert_same(without, off)
    assert off.state.data["trainings"][0]["archive"] is None
    assert not [name for name in off.state.arrays["trainings"] if "archive" in name]
    assert_same_records(on.records, off.records)
    assert theta_of(on.state).tobytes() == theta_of(off.state).tobytes()


# --- what is kept ----------------------------------------------------------------------------------------------------


def after(archive: Archive, model: FastES, *evaluations: tuple[int, float]) -> Archive:
    """The archive after evaluations, (timesteps, mean) each, of a budget of 800: of two snapshots a segment has 100."""
    for timesteps, mean in evaluations:
        archive = archive.after(told(model, timesteps, mean), 800)
    return archive


def test_a_segment_counts_by_all_its_evaluations_and_its_best_stands_for_it(archive: Archive, model: FastES) -> None:
    evaluations = (0, 90.0), (50, 0.0), (100, 50.0), (199, 52.0), (200, 60.0), (250, 0.0), (300, 40.0)
    archive = after(archive, model, *evaluations)
    assert [(each.timesteps, each.evaluation, each.score) for each in archive.best()] == [(199, 52.0, 51.0), (0, 90.0, 45.0)][
        ::-1
    ]
    assert [each.timesteps for each in archive.snapshots] == [0, 199, 300], "the last segment may go on"
    archive = after(archive, model, (301, 80.0))
    assert [each.timesteps for each in archive.best()] == [199, 301]
    assert archive.best()[1].theta[0] == 301


def test_what_comes_after_a_selection_is_kept_beside_its_winner(archive: Archive, model: FastES) -> None:
    """Though it is of the same segment of the budget."""
    archive = after(archive, model, (0, 5.0))
    archive = archive.after_final_selection(archive.snapshots[0]._replace(evaluations=0))
    archive = after(archive, model, (10, 1.0), (20, 3.0))
    assert [(each.timesteps, each.score) for each in archive.best()] == [(0, math.inf), (20, 2.0)]


def test_equal_ones_are_kept_late_and_what_is_not_finite_never(archive: Archive, model: FastES) -> None:
    archive = after(archive, model, *((timesteps, 5.0) for timesteps in range(0, 800, 50)), (790, math.nan), (795, -math.inf))
    assert [each.timesteps for each in archive.best()] == [650, 750]
    assert archive.snapshots[-1].evaluations == 2


# --- the final selection ---------------------------------------------------------------------------------------------


def selected(*scores: float | list[float], budget: int = BUDGET, **settings: Any) -> tuple[FastES, FinalSelection, Watch]:
    """A training with a final selection."""
    model, listener = FastES(Toy, **{**FEW, **settings}), Listener()
    watch = Watch(model, *scores)
    model.learn(budget, [listener])
    (result, theta, mean), *more = listener.selections
    assert not more
    assert model.theta.tobytes() == theta.tobytes() == result.winner.snapshot.theta.tobytes()
    assert model.normalizer.mean.tobytes() == mean.tobytes() == result.winner.snapshot.normalizer.mean.tobytes()
    return model, result, watch


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_the_best_of_the_final_episodes_is_what_the_training_ends_with(winner: int) -> None:
    """The present parameters, and snapshots from the latest on; the third best of the screening may win."""
    model, result, watch = selected(7.0, 9.0, 1.0, 8.0, *np.roll([3.0, 2.0, 1.0], winner))
    assert [finalist.screening.mean for finalist in result.finalists] == [*np.roll([9.0, 8.0, 7.0], -winner), 1.0]
    assert [finalist.last.mean for finalist in result.finalists[:3]] == [3.0, 2.0, 1.0]
    assert result.finalists[3].final is None
    assert [len(seeds) for *_, seeds in watch.asked] == 4 * [SCREENING_EPISODES] + 3 * [FINAL_EPISODES]
    assert (result.winner.snapshot.generation == model.generation) == (winner == 2)
    generations = [finalist.snapshot.generation for finalist in result.finalists]
    assert len(set(generations)) == 4


def test_all_play_the_same_episodes_that_nobody_has_trained_or_judged_with() -> None:
    model, _, watch = selected()
    screenings, finals = (
        {tuple(seeds) for *_, seeds in watch.asked if len(seeds) == n} for n in (SCREENING_EPISODES, FINAL_EPISODES)
    )
    assert len(screenings) == len(finals) == 1
    seeds = {*screenings.pop(), *finals.pop()}
    assert len(seeds) == SCREENING_EPISODES + FINAL_EPISODES
    others = {*model.training.fresh_seeds(100).tolist()}
    others |= {seed for rung in range(MOST_RUNGS) for seed in replace(model.selection, rung=rung).seeds().tolist()}
    others |= {seed for generation in range(99) for seed in model.training.eval_seeds(generation).tolist()}
    assert not seeds & others


def test_all_its_steps_are_counted() -> None:
    with FastES(Toy, **{**FEW, "archive_size": 0}) as plain:
        plain.learn(BUDGET)
    model, result, _ = selected()
    steps = sum(int(shown.lengths.sum()) for _, *each in result.finalists for shown in each if shown is not None)
    assert result.timesteps == steps > 0
    assert model.eval_timesteps - plain.eval_timesteps == steps
    assert (model.num_timesteps, model.generation) == (plain.num_timesteps, plain.generation)


def test_the_mean_decides_though_one_falls_in_a_tenth_of_the_episodes() -> None:
    risky = [100.0] * 9 + [-50.0]
    _, result, _ = selected(risky, 60.0, 55.0, 50.0, risky, 60.0, 55.0)
    assert [finalist.last.mean for finalist in result.finalists] == pytest.approx([85.0, 60.0, 55.0, 50.0])


@pytest.mark.parametrize("score", [500.0, -math.inf, math.nan])
def test_if_nothing_is_to_be_gained_nothing_changes(score: float) -> None:
    """Not the optimiser either. It can be saved."""
    with FastES(Toy, **{**FEW, "archive_size": 0}) as plain:
        plain.learn(BUDGET)
    model, result, _ = selected(*[score] * 7)
    assert result.winner.snapshot.generation == model.generation == plain.generation
    for name, array in plain.training.arrays().items():
        assert model.training.arrays()[name].tobytes() == array.tobytes(), name
    assert model.training.pending
    assert [each.already_reported for each in model.training.pending] == [
        each.already_reported for each in plain.training.pending
    ]


def test_an_earlier_winner_begins_with_a_fresh_optimiser() -> None:
    model, _, _ = selected(1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    arrays = model.training.arrays()
    assert not arrays["optimizer.m"].any()
    assert all(each.already_reported for each in model.training.pending)


@pytest.mark.filterwarnings("ignore:the parameters from before")
def test_a_solved_or_stopped_training_has_no_final_selection() -> None:
    solved = {"target_return": -1e9, "target_episodes": 1}
    for settings, budget, stop in ((solved, BUDGET, 99), (solved, 1, 99), ({}, BUDGET, 5), ({}, 1, 1)):
        listener = Listener()
        with FastES(Toy, **{**FEW, **settings}) as model:
            model.learn(budget, [listener, lambda _, record, stop=stop: record.generation < stop])
            assert model.solved == bool(settings)
            assert model.training.archive.snapshots
            assert not listener.selections
            assert not model.training.archive.had_final_selection(model.generation)


# --- the same, whatever happens ---------------------------------------------------------------------------------------


def after_all(model: FastES, total: int = BUDGET) -> Checkpoint:
    """What a model comes to at the end of a budget."""
    with model:
        model.learn(max(0, total - model.num_timesteps), reset_num_timesteps=False)
        return model.snapshot()


RICH = {**FEW, "learning_rate": 0.5, "eval_lag": 2}


@pytest.fixture(scope="module")
def expected() -> Checkpoint:
    return after_all(FastES(Toy, **RICH))


def load(path: Path, **settings: Any) -> FastES:
    return FastES.load(path, Toy, n_workers=0, **settings)


@pytest.mark.parametrize("generations", [1, 2, 7, 15, 16, 17])
def test_a_stop_anywhere_changes_nothing(generations: int, expected: Checkpoint, tmp_path: Path) -> None:
    """A callback's in the last generation, too: the final selection is made when the training continues."""
    with FastES(Toy, **RICH) as model:
        learn(model, generations, BUDGET)
        assert not model.training.archive.had_final_selection(model.generation)
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as model:
        assert_same_state(read_checkpoint(tmp_path / "m.zip"), model.snapshot())
        last = model.num_timesteps >= BUDGET
        assert last == (model.generation == expected.data["trainings"][0]["generation"])
        assert_same_state(expected, after_all(model))


@pytest.mark.parametrize("at", [1, 4, 5, 7])
def test_a_selection_that_is_interrupted_is_made_again(at: int, expected: Checkpoint, tmp_path: Path) -> None:
    class Interrupted(Watch):
        async def evaluate(self, *arguments: Any) -> Evaluation:
            if len(self.asked) + 1 == at:
                raise KeyboardInterrupt
            return await super().evaluate(*arguments)

    model = FastES(Toy, **RICH)
    Interrupted(model)
    with pytest.raises(KeyboardInterrupt):
        model.learn(BUDGET)
    model.save(tmp_path / "m")
    again, copied = load(tmp_path / "m"), copy.deepcopy(model)
    assert again.training.archive.is_due(again.generation)
    for each in (again, copied):
        assert_same_state(expected, after_all(each))
    model.close()


def test_no_number_of_workers_and_no_other_training_changes_a_bit() -> None:
    settings = {name: value for name, value in FEW.items() if name not in ("seed", "n_workers")}
    settings |= {"trials": 2, "trials_fraction": 1.0}
    five, six = (after_all(FastES(Toy, **settings, n_workers=0, seed=seed)) for seed in (5, 6))
    assert_same_state(five, after_all(FastES(Toy, **settings, n_workers=2, seed=5)))
    first, second = train_seeds(Toy, (5, 6), total_timesteps=BUDGET, n_workers=0, **settings)
    assert_same_state(five, first.snapshot())
    assert_same_state(six, second.snapshot())


def test_a_vector_environment_gives_the_same() -> None:
    with FastES(toy(), **FEW) as model:
        model.learn(BUDGET)
    vector_env = gymnasium.vector.SyncVectorEnv([toy()] * 3)
    with FastES(vector_env, **{**FEW, "n_workers": None}) as other:
        other.learn(BUDGET)
    assert model.theta.tobytes() == other.theta.tobytes()
    assert model.eval_timesteps == other.eval_timesteps
    vector_env.close()


# --- what follows ----------------------------------------------------------------------------------------------------


def test_a_larger_budget_goes_on_from_the_winner_which_no_lucky_episode_drives_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, result, _ = selected(1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    winner, listener = result.winner.snapshot, Listener()
    model.learn(0, [listener], reset_num_timesteps=False)
    assert not listener.selections
    model.save(tmp_path / "m")
    thetas, generation = list[bytes](), Player.generation

    def noted(player: Player, training: Training) -> Any:
        thetas.append(training.strategy.theta.tobytes())
        return generation(player, training)

    monkeypatch.setattr(Player, "generation", noted)
    for each in (model, load(tmp_path / "m")):
        each.learn(BUDGET, [listener], reset_num_timesteps=False)
    assert_same_state(model.snapshot(), each.snapshot())
    assert thetas[0] == winner.theta.tobytes()
    for result, *_ in listener.selections:
        known = [finalist.snapshot for finalist in result.finalists if finalist.snapshot.evaluations == 0]
        assert {snapshot.timesteps for snapshot in known} == {BUDGET + 8, 2 * BUDGET + 8} or len(known) == 2
        assert winner.theta.tobytes() in [snapshot.theta.tobytes() for snapshot in known]


def test_each_training_of_one_model_has_its_final_selection() -> None:
    listener = Listener()
    with FastES(Toy, **FEW) as model:
        learn(model, 5)
        for _ in range(2):
            model.learn(500, [listener])
            assert model.training.archive.had_final_selection(model.generation)
    assert len(listener.selections) == 2
    assert any(finalist.snapshot.timesteps < 0 for finalist in listener.selections[0][0].finalists), "those of the learn before"


def test_what_is_known_of_others_is_forgotten(tmp_path: Path) -> None:
    with FastES(Toy, **FEW) as model:
        learn(model, 5)
        assert model.training.archive.snapshots
        model.set_env(toy(length=10))
        assert not model.training.archive.snapshots
        model.learn(BUDGET)
        model.set_parameters(model.get_parameters())
        assert not model.training.archive.snapshots
        assert not model.training.archive.had_final_selection(model.generation)


def test_the_finalists_are_of_the_trial_that_is_left() -> None:
    """Each trial keeps snapshots of its own, from its first generation on."""
    thetas: dict[int, set[bytes]] = {trial: set() for trial in (1, 2, 3)}
    model, listener = FastES(Toy, **{**FEW, "trials": 3, "trials_fraction": 0.9, "archive_size": 8}), Listener()
    Watch(model, 1.0, 3.0, 2.0)
    model.learn(BUDGET, [lambda m, record: thetas[record.trial].add(m.theta.tobytes()), listener])
    ((result, *_),) = listener.selections
    assert not any(thetas[2] & thetas[other] for other in (1, 3))
    assert {finalist.snapshot.theta.tobytes() for finalist in result.finalists if finalist.snapshot.generation} <= thetas[2]
    assert len(result.finalists) > 3
    assert min(finalist.snapshot.timesteps for finalist in result.finalists) < 0.3 * BUDGET


# --- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "m.zip"
    with FastES(Toy, **FEW) as model:
        learn(model, 12, BUDGET)
        model.save(path)
    return path


@pytest.mark.parametrize("size", [0, 1, 3, 64])
def test_another_size_keeps_the_best(size: int, saved: Path) -> None:
    with load(saved) as model, load(saved, archive_size=size) as other:
        found = other.training.archive
        assert (found is None) == (other.snapshot().data["trainings"][0]["archive"] is None) == (size == 0)
        kept = {each.timesteps for each in found.snapshots} if found else set()
        assert kept <= {each.timesteps for each in model.training.archive.snapshots}
        assert len(kept) == min(size, 4) if size != 3 else len(kept) == 4
        other.learn(BUDGET - other.num_timesteps, reset_num_timesteps=False)
        assert size == 0 or other.training.archive.had_final_selection(other.generation)


ONE: dict[str, Any] = {"generation": 1, "timesteps": 9, "evaluation": 1.0, "total": 1.0, "evaluations": 1}
DAMAGE: dict[str, Any] = {
    "no object": [1],
    "another key": {"selected": 0, "snapshots": [], "more": 1},
    "a negative selection": {"selected": -1, "snapshots": []},
    "no list": {"selected": 0, "snapshots": 1},
    "too many": {"selected": 0, "snapshots": [ONE] * 66},
    "more than there are arrays": {"selected": 0, "snapshots": [ONE] * 10},
    "fewer than there are arrays": {"selected": 0, "snapshots": [ONE]},
    "a flag": {"selected": 0, "snapshots": [{**ONE, "generation": True}] * 4},
    "a text": {"selected": 0, "snapshots": [{**ONE, "total": "1"}] * 4},
    "no sum": {"selected": 0, "snapshots": [{**ONE, "total": None}] * 4},
    "a winner with an evaluation": {"selected": 0, "snapshots": [{**ONE, "evaluations": 0}] * 4},
    "an evaluation of nothing": {"selected": 0, "snapshots": [{**ONE, "evaluation": None}] * 4},
    "a generation out of range": {"selected": 0, "snapshots": [{**ONE, "generation": 2**32}] * 4},
}


@pytest.mark.parametrize("damage", [*DAMAGE.values(), None], ids=[*DAMAGE, "missing"])
def test_damage_is_refused(damage: Any, saved: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved)
    (fields,) = checkpoint.data["trainings"]
    if damage is None:
        del fields["archive"]
    else:
        fields["archive"] = damage
    write_checkpoint(tmp_path / "m.zip", checkpoint)
    with pytest.raises(CheckpointError, match=r"archive|snapshot|theta"):
        load(tmp_path / "m.zip")


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.float32(np.nan), None])
def test_damaged_arrays_are_refused(value: Any, saved: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved)
    arrays, name = checkpoint.arrays["trainings"], "0.archive.1.theta"
    if value is None:
        arrays["0.archive.4.theta"] = arrays[name]
    else:
        arrays[name] = np.full_like(arrays[name], value) if np.ndim(value) == 0 else value
    write_checkpoint(tmp_path / "m.zip", checkpoint)
    with pytest.raises(CheckpointError, match="theta"):
        load(tmp_path / "m.zip")


@pytest.mark.parametrize(("name", "value"), [("archive_size", -1), ("archive_size", 65)])
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        Settings(**{name: value})


@pytest.mark.parametrize("gathers", [{"archive_size": 20}, {"trials": 40}, {"eval_lag": 30}], ids=str)
def test_more_than_a_checkpoint_holds_is_refused_at_once(
    gathers: dict[str, int], no_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastes.training.checkpoint_room.MAX_BYTES", 3000)
    (name, value), *_ = gathers.items()
    with pytest.raises(ValueError, match=f"^{name} = {value}: with 26 parameters a checkpoint would grow to .* holds 3 kB"):
        FastES(Toy, **{**FEW, "archive_size": 0, "n_workers": 2, **gathers})
    FastES(Toy, **FEW).close()


@pytest.mark.parametrize(
    "gathers",
    [
        {"archive_size": 9},
        {"trials": 9},
        {"trials": 2, "archive_size": 2, "trials_fraction": 1.0},
        {"eval_lag": 9, "eval_every": 2},
        {"eval_lag": 4},
    ],
    ids=str,
)
def test_what_a_checkpoint_may_grow_to_is_what_it_does(gathers: dict[str, int]) -> None:
    sizes: list[int] = []

    def note(model: FastES, _: Any) -> None:
        sizes.append(sum(array.nbytes for arrays in model.snapshot().arrays.values() for array in arrays.values()))

    with FastES(Toy, **{**FEW, "archive_size": 0, "policy_kwargs": {"net_arch": [40]}, **gathers}) as model:
        model.learn(4 * BUDGET, note)
        learned = {name: array.nbytes for name, array in model.training.arrays().items()}
    gathered = largest_gathered(model.settings, learned)
    expected = model.settings.trials * (sum(learned.values()) + sum(gathered.values()))
    assert 0.7 * expected < max(sizes) <= expected


# --- what a user sees --------------------------------------------------------------------------------------------------


def test_a_verbose_training_says_who_has_won(capsys: pytest.CaptureFixture[str]) -> None:
    _, result, _ = selected(1.0, 2.0, 1.0, 1.0, [3.0, 1.0], 1.0, 1.0, verbose=1)
    steps = result.winner.snapshot.timesteps
    won = f"final selection among 4: the parameters after {steps} steps win, return 2.0 +- 1.0, worst 1.0 over 50 episodes"
    lines = capsys.readouterr().out.splitlines()
    assert won in lines
    begins = f"final selection of 4 finalists begins: {episodes_of_selection(4)} episodes"
    assert lines.index(begins) == lines.index(won) - 1, "it may take minutes"
    selected(2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, verbose=1)
    assert "final selection among 4: the last parameters win, return 2.0 +- 0.0" in capsys.readouterr().out


def test_best_zip_holds_the_winner_whoever_saves_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with FastES(Toy, **FEW) as model:
        Watch(model, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0)
        model.learn(BUDGET, folder)
        folder.save(model)
        assert_same_state(read_checkpoint(tmp_path / "best.zip"), model.snapshot())


def test_the_run_folder_holds_the_winner_and_how_it_won(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--preset", "default", "--population-size", "8", "--net-arch", "4", "--target-return", "none", "--workers", "0"]
    flags = ["--seed", "5", "--total-timesteps", "2000", "--archive-size", "4", "--learning-rate", "0.5", "--sigma", "0.5"]
    assert main(["train", "Toy-v0", *small, *flags, "--runs", str(tmp_path)]) == 0
    run, said = tmp_path / "Toy-v0" / "1", capsys.readouterr().out
    with open(run / "final_selection.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["place"] for row in rows] == ["1", "2", "3", "4", "5"]
    finals = [float(row["mean_50"]) for row in rows[:3]]
    assert finals == sorted(finals, reverse=True)
    assert all(float(row["worst_50"]) <= float(row["mean_50"]) for row in rows[:3])
    assert [row["mean_50"] for row in rows[3:]] == ["nan", "nan"]
    assert int(rows[0]["timesteps"]) < 2000, "or this test shows little"
    with FastES.load(run / "best.zip") as best, FastES.load(run / "checkpoint.zip") as last:
        assert best.theta.tobytes() == last.theta.tobytes()
        assert best.training.archive.had_final_selection(best.generation)
        own = last.evaluate(20)
        kept = f"{own.in_words()} over 20 noise-free episodes"
    assert f"winner of the final selection: {kept}\nbest.zip and checkpoint.zip hold it\n" in said
    result = tomllib.loads((run / "config.toml").read_text())["run"]["result"]
    assert result == {"mean": own.mean, "std": own.std, "worst": own.worst, "episodes": 20}
