"""Risk: a better start is dropped, one that goes on is not as it was, or has another's settings; a stop changes the choice."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_starts import BUDGET, SETTINGS, Watch, older, same
from training import MANY, assert_same_state, learn

from fastes import Callback, CheckpointError, CheckpointMismatch, FastES, Settings
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.cli.main import main
from fastes.pools.cluster.replica import key_of
from fastes.reports.plots import _name_of_part as name_of_part
from fastes.runs.curves import read_curve
from fastes.runs.run_folder import CONFIG, PROGRESS, RunFolder
from fastes.settings.alternatives import ALTERNATIVES
from fastes.settings.preset_loader import tomllib
from fastes.training.evaluation import Evaluation
from fastes.training.generation import evaluate
from fastes.training.record import Record
from fastes.training.starts.parts import round_sizes
from fastes.training.starts.starts import Starts

TABLE: dict[str, list[Any]] = {"obs_clip": [0.1, 4.0, 2.0], "alive_bonus": [0.0, 0.5], "sigma": ["lin_0.05_0.01", 0.1]}
HALVING: dict[str, Any] = {
    **SETTINGS,
    "population_size": 4,
    "starts": 5,
    "starts_rounds": 3,
    "starts_share": 0.8,
    "starts_episodes": 3,
    "starts_alternatives": TABLE,
}
SHORT = 2000  # timesteps: ten parts of one to nine generations


class Verdicts(Callback):
    """What was told of each start: the verdict, num_timesteps, and the settings of what goes on."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.at: list[int] = []
        self.settings: list[dict[str, Any]] = []

    def on_start_judged(self, model: FastES, start: int, eval_return: float) -> None:
        verdict = model.starts.verdict
        assert (verdict.start, verdict.score) == (start, eval_return)
        self.told.append(verdict)
        self.at.append(model.num_timesteps)
        self.settings.append(model.settings.alternatives())


@pytest.mark.parametrize(
    ("number", "rounds", "sizes"),
    [(1, 3, [1]), (2, 1, [2]), (2, 9, [2]), (3, 9, [3, 2]), (8, 2, [8, 4]), (9, 9, [9, 5, 3, 2]), (10_000, 1, [10_000])],
)
def test_half_of_the_starts_are_left_in_each_round(number: int, rounds: int, sizes: list[int]) -> None:
    assert round_sizes(number, rounds) == sizes


def test_the_worse_half_is_dropped_and_the_others_go_on_as_they_were() -> None:
    settings = {**SETTINGS, "starts": 4, "starts_rounds": 2}
    with FastES("Toy-v0", **settings) as model:
        watch, verdicts = Watch(model, [1.0, 4.0, 3.0, 2.0, 5.0, 6.0]), Verdicts()
        model.learn(BUDGET, [verdicts])
        asked, judged = watch.asked, watch.judged
        begins = [next(each for each in asked if each["at"] == at) for at in [0, *verdicts.at]]
    assert [(told.start, told.round, told.dropped, told.chosen) for told in verdicts.told] == [
        (1, 1, (), 0),
        (2, 1, (), 0),
        (3, 1, (1,), 0),
        (4, 1, (4,), 0),
        (2, 2, (), 0),
        (3, 2, (2,), 3),
    ]
    for begin, was in ((4, 1), (5, 2), (6, 5)):
        assert same(begins[begin], judged[was]), "the best first, each where it had stopped, and then the best alone"
    assert len({each["theta"] for each in judged}) == 6


def test_each_round_has_an_equal_part_of_the_budget() -> None:
    settings = {**SETTINGS, "starts": 4, "starts_rounds": 2, "population_size": 2, "episode_cap": "none"}
    with FastES("Toy-v0", **settings) as model:
        verdicts = Verdicts()
        model.learn(BUDGET, [verdicts])
    steps = [end - begin for begin, end in itertools.pairwise([0, *verdicts.at])]
    parts = [BUDGET * 0.5 / 2 / 4] * 4 + [BUDGET * 0.5 / 2 / 2] * 2
    assert all(part <= taken < part + 2 * 20 for part, taken in zip(parts, steps, strict=True))


