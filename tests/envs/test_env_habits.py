"""Risk: an environment with bad habits changes results, ends the training, or reaches the user's own process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy, ToyError
from faults import PAIRS, SETTINGS, caught_warnings, seed_of
from gymnasium import spaces
from processes import alive, children, run_script, sent_by_value, wait_until
from training import Result, assert_same, assert_same_state, learn, theta_of, train

from fastes import FastES, FastESError, WorkerError
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.rollout.episode import usual_limit

sent_by_value(__name__)
SMALL: dict[str, Any] = {**SETTINGS, "preset": "default"}


def made(kind: Callable[..., Any], *arguments: Any, **habits: Any) -> Callable[[], Any]:
    """A factory; all have the same name, which is a part of a model's state."""

    def build() -> Any:
        return kind(*arguments, **habits)

    return build


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return train(made(Toy), 3, 0, **SMALL)


# --- observations ----------------------------------------------------------------------------------------------------


class Shown(Toy):
    """Toy with whole numbers as observations, each converted before it is returned, from step `first` on."""

    def __init__(self, convert: Callable[[Any], Any], first: int = 0) -> None:
        super().__init__()
        self.convert, self.first = convert, first

    def _observation(self) -> Any:
        values = np.round(10.0 * super()._observation())
        return self.convert(values) if self.steps >= self.first else values


def plain(values: Any) -> Any:
    return values


def read_only(values: Any) -> Any:
    values.flags.writeable = False
    return values


CONVERTIBLE: dict[str, Callable[[Any], Any]] = {
    "list": lambda x: x.tolist(),
    "tuple": tuple,
    "list of ints": lambda x: [int(v) for v in x],
    "float32": lambda x: x.astype(np.float32),
    "float16": lambda x: x.astype(np.float16),
    "longdouble": lambda x: x.astype(np.longdouble),
    "int64": lambda x: x.astype(np.int64),
    "int8": lambda x: x.astype(np.int8),
    "big-endian float64": lambda x: x.astype(">f8"),
    "big-endian float32": lambda x: x.astype(">f4"),
    "big-endian int16": lambda x: x.astype(">i2"),
    "every other": lambda x: np.repeat(x, 2)[::2],
    "a column": lambda x: np.stack([x, 7.0 * x], axis=1)[:, 0],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "not aligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), dtype=np.float64, offset=1),
    "read-only": read_only,
    "objects that are numbers": lambda x: x.astype(object),
    "subclass": lambda x: x.view(np.recarray),
    "masked": lambda x: np.ma.masked_array(x),
}


@pytest.fixture(scope="module")
def whole_numbers() -> Result:
    return train(made(Shown, plain), 2, 0, **SMALL)


@pytest.mark.parametrize("name", CONVERTIBLE)
def test_observations_that_can_be_converted(name: str, whole_numbers: Result) -> None:
    assert_same(whole_numbers, train(made(Shown, CONVERTIBLE[name]), 2, 0, **SMALL))


def test_converted_observations_with_workers(whole_numbers: Result) -> None:
    assert_same(whole_numbers, train(made(Shown, CONVERTIBLE["big-endian int16"]), 2, 1, **SMALL))


# what an environment returns, and what the message has to hold beside the shape (3,) or a dtype
WRONG: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "too short": (lambda x: x[:2], ("(2,)", "(3,)")),
    "too long": (lambda x: np.append(x, 0.0), ("(4,)", "(3,)")),
    "empty": (lambda x: x[:0], ("(0,)", "(3,)")),
    "two dimensions": (lambda x: np.stack([x, x]), ("(2, 3)", "(3,)")),
    "a number": (lambda x: 1.0, ("()", "(3,)")),
    "None": (lambda x: None, ("None", "(3,)")),
    "short list": (lambda x: [1.0], ("(1,)", "(3,)")),
    "ragged": (lambda x: [[1.0], [2.0, 3.0], [4.0]], ("observation", "(3,)")),
    "text": (lambda x: "abc", ("observation", "str", "(3,)")),
    "strings": (lambda x: np.array(["a", "b", "c"]), ("observation", "<U1", "(3,)")),
    "bytes": (lambda x: np.array([b"a", b"b", b"c"]), ("observation", "S1", "(3,)")),
    "objects": (lambda x: np.array([None, {}, "a"], dtype=object), ("observation", "object", "(3,)")),
    "complex": (lambda x: x + 1j, ("observation", "complex128", "(3,)")),
    "dates": (lambda x: x.astype("datetime64[s]"), ("observation", "datetime64", "(3,)")),
    "a dict": (lambda x: {"position": x}, ("observation", "dict", "(3,)")),
    "fields": (lambda x: np.zeros(3, dtype=[("x", "f8")]), ("observation", "'x'", "(3,)")),
}


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("name", WRONG)
def test_observations_that_cannot_be_converted(name: str, first: int) -> None:
    """The message says what came and what was expected; the user reads it, no stack of ours."""
    convert, words = WRONG[name]
    with FastES(made(Shown, convert, first), n_workers=0, **SMALL) as model:
        before = model.theta
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        message = str(caught.value).partition("[in the environment")[0]
        missing = [word for word in words if word not in message]
        assert not missing, f"{missing} not in: {message}"
        assert model.theta is before
        assert model.generation == 0


