"""Risk: an environment in C is not what it is in Python, hides why it failed, or cannot be stopped."""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from native_library import HERE, compiled, needs_compiler
from natively import SETTINGS
from training import Result, assert_same_records, theta_of, train

from fastes import FastES, FastESError, NativeEnv, WorkerError, WorkerTimeout, get_include
from fastes import check_env as check_env_of
from fastes.cli.main import main
from fastes.envs.native import native_env

pytestmark = needs_compiler
CARTPOLE = Path(__file__).parents[3] / "examples" / "native" / "cartpole.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(HERE / "native_envs.c", tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def walk(library: str) -> str:
    return f"{library}:Walk"


def assert_same_bits(first: Result, second: Result) -> None:
    """As assert_same, of environments with other names."""
    assert theta_of(first.state).tobytes() == theta_of(second.state).tobytes()
    assert_same_records(first.records, second.records)


class InPython(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What no twin is known for."""


def test_it_is_an_environment_of_gymnasium(walk: str) -> None:
    env = NativeEnv(walk, render_mode="rgb_array", way="left")
    check_env(env, skip_render_check=True)
    first, info = env.reset(seed=3)
    assert first[1] == -1.0
    assert info["place"] == first[0]
    assert env.render().shape == (8, 12, 3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    assert env.reset(seed=4)[0][0] != first[0]
    env.close()
    with pytest.raises(ValueError, match="closed"):
        env.step(env.action_space.sample())


def test_a_closed_one_does_nothing_more(walk: str) -> None:
    env = NativeEnv(walk, render_mode="rgb_array")
    env.reset(seed=0)
    env.close()
    env.close()
    for call in (env.render, env.instance.info, lambda: env.reset(seed=0)):
        with pytest.raises(ValueError, match="is closed"):
            call()


def test_a_handler_that_closes_a_playing_one_ends_its_episode(library: str) -> None:
    model = FastES(f"{library}:Endless", n_workers=0, max_episode_steps=-1, **SETTINGS)
    before = signal.signal(signal.SIGALRM, lambda *_: model.close())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(FastESError, match="closed"):
            model.learn(10**9)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_plays_a_playing_one_changes_nothing(library: str) -> None:
    with NativeEnv(f"{library}:Endless", waits=0.001) as env, FastES(env, n_workers=0, **SETTINGS) as model:
        actor, instance, refused = model.policy_spec.make_actor(), env.instance, list[str]()
        instance.reset(0)

        def play_too(*_: object) -> None:
            try:
                instance.play(actor, 1)
            except ValueError as error:
                refused.append(str(error))

        before = signal.signal(signal.SIGALRM, play_too)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            assert instance.play(actor, 200)[1:] == (200, True)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert len(refused) == 1
    assert "plays an episode" in refused[0]


def test_a_copy_that_a_step_forks_ends(walk: str) -> None:
    code = (
        "from fastes import FastES\n"
        f"with FastES({walk!r}, env_kwargs={{'forks_at': 3}}, n_workers=0, preset='default', population_size=4) as model:\n"
        "    model.learn(100)\nprint('trained')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"


def test_choices_are_checked(tmp_path: Path) -> None:
    with NativeEnv(f"{compiled(CARTPOLE, tmp_path)}:CartPole") as env:
        env.reset(seed=0)
        with pytest.raises(ValueError, match="the action is 2: expected 0 to 1"):
            env.step(2)


def test_a_replaced_method_counts(walk: str) -> None:
    def shaped() -> Any:
        env = NativeEnv(walk)
        before = env.step
        env.step = lambda action: (before(action)[0], 1.0, *before(action)[2:])  # type: ignore[method-assign]
        return env

    assert train(shaped, 1, 0, **SETTINGS).records[-1].return_mean == 20.0  # it steps twice, 40 times in all


def test_its_limit_truncates(library: str) -> None:
    with NativeEnv(f"{library}:Short") as env:
        env.reset(seed=1)
        ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]
    with FastES(f"{library}:Short", n_workers=0, native="on", **SETTINGS) as model:
        model.learn(50)
        assert {length for _, length in model.last_episodes} == {7}


@pytest.mark.parametrize(
    ("n_workers", "more"),
    [
        (0, {}),
        pytest.param(2, {"action_noise": 0.3, "episodes_per_candidate": 2}, marks=pytest.mark.slow),
        (0, {"policy": "MlpLstmPolicy"}),
    ],
)
def test_a_training_in_c_has_the_bits_of_one_in_python(walk: str, n_workers: int, more: dict[str, Any]) -> None:
    def wrapped() -> Any:
        return InPython(NativeEnv(walk))

    in_c, in_python = (train(env, 3, n_workers, **SETTINGS, **more) for env in (walk, wrapped))
    assert_same_bits(in_c, in_python)


def test_pictures_are_seen(library: str) -> None:
    settings = {**SETTINGS, "policy": "CnnPolicy", "policy_kwargs": {"cnn": [[4, 3, 1]], "net_arch": []}}
    picture = f"{library}:Picture"
    in_c, in_python = (train(env, 3, 0, **settings) for env in (picture, lambda: InPython(NativeEnv(picture))))
    assert_same_bits(in_c, in_python)
    assert {record.episode_length for record in in_c.records} == {10.0}
    assert 0.0 < in_c.records[0].return_mean < 10.0


def test_c_plus_plus_may_use_the_header(tmp_path: Path) -> None:
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    source = tmp_path / "still.cpp"
    source.write_text(
        "#include <fastes_env.h>\n"
        "static int reset(void *, fastes_random *random, void *seen) {\n"
        "    *static_cast<double *>(seen) = fastes_normal(random);\n    return 0;\n}\n"
        "static int step(void *, const void *action, void *, double *reward, uint8_t *over, uint8_t *) {\n"
        "    *reward = *static_cast<const float *>(action);\n    *over = 1;\n    return 0;\n}\n"
        "FASTES_ENV(Still) = {\n    .version = FASTES_ENV_VERSION,\n"
        "    .observation = FASTES_BOX(FASTES_FLOAT64, 1, -INFINITY, INFINITY),\n"
        "    .action = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1), .reset = reset, .step = step,\n};\n"
    )
    library = str(tmp_path / "still.so")
    command = ["c++", "-std=c++20", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{get_include()}", str(source), "-o", library]
    subprocess.run(command, check=True, timeout=120)
    with NativeEnv(f"{library}:Still") as env:
        env.reset(seed=0)
        assert env.step(np.full(1, 0.5, np.float32))[1:4] == (0.5, True, False)


def test_functions_of_numba(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page's own example."""
    pytest.importorskip("numba")
    text = (CARTPOLE.parents[2] / "docs" / "guide" / "native.md").read_text(encoding="utf-8")
    code = text.partition("<!-- file: halves.py -->\n```python\n")[2].partition("```")[0]
    (tmp_path / "halves.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    make_halves = importlib.import_module("halves").make_halves
    with FastES(make_halves, n_workers=1, native="on", **SETTINGS) as model:
        model.learn(200)
        assert {length for _, length in model.last_episodes} == {7}


def test_functions_of_cython(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page's own example."""
    pytest.importorskip("Cython")
    text = (CARTPOLE.parents[2] / "docs" / "guide" / "native.md").read_text(encoding="utf-8")
    code = text.partition("<!-- file: thirds.pyx -->\n```cython\n")[2].partition("```")[0]
    (tmp_path / "thirds.pyx").write_text(code, encoding="utf-8")
    build = [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "thirds.pyx"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=300, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path)
    make_thirds = importlib.import_module("thirds").make_thirds
    with FastES(make_thirds, n_workers=1, native="on", **SETTINGS) as model:
        model.learn(200)
        assert {length for _, length in model.last_episodes} == {5}


def test_successes_are_told(walk: str) -> None:
    found = []
    for env in (walk, lambda: InPython(NativeEnv(walk))):
        with FastES(env, n_workers=0, **SETTINGS) as model:
            model.learn(2000)
            found.append(list(model.ep_success_buffer))
    assert found[0] == found[1]
    assert set(found[0]) == {0.0, 1.0}


def test_a_given_one_is_built_again_in_workers_and_pickled(walk: str) -> None:
    env = NativeEnv(walk, way="left")
    assert pickle.loads(pickle.dumps(env)).reset(seed=1)[0].tolist() == env.reset(seed=1)[0].tolist()
    assert_same_bits(train(env, 2, 1, **SETTINGS), train(walk, 2, 0, **SETTINGS, env_kwargs={"way": "left"}))


def test_functions_by_address(library: str) -> None:
    """numba's @cfuncs have addresses, too."""

    class State(ctypes.Structure):
        _fields_ = [("steps", ctypes.c_double)]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(State), ctypes.c_void_p, ctypes.POINTER(ctypes.c_float))
    def reset(state: Any, _: Any, observation: Any) -> int:
        state[0].steps = 0.0
        observation[0] = 0.0
        return 0

    of_bytes = ctypes.POINTER(ctypes.c_uint8)
    floats = ctypes.POINTER(ctypes.c_float)

    @ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.POINTER(State),
        ctypes.POINTER(ctypes.c_int64),
        floats,
        ctypes.POINTER(ctypes.c_double),
        of_bytes,
        of_bytes,
    )
    def step(state: Any, action: Any, observation: Any, reward: Any, terminated: Any, _: Any) -> int:
        state[0].steps += 1.0
        observation[0] = state[0].steps
        reward[0] = float(action[0])
        terminated[0] = state[0].steps == 5.0
        return 0

    def make() -> NativeEnv:
        box = spaces.Box(0.0, 9.0, (1,), np.float32)
        return NativeEnv.from_functions(reset, step, box, spaces.Discrete(3), state_size=8, max_episode_steps=20)

    with FastES(make, n_workers=0, native="on", **SETTINGS) as model:
        model.learn(100)
        assert model.last_episodes[0][1] == 5
    with pytest.raises(TypeError, match="functions of this process"):
        pickle.dumps(make())
    with pytest.raises(TypeError, match="expected a numba @cfunc"):
        NativeEnv.from_functions("reset", step, spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2))


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ("{}:Nothing", ValueError, "FASTES_ENV"),
        ("{}:Older", ValueError, "version 0"),
        ("{}:Unfinished", ValueError, "no reset"),
        ("{}:Whole", ValueError, "float64, float32 or uint8"),
        ("{}:NamesAlone", ValueError, "has info_names and no info: set"),
        ("{}:InfoAlone", ValueError, "has info and no info_names: set"),
        ("{}:NoPicture", ValueError, "render and a picture of height 0 and width 12: expected 1 or more of both"),
        ("{}:EndlessBytes", ValueError, r"observation has the bounds -inf and inf at place 0: expected .* from 0 to 255"),
        ("{}:LargeFloats", ValueError, r"observation has the bounds 0.0 and 1e\+300 at place 0: expected .* float32"),
        ("{}:Swapped", ValueError, "observation has the bounds 1.0 and -1.0 at place 0: expected the smaller first"),
        ("{}.so:Walk", FileNotFoundError, "there is no library"),
        ("{}.so.1.2:Walk", FileNotFoundError, "there is no library"),
        ("{}:not a name", ValueError, "PATH.so:NAME"),
        ("{}:", ValueError, "PATH.so:NAME"),
    ],
)
def test_what_cannot_be_used_is_an_error_in_words(library: str, place: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        NativeEnv(place.format(library))


@pytest.mark.parametrize("path", ["./walk.so", "walk.so.1.2", "walk.dylib"])
def test_a_library_without_a_name_is_an_error_in_words(path: str) -> None:
    with pytest.raises(ValueError, match=f"is a library: expected {path}:NAME"):
        FastES(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("WiderState", "WiderState wrote past the end of its state, which has 8 bytes: set state_size to"),
        ("WiderObservation", r"past the end of its observation, which has shape \(1,\) of float64, 8 bytes: give"),
        ("WiderInfo", "past the end of the values of its info, of which there are 1: name"),
        ("Before", "before the start of its observation"),
        ("WiderAction", r"past the end of its action, which has shape \(1,\) of float32, 4 bytes: step may only read it"),
    ],
)
def test_writing_past_its_memory_is_told(library: str, name: str, words: str) -> None:
    with NativeEnv(f"{library}:{name}") as env, pytest.raises(RuntimeError, match=words):
        _ = env.reset(seed=0), env.step(np.zeros(1, np.float32))
    settings = {**SETTINGS, "target_return": "none"}
    with FastES(f"{library}:{name}", n_workers=0, native="on", **settings) as model, pytest.raises(FastESError, match=words):
        model.learn(1000)


