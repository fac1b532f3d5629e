"""Risk: a forked copy of a process speaks to the workers of the first one, or writes into its memory."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from faults import COMMON, SETTINGS, toy
from processes import run_script
from training import Result, learn

from fastes import FastES

START = """
import hashlib, os, sys, threading, warnings
warnings.simplefilter("always")
from envs_for_tests import Toy
from faults import SETTINGS, toy
from gymnasium.vector import SyncVectorEnv
from training import learn
from fastes import FastES

def made(**habits):
    return SyncVectorEnv([toy(**habits)] * 3) if VECTOR_ENV else toy(**habits)

def forked(act):
    '''Run act in a copy, which ends as scripts do; its exit status.'''
    child = os.fork()
    if child == 0:
        act()
        sys.exit(0)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def digest(model):
    return hashlib.sha256(model.theta.tobytes() + model.normalizer.mean.tobytes()).hexdigest()

def tell(name, model):
    with open(name, "w") as file:
        file.write(digest(model))

model = FastES(made(), preset="default", **GIVEN, **SETTINGS)
"""
EXITS = """
learn(model, 2)
assert forked(lambda: None)() == 0
learn(model, 4)
tell("parent", model)
"""
BOTH_LEARN = """
learn(model, 2)
def child():
    learn(model, 4)
    tell("child", model)
def other_child():
    model.strategy.theta = 0.0 * model.theta
    learn(model, 30)
ends = [forked(child), forked(other_child)]
learn(model, 4)
tell("parent", model)
assert [end() for end in ends] == [0, 0]
learn(model, 5)
"""
IN_A_CALLBACK = """
children = []
def fork(record):
    if record.generation == 2:
        children.append(os.fork())
learn(model, 4, on_record=fork)
if children == [0]:
    tell("child", model)
    model.close()
    sys.exit(0)
assert os.waitpid(children[0], 0)[1] == 0
tell("parent", model)
"""
BESIDE_A_THREAD = """
import time
model = FastES(made(step_seconds=0.004), preset="default", **GIVEN, **SETTINGS)
begun = threading.Event()
thread = threading.Thread(target=lambda: learn(model, 4, on_record=lambda _: begun.set()))
thread.start()
begun.wait()
time.sleep(0.05)  # a generation takes longer
def child():
    own = threading.Thread(target=lambda: (learn(model, 4), tell("child", model)))
    own.start()
    own.join()
end = forked(child)
thread.join()
tell("parent", model)
assert end() == 0
"""


def complaints(stderr: str) -> list[str]:
    """Lines but those of Python 3.12 and later, which warns of any fork beside threads, of BLAS too."""
    return [line for line in stderr.splitlines() if "multi-threaded" not in line and "os.fork()" not in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "told", "pool"),
    [
        pytest.param(EXITS, ["parent"], "2 workers", id="a copy that exits-2 workers"),
        pytest.param(BOTH_LEARN, ["parent", "child"], "0 workers", id="both learn-0 workers"),
        pytest.param(BOTH_LEARN, ["parent", "child"], "2 workers", id="both learn-2 workers"),
        pytest.param(BOTH_LEARN, ["parent", "child"], "vector env", id="both learn-vector env"),
        pytest.param(IN_A_CALLBACK, ["parent", "child"], "2 workers", id="in a callback-2 workers"),
        pytest.param(BESIDE_A_THREAD, ["parent", "child"], "2 workers", id="beside a thread-2 workers"),
    ],
)
def test_a_fork_changes_no_bit(scenario: str, told: list[str], pool: str, undisturbed: Result, tmp_path: Path) -> None:
    given = {} if pool == "vector env" else {"n_workers": int(pool[0])}
    result = run_script(f"VECTOR_ENV, GIVEN = {pool == 'vector env'}, {given}\n{START}{scenario}", tmp_path)
    assert result.returncode == 0, result.stderr
    assert complaints(result.stderr) == []
    arrays = undisturbed.state.arrays
    expected = hashlib.sha256(
        arrays["trainings"]["0.theta"].tobytes() + arrays["trainings"]["0.normalizer.mean"].tobytes()
    ).hexdigest()
    assert {name: (tmp_path / name).read_text() for name in told} == dict.fromkeys(told, expected)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_pool_of_forked_processes_evaluates(n_workers: int, tmp_path: Path) -> None:
    script = f"""
        import json, multiprocessing
        from faults import toy
        from training import learn
        from fastes import FastES

        def returns(seed):
            return model.evaluate(4, first_seed=seed).returns.tolist()

        model = FastES(toy(), preset="default", n_workers={n_workers}, **{SETTINGS!r})
        learn(model, 1)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(json.dumps(pool.map(returns, range(6))))
        print(json.dumps([returns(seed) for seed in range(6)]))
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        expected = [model.evaluate(4, first_seed=seed).returns.tolist() for seed in range(6)]
    assert [json.loads(line) for line in result.stdout.splitlines()] == [expected, expected]


