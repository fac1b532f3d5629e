"""Risk: a worker starts workers, these start workers, and the machine is dead within minutes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import environment

LIMIT = 8  # imports of a script after which it does nothing any more: a bomb must not go off in these tests

# counts what imports the script, and ends where too many do
FUSE = f"""
import os, sys
with open({{log!r}}, "a") as log:
    log.write(f"{{{{os.getpid()}}}}\\n")
if len(open({{log!r}}).readlines()) > {LIMIT}:
    os._exit(9)
"""
TRAINING = """
from fastes import FastES
SMALL = dict(preset="default", population_size=4, seed=0, noise_table_size=20000, policy_kwargs=dict(net_arch=[4]))
model = FastES({env}, n_workers={n_workers}, **SMALL)
{learn}
model.close()
"""
MAKE = """
def make():
    import gymnasium
    return gymnasium.make("CartPole-v1")
"""
PLAIN = "model.learn(100)"
CAUGHT = """
try:
    model.learn(100)
except Exception as error:
    print("swallowed", type(error).__name__, error)
open({saved!r}, "a").write(f"{{os.getpid()}}\\n")
"""


def run(folder: Path, files: dict[str, str], *command: str) -> tuple[str, list[str]]:
    """Write files, run Python with command in the folder; what it wrote, and the processes that imported files with a fuse."""
    log = folder / "log"
    for name, code in files.items():
        fused = code.replace("FUSE", FUSE.format(log=str(log)))
        (folder / name).write_text(textwrap.dedent(fused))
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return output, log.read_text().split() if log.exists() else []


def told_once(output: str, *words: str) -> None:
    assert "Traceback" in output
    raised = re.findall(r"^(?:fastes\.errors\.)(\w+): (.*)$", output, re.MULTILINE)
    assert [kind for kind, _ in raised if kind != "NestedTraining"] == ["WorkerError"], output
    for word in ("starts a training while it is imported", *words):
        assert word in raised[-1][1], output
    assert "RuntimeWarning" not in output, "no worker is replaced"


def test_a_module_that_trains_when_it_is_imported(tmp_path: Path) -> None:
    training = TRAINING.format(env="make", n_workers=3, learn=PLAIN)
    files = {"trainme.py": f"FUSE\n{MAKE}\n{training}", "run.py": "import trainme\n"}
    output, imports = run(tmp_path, files, "run.py")
    told_once(output, str(tmp_path / "trainme.py"), "module 'trainme'", "imported by FastES", "__name__", "function")
    assert len(imports) <= 1 + 3


def test_a_script_that_a_library_imports_in_place_of_a_standard_module(tmp_path: Path) -> None:
    files = {
        "simulator.py": "def make():\n    import gymnasium\n    import xml\n    return gymnasium.make('CartPole-v1')\n",
        "xml.py": "FUSE\nimport simulator\n" + TRAINING.format(env="simulator.make", n_workers=2, learn=PLAIN),
    }
    output, imports = run(tmp_path, files, "xml.py")
    told_once(output, str(tmp_path / "xml.py"), "module 'xml'", f"{tmp_path / 'simulator.py'}, line 3", "rename the file")
    assert len(imports) <= 4, "the script, itself as a module, and the two workers"


def test_a_training_that_catches_what_it_meets_multiplies_no_more_and_saves_nothing_in_a_worker(tmp_path: Path) -> None:
    training = TRAINING.format(env="make", n_workers=2, learn=CAUGHT.format(saved=str(tmp_path / "saved")))
    files = {"trainme.py": f"FUSE\n{MAKE}\n{training}", "run.py": "import trainme\n"}
    output, imports = run(tmp_path, files, "-m", "run")
    assert len(imports) <= 3
    assert "swallowed WorkerError NestedTraining: a worker imported" in output
    assert (tmp_path / "saved").read_text().split() == imports[:1], "a worker would write over the model of its parent"


def test_a_training_without_workers_in_a_module_that_workers_import(tmp_path: Path) -> None:
    """It multiplies nothing, and each worker would train before it works."""
    inner = TRAINING.format(env="'CartPole-v1'", n_workers=0, learn=PLAIN)
    outer = TRAINING.format(env="inner.make", n_workers=2, learn=PLAIN)
    files = {"inner.py": f"FUSE\n{MAKE}\n{inner}", "run.py": f"import inner\n{outer}"}
    output, _ = run(tmp_path, files, "run.py")
    told_once(output, str(tmp_path / "inner.py"))


NESTED = """
import multiprocessing, subprocess, sys
import gymnasium
from fastes import FastES