def test_starts_that_learn_are_told_from_those_that_cannot() -> None:
    table = {"learning_rate": [1e-9, 0.05]}
    settings = {**SETTINGS, "starts": 4, "starts_rounds": 2, "policy": "LinearPolicy", "policy_kwargs": {}}
    with FastES("Toy-v0", **settings, starts_alternatives=table, episodes_per_candidate=4) as model:
        verdicts = Verdicts()
        model.learn(2 * BUDGET, [verdicts])
        assert model.settings.learning_rate == 0.05
    assert {number for told in verdicts.told[:4] for number in told.dropped} == {1, 3}


def test_more_rounds_than_there_can_be_are_none() -> None:
    """Two starts have one round, and are judged as ever."""
    states = []
    for rounds in (1, 3):
        with FastES("Toy-v0", **{**SETTINGS, "starts": 2, "starts_rounds": rounds}) as model:
            learn(model, 40, BUDGET)
            states.append(model.snapshot())
    assert [state.data["settings"].pop("starts_rounds") for state in states] == [1, 3]
    assert_same_state(*states)


def test_one_round_is_what_it_was_before_there_were_several() -> None:
    """Arrays and returns of a training of the version before."""
    with FastES("Toy-v0", **SETTINGS) as model:
        model.learn(BUDGET)
        learned = model.theta.tobytes() + model.normalizer.mean.tobytes()
        counted = model.generation, model.num_timesteps, model.eval_timesteps
    assert counted == (57, 6030, 1227)
    assert hashlib.sha256(learned).hexdigest()[:16] == "0ad9bbcfe069e908"


def test_several_rounds_judge_by_the_median() -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        spec = model.policy_spec
    returns = np.array([0.0, 1.0, 2.0, 300.0])
    for rounds, expected in ((1, 75.75), (2, 1.5)):
        starts = Starts(Settings(starts=4, starts_rounds=rounds), spec, 0)
        assert starts.score(Evaluation(returns, np.ones(4, np.int64), np.arange(4))) == expected
        bad = Evaluation(np.array([1.0, math.nan, 2.0]), np.ones(3, np.int64), np.arange(3))
        assert starts.score(bad) == -math.inf


def test_each_round_is_judged_by_episodes_of_its_own() -> None:
    with FastES("Toy-v0", **HALVING) as model:
        watch = Watch(model)
        model.learn(SHORT)
    seeds = [tuple(judged["seeds"]) for judged in watch.judged]
    assert [len(each) for each in seeds] == [3] * 10
    assert [len(set(seeds[begin:end])) for begin, end in ((0, 5), (5, 8), (8, 10))] == [1, 1, 1]
    assert len(set(seeds)) == 3


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [([5.0, 4.0, 3.0, 1.0, 2.0], 2), ([5.0, 4.0, 3.0, 2.0, 9.0], 1), ([5.0, 4.0, 3.0, 2.0, 4.0], 1)],
)
def test_a_budget_that_ends_among_the_rounds_gives_the_best_that_is_known(scores: list[float], chosen: int) -> None:
    """Also a start whose turn in the last round has not come. The first parts take more than theirs."""
    settings = {**SETTINGS, "starts": 4, "starts_rounds": 2, "starts_share": 1, "episode_cap": "none"}
    with FastES("Toy-v0", **settings) as model:
        watch, verdicts = Watch(model, scores), Verdicts()
        model.learn(BUDGET / 10, [verdicts])
        assert [told.start for told in verdicts.told] == [1, 2, 3, 4, 1]
        assert verdicts.told[-1].chosen == chosen
        assert same(watch.now(), watch.judged[4 if chosen == 1 else 1])
        assert not model.starts.has_unjudged_starts


# --- stops -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> Checkpoint:
    """What a training that nothing disturbs comes to."""
    with FastES("Toy-v0", **HALVING) as model:
        learn(model, MANY, SHORT)
        assert not model.starts.has_unjudged_starts
        return model.snapshot()


STOPS = range(1, 43, 4)


@pytest.mark.parametrize("generations", STOPS)
def test_a_stop_in_any_round_changes_nothing(generations: int, expected: Checkpoint, tmp_path: Path) -> None:
    with FastES("Toy-v0", **HALVING) as model:
        learn(model, generations, SHORT)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert_same_state(read_checkpoint(tmp_path / "m.zip"), model.snapshot())
        learn(model, MANY, SHORT)
        assert_same_state(expected, model.snapshot())


