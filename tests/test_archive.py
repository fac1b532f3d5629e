"""Risk: a training ends with another theta than the best, for a lucky episode; a race is lost, run twice, or not repeatable."""

from __future__ import annotations

import copy
import csv
import math
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
from fastes.settings.settings import Settings
from fastes.training.archive.checkpoint_room import largest_gathered
from fastes.training.archive.race import Race
from fastes.training.archive.snapshots import FINAL, HEAT, Archive
from fastes.training.evaluation import Evaluation, Pending, Told

BUDGET = 2000
FEW: dict[str, Any] = {**SETTINGS, "preset": "default", "n_workers": 0, "archive_size": 3}


class Listener(Callback):
    """Keeps the races, with theta and the mean of the statistics that the model had when it was told."""

    def __init__(self) -> None:
        self.races: list[tuple[Race, Any, Any]] = []

    def on_raced(self, model: Any, race: Race) -> None:
        self.races.append((race, model.theta, model.normalizer.mean))


class Watch:
    """What is evaluated beside generations. scores: the returns of each entrant's heat, and then of each finalist's final."""

    def __init__(self, model: FastES, *scores: float | list[float]) -> None:
        self.scores, self.asked = list(scores), list[tuple[bytes, bytes, list[int]]]()
        self._evaluate = model.evaluator.evaluate
        model.evaluator.evaluate = self.evaluate  # type: ignore[method-assign]

    async def evaluate(self, theta: Any, normalizer: Any, seeds: Any, episodes: Any) -> Evaluation:
        self.asked.append((theta.tobytes(), normalizer.mean.tobytes(), seeds.tolist()))
        found = await self._evaluate(theta, normalizer, seeds, episodes)
        return found._replace(returns=np.resize(self.scores.pop(0), len(seeds)).astype(float)) if self.scores else found


def told(archive_of: FastES, timesteps: int, mean: float) -> Told:
    """An evaluation after so many timesteps, which are its generation's number, too."""
    theta = np.full(archive_of.num_params, timesteps, np.float32)
    pending = Pending(timesteps, timesteps, timesteps, theta, archive_of.normalizer, np.zeros(0))
    return Told(pending, Evaluation(np.array([mean]), np.array([1]), np.array([0])))


@pytest.fixture
def model() -> FastES:
    return FastES(Toy, **FEW)


@pytest.fixture
def archive(model: FastES) -> Archive:
    return Archive(Settings(archive_size=2))


def test_off_it_leaves_every_bit() -> None:
    settings = {name: value for name, value in FEW.items() if name not in ("archive_size", "n_workers")}
    without, off, on = (train(Toy, 9, **settings, **more) for more in ({}, {"archive_size": 0}, {"archive_size": 4}))
    assert_same(without, off)
    assert "archive" not in off.state.data
    assert_same_records(on.records, off.records)
    assert theta_of(on.state).tobytes() == theta_of(off.state).tobytes()


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_part_counts_by_all_its_evaluations_and_its_best_stands_for_it(archive: Archive, model: FastES) -> None:
    """Of 800 timesteps and two snapshots a part has 100."""
    for timesteps, mean in ((0, 90.0), (50, 0.0), (100, 50.0), (199, 52.0), (200, 60.0), (250, 0.0), (300, 40.0)):
        archive.note(told(model, timesteps, mean), 800)
    assert [(each.timesteps, each.evaluation, each.score) for each in archive.best()] == [(199, 52.0, 51.0), (0, 90.0, 45.0)][
        ::-1
    ]
    assert [each.timesteps for each in archive.snapshots] == [0, 199, 300], "the last part may go on"
    archive.note(told(model, 301, 80.0), 800)
    assert [each.timesteps for each in archive.best()] == [199, 301]
    assert archive.best()[1].theta[0] == 301


def test_each_start_has_parts_of_its_own(archive: Archive, model: FastES) -> None:
    """A start's end is not mixed with the next one's beginning, whose evaluation may be told later."""
    for timesteps, mean in ((0, 90.0), (20, 92.0)):
        archive.note(told(model, timesteps, mean), 800)
    archive.begun = 40
    for timesteps, mean in ((30, 94.0), (40, 1.0), (60, 3.0)):
        archive.note(told(model, timesteps, mean), 800)
    assert [(each.timesteps, each.score) for each in archive.snapshots] == [(30, 92.0), (60, 2.0)]