def test_a_wrong_observation_in_a_worker() -> None:
    with FastES(made(Shown, WRONG["too short"][0], 3), n_workers=1, **SMALL) as model:
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        for word in ("(2,)", "(3,)", "env seed"):
            assert word in str(caught.value)


class OneNumber(gymnasium.Env[Any, Any]):
    """Its only observation is None, which numpy takes for a NaN."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return None, {}

    def step(self, action: Any) -> Any:
        return None, 1.0, True, False, {}


def test_none_is_no_observation_of_one_number() -> None:
    with FastES(OneNumber, n_workers=0, **SMALL) as model, pytest.raises(WorkerError, match="None"):
        learn(model, 1)


class OneBuffer(Toy):
    """The same array each time, changed before it is returned and after the next action came."""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.zeros(3)

    def _observation(self) -> Any:
        self.own[:] = super()._observation()
        return self.own

    def step(self, action: Any) -> Any:
        self.own[:] = np.nan
        return super().step(action)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_one_buffer_for_all_observations(n_workers: int, undisturbed: Result) -> None:
    assert_same(undisturbed, train(made(OneBuffer), 3, n_workers, **SMALL))


# --- actions, and what step and reset return -------------------------------------------------------------------------


class Grasping(Toy):
    """Overwrites the action that it is given, keeps it, and sees whether somebody else writes into it."""

    def step(self, action: Any) -> Any:
        result = super().step(action.copy())
        action[:] = np.nan
        self.kept = [*getattr(self, "kept", [])[-50:], action]
        if not all(np.isnan(kept).all() for kept in self.kept) or len({id(kept) for kept in self.kept}) < len(self.kept):
            raise ToyError("an action that was kept has changed")
        return result


@pytest.mark.parametrize("n_workers", [0, 1])
def test_actions_that_are_kept_and_changed(n_workers: int, undisturbed: Result) -> None:
    assert_same(undisturbed, train(made(Grasping), 3, n_workers, **SMALL))


class OneStep(Toy):
    """Every episode is over after one step; `ending` makes the two flags."""

    def __init__(self, ending: Callable[[], tuple[Any, Any]]) -> None:
        super().__init__()
        self.ending = ending

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, *self.ending(), {}


ENDINGS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "terminated": lambda: (True, False),
    "truncated": lambda: (False, True),
    "np.bool_": lambda: (np.True_, np.False_),
    "np.bool_ truncated": lambda: (np.False_, np.True_),
    "0-d array": lambda: (np.array(True), np.array(False)),
    "int": lambda: (1, 0),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_episodes_of_one_step(name: str) -> None:
    first, other = (train(made(OneStep, ending), 3, 0, **SMALL) for ending in (ENDINGS["terminated"], ENDINGS[name]))
    assert_same(first, other)
    assert [record.timesteps for record in first.records] == [8, 16, 24]
    assert [record.episode_length for record in first.records] == [1.0, 1.0, 1.0]


class Talkative(Toy):
    """reset and step return an info that is full of things; it is theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.info = {"episode": {"r": np.nan}, "lock": threading.Lock(), "final_observation": None, 5: object}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0], self.info

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self.info


@pytest.mark.parametrize("n_workers", [0, 1])
def test_info_is_left_alone(n_workers: int, undisturbed: Result) -> None:
    assert_same(undisturbed, train(made(Talkative), 3, n_workers, **SMALL))


class OldFashioned(Toy):
    """Gym's interface of before 2022: reset returns an observation and takes no seed, step returns four things."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        result = super().reset(seed=seed, options=options)
        return result[0] if self.method == "reset" else result

    def step(self, action: Any) -> Any:
        result = super().step(action)
        return result if self.method == "reset" else (*result[:3], {})


class Unseeded(Toy):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class OldWithTwoNumbers(Toy):
    """What reset returns can be unpacked as (observation, info)."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)

    def _observation(self) -> Any:
        return np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0]


