"""The C core's tests under AddressSanitizer and UBSan, its counters' under ThreadSanitizer. Run by `make sanitize`.

Needs GCC with its sanitizer libraries. Everything is built in a temporary folder; fails when a sanitizer has anything to say,
and when it stays silent about errors that were made on purpose.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
CC = os.environ.get("CC", "gcc")
TIMEOUT = 1800

# Python's own flags may say -fwrapv, with which no overflow is an error.
MEMORY = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-fno-wrapv",
    "-g",
    "-O1",
]
THREADS = ["-fsanitize=thread", "-fno-omit-frame-pointer", "-g", "-O2", "-std=gnu11", "-pthread"]

# A switch that leaves out a kind is an error, and so is whatever else the compiler finds odd.
WARNINGS = [
    f"-I{ROOT / 'fastes' / 'include'}",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Wswitch-enum",
    "-Werror",
    "-Wno-psabi",
    "-Wno-unknown-pragmas",
]
FORGOTTEN = """
typedef enum { ONE, OTHER } kind;
int taken_for_the_other(kind k) { switch (k) { case ONE: return 1; default: return 2; } }
"""

# Choose their variants themselves.
ALL_VARIANTS = (
    "tests/src/test_kernel_golden.py",
    "tests/src/test_kernel_parity.py",
    "tests/policies/test_layers.py",
    "tests/policies/test_image_layers.py",
    "tests/policies/test_multi_input_policy.py::test_it_is_its_twin",
    "tests/policies/test_recurrent_layers.py",
    "tests/src/test_screen.py",
)
# Use the variant in use: once for each.
EACH_VARIANT = ("tests/src/test_kernel_properties.py", "tests/src/test_kernel_rows.py")
# One worker and two, sampled and noisy actions, evaluations and a filled table; the rest of that file is about Python.
ONCE = (
    "tests/test_bad_input.py",
    "tests/policies/test_policies.py",
    "tests/test_determinism.py::test_number_of_workers_changes_no_bit[HalfCheetah-v5-1]",
    "tests/test_determinism.py::test_number_of_workers_changes_no_bit[CartPole-v1-5]",
    "tests/test_determinism.py::test_table_filled_in_parts_equals_a_table_filled_at_once",
    "tests/test_determinism.py::test_strategy_reproduces_its_golden_values",
    "tests/envs/native/test_twins.py::test_the_same_bits_in_c",
    "tests/envs/native/test_robots.py::test_the_same_bits_in_c",
    "tests/envs/native/test_robots.py::test_a_described_task_has_the_same_bits_in_c",
    "tests/envs/native/test_robots.py::test_an_error_of_mujoco_ends_the_episode_and_not_the_process",
    "tests/envs/native/test_native_env.py::test_a_training_in_c_has_the_bits_of_one_in_python",
    "tests/envs/native/test_native_env.py::test_functions_by_address",
    "tests/envs/native/test_native_env.py::test_successes_are_told",
)

CANARY = """
#include <stdint.h>
#include <stdlib.h>
float past_the_end(int n) { volatile float *x = malloc(n * sizeof(float)); x[n] = 1.0f; return x[n]; }
int32_t overflow(int32_t x) { return x + 2147483647; }
"""
CANARIES = {"past_the_end": "heap-buffer-overflow", "overflow": "signed integer overflow"}

# Errors that protocol_threads.c can make, each of which must be seen.
BROKEN_PROTOCOLS = (
    *("RELAXED_COMMIT", "RELAXED_OPEN", "RELAXED_NOTE", "RELAXED_FLAG", "RELAXED_ROW", "RELAXED_CLAIM", "PLAIN_CLAIM"),
    *("UNSAID_CLAIM", "EARLY_UNSAY", "EARLY_COMMIT", "EARLY_LEAVE", "EARLY_FLAGS", "HEEDLESS"),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fastes-sanitize-") as folder:
        check_warnings(Path(folder))
        check_threads(Path(folder))
        package = build(Path(folder))
        check_canaries(Path(folder))
        run_tests(package, ALL_VARIANTS + ONCE, "auto")
        for variant in variants(package):
            run_tests(package, EACH_VARIANT, variant)
    print("sanitizers: nothing found")


def check_warnings(folder: Path) -> None:
    """The compiler warns of nothing in src/, and does where a kind is forgotten."""
    forgotten = folder / "forgotten.c"
    forgotten.write_text(FORGOTTEN)
    command = [CC, *WARNINGS, "-O2", "-c", "-o", os.devnull]
    for source in sorted((ROOT / "src").glob("*.c")):
        run([*command, str(source)], {})
    if subprocess.run([*command, str(forgotten)], capture_output=True).returncode == 0:
        raise SystemExit("a kind that a switch leaves out was not seen")
    print("warnings: none", flush=True)


def build(folder: Path) -> Path:
    """The package with a sanitized core, and its tests beside it, in a folder of their own."""
    source, package = folder / "source", folder / "package"
    built = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("src", "fastes"):
        shutil.copytree(ROOT / name, source / name, ignore=built)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    compiler = folder / "cc"  # a compiler of our own: flags that come last win over those of setup.py
    compiler.write_text(f'#!/bin/sh\nexec {CC} "$@" {" ".join(MEMORY)}\n')
    compiler.chmod(0o755)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    run(pip, {"CC": str(compiler)})
    with ZipFile(next(folder.glob("fastes-*.whl"))) as wheel:
        wheel.extractall(package)
    shutil.copytree(ROOT / "tests", package / "tests", ignore=built)
    shutil.copy(ROOT / "pyproject.toml", package)
    core = next((package / "fastes").glob("_core*.so")).read_bytes()
    if b"__asan_report_store" not in core or b"__ubsan_handle" not in core:
        raise SystemExit("the core was built without its sanitizers")
    return package


def run(command: Sequence[str], env: dict[str, str], cwd: Path | None = None) -> None:
    if subprocess.run(command, env={**os.environ, **env}, cwd=cwd, timeout=TIMEOUT).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def sanitizer_env(logs: Path) -> dict[str, str]:
    """For a Python that was not built with sanitizers. Leaks are not looked for: Python frees little at its end."""
    logs.mkdir(exist_ok=True)
    return {
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so')}",  # C++ exceptions of others need theirs loaded first
        # A file for each process: pytest takes what tests write, and workers have a stderr of their own.
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={logs}/address",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",  # its log_path does nothing beside AddressSanitizer
        "PYTHONMALLOC": "malloc",
        "PYTHONDONTWRITEBYTECODE": "",  # modules are compiled once, and not by each worker
    }


def library(name: str) -> str:
    return subprocess.run([CC, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def run_watched(command: Sequence[str], logs: Path, env: dict[str, str], cwd: Path) -> tuple[int, str, str]:
    """Exit status, what the command wrote, and what sanitizers said in it and in processes that it started."""
    env = {**os.environ, **sanitizer_env(logs), **env}
    with open(logs / "output", "w") as output:
        code = subprocess.run(command, env=env, cwd=cwd, stdout=output, stderr=subprocess.STDOUT, timeout=TIMEOUT).returncode
    written = (logs / "output").read_text(errors="replace")
    said = [path.read_text(errors="replace") for path in sorted(logs.glob("address*"))]
    if "runtime error:" in written:
        said.append(written[written.index("runtime error:") :])
    return code, written, "\n".join(said)


def check_canaries(folder: Path) -> None:
    """Errors in a library that is loaded as the core is are seen, and in the way in which run_tests sees them."""
    (folder / "canary.c").write_text(CANARY)
    canary = str(folder / "canary.so")
    flags = (sysconfig.get_config_var("CFLAGS") or "").split()  # those of Python, as for the core
    run([str(folder / "cc"), *flags, "-shared", "-fPIC", str(folder / "canary.c"), "-o", canary], {})
    for function, message in CANARIES.items():
        call = f"import ctypes; ctypes.CDLL({canary!r}).{function}(8)"
        code, written, said = run_watched([sys.executable, "-c", call], folder / f"logs-{function}", {}, folder)
        if code == 0 or message not in said:
            raise SystemExit(f"{function} in a library was not seen: exit status {code}\n{written}{said}")


def variants(package: Path) -> list[str]:
    code = "import fastes._core as c; print(c.__file__, *c.available_variants())"
    _, written, _ = run_watched([sys.executable, "-c", code], package / "logs", {}, package)
    file, *names = written.split()
    if not Path(file).is_relative_to(package):
        raise SystemExit(f"the tests would import {file}")
    return names


def run_tests(package: Path, tests: Sequence[str], variant: str) -> None:
    # capture=sys: UBSan writes to the descriptor. -n 0: what processes of tests side by side write there is not read
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--capture=sys", *tests]
    env = {"FASTES_KERNELS": "" if variant == "auto" else variant}
    code, written, said = run_watched(command, package / "logs", env, package)
    if code or said:
        raise SystemExit(f"{written}\n{said}\nexit status {code} with {variant} kernels: {' '.join(tests)}")
    print(f"{variant} kernels: {written.splitlines()[-1]}", flush=True)


def check_threads(folder: Path) -> None:
    """protocol_threads.c has no race, and has one in each of its broken forms."""
    for broken in (None, *BROKEN_PROTOCOLS):
        program = folder / f"threads-{broken}"
        flags = [f"-D{broken}"] if broken else []
        run([CC, *THREADS, *flags, "-o", str(program), str(ROOT / "tests" / "src" / "protocol_threads.c"), "-lm"], {})
        env = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
        done = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=300)
        seen = "data race" in done.stderr or done.stdout.startswith("request ")  # the latter: its own check of the results
        if broken and not seen:
            raise SystemExit(f"{broken} was not seen: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        if not broken and done.returncode:
            raise SystemExit(f"protocol_threads.c: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    print("threads: no race", flush=True)


if __name__ == "__main__":
    main()
