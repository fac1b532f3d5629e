"""Risk: an optimiser or shaping of the user's changes bits, is lost by a checkpoint, or fails without words."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS, toy
from training import assert_same, assert_same_state, learn, train

from fastes import CheckpointMismatch, EvolutionStrategy, FastES
from fastes.es.fitness_shaping import shape_returns
from fastes.es.optimizers import OPTIMIZERS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own-optimizers.md"
KEPT = "ignore:the checkpoint holds no function"


def shown_on_the_page() -> dict[str, Any]:
    """The definitions of the page's first block: its classes, without the training."""
    block = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    found: dict[str, Any] = {}
    exec(block.partition("\nwith FastES")[0], found)
    return found


RMSprop, Lion = (shown_on_the_page()[name] for name in ("RMSprop", "Lion"))


class InPlace(RMSprop):  # type: ignore[misc, valid-type]
    """Writes into its own array, as a user may."""

    def step(self, gradient: Any, learning_rate: float) -> Any:
        self.v *= self.decay
        self.v += (1 - self.decay) * gradient**2
        return np.float32(learning_rate) * gradient / (np.sqrt(self.v) + self.epsilon)


def halves(returns: Any) -> Any:
    half = 0.5 * (returns[:, 0] - returns[:, 1])
    return np.stack([half, -half], axis=1)


# --- optimisers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer", [RMSprop, Lion, functools.partial(RMSprop, decay=0.5)], ids=["RMSprop", "Lion", "partial"]
)
def test_it_finds_a_maximum(optimizer: Any) -> None:
    solution = np.array([0.5, 0.1, -0.3])
    es = EvolutionStrategy(np.zeros(3), sigma=0.1, learning_rate="lin_0.05_0.001", optimizer=optimizer)
    for generation in range(150):
        es.ask(1.0 - generation / 150)
        es.tell([-np.sum((x - solution) ** 2) for x in es.ask(1.0 - generation / 150)])
    assert np.abs(es.theta - solution).max() < 0.05


def test_steps_are_those_of_its_formula() -> None:
    es = EvolutionStrategy(np.zeros(3), sigma=0.1, learning_rate=0.05, optimizer=RMSprop)
    es.ask()
    update = es.tell(np.arange(50.0))
    v = es.optimizer.state()["v"]
    expected = np.float32(0.05) * np.sqrt(v / np.float32(0.01)) / (np.sqrt(v) + np.float32(1e-8))
    assert np.abs(es.theta) == pytest.approx(expected, rel=1e-5)
    assert update.gradient_norm == pytest.approx(np.sqrt((v / 0.01).sum()), rel=1e-5)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_workers_change_no_bit(n_workers: int) -> None:
    settings = {**SETTINGS, "optimizer": RMSprop, "shaping": halves}
    assert_same(train(toy(), 4, 0, **settings), train(toy(), 4, n_workers, **settings))


def test_one_that_writes_into_its_arrays_is_the_same() -> None:
    """A state is replaced, and never changed: an exception leaves the one before as it was."""
    es, other = (EvolutionStrategy(np.zeros(3), optimizer=each) for each in (InPlace, RMSprop))
    for number in range(3):
        for each in (es, other):
            each.ask()
            each.tell(np.arange(50.0) * (-1) ** number)
    assert es.theta.tobytes() == other.theta.tobytes()
    before = es.optimizer
    kept = before.state()["v"].copy()
    es.ask()
    es.tell(np.arange(50.0))
    assert before.state()["v"].tobytes() == kept.tobytes()


@pytest.mark.parametrize("optimizer", [InPlace, Lion])
def test_a_training_that_is_saved_and_loaded_is_the_whole_one(optimizer: Any, tmp_path: Path) -> None:
    settings = {**SETTINGS, "optimizer": optimizer}
    whole = train(toy(), 6, **settings)
    with FastES(toy(), n_workers=0, preset="default", **settings) as model:
        learn(model, 3)
        with pytest.warns(
            UserWarning,
            match=rf"holds no function or class, and optimizer is one.*FastES.load\('.*', optimizer={optimizer.__name__}\)",
        ):
            model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model, pytest.warns(UserWarning, match=r"optimizer=\.\.\.\)"):
        model.save(tmp_path / "again")  # of a class that is missing
    with FastES.load(tmp_path / "m", toy(), n_workers=0, optimizer=optimizer) as model:
        learn(model, 6)
        assert_same_state(whole.state, model.snapshot())