def test_what_comes_after_a_race_is_kept_beside_its_winner(archive: Archive, model: FastES) -> None:
    """Though it is of the same part of the budget."""
    archive.note(told(model, 0, 5.0), 800)
    archive.end_race(archive.snapshots[0]._replace(evaluations=0))
    for timesteps, mean in ((10, 1.0), (20, 3.0)):
        archive.note(told(model, timesteps, mean), 800)
    assert [(each.timesteps, each.score) for each in archive.best()] == [(0, math.inf), (20, 2.0)]


def test_equal_ones_are_kept_late_and_what_is_not_finite_never(archive: Archive, model: FastES) -> None:
    for timesteps in range(0, 800, 50):
        archive.note(told(model, timesteps, 5.0), 800)
    archive.note(told(model, 790, math.nan), 800)
    archive.note(told(model, 795, -math.inf), 800)
    assert [each.timesteps for each in archive.best()] == [650, 750]
    assert archive.snapshots[-1].evaluations == 2


# --- the race --------------------------------------------------------------------------------------------------------


def raced(*scores: float | list[float], budget: int = BUDGET, **settings: Any) -> tuple[FastES, Race, Watch]:
    """A training with a race."""
    model, listener = FastES(Toy, **{**FEW, **settings}), Listener()
    watch = Watch(model, *scores)
    model.learn(budget, [listener])
    (race, theta, mean), *more = listener.races
    assert not more
    assert model.theta.tobytes() == theta.tobytes() == race.winner.snapshot.theta.tobytes()
    assert model.normalizer.mean.tobytes() == mean.tobytes() == race.winner.snapshot.normalizer.mean.tobytes()
    return model, race, watch


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_the_best_of_the_final_is_what_the_training_ends_with(winner: int) -> None:
    """The present parameters, and snapshots from the latest on; the third best of the heat may win."""
    model, race, watch = raced(7.0, 9.0, 1.0, 8.0, *np.roll([3.0, 2.0, 1.0], winner))
    assert [entrant.heat.mean for entrant in race.entrants] == [*np.roll([9.0, 8.0, 7.0], -winner), 1.0]
    assert [entrant.score for entrant in race.entrants[:3]] == [3.0, 2.0, 1.0]
    assert race.entrants[3].final is None
    assert [len(seeds) for *_, seeds in watch.asked] == 4 * [HEAT] + 3 * [FINAL]
    assert (race.winner.snapshot.generation == model.generation) == (winner == 2)
    generations = [entrant.snapshot.generation for entrant in race.entrants]
    assert len(set(generations)) == 4


def test_all_play_the_same_episodes_that_nobody_has_trained_or_judged_with() -> None:
    model, _, watch = raced()
    heats, finals = ({tuple(seeds) for *_, seeds in watch.asked if len(seeds) == n} for n in (HEAT, FINAL))
    assert len(heats) == len(finals) == 1
    seeds = {*heats.pop(), *finals.pop()}
    assert len(seeds) == HEAT + FINAL
    others = {*model.state.fresh_seeds(100).tolist(), *model.starts.judges().tolist()}
    others |= {seed for generation in range(99) for seed in model.state.eval_seeds(generation).tolist()}
    assert not seeds & others


def test_all_its_steps_are_counted() -> None:
    with FastES(Toy, **{**FEW, "archive_size": 0}) as plain:
        plain.learn(BUDGET)
    model, race, _ = raced()
    steps = sum(int(shown.lengths.sum()) for _, *each in race.entrants for shown in each if shown is not None)
    assert race.timesteps == steps > 0
    assert model.eval_timesteps - plain.eval_timesteps == steps
    assert (model.num_timesteps, model.generation) == (plain.num_timesteps, plain.generation)


def test_the_mean_decides_though_one_falls_in_a_tenth_of_the_episodes() -> None:
    risky = [100.0] * 9 + [-50.0]
    _, race, _ = raced(risky, 60.0, 55.0, 50.0, risky, 60.0, 55.0)
    assert [entrant.score for entrant in race.entrants] == pytest.approx([85.0, 60.0, 55.0, 50.0])