OLD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "reset": (made(OldFashioned, "reset"), ("env.reset returned a ndarray of shape (3,)", "(observation, info)")),
    "step": (made(OldFashioned, "step"), ("got 4", "env.step did not return five", "terminated, truncated, info)")),
    "seed": (Unseeded, ("env.reset takes no seed", "reset(seed=..., options=...)", "(observation, info)")),
    "two numbers": (OldWithTwoNumbers, ("env.reset returned a ndarray of shape (2,)", "(observation, info)")),
    "wrapped step": (
        lambda: gymnasium.wrappers.TimeLimit(OldFashioned("step"), 50),
        ("got 4", "env.step did not return five", "terminated, truncated, info)"),
    ),
    "wrapped reset": (
        lambda: gymnasium.wrappers.RecordEpisodeStatistics(OldFashioned("reset")),
        ("unpack", "env.reset", "(observation, info)"),
    ),
    "wrapped seed": (lambda: gymnasium.wrappers.TimeLimit(Unseeded(), 50), ("env.reset takes no seed",)),
}


@pytest.mark.parametrize("name", OLD)
def test_the_old_interface_is_an_error_that_says_what_is_expected(name: str) -> None:
    env, words = OLD[name]
    with FastES(env, n_workers=0, **SMALL) as model:
        before = model.theta
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        assert model.theta is before
    first_line = str(caught.value).splitlines()[0]
    for word in (*words, "shimmy"):
        assert word in first_line


@pytest.mark.parametrize("error", [ValueError("not enough values to unpack (expected 5, got 4)"), TypeError("no seed")])
def test_errors_of_the_environment_itself_get_no_advice(error: Exception) -> None:
    class Own(Toy):
        def step(self, action: Any) -> Any:
            raise error

    with FastES(Own, n_workers=0, **SMALL) as model, pytest.raises(WorkerError) as caught:
        learn(model, 1)
    assert "shimmy" not in str(caught.value)


# --- output ----------------------------------------------------------------------------------------------------------