def test_a_library_that_is_compiled_anew_is_refused(library: str, tmp_path: Path) -> None:
    """A process keeps the first one, so that the parent would play another environment than new workers."""
    path = tmp_path / "again.so"
    shutil.copy(library, path)
    NativeEnv(f"{path}:Walk").close()
    NativeEnv(f"{path}:Walk").close()
    shutil.copy(library, tmp_path / "new.so")
    (tmp_path / "new.so").replace(path)
    with pytest.raises(ValueError, match=r"again\.so has been compiled again since this process loaded it"):
        NativeEnv(f"{path}:Walk")


def test_a_library_that_is_compiled_anew_ends_a_training_that_loads_it_again(library: str, tmp_path: Path) -> None:
    """Some workers would play another environment than others."""
    path = tmp_path / "shared.so"
    shutil.copy(library, path)
    with FastES(f"{path}:Walk", n_workers=1, **SETTINGS) as model:
        changed = tmp_path / "changed.so"
        changed.write_bytes(path.read_bytes() + b"anew")
        changed.replace(path)
        with pytest.raises(FastESError, match=r"shared\.so has been compiled again since the training began"):
            model.learn(200)


STEP_OF_LIBC = """
#include "fastes_env.h"
static int reset(void *state, fastes_random *random, void *observation) {
    (void)state, (void)random, *(float *)observation = 0;
    return 0;
}
int step(void *state, const void *action, void *observation, double *reward, uint8_t *terminated, uint8_t *truncated) {
    (void)state, (void)action, (void)truncated, *(float *)observation = 0, *reward = 1, *terminated = 1;
    return 0;
}
FASTES_ENV(Bare) = {
    .version = FASTES_ENV_VERSION, .state_size = 8, .max_episode_steps = 5, .observation = FASTES_BOX(FASTES_FLOAT32, 1, -1, 1),
    .action = FASTES_DISCRETE(2), .reset = reset, .step = step,
};
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc has a function `step`")
def test_a_function_that_the_c_library_has_too_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare.c").write_text(STEP_OF_LIBC)
    with pytest.raises(ValueError, match=r"Bare: \.step is a function of libc.*: declare its own as static"):
        NativeEnv(f"{compiled(tmp_path / 'bare.c', tmp_path)}:Bare")
    (tmp_path / "own.c").write_text(STEP_OF_LIBC.replace("int step(", "static int step("))
    NativeEnv(f"{compiled(tmp_path / 'own.c', tmp_path)}:Bare").close()


def test_a_vector_environment_does_not_step_in_c(walk: str) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: NativeEnv(walk)])
    with pytest.raises(ValueError, match=r"native = 'on' .*a vector environment does not step in C"):
        FastES(envs, native=True, **SETTINGS)
    envs.close()


def test_the_error_for_one_that_crashes_names_the_check(library: str) -> None:
    with (
        FastES(f"{library}:Walk", n_workers=1, env_kwargs={"crashes_at": 1}, native="on", **SETTINGS) as model,
        pytest.warns(RuntimeWarning, match="only counted"),
        pytest.raises(WorkerError, match=rf"SIGSEGV.\nTo find .*: fastes check-env {library}:Walk --env-kwargs crashes_at=1"),
    ):
        model.learn(1000)


def test_writing_far_past_its_memory_is_told_by_a_check(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    """40 KB behind its observation: an episode in Python looks that far at its end, and so does `fastes check-env`."""
    words = "Far wrote past the end of its observation"
    with NativeEnv(f"{library}:Far") as env, pytest.raises(RuntimeError, match=words):
        _ = env.reset(seed=0), [env.step(np.zeros(1, np.float32)) for _ in range(50)]
    assert main(["check-env", f"{library}:Far", "--episodes", "2", "--seconds", "1"]) == 1
    assert words in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "WiderPicture",
            "WiderPicture wrote past the end of its picture, which has 8 x 12 x 3 = 288 bytes: give height and width",
        ),
        ("WiderAction", "WiderAction wrote past the end of its action"),
    ],
)
def test_a_check_draws_a_picture_and_has_one_report(
    library: str, capfd: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert main(["check-env", f"{library}:{name}", "--episodes", "2", "--seconds", "1"]) == 1
    said = capfd.readouterr().out
    assert said.count(words) == 1
    assert "training can work" not in said


def test_a_picture_is_drawn_on_zeros(walk: str, library: str) -> None:
    with NativeEnv(walk, render_mode="rgb_array") as env:
        env.reset(seed=0)
        first = env.render()
        first[:] = 3
        assert set(env.render().ravel()) == {128}
    with (
        NativeEnv(f"{library}:WiderPicture", render_mode="rgb_array") as env,
        pytest.raises(RuntimeError, match="of its picture"),
    ):
        _ = env.reset(seed=0), env.render()


def test_a_check_compares_episodes_in_c_with_steps_from_python(library: str, walk: str) -> None:
    found = [finding.text for finding in check_env_of(f"{library}:Tired", episodes=2).findings]
    assert any(
        re.search(r"sum of rewards after step \d+ of the episode with seed 1000 is .* if the episode runs in C and ", text)
        for text in found
    ), found
    assert not any("if the episode runs in C" in finding.text for finding in check_env_of(walk, episodes=2).findings)


def test_steps_before_a_reset_and_after_the_end_are_errors(library: str) -> None:
    act = np.zeros(1, np.float32)
    with NativeEnv(f"{library}:Short") as env:
        with pytest.raises(ResetNeeded, match="before reset"):
            env.step(act)
        env.reset(seed=0)
        for _ in range(7):
            env.step(act)
        with pytest.raises(ResetNeeded, match="after its episode has ended"):
            env.step(act)
        env.reset(seed=0)
        env.step(act)


def test_no_step_follows_a_reset_that_failed() -> None:
    """The environment may be half of the old episode and half of the new one."""
    status = [0]
    pointer = ctypes.c_void_p
    reset = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)(lambda *_: status[0])
    step = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 6)(lambda *_: 0)
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    with NativeEnv.from_functions(reset, step, box, box, state_size=8) as env:
        env.reset(seed=0)
        env.step(np.zeros(1, np.float32))
        status[0] = 7
        with pytest.raises(RuntimeError, match="reset with seed 0 returned 7"):
            env.reset(seed=0)
        with pytest.raises(ResetNeeded, match="before reset"):
            env.step(np.zeros(1, np.float32))


def test_actions_of_another_kind_are_errors(tmp_path: Path) -> None:
    with NativeEnv(f"{compiled(CARTPOLE, tmp_path)}:CartPole") as env:
        env.reset(seed=0)
        for action in (0.7, np.float32(1.0), None):
            with pytest.raises(TypeError, match="expected a whole number from 0 to 1"):
                env.step(action)
        for action in (1, True, np.int32(1), np.array(1)):
            env.step(action)
        assert env.spec is not None
        assert env.spec.max_episode_steps == 500


def test_addresses_that_are_none_are_errors() -> None:
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    for wrong in (True, 12345, -1):
        with pytest.raises((TypeError, ValueError), match="address"):
            NativeEnv.from_functions(wrong, wrong, box, box)


def test_a_file_keeps_the_options_and_not_the_library(walk: str, tmp_path: Path) -> None:
    with FastES(walk, env_kwargs={"way": "left"}, n_workers=0, **SETTINGS) as model:
        model.learn(200)
        model.save(tmp_path / "m.zip")
        expected = model.evaluate(3).returns.tolist()
    with FastES.load(tmp_path / "m.zip", env=walk, n_workers=0) as again:
        assert again.evaluate(3).returns.tolist() == expected
    with FastES.load(tmp_path / "m.zip", env=walk, n_workers=0, env_kwargs={"way": "right"}) as other:
        assert other.evaluate(3).returns.tolist() != expected
    with (
        FastES.load(tmp_path / "m.zip", n_workers=0) as bare,
        pytest.raises(ValueError, match="a checkpoint never loads a library"),
    ):
        bare.evaluate(1)


def test_an_option_that_a_file_cannot_hold_is_asked_for(walk: str, tmp_path: Path) -> None:
    with FastES(walk, env_kwargs={"fails_at": np.float32(10_000)}, n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m.zip")
    with pytest.raises(ValueError, match="fails_at"):
        FastES.load(tmp_path / "m.zip", env=walk, n_workers=0)


@pytest.mark.parametrize(("place", "words"), [("./walk.so", "./walk.so:NAME"), ("./walk.c:Walk", "pass ./walk.so:Walk")])
def test_a_place_without_a_name_or_of_source_code_says_what_to_type(place: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FastES(place)


def test_options_that_it_does_not_know_are_an_error_in_words(walk: str) -> None:
    with pytest.raises(ValueError, match="unknown option"):
        NativeEnv(walk, speed=3.0)
    with pytest.raises(TypeError, match="option way"):
        NativeEnv(walk, way=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="render_mode"):
        NativeEnv(walk, render_mode="human")


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_step_that_fails_is_an_error_in_words(walk: str, n_workers: int) -> None:
    model = FastES(walk, n_workers=n_workers, env_kwargs={"fails_at": 3}, **SETTINGS)
    with model, pytest.raises(WorkerError, match="step 3 returned 7: it fell into a hole"):
        model.learn(100)


@pytest.mark.slow
def test_a_step_that_hangs_is_named(walk: str) -> None:
    model = FastES(walk, n_workers=1, env_kwargs={"hangs_at": 3}, step_timeout=0.3, **SETTINGS)
    with model, pytest.warns(RuntimeWarning, match="hung"), pytest.raises(WorkerTimeout):
        model.learn(100)


def test_slow_steps_are_no_hang(walk: str) -> None:
    with FastES(walk, n_workers=1, env_kwargs={"waits": 0.01}, step_timeout=0.2, **SETTINGS) as model:
        assert model.learn(1).num_timesteps > 20


_SCRIPT = """
import sys
from fastes import FastES
model = FastES(sys.argv[1], n_workers=int(sys.argv[2]), env_kwargs={"waits": 0.01}, max_episode_steps=-1,
               preset="default", population_size=4, seed=0, target_return="none")