@pytest.mark.parametrize("score", [500.0, -math.inf, math.nan])
def test_where_nothing_is_to_be_gained_nothing_changes(score: float) -> None:
    """Not the optimiser either. It can be saved."""
    with FastES(Toy, **{**FEW, "archive_size": 0}) as plain:
        plain.learn(BUDGET)
    model, race, _ = raced(*[score] * 7)
    assert race.winner.snapshot.generation == model.generation == plain.generation
    for name, array in plain.state.arrays().items():
        assert model.state.arrays()[name].tobytes() == array.tobytes(), name
    assert model.state.pending
    assert [each.is_told for each in model.state.pending] == [each.is_told for each in plain.state.pending]


def test_an_earlier_winner_begins_with_a_fresh_optimiser() -> None:
    model, _, _ = raced(1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    arrays = model.state.arrays()
    assert not arrays["optimizer.m"].any()
    assert all(each.is_told for each in model.state.pending)


@pytest.mark.filterwarnings("ignore:nothing was trained")
def test_a_solved_or_stopped_training_has_no_race() -> None:
    solved = {"target_return": -1e9, "target_episodes": 1}
    for settings, budget, stop in ((solved, BUDGET, 99), (solved, 1, 99), ({}, BUDGET, 5), ({}, 1, 1)):
        listener = Listener()
        with FastES(Toy, **{**FEW, **settings}) as model:
            model.learn(budget, [listener, lambda _, record, stop=stop: record.generation < stop])
            assert model.solved == bool(settings)
            assert model.archive.snapshots
            assert not listener.races
            assert not model.archive.is_raced(model.generation)


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
    """A callback's in the last generation, too: the race is run when the training is gone on with."""
    with FastES(Toy, **RICH) as model:
        learn(model, generations, BUDGET)
        assert not model.archive.is_raced(model.generation)
        model.save(tmp_path / "m")
    with load(tmp_path / "m") as model:
        assert_same_state(read_checkpoint(tmp_path / "m.zip"), model.snapshot())
        last = model.num_timesteps >= BUDGET
        assert last == (model.generation == expected.data["counters"]["generation"])
        assert_same_state(expected, after_all(model))


@pytest.mark.parametrize("at", [1, 4, 5, 7])
def test_a_race_that_is_interrupted_is_run_again(at: int, expected: Checkpoint, tmp_path: Path) -> None:
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
    assert again.archive.is_due(again.generation)
    for each in (again, copied):
        assert_same_state(expected, after_all(each))
    model.close()


def test_no_number_of_workers_and_no_other_training_changes_a_bit() -> None:
    settings = {name: value for name, value in FEW.items() if name not in ("seed", "n_workers")}
    settings |= {"starts": 2, "starts_share": 1.0}
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


def test_a_larger_budget_goes_on_from_the_winner_which_no_lucky_episode_drives_out(tmp_path: Path) -> None:
    model, race, _ = raced(1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    winner, listener = race.winner.snapshot, Listener()
    model.learn(0, [listener], reset_num_timesteps=False)
    assert not listener.races
    model.save(tmp_path / "m")
    thetas: list[bytes] = []
    for each in (model, load(tmp_path / "m")):
        asked = each.evaluator.begin_generation
        each.evaluator.begin_generation = lambda *a, f=asked: thetas.append(a[0].theta.tobytes()) or f(*a)  # type: ignore
        each.learn(BUDGET, [listener], reset_num_timesteps=False)
    assert_same_state(model.snapshot(), each.snapshot())
    assert thetas[0] == winner.theta.tobytes()
    for race, *_ in listener.races:
        known = [entrant.snapshot for entrant in race.entrants if entrant.snapshot.evaluations == 0]
        assert {snapshot.timesteps for snapshot in known} == {BUDGET + 8, 2 * BUDGET + 8} or len(known) == 2
        assert winner.theta.tobytes() in [snapshot.theta.tobytes() for snapshot in known]


def test_each_training_of_one_model_has_its_race() -> None:
    listener = Listener()
    with FastES(Toy, **FEW) as model:
        learn(model, 5)
        for _ in range(2):
            model.learn(500, [listener])
            assert model.archive.is_raced(model.generation)
    assert len(listener.races) == 2
    assert any(entrant.snapshot.timesteps < 0 for entrant in listener.races[0][0].entrants), "those of the learn before"


def test_what_is_known_of_others_is_forgotten(tmp_path: Path) -> None:
    with FastES(Toy, **FEW) as model:
        learn(model, 5)
        assert model.archive.snapshots
        model.set_env(toy(length=10))
        assert not model.archive.snapshots
        model.learn(BUDGET)
        model.set_parameters(model.get_parameters())
        assert not model.archive.snapshots
        assert not model.archive.is_raced(model.generation)


def test_snapshots_of_dropped_starts_take_part() -> None:
    _, race, _ = raced(*[1.0] * 3, *[2.0] * 7, starts=3, starts_share=0.9, archive_size=8)
    assert min(entrant.snapshot.timesteps for entrant in race.entrants) < 0.3 * BUDGET


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
        kept = {each.timesteps for each in other.archive.snapshots}
        assert kept <= {each.timesteps for each in model.archive.snapshots}
        assert len(kept) == min(size, 4) if size != 3 else len(kept) == 4
        assert (other.snapshot().data.get("archive") is None) == (size == 0)
        other.learn(BUDGET - other.num_timesteps, reset_num_timesteps=False)
        assert other.archive.is_raced(other.generation) == (size > 0)


def test_where_a_start_began_is_kept(tmp_path: Path) -> None:
    with FastES(Toy, **FEW, starts=2) as model:
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        begun = model.archive.begun
        assert begun == model.starts.begun_generation > 0
        model.save(tmp_path / "m")
    checkpoint = read_checkpoint(tmp_path / "m.zip")
    with load(tmp_path / "m.zip") as model:
        assert model.archive.begun == begun
    del checkpoint.data["archive"]["begun"]
    write_checkpoint(tmp_path / "m.zip", checkpoint)
    with load(tmp_path / "m.zip") as model:
        assert model.archive.begun == 0, "a file from before does not say it"


def test_a_file_from_before_has_none(saved: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved)
    data = {name: value for name, value in checkpoint.data.items() if name != "archive"}
    arrays = {name: value for name, value in checkpoint.arrays.items() if name != "archive"}
    write_checkpoint(tmp_path / "m.zip", Checkpoint(data, arrays))
    with load(tmp_path / "m.zip") as model:
        assert not model.archive.snapshots


ONE: dict[str, Any] = {"generation": 1, "timesteps": 9, "evaluation": 1.0, "total": 1.0, "evaluations": 1}
DAMAGE: dict[str, Any] = {
    "no object": [1],
    "another key": {"raced": 0, "snapshots": [], "more": 1},
    "a negative race": {"raced": -1, "snapshots": []},
    "no list": {"raced": 0, "snapshots": 1},
    "too many": {"raced": 0, "snapshots": [ONE] * 66},
    "more than there are arrays": {"raced": 0, "snapshots": [ONE] * 10},
    "fewer than there are arrays": {"raced": 0, "snapshots": [ONE]},
    "a flag": {"raced": 0, "snapshots": [{**ONE, "generation": True}] * 4},
    "a text": {"raced": 0, "snapshots": [{**ONE, "total": "1"}] * 4},
    "no sum": {"raced": 0, "snapshots": [{**ONE, "total": None}] * 4},
    "a winner with an evaluation": {"raced": 0, "snapshots": [{**ONE, "evaluations": 0}] * 4},
    "an evaluation of nothing": {"raced": 0, "snapshots": [{**ONE, "evaluation": None}] * 4},
    "a generation out of range": {"raced": 0, "snapshots": [{**ONE, "generation": 2**32}] * 4},
}


@pytest.mark.parametrize("damage", [*DAMAGE.values(), None], ids=[*DAMAGE, "missing"])
def test_damage_is_refused(damage: Any, saved: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved)
    data = {name: value for name, value in checkpoint.data.items() if name != "archive"}
    write_checkpoint(tmp_path / "m.zip", checkpoint._replace(data=data if damage is None else {**data, "archive": damage}))
    with pytest.raises(CheckpointError, match=r"archive|snapshot|theta"):
        load(tmp_path / "m.zip")


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.float32(np.nan), None])
def test_damaged_arrays_are_refused(value: Any, saved: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(saved)
    arrays = dict(checkpoint.arrays["archive"])
    if value is None:
        arrays["4.theta"] = arrays["1.theta"]
    else:
        arrays["1.theta"] = np.full_like(arrays["1.theta"], value) if np.ndim(value) == 0 else value
    write_checkpoint(tmp_path / "m.zip", checkpoint._replace(arrays={**checkpoint.arrays, "archive": arrays}))
    with pytest.raises(CheckpointError, match="theta"):
        load(tmp_path / "m.zip")


@pytest.mark.parametrize(("name", "value"), [("archive_size", -1), ("archive_size", 65)])
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} = "):
        Settings(**{name: value})