class Chatty(Toy):
    """100 kB to stdout and 200 kB to stderr, when it is built and in each reset."""

    def __init__(self, ending: str) -> None:
        super().__init__()
        self.ending = ending
        self.say()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.say()
        return super().reset(seed=seed, options=options)

    def say(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            for _ in range(10):
                stream.write("x" * 10_000 + self.ending)
            stream.flush()
        os.write(2, b"y" * 100_000 + self.ending.encode())


@pytest.mark.parametrize(("ending", "n_workers"), [("", 0), ("", 2), ("\n", 1), ("\r", 1)])
def test_much_output_blocks_nothing(ending: str, n_workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    train(made(Chatty, ending), 1, n_workers, **SMALL)
    assert time.monotonic() - started < 60.0
    capfd.readouterr()


# --- the working directory -------------------------------------------------------------------------------------------


class Wanderer(Toy):
    """Goes to another folder when it is built, and in each reset."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        os.chdir(folder)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        os.chdir(self.folder)
        return super().reset(seed=seed, options=options)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the user starts; Wanderer-v0 goes to `elsewhere`, beside it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    gymnasium.register("Wanderer-v0", entry_point=Wanderer, kwargs={"folder": str(tmp_path / "elsewhere")})
    yield tmp_path / "home"
    del gymnasium.registry["Wanderer-v0"]


@pytest.mark.parametrize("n_workers", [0, 1])
def test_another_folder_changes_no_result(n_workers: int, home: Path, undisturbed: Result) -> None:
    assert_same(undisturbed, train(made(Wanderer, str(home.parent / "elsewhere")), 3, n_workers, **SMALL))


@pytest.mark.parametrize("n_workers", [0, 1])
def test_the_run_folder_is_where_the_command_was_given(n_workers: int, home: Path) -> None:
    flags = ["--workers", str(n_workers), "--quiet", "--population-size", "4", "--net-arch", "4", "--target-return", "none"]
    assert main(["train", "Wanderer-v0", "--runs", "out", "--total-timesteps", "300", "--seed", "0", *flags]) == 0
    run = home / "out" / "Wanderer-v0" / "1"
    assert list((home.parent / "elsewhere").iterdir()) == []
    names = {path.name for path in run.iterdir()}
    assert {"checkpoint.zip", "best.zip", "progress.csv", "config.toml"} <= names
    if n_workers:
        return
    steps = read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]["num_timesteps"]
    os.chdir(home)
    resumed = ["train", "--resume", "out/Wanderer-v0/1", "--workers", str(n_workers), "--quiet"]
    assert main([*resumed, "--total-timesteps", "900"]) == 0
    assert list((home.parent / "elsewhere").iterdir()) == []
    assert read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]["num_timesteps"] > steps


def test_workers_import_from_a_relative_path(tmp_path: Path) -> None:
    """The environment has left the folder that the path is relative to before a worker starts."""
    (tmp_path / "code").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "code" / "wandering.py").write_text(
        "import os\nfrom envs_for_tests import Toy\n\n\nclass Wanderer(Toy):\n    def __init__(self):\n"
        "        super().__init__()\n        os.chdir('elsewhere' if os.path.isdir('elsewhere') else '.')\n"
    )
    code = """
        import sys
        sys.path.insert(0, "code")
        import wandering
        from fastes import FastES
        with FastES(wandering.Wanderer, n_workers=1, population_size=4, seed=0, preset="default") as model:
            model.learn(60)
            print("generations", model.generation)
    """
    result = run_script(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "generations" in result.stdout


# --- signals ---------------------------------------------------------------------------------------------------------


class Grabber(Toy):
    """Takes over SIGINT and SIGTERM, when it is built or in each reset; its handler ends a worker."""

    def __init__(self, where: str, users_pid: int, **habits: Any) -> None:
        super().__init__(**habits)
        self.where, self.users_pid = where, users_pid
        if where == "init":
            self.grab()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.where == "reset":
            self.grab()
        return super().reset(seed=seed, options=options)

    def grab(self) -> None:
        signal.signal(signal.SIGINT, self.leave)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def leave(self, number: int, frame: Any) -> None:
        if os.getpid() == self.users_pid:
            raise ToyError("the environment's handler ran in the user's process")
        os._exit(3)


@pytest.fixture
def handlers() -> Iterator[tuple[Any, Any]]:
    """Handlers of the user's; whatever a test does, those of before come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def on_term(number: int, frame: Any) -> None:
        raise SystemExit(7)

    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(signal.SIGTERM, on_term)
    yield on_interrupt, on_term
    for number, handler in before.items():
        signal.signal(number, handler)


def current_handlers() -> tuple[Any, Any]:
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_handlers_of_the_user_stay(n_workers: int, handlers: tuple[Any, Any], tmp_path: Path) -> None:
    with FastES(made(Grabber, "init", os.getpid()), n_workers=n_workers, **SMALL) as model:
        assert current_handlers() == handlers
        learn(model, 1)
        assert current_handlers() == handlers
        model.close()
        assert model.observation_space.shape == (3,)  # builds it again
        model.evaluate(1)
        assert current_handlers() == handlers
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", made(Grabber, "init", os.getpid()), n_workers=0) as model:
        model.evaluate(1)
        assert current_handlers() == handlers


@pytest.mark.parametrize(("where", "n_workers"), [("init", 0), ("init", 2), ("reset", 2)])
@pytest.mark.usefixtures("handlers")
def test_ctrl_c_leaves_a_whole_model(where: str, n_workers: int, tmp_path: Path, undisturbed: Result) -> None:
    """A terminal sends SIGINT to workers too, and this environment's handler ends them."""
    marker = tmp_path / "marker"

    def interrupt() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "an episode hangs")
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    env = made(Grabber, where, os.getpid(), hang_seeds=[seed_of(1, 0)], marker=str(marker))
    with FastES(env, n_workers=n_workers, **SMALL) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a worker died
        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            learn(model, 3)
        sender.join()
        assert model.generation == 1
        learn(model, 3)
        assert_same_state(undisturbed.state, model.snapshot())


# --- randomness that is not the environment's ------------------------------------------------------------------------


class Dice(Toy):
    """Rewards and observations depend on `random` and `np.random`, which it does not seed."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward + random.gauss(0.0, 1.0) + float(np.random.normal()), *rest  # noqa: NPY002

    def _observation(self) -> Any:
        drawn = np.array([random.random(), np.random.random(), 0.0])  # noqa: NPY002
        return super()._observation() + drawn


@pytest.mark.parametrize("n_workers", [0, 2])
def test_global_randomness_is_that_of_the_episode(n_workers: int) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = train(made(Dice), 3, 0, episodes_per_candidate=2, **SMALL)
    assert_same(first, train(made(Dice), 3, n_workers, episodes_per_candidate=2, **SMALL))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_global_randomness_of_evaluations(n_workers: int) -> None:
    with FastES(Dice, n_workers=n_workers, **SMALL) as model:
        first, alone, again = model.evaluate(4, first_seed=0), model.evaluate(1, first_seed=3), model.evaluate(4, first_seed=0)
    assert first.returns.tobytes() == again.returns.tobytes()
    assert alone.returns[0] == first.returns[3], "whatever was played before"
    assert len(set(first.returns.tolist())) == 4, "seeds differ"


class Seeder(Dice):
    """Seeds everything with one number, in each reset."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        return super().reset(seed=seed, options=options)


def test_an_environment_that_seeds_everything() -> None:
    assert_same(*(train(made(Seeder), 3, n_workers, **SMALL) for n_workers in (0, 2)))


@pytest.mark.parametrize("env", [Dice, Seeder, made(Dice, fail_seeds=[seed_of(0, 1)])])
def test_the_randomness_of_the_user_goes_on(env: Any) -> None:
    """Without workers, too: what the user draws after a training is what would have come without it."""
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    with FastES(env, n_workers=0, **SMALL) as model:
        states = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
        with contextlib.suppress(WorkerError):
            learn(model, 2)
        assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # noqa: NPY002
        with contextlib.suppress(WorkerError):
            model.evaluate(2)
        assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # noqa: NPY002


def test_the_randomness_of_callbacks_goes_on() -> None:
    """A callback that draws sees its own stream, not the last episode's."""

    def drawn(env: Any) -> list[float]:
        random.seed(3)
        with FastES(env, n_workers=0, **SMALL) as model:
            values: list[float] = []
            learn(model, 3, on_record=lambda _: values.append(random.random()))
        return values

    assert drawn(Toy) == drawn(Seeder)


# --- threads and processes that are left behind ----------------------------------------------------------------------


class Litterer(Toy):
    """Leaves something running behind in each process but the parent's; `pids` gets the ids of its processes."""

    def __init__(self, kind: str, pids: str, parent_pid: int, **habits: Any) -> None:
        super().__init__(**habits)
        if os.getpid() == parent_pid:
            return
        if kind == "thread":
            threading.Thread(target=time.sleep, args=(100.0,)).start()
            return
        if kind == "subprocess":
            pid = subprocess.Popen(["sleep", "100"]).pid
        else:
            pid = os.fork()
            if pid == 0:
                time.sleep(100.0)
                os._exit(0)
        with open(pids, "a") as file:
            file.write(f"{pid}\n")


@pytest.mark.parametrize("kind", ["thread", "subprocess", "fork"])
@pytest.mark.filterwarnings("ignore:worker")
def test_what_is_left_behind_holds_nobody_up(kind: str, tmp_path: Path, undisturbed: Result) -> None:
    """A worker that dies is met although its child holds its end of the pipe; the end comes within seconds."""
    pids, marker = tmp_path / "pids", tmp_path / "marker"
    env = made(Litterer, kind, str(pids), os.getpid(), kill_seeds=[seed_of(1, 2)], marker=str(marker))
    try:
        started = time.monotonic()
        assert_same(undisturbed, train(env, 3, 2, **SMALL))
        assert time.monotonic() - started < 60.0
        assert marker.exists()
        assert children() == []
    finally:
        left = [int(line) for line in pids.read_text().split()] if pids.exists() else []
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert bool(left) == (kind in ("subprocess", "fork"))


class Unclosable(Toy):
    def close(self) -> None:
        raise ToyError("cannot be closed")


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_environment_that_cannot_be_closed(n_workers: int, tmp_path: Path, undisturbed: Result) -> None:
    """Whatever close() says of it: workers and memory are gone, and the model can be saved, closed again and go on."""
    model = FastES(made(Unclosable), n_workers=n_workers, **SMALL)
    learn(model, 2)
    pids = children()
    assert len(pids) == n_workers
    with contextlib.suppress(ToyError):
        model.close()
    assert not any(alive(pid) for pid in pids)
    model.close()
    model.save(tmp_path / "m")
    learn(model, 3)
    assert_same_state(undisturbed.state, model.snapshot())
    with contextlib.suppress(ToyError):
        model.close()
    assert children() == []


class UnclosableAndUnsupported(Unclosable):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Text(3)


def test_a_failing_close_hides_no_error() -> None:
    with pytest.raises(ValueError, match="Text"):
        FastES(UnclosableAndUnsupported, n_workers=0, **SMALL)


# --- episodes without an end -----------------------------------------------------------------------------------------


class Endless(Toy):
    """Never terminates, never truncates; `lengths` are those of the episodes before the running one."""

    lengths: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if hasattr(self, "steps"):
            Endless.lengths.append(self.steps)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        return *super().step(action)[:2], False, False, {}


@pytest.fixture
def limit_of_50(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.training.training.usual_limit", lambda *_: 50)


@pytest.mark.usefixtures("limit_of_50")
def test_episodes_without_an_end_are_cut() -> None:
    Endless.lengths.clear()
    with caught_warnings() as messages, FastES(Endless, n_workers=0, **SMALL) as model:
        records = learn(model, 3)
        evaluation = model.evaluate(2)
        assert evaluation.lengths.tolist() == [50, 50]
    assert [record.episode_length for record in records] == [50.0] * 3
    assert set(Endless.lengths) == {50}
    named = [message for message in messages if "max_episode_steps" in message]
    assert len(named) == 1, messages
    assert "50" in named[0]


@pytest.mark.usefixtures("limit_of_50")
def test_the_usual_limit_says_nothing_where_there_is_a_limit(undisturbed: Result) -> None:
    with caught_warnings() as messages:
        records = train(Endless, 2, 0, max_episode_steps=30, **SMALL).records
        toy = train(made(Toy), 3, 0, **SMALL)
    assert theta_of(toy.state).tobytes() == theta_of(undisturbed.state).tobytes()
    assert [record.episode_length for record in records] == [30.0, 30.0]
    assert messages == []


@pytest.mark.usefixtures("limit_of_50")
def test_a_limit_of_the_user_may_be_beyond_the_usual_one() -> None:
    with caught_warnings() as messages:
        records = train(Endless, 1, 0, max_episode_steps=80, **SMALL).records
    assert [record.episode_length for record in records] == [80.0]
    assert messages == []


class Blank(gymnasium.Env[Any, Any]):
    """The cheapest environment there is; it never ends."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)
    result = (np.zeros(1), 0.5, False, False, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.result[0], {}

    def step(self, action: Any) -> Any:
        return self.result


def _limits(env: Any, budget: int, **settings: Any) -> tuple[int, int]:
    """Steps after which candidates' episodes were cut, and after which evaluation's are."""
    with FastES(env, **{**SMALL, "n_workers": 0, "population_size": 2, "policy_kwargs": {"net_arch": []}, **settings}) as model:
        model.learn(budget)
        lengths = {length for _, length in model.last_episodes}
        assert len(lengths) == 1
        return lengths.pop(), model.training.longest_episode()


def test_an_environment_without_a_limit_gets_one_by_the_budget() -> None:
    """Ten generations fit in, but an episode has 1,000 steps at least, and 10,000 at most."""
    assert _limits(Blank, 1_000) == (1_000, 1_000)
    assert _limits(Blank, 30_000) == (1_500, 1_500)
    assert _limits(Blank, 24_000, episodes_per_candidate=2) == (1_000, 1_000)
    assert [usual_limit(budget, 2) for budget in (0, 20_000, 199_999, 200_000, 10**9)] == [10_000, 1_000, 9_999, 10_000, 10_000]


def test_a_small_budget_holds_within_a_generation() -> None:
    with FastES(Blank, n_workers=0, **SMALL) as model:
        model.learn(1_000)
        assert model.num_timesteps == 8 * 1_000  # SMALL's population, once


@pytest.mark.slow
def test_the_step_guard_holds_in_workers() -> None:
    settings = {**SMALL, "population_size": 2, "policy": "LinearPolicy", "policy_kwargs": {}}
    with caught_warnings() as messages, FastES(Blank, n_workers=2, max_episode_steps=-1, **settings) as model:
        (record,) = learn(model, 1)
    assert record.episode_length == 1_000_000
    assert len([message for message in messages if "max_episode_steps" in message]) == 1


class SaysSo(Blank):
    """Has a number under a usual name, and ends by it."""

    def __init__(self, steps: int, name: str = "max_steps") -> None:
        setattr(self, name, steps)
        self.ends = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.made = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.made += 1
        return *self.result[:3], self.made >= self.ends, {}


LIMITED: dict[str, Any] = {
    "max_steps": made(SaysSo, 1_200),
    "of NumPy": made(SaysSo, np.int64(1_200)),
    "wrapped": lambda: gymnasium.wrappers.RecordEpisodeStatistics(SaysSo(1_200, "max_episode_steps")),
    "TimeLimit": lambda: gymnasium.wrappers.TimeLimit(Blank(), 1_200),
    "object": gymnasium.wrappers.TimeLimit(Blank(), 1_200),
    "vector": lambda: gymnasium.wrappers.TimeLimit(Blank(), 1_200),
    "processes": lambda: gymnasium.wrappers.TimeLimit(Blank(), 1_200),
}


@pytest.mark.parametrize("name", LIMITED)
def test_an_environment_with_a_limit_of_its_own_keeps_it(name: str) -> None:
    env = LIMITED[name]
    kinds = {"vector": gymnasium.vector.SyncVectorEnv, "processes": gymnasium.vector.AsyncVectorEnv}
    if name in kinds:
        env = kinds[name]([env, env])
    with caught_warnings() as messages:
        own = {"n_workers": None} if name in kinds else {}
        assert _limits(env, 1_000, **own)[0] == 1_200
    assert messages == []
    if name in kinds:
        env.close()


def test_what_ends_itself_and_does_not_say_so_is_cut_and_named() -> None:
    with caught_warnings() as messages:
        assert _limits(made(SaysSo, 1_200, "horizon"), 1_000)[0] == 1_000
    assert len(messages) == 1
    assert "cut after 1,000 steps" in messages[0]


def test_a_limit_is_found_after_load(tmp_path: Path) -> None:
    with FastES(made(SaysSo, 1_200), n_workers=0, **SMALL) as model:
        model.save(tmp_path / "model")
    with FastES.load(tmp_path / "model", made(SaysSo, 1_200), n_workers=0) as model:
        model.learn(1_000)
        assert {length for _, length in model.last_episodes} == {1_200}


@pytest.mark.parametrize("before", [600, 3_000], ids=["shorter", "longer"])
@pytest.mark.parametrize("vector", [False, True], ids=["single", "vector"])
def test_another_environment_has_its_own_limit(vector: bool, before: int) -> None:
    """One that is longer than the usual limit would be cut there."""
    own = made(SaysSo, 1_200)
    with FastES(made(SaysSo, before), n_workers=0, **SMALL) as model:
        model.learn(1_000)
        model.set_env(gymnasium.vector.SyncVectorEnv([own] * 2) if vector else own)
        assert model.training.episode_limit == 1_200
        assert model.evaluate(1).lengths == [1_200]
        model.set_env(Blank)
        assert model.training.episode_limit is None
        assert model.evaluate(1).lengths == [1_000]


@pytest.mark.parametrize("works", [0, 1])
def test_an_environment_that_cannot_be_built_leaves_the_one_before(works: int) -> None:
    built: list[int] = []

    def make() -> Any:
        built.append(0)
        if len(built) > works:
            raise OSError("the port is in use")
        return Blank()

    with FastES(made(SaysSo, 600), n_workers=0, **SMALL) as model:
        model.learn(1_000)
        with pytest.raises(OSError, match="in use"):
            model.set_env(make)
        assert len(built) == works + 1
        assert model.training.episode_limit == 600
        assert model.evaluate(1).lengths == [600]


def test_a_callback_may_set_an_environment_with_another_limit() -> None:
    def change(model: Any, record: Any) -> None:
        if record.generation == 1:
            model.set_env(made(SaysSo, 1_200))

    with FastES(made(SaysSo, 600), n_workers=0, **SMALL) as model:
        model.learn(10_000, change)
        assert {length for _, length in model.last_episodes} == {1_200}


def test_the_limit_is_said_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with FastES(Blank, n_workers=0, verbose=1, **SMALL) as model:
        model.learn(1_000)
    _, limit, _, header = capsys.readouterr().out.splitlines()[:4]
    assert limit == (
        "Blank has no limit of steps that is known: an endless episode is cut after 1,000; "
        "max_episode_steps sets another limit, -1 none"
    )
    assert header.split()[0] == "gen"
    with FastES("CartPole-v1", n_workers=0, verbose=1, **SMALL) as model:
        model.learn(10)
    assert "limit" not in capsys.readouterr().out


# --- exceptions that count as the worst return -----------------------------------------------------------------------


class Fragile(Toy):
    """Raises for some env seeds, at a step; after that it is of no use any more."""

    def __init__(self, errors: dict[int, type[Exception]], **habits: Any) -> None:
        super().__init__(**habits)
        self.errors, self.broken = errors, False

    def step(self, action: Any) -> Any:
        if self.broken:
            raise RuntimeError("used after it broke")
        if self.steps == 4 and self.env_seed in self.errors:
            self.broken = True
            raise self.errors[self.env_seed](f"episode {self.env_seed} failed")
        return super().step(action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.broken:
            raise RuntimeError("reset after it broke")
        return super().reset(seed=seed, options=options)


PENALISE: dict[str, Any] = {**SMALL, "on_env_error": "penalise"}


def fragile(kinds: dict[tuple[int, int], type[Exception]]) -> Callable[[], Fragile]:
    """(generation, pair) -> the exception of its episodes."""
    return made(Fragile, {seed_of(*where): kind for where, kind in kinds.items()})


SOME = {(0, 1): ToyError, (0, 3): ToyError, (1, 0): ToyError, (1, 2): ZeroDivisionError}


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_failed_episode_can_count_as_the_worst(n_workers: int) -> None:
    """Two candidates for each bad seed and no more: what broke is built again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = train(fragile(SOME), 3, 0, **PENALISE)
        other = train(fragile(SOME), 3, n_workers, **PENALISE)
    assert_same(first, other)
    assert [record.num_nonfinite for record in first.records] == [4, 4, 0]
    for record in first.records:
        assert np.isfinite([record.return_mean, record.return_max, record.gradient_norm]).all()
        assert np.isfinite(record.eval_return) == (record.generation > 1)


def test_a_failed_episode_ranks_as_one_without_a_finite_return() -> None:
    changes = {"normalize_obs": False}
    bad = [seed_of(*where) for where in SOME]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = train(fragile(SOME), 2, 0, **PENALISE, **changes)
    unknown = train(made(Toy, nan_seeds=bad), 2, 0, **SMALL, **changes)
    assert theta_of(failed.state).tobytes() == theta_of(unknown.state).tobytes()
    assert np.isfinite(theta_of(failed.state)).all()


@pytest.mark.filterwarnings("ignore")
def test_a_failed_episode_leaves_no_mark_in_the_statistics() -> None:
    with FastES(fragile({(0, 1): ToyError}), n_workers=0, **PENALISE) as model:
        learn(model, 1)
        assert model.normalizer.skipped == 2, "both sides of the pair"
        assert 0 < model.normalizer.count < model.num_timesteps


def test_a_failed_episode_is_told_as_what_it_is() -> None:
    """And not as a return or an observation that is not finite."""
    with caught_warnings() as messages:
        train(fragile({(0, 1): ToyError}), 1, 0, **PENALISE)
    (message,) = messages
    assert "ToyError" in message


@pytest.mark.parametrize("n_workers", [0, 2])
def test_one_warning_for_each_kind_of_error(n_workers: int) -> None:
    with caught_warnings() as messages:
        train(fragile(SOME), 3, n_workers, **PENALISE)
    assert len([message for message in messages if "ToyError" in message]) == 1, messages
    assert len([message for message in messages if "ZeroDivisionError" in message]) == 1, messages
    assert not any("after it broke" in message for message in messages)


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_when_all_candidates_fail_nothing_changes(n_workers: int) -> None:
    with FastES(fragile({(0, pair): ToyError for pair in range(PAIRS)}), n_workers=n_workers, **PENALISE) as model:
        before = model.theta
        with pytest.raises(FastESError) as caught:
            learn(model, 1)
        assert "ToyError" in str(caught.value)
        assert "failed" in str(caught.value)
        assert model.theta is before
        assert model.generation == model.num_timesteps == 0


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("settings", [SMALL, {**SMALL, "on_env_error": "stop"}])
def test_an_exception_stops_unless_asked_not_to(settings: dict[str, Any], n_workers: int) -> None:
    with FastES(fragile(SOME), n_workers=n_workers, **settings) as model:
        with pytest.raises(WorkerError, match="ToyError"):
            learn(model, 1)
        assert model.generation == 0


def test_ctrl_c_is_no_error_of_the_environment(tmp_path: Path) -> None:
    env = made(Toy, interrupt_seeds=[seed_of(1, 1)], marker=str(tmp_path / "marker"))
    with FastES(env, n_workers=0, **PENALISE) as model:
        with pytest.raises(KeyboardInterrupt):
            learn(model, 3)
        assert model.generation == 1


def test_an_environment_that_cannot_be_built_is_no_bad_episode() -> None:
    env = made(Toy, build_error="no licence here", parent_pid=os.getpid())
    with FastES(env, n_workers=1, **PENALISE) as model, pytest.raises(WorkerError, match="no licence here"):
        learn(model, 1)


def test_a_good_environment_is_not_changed_by_the_setting(undisturbed: Result) -> None:
    result = train(made(Toy), 3, 1, **PENALISE)
    assert theta_of(result.state).tobytes() == theta_of(undisturbed.state).tobytes()
    assert [record.return_mean for record in result.records] == [record.return_mean for record in undisturbed.records]


@pytest.mark.parametrize("value", ["ignore", "penalize", None, True, 5])
def test_other_values_of_the_setting(value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="on_env_error"):
        FastES(Toy, n_workers=0, **{**SMALL, "on_env_error": value})