def test_the_stops_are_in_every_round() -> None:
    """So that the test above says what its name does."""
    rounds: dict[int, int] = {}
    with FastES("Toy-v0", **HALVING) as model:
        model.learn(SHORT, lambda m, record: rounds.update({record.generation: m.starts.round}))
    assert [list(map(rounds.get, STOPS)).count(number) for number in range(3)] == [5, 3, 3]


# --- alternatives ----------------------------------------------------------------------------------------------------

BASES: dict[str, dict[str, Any]] = {
    "sigma_learning_rate": {"sigma_adaptation": "per_parameter"},
    "max_speed": {"optimizer": "clipup"},
    "top_fraction": {"shaping": "standardized"},
}
ROWS: dict[str, list[Any]] = {
    "sigma": [0.05, "lin_0.3_0.1"],
    "sigma_learning_rate": [0.1, 0.5],
    "learning_rate": [0.02, 0.1],
    "momentum": [0.9, 0.1],
    "beta2": [0.999, 0.5],
    "max_speed": [0.01, 0.02],
    "weight_decay": [0.0, 0.5],
    "shaping": ["centered_ranks", "nes"],
    "top_fraction": [1.0, 0.25],
    "alive_bonus": [0.0, 3.0],
    "obs_freeze_after": [0, 10],
    "obs_clip": [5.0, 0.2],
    "obs_std_floor": [0.01, 2.0],
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_start_trains_with_its_own_value(name: str) -> None:
    """As the second start of a training that has that value throughout."""
    judged = []
    settings = {**SETTINGS, **BASES.get(name, {}), "starts": 2, "starts_share": 0.7}
    for more in ({name: ROWS[name][0]}, {name: ROWS[name][1]}, {"starts_alternatives": {name: ROWS[name]}}):
        with FastES("Toy-v0", **settings, **more) as model:
            watch = Watch(model)
            model.learn(1200)
            judged.append(watch.judged)
    first, second, both = judged
    assert same(both[0], first[0])
    assert same(both[1], second[1])
    assert not same(both[1], first[1])


def test_rows_are_counted_round_and_round() -> None:
    settings = Settings(starts=7, starts_alternatives=TABLE)
    expected = [(TABLE["obs_clip"][k % 3], TABLE["alive_bonus"][k % 2], TABLE["sigma"][k % 2]) for k in range(7)]
    assert [tuple(settings.of_start(k).alternatives().values()) for k in range(7)] == expected
    assert settings.of_start(1).of_start(3) == settings.of_start(3)
    assert Settings().of_start(3) == Settings()


def test_the_best_start_keeps_its_settings(tmp_path: Path) -> None:
    """In memory, in a checkpoint, in the run folder, and for what is trained from there on."""
    scores = [1.0, 2.0, 9.0, 4.0, 5.0, 1.0, 2.0, 3.0, 1.0, 2.0]
    with FastES("Toy-v0", **HALVING, total_timesteps=SHORT) as model, RunFolder(tmp_path) as folder:
        verdicts = Verdicts()
        folder.write_config(model, {})
        watch = Watch(model, scores)
        model.learn(SHORT, [folder, verdicts])
        chosen = verdicts.told[-1].chosen - 1
        own = {name: row[chosen % len(row)] for name, row in TABLE.items()}
        assert model.settings.alternatives() == verdicts.settings[-1] == own
        assert model.normalizer.clip == own["obs_clip"]
        folder.save(model)
        model.learn(SHORT / 4, reset_num_timesteps=False)
        expected = model.snapshot()
    assert len(watch.judged) == 10
    config = tomllib.loads((tmp_path / CONFIG).read_text())
    assert config["run"]["chosen_start"] == {"number": chosen + 1, **own}
    assert config["settings"]["starts_alternatives"] == TABLE
    with FastES.load(tmp_path / "checkpoint.zip", n_workers=0) as model:
        assert model.settings.alternatives() == own
        assert model.normalizer.clip == own["obs_clip"]
        model.learn(SHORT / 4, reset_num_timesteps=False)
        assert_same_state(expected, model.snapshot())
        again = model.with_seed(SETTINGS["seed"])
    with again, FastES("Toy-v0", **HALVING, total_timesteps=SHORT) as other:
        for each in (again, other):
            learn(each, 6, SHORT)
        assert again.theta.tobytes() == other.theta.tobytes(), "a new model begins with the first start's"


class EachIsBest(Callback):
    """Saves the parameters of every evaluation as on_new_best has them, with what the evaluation gave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.noted, self.clip = folder, list[tuple[Path, float, Any, float]](), 0.0
        self._now: list[tuple[Path, float]] = []

    def on_new_best(self, model: FastES, eval_return: float) -> None:
        path = self.folder / f"{model.generation}-{len(self.noted)}.zip"
        model.save(path)
        self._now.append((path, eval_return))

    def on_generation(self, model: FastES, record: Any) -> None:
        model.best_eval_return = -math.inf
        for path, eval_return in self._now:
            assert model.last_evaluation is not None
            self.noted.append((path, eval_return, model.last_evaluation.env_seeds, model.settings.obs_clip))
        self._now = []


def test_the_best_parameters_are_kept_with_the_settings_that_they_were_evaluated_with(tmp_path: Path) -> None:
    """An evaluation may be told two starts later: its own clip is the one that acts."""
    table = {"obs_clip": [0.1, 4.0, 0.5], "sigma": [0.3, 0.1], "obs_std_floor": [0.01, 5.0]}
    settings = {**HALVING, "starts": 3, "starts_rounds": 2, "starts_alternatives": table, "eval_lag": 6}
    with FastES("Toy-v0", **settings) as model:
        best = EachIsBest(tmp_path)
        model.learn(SHORT / 2, [best])
    others = 0
    for path, eval_return, seeds, clip in best.noted:
        with FastES.load(path, n_workers=0) as model:
            assert model.settings.obs_clip == model.normalizer.clip
            assert model.evaluator.run(evaluate(model.state, model.evaluator, seeds)).mean == eval_return
            others += clip != model.settings.obs_clip
    assert others >= 3, "some were told in another start"


def test_an_evaluation_that_waits_keeps_its_settings_in_a_file(tmp_path: Path) -> None:
    with FastES("Toy-v0", **HALVING, eval_lag=3) as model:
        model.learn(SHORT, lambda m, _: m.starts.judged < 1)
        pending = model.state.pending[0]
        assert pending.alternatives == model.settings.of_start(0).alternatives() != model.settings.alternatives()
        model.save(tmp_path / "m")
        assert pending.normalizer.clip == 0.1
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        loaded = model.state.pending[0]
        assert loaded.alternatives == pending.alternatives
        assert loaded.normalizer.clip == 0.1 != model.normalizer.clip


def test_a_start_that_is_solved_by_a_late_evaluation_has_its_settings() -> None:
    """The evaluation is of the first start, and is told when the second one plays."""

    class Content(Callback):
        def on_start_judged(self, model: FastES, start: int, eval_return: float) -> None:
            assert model.settings == model.settings.of_start(1)
            model.state.settings = model.settings.changed(target_return=-1e9)

    with FastES("Toy-v0", **HALVING, eval_lag=3, target_episodes=1) as model:
        model.learn(SHORT, [Content()])
        assert model.solved
        assert model.settings.alternatives() == model.settings.of_start(0).alternatives()
        assert (model.normalizer.clip, model.strategy.hyperparameters.sigma) == (0.1, "lin_0.05_0.01")
        assert not model.starts.has_unjudged_starts


def test_the_winner_of_a_race_has_its_settings(tmp_path: Path) -> None:
    """An archive keeps parameters of starts that were dropped."""
    with FastES("Toy-v0", **HALVING, archive_size=8, eval_lag=3) as model:
        model.learn(SHORT, lambda m, _: m.starts.judged < 3)
        model.save(tmp_path / "m")
        kept = model.state.archive.snapshots
        assert {snapshot.normalizer.clip for snapshot in kept} == {0.1, 4.0, 2.0}
        for snapshot in kept:
            clip = snapshot.alternatives["obs_clip"]
            assert snapshot.normalizer.clip == clip
            after = model.state.raced(snapshot, 0)
            assert after.settings.alternatives() == snapshot.alternatives
            assert (after.normalizer.clip, after.strategy.hyperparameters.sigma) == (clip, snapshot.alternatives["sigma"])
            assert after.present().alternatives == snapshot.alternatives
            assert all(each.alternatives["obs_clip"] == each.normalizer.clip for each in after.pending)
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        for before, loaded in zip(kept, model.state.archive.snapshots, strict=True):
            assert loaded.alternatives == before.alternatives
            assert loaded.normalizer.clip == before.normalizer.clip


def test_what_starts_differ_in_cannot_change_while_there_are_some(tmp_path: Path) -> None:
    with FastES("Toy-v0", **HALVING) as model:
        model.save(tmp_path / "new")
        learn(model, 6, SHORT)
        model.save(tmp_path / "among")
        model.learn(SHORT)
        model.save(tmp_path / "ended")
    for changes in ({"alive_bonus": 7.0}, {"starts_alternatives": {}}):
        (name,) = changes
        with pytest.raises(CheckpointMismatch, match=f"{name} = .* cannot change on loading while starts .* one has") as caught:
            FastES.load(tmp_path / "among", n_workers=0, **changes)
        assert str(changes[name]) in str(caught.value)
        for other in ("new", "ended"):
            with FastES.load(tmp_path / other, n_workers=0, **changes) as model:
                assert getattr(model.settings, name) == changes[name]
    with FastES.load(tmp_path / "among", n_workers=0, starts_share=0.5, starts_alternatives=TABLE) as model:
        assert model.settings.starts_share == 0.5


def test_nodes_of_a_cluster_tell_starts_apart_that_differ_in_a_setting_alone() -> None:
    """Before the first step their parameters may be the same, and their sigma is not."""
    with FastES("Toy-v0", **{**HALVING, "policy": "LinearPolicy", "policy_kwargs": {}}) as model:
        state = model.state.begun(SHORT, True)
        keys = [key_of(state.start_ahead(number).strategy) for number in range(1, 4)]
        assert keys[0] != keys[1] == key_of(state.strategy)
        assert keys[0] == keys[2] != keys[1]


BAD: list[tuple[Any, Any, tuple[str, ...]]] = [
    ([1], TypeError, ("starts_alternatives = [1]", "a dict of lists such as {'alive_bonus': [0, 1]")),
    ({"alive_bonus": 1}, TypeError, ("'alive_bonus': 1", "a list of at least one value")),
    ({"sigma": "0.1"}, TypeError, ("'sigma': '0.1'", "a list")),
    ({"sigma": []}, TypeError, ("'sigma': []", "at least one")),
    ({"sigma": [0.1] * 101}, ValueError, ("101 values for 'sigma'", "at most 100")),
    ({"sigma": [0.1, abs]}, TypeError, ("a function for 'sigma'", "'lin_0.1_0.02'")),
    ({"sigma": [0.1, -1]}, ValueError, ("starts_alternatives: sigma = -1", "positive")),
    ({"obs_clip": [1, "a"]}, TypeError, ("starts_alternatives: obs_clip = 'a'", "a number")),
    ({"population_size": [4, 8]}, ValueError, ("'population_size', in which starts cannot differ", "'obs_clip'")),
    ({"alive_bonu": [1]}, ValueError, ("'alive_bonu'", "did you mean 'alive_bonus'?")),
]


@pytest.mark.parametrize(("table", "error", "words"), BAD, ids=repr)
def test_bad_alternatives_are_refused_in_words(table: Any, error: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        Settings(starts_alternatives=table)
    assert all(word in str(caught.value) for word in words), caught.value


def test_alternatives_need_several_starts() -> None:
    with pytest.raises(ValueError, match=r"starts_alternatives = \{'sigma': \[0\.1, 0\.2\]\} has no part .* set starts"):
        Settings(starts_alternatives={"sigma": [0.1, 0.2]})
    assert Settings(starts=2, starts_alternatives={"sigma": [0.1, 0.2]}).starts == 2


def test_an_alternative_is_checked_with_the_other_settings() -> None:
    with pytest.raises(ValueError, match=r"starts_alternatives: sigma = 'lin_0\.1' is a schedule"):
        Settings(sigma_adaptation="scalar", starts_alternatives={"sigma": [0.1, "lin_0.1"]})


def test_the_command_line_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--seed", "1", "--population-size", "4", "--total-timesteps", "600", "--starts-share", "0.6"]
    train = ["train", "Toy-v0", *flags, "--starts", "3", "--starts-rounds", "2", "--runs", str(tmp_path)]
    assert main([*train, "--starts-alternatives", '{"alive_bonus": [0, 0.5], "sigma": [0.05, "lin_0.2_0.1"]}']) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("start ")]
    assert len(said) == 5
    assert said[1].startswith("start 2 of 3, round 1 of 2 (alive_bonus = 0.5, sigma = lin_0.2_0.1): return ")
    assert "; start 1 is dropped" in said[2] or "; start 2 is dropped" in said[2] or "; start 3 is dropped" in said[2]
    assert said[4].endswith(") goes on")
    config = tomllib.loads((tmp_path / "Toy-v0" / "1" / CONFIG).read_text())
    assert config["settings"]["starts_alternatives"] == {"alive_bonus": [0, 0.5], "sigma": [0.05, "lin_0.2_0.1"]}
    for text, words in (("{", "is no JSON"), ("[1]", "is no JSON object")):
        with pytest.raises(SystemExit):
            main([*train, "--starts-alternatives", text])
        error = capsys.readouterr().err
        assert words in error
        assert """'{"alive_bonus": [0, 1]}'""" in error


def test_a_curve_has_the_parts_of_each_round(tmp_path: Path) -> None:
    folder, verdicts = RunFolder(tmp_path), Verdicts()
    with FastES("Toy-v0", **HALVING, total_timesteps=SHORT) as model:
        folder.write_config(model, {"at_timesteps": 0})
        model.learn(callback=[folder, verdicts])
    curve = read_curve(tmp_path, tmp_path / PROGRESS, tmp_path / CONFIG)
    assert list(curve.start_ends) == verdicts.at
    assert (curve.starts, curve.further) == (5, (3, 2))
    names = [name_of_part(curve, part) for part in (0, 4, 5, 7, 8, 9, 10)]
    assert names[:4] == ["start 1 of 5", "start 5 of 5", "round 2, 1 of 3", "round 2, 3 of 3"]
    assert names[4:] == ["round 3, 1 of 2", "round 3, 2 of 2", "the best start goes on"]


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generations", [2, 20])
def test_a_file_of_before_there_were_rounds_goes_on_exactly(generations: int, tmp_path: Path) -> None:
    with FastES("Toy-v0", **SETTINGS) as model:
        learn(model, generations, BUDGET)
        write_checkpoint(tmp_path / "m.zip", older(model.snapshot()))
        learn(model, MANY, BUDGET)
        expected = model.snapshot()
    with FastES.load(tmp_path / "m.zip", n_workers=0) as model:
        learn(model, MANY, BUDGET)
        assert_same_state(expected, model.snapshot())


def test_a_file_of_before_there_were_rounds_may_have_some_now(tmp_path: Path) -> None:
    """Which start its best one is nobody knows: it goes on, and can be saved."""
    with FastES("Toy-v0", **{**SETTINGS, "starts": 4}) as model:
        model.learn(BUDGET, lambda m, _: m.starts.judged < 1)
        write_checkpoint(tmp_path / "m.zip", older(model.snapshot()))
    with FastES.load(tmp_path / "m.zip", n_workers=0, starts_rounds=2) as model:
        watch, verdicts = Watch(model, [1.0, 2.0, 3.0, 4.0, 5.0]), Verdicts()
        model.starts.kept = (model.starts.kept[0]._replace(score=9.0),)
        model.learn(BUDGET, [verdicts, lambda m, _: m.starts.round < 1], reset_num_timesteps=False)
        model.save(tmp_path / "later")
    with FastES.load(tmp_path / "later", n_workers=0) as model:
        Watch(model, [8.0, 7.0])
        model.learn(BUDGET, [verdicts], reset_num_timesteps=False)
    assert len(watch.judged) == 3
    assert [told.start for told in verdicts.told] == [2, 3, 4, 0, 4]


@pytest.fixture(scope="module")
def among_rounds() -> Checkpoint:
    """In the second round of three: one is judged, one plays, one waits."""
    with FastES("Toy-v0", **HALVING) as model:
        model.learn(SHORT, lambda m, _: (m.starts.round, m.starts.judged) != (1, 1))
        return model.snapshot()


GOOD_START: dict[str, Any] = {"number": 0, "score": 1.0, "episode_cap": 5, "first_blocks": 1, "alternatives": {}}
DAMAGE: dict[str, tuple[Any, ...]] = {
    "no object": ([1],),
    "another key": ("more", 1),
    "a round that there cannot be": ("round", 14),
    "no round": ("round", None),
    "none judged": ("judged", 0),
    "a start that has no number": ("running", -2),
    "strides of nothing": ("strides", [[0, 5]]),
    "strides that are flags": ("strides", [[True, 5]]),
    "many strides": ("strides", [[1, 1]] * 15),
    "none kept": ("kept", []),
    "kept that is no list": ("kept", {}),
    "kept that is no start": ("kept", [3]),
    "waiting in the first round": ("round", 0),
    "one that waits without arrays": ("waiting", [GOOD_START, GOOD_START]),
    "a start without a cap": ("kept", [{**GOOD_START, "episode_cap": None}]),
    "a start without alternatives": ("kept", [{**GOOD_START, "alternatives": None}]),
    "a score that is text": ("kept", [{**GOOD_START, "score": "1"}]),
    "an alternative that is none": ("kept", [{**GOOD_START, "alternatives": {"policy": "LinearPolicy"}}]),
    "an alternative out of range": ("kept", [{**GOOD_START, "alternatives": {"obs_clip": -1}}]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_rounds_are_refused(damage: tuple[Any, ...], among_rounds: Checkpoint, tmp_path: Path) -> None:
    path, data = tmp_path / "m.zip", copy.deepcopy(among_rounds.data)
    if len(damage) == 1:
        (data["starts"],) = damage
    else:
        name, value = damage
        data["starts"][name] = value
    write_checkpoint(path, among_rounds._replace(data=data))
    with pytest.raises(CheckpointError, match=r"start|array"):
        FastES.load(path, n_workers=0)


@pytest.mark.parametrize("name", ["kept.0.theta", "waiting.0.normalizer.mean", "waiting.0.optimizer.m"])
def test_damaged_arrays_of_starts_are_refused(name: str, among_rounds: Checkpoint, tmp_path: Path) -> None:
    start = among_rounds.arrays["start"]
    others = {key: array for key, array in start.items() if key != name}
    for damaged in (others, {**others, name: np.full_like(start[name], np.nan)}, {**start, "kept.1.theta": start[name]}):
        write_checkpoint(tmp_path / "m.zip", among_rounds._replace(arrays={**among_rounds.arrays, "start": damaged}))
        with pytest.raises(CheckpointError, match="array"):
            FastES.load(tmp_path / "m.zip", n_workers=0)


def test_damaged_alternatives_of_a_waiting_evaluation_are_refused(among_rounds: Checkpoint, tmp_path: Path) -> None:
    for value in (None, {"policy": "x"}, {"obs_clip": "x"}):
        data = copy.deepcopy(among_rounds.data)
        data["pending"][0]["alternatives"] = value
        write_checkpoint(tmp_path / "m.zip", among_rounds._replace(data=data))
        with pytest.raises(CheckpointError, match=r"alternatives|pending"):
            FastES.load(tmp_path / "m.zip", n_workers=0)


def test_schedules_do_not_run_through_the_budget_while_starts_are_left() -> None:
    """A part may be shorter than one generation, and rounds have many parts."""
    rates: list[float] = []

    class Rates(Callback):
        def on_generation(self, model: FastES, record: Record) -> bool:
            rates.append(record.learning_rate)
            return True

    shape: dict[str, Any] = {"starts": 8, "starts_rounds": 3, "episodes_per_candidate": "lin_4_1", "starts_share": 0.4}
    with FastES(
        "CartPole-v1", n_workers=0, seed=0, population_size=16, learning_rate="lin_0.02", sigma="lin_0.1", **shape
    ) as model:
        model.learn(20_000, Rates())
        judged = model.starts.judged
    assert judged == 8 or not model.starts.has_unjudged_starts
    assert min(rates[: len(rates) // 2]) > 0.005, "the first half has more than a quarter of the rate"


def test_what_starts_have_saved_loads_where_parts_are_shorter_than_a_generation(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"starts": 4, "starts_rounds": 2, "episodes_per_candidate": "lin_4_1", "population_size": 16}
    with FastES("CartPole-v1", n_workers=0, seed=0, **shape) as model:
        model.learn(8_000, lambda *_: False)
        model.save(tmp_path / "model.zip")
    with FastES.load(tmp_path / "model.zip") as loaded:
        assert loaded.starts.has_unjudged_starts