@pytest.mark.parametrize("gathers", [{"archive_size": 20}, {"starts": 40, "starts_rounds": 2}, {"eval_lag": 30}], ids=str)
def test_more_than_a_checkpoint_holds_is_refused_at_once(
    gathers: dict[str, int], no_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastes.training.archive.checkpoint_room.MAX_BYTES", 3000)
    (name, value), *_ = gathers.items()
    with pytest.raises(ValueError, match=f"^{name} = {value}: with 26 parameters a checkpoint would grow to .* holds 3 kB"):
        FastES(Toy, **{**FEW, "archive_size": 0, "n_workers": 2, **gathers})
    FastES(Toy, **FEW).close()


@pytest.mark.parametrize(
    "gathers",
    [{"archive_size": 9}, {"starts": 9, "starts_rounds": 3}, {"starts": 2}, {"eval_lag": 9, "eval_every": 2}, {"eval_lag": 4}],
    ids=str,
)
def test_what_a_checkpoint_may_grow_to_is_what_it_does(gathers: dict[str, int]) -> None:
    sizes: list[int] = []

    def note(model: FastES, _: Any) -> None:
        sizes.append(sum(array.nbytes for arrays in model.snapshot().arrays.values() for array in arrays.values()))

    with FastES(Toy, **{**FEW, "archive_size": 0, "policy_kwargs": {"net_arch": [40]}, **gathers}) as model:
        model.learn(4 * BUDGET, note)
        learned = {name: array.nbytes for name, array in model.state.arrays().items()}
    expected = sum(learned.values()) + sum(largest_gathered(model.settings, learned).values())
    assert 0.7 * expected < max(sizes) <= expected


# --- what a user sees --------------------------------------------------------------------------------------------------


def test_a_verbose_training_says_who_has_won(capsys: pytest.CaptureFixture[str]) -> None:
    _, race, _ = raced(1.0, 2.0, 1.0, 1.0, [3.0, 1.0], 1.0, 1.0, verbose=1)
    steps = race.winner.snapshot.timesteps
    won = f"race of 4: the parameters after {steps} steps win, return 2.0 +- 1.0, worst 1.0 over 50 episodes"
    assert won in capsys.readouterr().out.splitlines()
    raced(2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, verbose=1)
    assert "race of 4: the last parameters win, return 2.0 +- 0.0" in capsys.readouterr().out


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
    with open(run / "race.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["place"] for row in rows] == ["1", "2", "3", "4", "5"]
    finals = [float(row["mean_50"]) for row in rows[:3]]
    assert finals == sorted(finals, reverse=True) == [float(row["score"]) for row in rows[:3]]
    assert [row["mean_50"] for row in rows[3:]] == ["nan", "nan"]
    assert int(rows[0]["timesteps"]) < 2000, "or this test shows little"
    with FastES.load(run / "best.zip") as best, FastES.load(run / "checkpoint.zip") as last:
        assert best.theta.tobytes() == last.theta.tobytes()
        assert best.archive.is_raced(best.generation)
        own = last.evaluate(20)
        kept = f"{own.in_words()} over 20 noise-free episodes"
    assert f"winner of the race: {kept}\nbest.zip and checkpoint.zip hold it\n" in said
    result = tomllib.loads((run / "config.toml").read_text())["run"]["result"]
    assert result == {"mean": own.mean, "std": own.std, "worst": own.worst, "episodes": 20}