def test_a_copy_leaves_the_environment_to_its_parent(tmp_path: Path) -> None:
    """It may hold a window, a socket or a simulator, of which there is one."""
    script = """
        import os, sys
        from envs_for_tests import Toy
        from fastes import FastES

        class Closing(Toy):
            def close(self):
                print("closed by the parent" if os.getpid() == parent else "closed by the copy", flush=True)

        parent = os.getpid()
        model = FastES(Closing, n_workers=0, population_size=4, preset="default")
        model.learn(20)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        model.close()
    """
    result = run_script(script, tmp_path)
    assert (result.returncode, complaints(result.stderr)) == (0, [])
    assert result.stdout == "closed by the parent\n" * 2


@pytest.mark.parametrize("kind", ["gymnasium", "sb3"])
def test_processes_of_a_vector_environment_belong_to_one_process(kind: str, tmp_path: Path) -> None:
    if kind == "sb3":
        pytest.importorskip("stable_baselines3")
    made = {
        "gymnasium": "from gymnasium.vector import AsyncVectorEnv as Vector",
        "sb3": "from stable_baselines3.common.vec_env import SubprocVecEnv as Vector",
    }[kind]
    script = f"""
        import os
        from envs_for_tests import Toy
        from fastes import EnvironmentUnavailable, FastES
        {made}

        if __name__ == "__main__":
            env = Vector([Toy, Toy])
            model = FastES(env, population_size=4, seed=0, preset="default", target_return="none")
            model.learn(50)
            child = os.fork()
            if child == 0:
                for attempt in (lambda: model.learn(50), lambda: model.evaluate(2), lambda: FastES(env)):
                    try:
                        attempt()
                        print("no error", flush=True)
                    except EnvironmentUnavailable as error:
                        print(error, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            model.learn(50)
            env.close()
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all("of its own, which belong to process" in line for line in lines)


def test_a_copy_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """A worker that its parent hangs up on must see that: a copy that lives on may not hold the other end."""
    script = f"""
        import os, sys, time
        from faults import toy
        from processes import children
        from training import learn
        from fastes import FastES
        before = set(os.listdir("/proc/self/fd"))
        model = FastES(toy(), n_workers=2, **{SETTINGS!r})
        learn(model, 1)
        ask, tell = os.pipe()
        child = os.fork()
        if child == 0:
            held = set(os.listdir("/proc/self/fd")) - before - {{str(ask), str(tell)}}
            held = [fd for fd in held if os.path.islink(f"/proc/self/fd/{{fd}}")]  # without that of listdir itself
            print(held, flush=True)
            os.read(ask, 1)
            os._exit(0)
        model.close()
        left = set(children()) - {{child}}
        os.write(tell, b"x")
        os.waitpid(child, 0)
        print(left)
    """
    result = run_script(script, tmp_path)
    assert (result.returncode, complaints(result.stderr)) == (0, [])
    assert result.stdout == "[]\nset()\n"


def test_a_copy_of_seeds_that_share_a_pool_has_one_of_its_own(tmp_path: Path) -> None:
    """It closes that, and leaves no worker."""
    script = f"""
        import os
        from faults import toy
        from processes import children
        from fastes import train_seeds

        def fork(model, record):
            if record.generation == 2 and model.seed == 5:
                child = os.fork()
                if child == 0:
                    model.evaluate(3)
                    print(len(children()), flush=True)
                    model.close()
                    print(children(), flush=True)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0

        train_seeds(toy(), (5, 6), total_timesteps=500, callback=lambda _: fork, n_workers=2, **{COMMON!r})
    """
    result = run_script(script, tmp_path)
    assert (result.returncode, complaints(result.stderr)) == (0, [])
    assert result.stdout == "2\n[]\n"


def test_a_copy_draws_no_second_progress_bar(tmp_path: Path) -> None:
    script = """
        import os, pty, sys, threading
        terminal, end = pty.openpty()
        os.dup2(end, 2)
        reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(terminal, 4096), b"")], daemon=True)
        reader.start()

        from envs_for_tests import Toy
        from fastes import FastES

        def fork(_, record):
            if record.generation == 2:
                global child
                child = os.fork()
                if child == 0:
                    os.dup2(os.open("drawn", os.O_WRONLY | os.O_CREAT), 2)
                    sys.exit(0)
            return record.generation < 3

        model = FastES(Toy, n_workers=0, population_size=4, preset="default", target_return="none")
        model.learn(10_000, fork, progress_bar=True)
        assert os.waitpid(child, 0)[1] == 0
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "drawn").read_bytes() == b""