def train(n_workers):
    with FastES("CartPole-v1", preset="default", population_size=4, seed=0, n_workers=n_workers, noise_table_size=20000,
                policy_kwargs=dict(net_arch=[4])) as model:
        model.learn(100)

class Trained(gymnasium.Wrapper):
    def __init__(self, n_workers, parent, how):
        super().__init__(gymnasium.make("CartPole-v1"))
        import os
        if os.getpid() == parent:
            return
        if how == "itself":
            train(n_workers)
        elif how == "spawned":
            process = multiprocessing.get_context("spawn").Process(target=train, args=(n_workers,))
            process.start()
            process.join()
            assert process.exitcode == 0, "its training failed"
        else:
            subprocess.run([sys.executable, "-c", f"import nested; nested.train({n_workers})"], check=True)
"""
OUTER = """
import os
from functools import partial
from fastes import FastES
from nested import Trained
make = partial(Trained, {n_workers}, os.getpid(), {how!r})
with FastES(make, preset="default", population_size=4, seed=0, n_workers=1, noise_table_size=20000,
            policy_kwargs=dict(net_arch=[4])) as model:
    model.learn(100)
print("done")
"""


@pytest.mark.parametrize("how", ["itself", "spawned", "subprocess"])
def test_an_environment_that_trains_may_not_start_workers(how: str, tmp_path: Path) -> None:
    output, _ = run(tmp_path, {"nested.py": NESTED, "run.py": OUTER.format(n_workers=1, how=how)}, "run.py")
    assert "done" not in output
    assert "fastes.errors.WorkerError" in output
    for word in ("NestedTraining", "starts workers of its own", f"{tmp_path / 'nested.py'}, line 9", "n_workers=0"):
        assert word in output


def test_an_environment_may_train_without_workers(tmp_path: Path) -> None:
    output, _ = run(tmp_path, {"nested.py": NESTED, "run.py": OUTER.format(n_workers=0, how="itself")}, "run.py")
    assert output == "done\n"


def test_a_script_without_a_guard_whose_environment_is_its_own_goes_on_as_ever(tmp_path: Path) -> None:
    script = f"FUSE\n{MAKE}\n" + TRAINING.format(env="make", n_workers=2, learn=PLAIN) + "print('done')\n"
    output, imports = run(tmp_path, {"script.py": script}, "script.py")
    assert output == "done\n"
    assert len(imports) == 1


# --- what goes wrong before a worker works ---------------------------------------------------------------------------


def test_a_module_that_a_worker_cannot_import_is_told_at_once(tmp_path: Path) -> None:
    module = textwrap.dedent(
        """
        import os
        if os.getpid() != int(os.environ.setdefault("FIRST", str(os.getpid()))):
            raise ImportError("no licence in this process")
        """
    )
    files = {"made.py": module + MAKE, "run.py": "import made\n" + TRAINING.format(env="made.make", n_workers=2, learn=PLAIN)}
    output, _ = run(tmp_path, files, "run.py")
    assert "fastes.errors.WorkerError: ImportError: no licence in this process" in output
    assert "while a worker imported what builds it" in output
    assert "RuntimeWarning" not in output


def test_a_standard_name_that_breaks_the_import_of_fastes_itself_is_told(tmp_path: Path) -> None:
    """A folder that comes into sys.path late hides nothing from the parent, and much from its workers."""
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "random.py").write_text("import no_such_module\n")
    training = TRAINING.format(env="'CartPole-v1'", n_workers=2, learn=PLAIN)
    script = f"from fastes import FastES\nimport sys\nsys.path.insert(0, {str(tmp_path / 'late')!r})\n{training}"
    output, _ = run(tmp_path, {"run.py": script}, "run.py")
    assert "fastes.errors.WorkerError: ModuleNotFoundError: No module named 'no_such_module'" in output
    assert f"{tmp_path / 'late' / 'random.py'} has the name of Python's own module 'random'" in output
    assert "rename the file" in output
    assert "RuntimeWarning" not in output