print("begins", flush=True)
try:
    model.learn(10**9)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("n_workers", ["0", "2"])
def test_ctrl_c_gets_through(library: str, n_workers: str) -> None:
    """In the middle of an episode that takes hours: a million steps of 10 ms."""
    started = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, f"{library}:Endless", n_workers],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "begins\n"
    time.sleep(0.5)  # it plays by then or does not: Ctrl-C has to end it either way
    os.killpg(started.pid, signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert "interrupted" in said
    assert started.returncode == 0


def test_a_library_by_path_trains_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastes.cli.main import main

    monkeypatch.chdir(tmp_path)
    compiled(CARTPOLE, tmp_path)
    given = ["train", "./cartpole.so:CartPole", "--preset", "linear", "--total-timesteps", "3000", "--workers", "0", "--quiet"]
    main([*given, "--seed", "1"])
    (run,) = (tmp_path / "runs" / "cartpole.so-CartPole").iterdir()
    with pytest.raises(ValueError, match="a checkpoint never loads a library"):
        FastES.load(run / "checkpoint.zip").evaluate(1)
    with FastES.load(run / "checkpoint.zip", env="cartpole.so:CartPole") as model:
        assert model.evaluate(2).mean > 0


def test_the_header_is_where_get_include_says() -> None:
    assert (Path(native_env.get_include()) / "fastes_env.h").is_file()


def test_the_guide_shows_the_example() -> None:
    guide = (CARTPOLE.parents[2] / "docs" / "guide" / "native.md").read_text(encoding="utf-8")
    assert CARTPOLE.read_text(encoding="utf-8") in guide