class Counting(RMSprop):  # type: ignore[misc, valid-type]
    """Has a number of no dimensions in its state."""

    def __init__(self, num_params: int) -> None:
        super().__init__(num_params)
        self.t = np.array(0.0)

    def step(self, gradient: Any, learning_rate: float) -> Any:
        self.t = self.t + 1.0
        return super().step(gradient, learning_rate)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "t": self.t}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.t = state["t"]


@pytest.mark.filterwarnings(KEPT)
def test_a_state_without_dimensions_comes_back(tmp_path: Path) -> None:
    with FastES(toy(), n_workers=0, preset="default", **{**SETTINGS, "optimizer": Counting}) as model:
        learn(model, 3)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", toy(), n_workers=0, optimizer=Counting) as model:
        assert model.snapshot().arrays["trainings"]["0.optimizer.t"] == 3.0


class OpenFile:
    """Learning rates of an object that cannot be copied."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w")

    def learning_rate(self, progress_remaining: float) -> float:
        return 0.01 * progress_remaining + 0.001


@pytest.mark.filterwarnings(KEPT)
def test_a_function_of_an_object_that_cannot_be_copied_is_left_out_as_any(tmp_path: Path) -> None:
    rates = OpenFile(tmp_path / "log")
    with FastES(toy(), n_workers=0, preset="default", **{**SETTINGS, "learning_rate": rates.learning_rate}) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        rates.file.close()
        theta = model.theta
    with FastES.load(tmp_path / "m", toy(), n_workers=0, learning_rate=0.01) as model:
        assert (model.theta == theta).all()


@pytest.mark.filterwarnings(KEPT)
def test_a_model_without_it_acts_and_can_be_saved_again(tmp_path: Path) -> None:
    settings = {**SETTINGS, "optimizer": RMSprop, "shaping": halves}
    whole = train(toy(), 4, **settings)
    with FastES(toy(), n_workers=0, preset="default", **settings) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        returns = model.evaluate(2).returns.tolist()
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model:
        assert model.evaluate(2).returns.tolist() == returns
        model.save(tmp_path / "again")
        with pytest.raises(ValueError, match=r"shaping was a function.*pass it, as in load\(path, shaping=function\)"):
            learn(model, 3)
    own = r"optimizer was a class or function.*as in load\(path, optimizer=RMSprop\)"
    with FastES.load(tmp_path / "again", toy(), n_workers=0, shaping=halves) as model, pytest.raises(ValueError, match=own):
        learn(model, 3)
    with FastES.load(tmp_path / "again", toy(), n_workers=0, optimizer=RMSprop, shaping=halves) as model:
        learn(model, 4)
        assert_same_state(whole.state, model.snapshot())


@pytest.mark.filterwarnings(KEPT)
@pytest.mark.parametrize(("saved", "given"), [(RMSprop, "adam"), ("adam", RMSprop)])
def test_another_optimizer_is_refused_on_loading(saved: Any, given: Any, tmp_path: Path) -> None:
    with FastES(toy(), n_workers=0, preset="default", **{**SETTINGS, "optimizer": saved}) as model:
        model.save(tmp_path / "m")
    with pytest.raises(CheckpointMismatch, match=r"optimizer = .* cannot change on loading, the checkpoint has"):
        FastES.load(tmp_path / "m", toy(), n_workers=0, optimizer=given)


@pytest.mark.filterwarnings(KEPT)
def test_one_with_other_arrays_is_refused_on_loading(tmp_path: Path) -> None:
    with FastES(toy(), n_workers=0, preset="default", **{**SETTINGS, "optimizer": RMSprop}) as model:
        model.save(tmp_path / "m")
    with pytest.raises(Exception, match=r"optimizer\.m"):
        FastES.load(tmp_path / "m", toy(), n_workers=0, optimizer=Lion)


class NoState(RMSprop):  # type: ignore[misc, valid-type]
    state = None


class Whole(RMSprop):  # type: ignore[misc, valid-type]
    def state(self) -> Any:
        return {"v": self.v, "steps": 3}


class Short(RMSprop):  # type: ignore[misc, valid-type]
    def step(self, gradient: Any, learning_rate: float) -> Any:
        return super().step(gradient, learning_rate)[:-1]


@pytest.mark.parametrize(
    ("optimizer", "error", "message"),
    [
        (RMSprop(3), TypeError, "is an optimiser that was made already: .* as in optimizer=RMSprop"),
        (lambda: RMSprop(3), TypeError, "cannot be called with the number of parameters, 3"),
        (lambda num_params: num_params, TypeError, "makes 3, which has no method step"),
        (NoState, TypeError, "which has no method state"),
        (Whole, TypeError, "its state has 'steps': 3, expected float32 or float64 arrays by name"),
        ("no-such", ValueError, rf"optimizer = 'no-such': expected one of {re.escape(str(OPTIMIZERS))} or a class"),
        (3, ValueError, "optimizer = 3: expected one of"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "" if not isinstance(value, str) else value[:20],
)
def test_what_is_no_optimizer_is_refused(optimizer: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EvolutionStrategy(np.zeros(3), optimizer=optimizer)


def test_a_step_of_another_shape_is_refused() -> None:
    es = EvolutionStrategy(np.zeros(3), optimizer=Short)
    es.ask()
    with pytest.raises(ValueError, match=r"has shape \(2,\): expected \(3,\), as the gradient"):
        es.tell(np.arange(50.0))
    assert es.generation == 0


class Drifting:
    """An optimiser whose state is another one after a step."""

    def __init__(self, num_params: int, after: Any) -> None:
        self.arrays, self.after = {"v": np.zeros(num_params, np.float32)}, after

    def step(self, gradient: Any, learning_rate: float) -> Any:
        self.arrays = self.after(self.arrays["v"])
        return learning_rate * gradient

    def state(self) -> Any:
        return self.arrays

    def load_state(self, state: Any) -> None:
        self.arrays = dict(state)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda v: {"v": np.float64(0.9) * v}, r"'v' as float64 of shape \(3,\) after a step, and as float32 of shape \(3,\)"),
        (lambda v: {"v": np.append(v, v[:1])}, r"'v' as float32 of shape \(4,\) after a step"),
        (lambda v: {"v": v, "t": np.ones(1)}, r"'t' as float64 of shape \(1,\) after a step, and as no array before"),
        (lambda _: {}, "'v' as no array after a step"),
    ],
    ids=["dtype", "shape", "more", "fewer"],
)
def test_a_state_that_no_file_would_give_back_is_refused_at_the_first_step(after: Any, message: str) -> None:
    """Else the training is saved, and cannot be loaded."""
    es = EvolutionStrategy(np.zeros(3), optimizer=functools.partial(Drifting, after=after))
    es.ask()
    with pytest.raises(ValueError, match=message):
        es.tell(np.arange(50.0))
    assert es.generation == 0


# --- shaping ---------------------------------------------------------------------------------------------------------


def test_a_function_gets_finite_returns_of_those_that_count_in_a_copy() -> None:
    seen = []

    def note(returns: Any) -> Any:
        seen.append(returns.copy())
        returns[:] = 0.0
        return np.array([[1.0, -1.0]] * len(returns))

    returns = np.array([[1.0, np.nan], [5.0, 4.0], [-np.inf, 2.0], [0.0, 0.5]])
    before = returns.copy()
    shaped = shape_returns(returns, 0.5, note, top_fraction=0.5)
    assert np.array_equal(returns, before, equal_nan=True)
    assert seen[0].tolist() == [[5.0, 4.0], [0.0, 2.0]], "the worst in place of what is not finite"
    assert shaped.weights.tolist() == [0.0, 2.0, 2.0, 0.0]
    assert shaped.scale == 1.0 / (2 * 2 * 0.5), "the paper's"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda returns: returns.ravel(), r"returned shape \(50,\): expected finite numbers of shape \(25, 2\)"),
        (lambda returns: returns * np.nan, "returned values that are not finite"),
    ],
)
def test_what_a_function_must_not_return(function: Any, message: str) -> None:
    es = EvolutionStrategy(np.zeros(3), shaping=function)
    es.ask()
    with pytest.raises(ValueError, match=message):
        es.tell(np.arange(50.0))
    assert es.generation == 0


def test_what_is_no_shaping_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shaping = 'nis': expected one of .* or a function; did you mean"):
        EvolutionStrategy(np.zeros(3), shaping="nis")
