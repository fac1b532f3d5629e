"""Risk: a checkpoint from somewhere else, or a save that was cut short."""

from __future__ import annotations

import errno
import functools
import inspect
import io
import itertools
import json
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from edited_checkpoints import edited
from processes import environment, run_script
from training import assert_same_state, learn

from fastes import CallablePolicy, CheckpointError, CheckpointMismatch, FastES
from fastes.checkpoints import writer
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint


def state(number: int, values: int = 8) -> Checkpoint:
    """A state that says in every part which one it is."""
    one = np.full(values, number, np.float32)
    return Checkpoint(
        {"n": number}, {"trainings": {"0.theta": one, "0.optimizer.v": one}, "reference": {"observations": one[:2]}}
    )


# --- a save that is killed -------------------------------------------------------------------------------------------

STATES = f"""
import json, os, random, resource, signal, sys, time
from pathlib import Path

import numpy as np

from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint

{inspect.getsource(state)}
path = Path("m.zip")

def whole(path=path):
    found = read_checkpoint(path)
    n = found.data["n"]
    for group in ("trainings", "reference"):
        for name, array in found.arrays[group].items():
            assert (array == n).all() and array.size, (n, group, name, array)
    return n

def report(**statistics):
    print(json.dumps(dict(statistics, files=sorted(os.listdir()))))
"""

KILL_AT_EVERY_LINE = (
    STATES
    + """
def save_until_line(last):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    write_checkpoint(path, state(2))
    sys.settrace(None)
    os._exit(0)

mode, step = sys.argv[1], int(sys.argv[2])
if mode == "named":
    del os.O_TMPFILE  # as on systems without it: the file has a name while it is written
points, line, outcomes, killed = 0, 1, {"absent": 0, "old": 0, "new": 0}, True
write_checkpoint(path, state(1))
while killed:
    points, line = points + 1, line + step
    if mode == "first":
        path.unlink()
    child = os.fork()
    if child == 0:
        save_until_line(line - step)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if path.exists():
        n = whole()
        outcomes[{1: "old", 2: "new"}[n]] += 1
    else:
        n = 0
        outcomes["absent"] += 1
    if n != 1:
        write_checkpoint(path, state(1))
        assert whole() == 1
    if Path("m.zip.bak").exists():
        assert whole(Path("m.zip.bak")) in (1, 2)
assert n == 2, "the last child was not killed"
report(points=points, **outcomes)
"""
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of saves wait for no disk."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="saves-of-a-test-") as folder:
        yield Path(folder)


EVERY = [pytest.param(mode, 1, marks=pytest.mark.slow) for mode in ("unnamed", "named", "first")]


@pytest.mark.parametrize(("mode", "step"), [("unnamed", 13), ("named", 13), ("first", 13), *EVERY])
def test_a_save_killed_at_any_line_leaves_the_old_file_or_the_new_one(mode: str, step: int, memory: Path) -> None:
    """Every line (or every step-th) that a save runs, in zipfile too, is the last one once."""
    done = run_script(KILL_AT_EVERY_LINE, memory, mode, str(step))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert step * found["points"] > 1000
    before, never = ("absent", "old") if mode == "first" else ("old", "absent")
    assert step * found[before] > 500
    assert found["new"] >= 1
    assert found[never] == 0
    left = set(found["files"]) - {"m.zip", "m.zip.bak", "script.py"}
    assert left == set(), "the next save removes what a killed one left"


KILL_AT_RANDOM_MOMENTS = (
    STATES
    + """
random.seed(0)
write_checkpoint(path, state(1, 10_000))
counts = {1: 0, 2: 0}
for kills in range(1, 4001):
    child = os.fork()
    if child == 0:
        while True:
            write_checkpoint(path, state(2, 10_000))
            write_checkpoint(path, state(1, 10_000))
    time.sleep(random.uniform(0.0, 0.004) * (1 + kills / 200))  # a busy machine needs longer for two saves
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    counts[whole()] += 1
    if Path("m.zip.bak").exists():
        assert whole(Path("m.zip.bak")) in (1, 2)
    if kills >= 200 and min(counts.values()) > 5:
        break
write_checkpoint(path, state(3))
assert whole() == 3
report(one=counts[1], two=counts[2], kills=kills)
"""
)


def test_a_save_killed_at_random_moments_leaves_a_whole_file(memory: Path) -> None:
    done = run_script(KILL_AT_RANDOM_MOMENTS, memory)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["one"] > 5
    assert found["two"] > 5
    left = set(found["files"]) - {"m.zip", "m.zip.bak", "script.py"}
    assert left == set(), "the next save removes what a killed one left"


# --- a save that cannot be written -----------------------------------------------------------------------------------

FILE_SIZE_LIMIT = (
    STATES
    + """
write_checkpoint(path, state(1))
write_checkpoint(path, state(1))
old, size, files = path.read_bytes(), path.stat().st_size, sorted(os.listdir())
errors = []
for limit in (0, 1, 100, size // 2, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_checkpoint(path, state(2))
    except OSError as error:
        errors.append(error.errno)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert path.read_bytes() == old and sorted(os.listdir()) == files, (limit, os.listdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
write_checkpoint(path, state(2))
report(errors=errors, n=whole())
"""
)


def test_a_file_that_may_not_grow_keeps_the_old_one(tmp_path: Path) -> None:
    done = run_script(FILE_SIZE_LIMIT, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == [27] * 5, "EFBIG"
    assert found["n"] == 2


FULL_DISK = (
    STATES
    + """
import errno, shutil
os.chdir("disk")
write_checkpoint(path, state(1))
write_checkpoint(path, state(1))
old, files = path.read_bytes(), sorted(os.listdir())
outcomes = []
for free in (0, 1, 2, 3, 4, 5, 6, 8):  # blocks
    room = os.statvfs(".")
    Path("filler").write_bytes(bytes((room.f_bavail - free) * room.f_bsize))
    try:
        write_checkpoint(path, state(2, 2000))
        outcomes.append("saved")
        assert whole() == 2
    except OSError as error:
        outcomes.append(errno.errorcode[error.errno])
        assert path.read_bytes() == old
    os.unlink("filler")
    assert sorted(os.listdir()) == files, (free, os.listdir())
    write_checkpoint(path, state(1))
    write_checkpoint(path, state(1))
    old = path.read_bytes()
os.system("mount -o remount,ro .")
for _ in range(2):
    try:
        write_checkpoint(path, state(2))
    except OSError as error:
        outcomes.append(errno.errorcode[error.errno])
    assert path.read_bytes() == old and whole() == 1 and sorted(os.listdir()) == files
report(outcomes=outcomes)
"""
)


def test_a_full_disk_and_a_read_only_one_keep_the_old_file(tmp_path: Path) -> None:
    """A real one: a small tmpfs in a mount namespace of its own, which ends with the script."""
    (tmp_path / "disk").mkdir()
    own = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=256k none disk && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs, not even in a namespace")
    (tmp_path / "script.py").write_text(textwrap.dedent(FULL_DISK))
    command = [*own, sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    assert outcomes[:3] == ["ENOSPC"] * 3
    assert outcomes[7:] == ["saved", "EROFS", "EROFS"]


def test_a_folder_without_permission_keeps_the_old_file(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not hold root back; the read-only disk above does")
    write_checkpoint(tmp_path / "m", state(1))
    old = (tmp_path / "m.zip").read_bytes()
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            write_checkpoint(tmp_path / "m", state(2))
        assert os.listdir(tmp_path) == ["m.zip"]
    finally:
        tmp_path.chmod(0o755)
    assert (tmp_path / "m.zip").read_bytes() == old


def test_arrays_that_the_reader_would_refuse_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zipfile writes zip64 records for large files, and those are refused."""
    assert writer.MAX_BYTES * 1.05 < zipfile.ZIP64_LIMIT
    write_checkpoint(tmp_path / "m", state(1))
    large = state(2)
    large.arrays["more"] = {"a": np.zeros(200, np.float32)}
    monkeypatch.setattr(writer, "MAX_BYTES", sum(array.nbytes for arrays in large.arrays.values() for array in arrays.values()))
    write_checkpoint(tmp_path / "large", large)
    large.arrays["more"]["b"] = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match=r"a checkpoint holds \d+ \(bytes of each group: 'more' 804, 'trainings' \d+"):
        write_checkpoint(tmp_path / "m", large)
    assert read_checkpoint(tmp_path / "m").data == {"n": 1}
    assert sorted(os.listdir(tmp_path)) == ["large.zip", "m.zip"]


def test_a_file_of_two_gibibytes_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could read it, should names take more room than was thought."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 2000)
    write_checkpoint(tmp_path / "m", state(1, 10))
    with pytest.raises(zipfile.LargeZipFile):
        write_checkpoint(tmp_path / "m", state(2, 1000))
    assert read_checkpoint(tmp_path / "m").data == {"n": 1}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be read: Permission denied$"),
        (OSError(errno.EIO, "Input/output error"), "cannot be read: Input/output error$"),
        (MemoryError(), "cannot be read: there is no memory for it$"),
        (OSError(errno.EINVAL, "Invalid argument"), "is damaged or no checkpoint: .*Invalid argument$"),
    ],
    ids=repr,
)
def test_what_the_system_cannot_read_is_not_called_damaged(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write_checkpoint(tmp_path / "m", state(number))

    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(zipfile, "ZipFile", fail)
    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(tmp_path / "m")


# --- saves at the same time ------------------------------------------------------------------------------------------

FOUR_WRITERS = (
    STATES
    + """
write_checkpoint(path, state(1))
children = []
for n in (1, 2, 3, 4):
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            write_checkpoint(path, state(n, 500 * n))
        os._exit(0)
    children.append(child)
seen, reads = set(), 0
while children:
    for _ in range(20):
        seen.add(whole())
        if Path("m.zip.bak").exists():
            seen.add(whole(Path("m.zip.bak")))
        reads += 1
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        assert status == 0, "a save failed"
        children.remove(pid)
report(seen=sorted(seen), reads=reads)
"""
)


def test_saves_of_four_processes_to_one_path_never_mix(memory: Path) -> None:
    done = run_script(FOUR_WRITERS, memory)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["seen"]) >= 2
    assert found["reads"] > 50
    assert found["files"] == ["m.zip", "m.zip.bak", "script.py"]


# --- damaged ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a small model after two generations."""
    folder = tmp_path_factory.mktemp("saved")
    fixed: dict[str, Any] = {"population_size": 4, "seed": 5, "target_return": "none", "policy": "LinearPolicy"}
    with FastES("Toy-v0", n_workers=0, preset="default", noise_table_size=1000, **fixed) as model:
        learn(model, 2)
        model.save(folder / "m.zip")
    return folder / "m.zip"


def refused(content: bytes, path: Path, intact: Checkpoint) -> bool:
    """True for CheckpointError, False for the very same content; anything else fails."""
    path.write_bytes(content)
    try:
        found = read_checkpoint(path)
    except CheckpointError:
        return True
    assert_same_state(intact, found)
    return False


def test_a_file_cut_off_anywhere_is_an_error(saved: Path, memory: Path) -> None:
    content, intact = saved.read_bytes(), read_checkpoint(saved)
    for length in range(len(content)):
        assert refused(content[:length], memory / "t.zip", intact), f"{length} of {len(content)} bytes"


def test_bytes_before_and_behind_are_an_error(saved: Path, memory: Path) -> None:
    content, intact = saved.read_bytes(), read_checkpoint(saved)
    for more in (b"\0", b"PK", b"\0" * 22, b"#!/bin/sh\n", content[:100], content):
        for damaged in (more + content, content + more):
            assert refused(damaged, memory / "t.zip", intact), more[:20]


def flips(content: bytes, places: Iterable[int], path: Path, intact: Checkpoint) -> list[int]:
    """Places (in bits) where a flip changed nothing that is read."""
    harmless = []
    for place in places:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        if not refused(bytes(damaged), path, intact):
            harmless.append(place)
    return harmless


def test_any_flipped_bit_of_a_small_file_is_an_error(memory: Path) -> None:
    """Every bit up to the directory. The directory has attributes and version numbers that nobody reads."""
    path = write_checkpoint(memory / "m", state(1, 2))
    content, intact = path.read_bytes(), read_checkpoint(path)
    harmless = flips(content, range(8 * len(content)), memory / "t.zip", intact)
    directory = content.index(b"PK\x01\x02")
    assert not [place for place in harmless if place < 8 * directory]
    assert len(harmless) < 4 * 8 * 20


def test_flipped_bits_of_a_trained_model_are_an_error(saved: Path, memory: Path) -> None:
    content, intact = saved.read_bytes(), read_checkpoint(saved)
    places = random.Random(0).sample(range(8 * content.index(b"PK\x01\x02")), 3000)
    assert not flips(content, places, memory / "t.zip", intact)


@pytest.mark.slow
def test_any_flipped_bit_of_a_trained_model_is_an_error(saved: Path, memory: Path) -> None:
    content, intact = saved.read_bytes(), read_checkpoint(saved)
    assert not flips(content, range(8 * content.index(b"PK\x01\x02")), memory / "t.zip", intact)


# --- forged ----------------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """One member as its local header and the directory describe it, which is right unless a field says otherwise."""

    name: bytes
    content: bytes
    local: dict[str, Any] = {}  # noqa: RUF012
    central: dict[str, Any] = {}  # noqa: RUF012


def packed(members: list[Member], comment: bytes = b"", end: dict[str, int] | None = None, **more: bytes) -> bytes:
    """A stored zip, byte by byte, so that it can lie. end: fields of the end record that do.

    more: bytes to hide, before_directory= and before_end=.
    """
    body, directory = b"", b""
    for member in members:
        right = {
            "version": 20,
            "flags": 0,
            "method": 0,
            "time": 0,
            "date": 33,
            "crc": zlib.crc32(member.content),
            "size": len(member.content),
            "full": len(member.content),
            "name": member.name,
            "extra": b"",
        }
        central = {**right, "comment": b"", "attributes": 0o600 << 16, "at": len(body), **member.central}
        body += _header("<4s5H3L2H", b"PK\x03\x04", {**right, **member.local}, ()) + member.content
        directory += _header("<4sH5H3L5H2L", b"PK\x01\x02", central, (20,))
    body += more.get("before_directory", b"")
    fields = {"members": len(members), "size": len(directory), "at": len(body), **(end or {})}
    tail = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, fields["members"], fields["members"], fields["size"], fields["at"], len(comment)
    )
    return body + directory + more.get("before_end", b"") + tail + comment


def _header(form: str, magic: bytes, f: dict[str, Any], made_by: tuple[int, ...]) -> bytes:
    common = (f["version"], f["flags"], f["method"], f["time"], f["date"], f["crc"], f["size"], f["full"], len(f["name"]))
    if not made_by:
        return struct.pack(form, magic, *common, len(f["extra"])) + f["name"] + f["extra"]
    rest = (len(f["extra"]), len(f["comment"]), 0, 0, f["attributes"], f["at"])
    return struct.pack(form, magic, *made_by, *common, *rest) + f["name"] + f["extra"] + f["comment"]


def _members(saved: dict[str, bytes], **lies: Any) -> list[Member]:
    """The members of a checkpoint; lies: local= and central= of the one that has theta."""
    return [Member(n.encode(), c, **(lies if n.startswith("trainings") else {})) for n, c in saved.items()]


def _with(saved: dict[str, bytes], name: bytes, content: bytes = b"x", **lies: Any) -> bytes:
    return packed([*_members(saved), Member(name, content, **lies)])


def _json_with(saved: dict[str, bytes], piece: bytes) -> bytes:
    """A right file whose JSON member has one more key, with piece as its value."""
    text = saved["data"].rstrip().removesuffix(b"}") + b', "more": ' + piece + b"}"
    return packed(_members({**saved, "data": text}))


@functools.cache
def _zeros(size: int) -> tuple[bytes, int]:
    """So many zeros, deflated, and their CRC-32."""
    squeeze, some, crc = zlib.compressobj(1, zlib.DEFLATED, -15), bytes(1 << 20), 0
    parts = []
    for _ in range(size >> 20):
        parts.append(squeeze.compress(some))
        crc = zlib.crc32(some, crc)
    return b"".join(parts) + squeeze.flush(), crc


def _deflated(saved: dict[str, bytes], name: str, size: int) -> bytes:
    content, crc = _zeros(size)
    lie = {"method": 8, "full": size, "crc": crc}
    return packed([Member(n.encode(), content, lie, lie) if n == name else Member(n.encode(), c) for n, c in saved.items()])


def _long_directory(saved: dict[str, bytes], honest: bool) -> bytes:
    """100 000 entries that all mean the first member; the end record may count two of them."""
    entry = _header(
        "<4sH5H3L5H2L",
        b"PK\x01\x02",
        {**dict.fromkeys(("version", "flags", "method", "time", "date", "crc", "size", "full", "attributes", "at"), 0)}
        | {"name": b"x", "extra": b"", "comment": b""},
        (20,),
    )
    size = 100_000 * len(entry)
    return packed(_members(saved), end={"members": 100_000 % 65_536 if honest else 2, "size": size}, before_end=entry * 100_000)


class _Pipe:
    """A file that cannot seek: zipfile writes sizes behind the members then."""

    def __init__(self, target: io.BytesIO) -> None:
        self.write, self.flush = target.write, target.flush


def _with_zipfile(saved: dict[str, bytes], change: Callable[[zipfile.ZipFile], Any], **how: Any) -> bytes:
    target = io.BytesIO()
    file = _Pipe(target) if how.get("stream") else target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in saved.items():
                with archive.open(name, "w", force_zip64=how.get("zip64", False)) as member:
                    member.write(content)
            change(archive)
    return target.getvalue()


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def _tensors(header: bytes, values: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + values


def _theta(saved: dict[str, bytes], content: bytes) -> bytes:
    return packed(_members({**saved, "trainings.safetensors": content}))


GOOD: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "packed by hand": lambda s: packed(_members(s)),
    "packed by zipfile": lambda s: _with_zipfile(s, lambda _: None),
    "one more key": lambda s: _json_with(s, b'{"a": [1, 2.5, null, "x"]}'),
    "a million lists": lambda s: _json_with(s, b"[" + b"[]," * 10**6 + b"[]]"),
    "nested to the limit": lambda s: _json_with(s, b"[" * 62 + b"1" + b"]" * 62),
}

# what the file is -> (how it is made from a right one's members, a pattern that the error's reason matches)
HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    # would fill the memory
    "deflated theta of 1 GB": (lambda s: _deflated(s, "trainings.safetensors", 1 << 30), "trainings.* is compressed"),
    "deflated data of 1 GB": (lambda s: _deflated(s, "data", 1 << 30), "data.* is compressed or larger"),
    "data that claims 4 GB": (
        lambda s: packed([Member(b"data", s["data"], {"full": 2**32 - 2}, {"full": 2**32 - 2, "size": 2**32 - 2})]),
        "data.* larger than",
    ),
    "theta that claims 4 GB": (
        lambda s: packed(_members(s, central={"full": 2**32 - 2, "size": 2**32 - 2})),
        "overlaps|differs|hidden|ZIP64",
    ),
    "100000 entries": (lambda s: _long_directory(s, honest=True), "34464 members"),
    "100000 entries of which 2 are counted": (lambda s: _long_directory(s, honest=False), "a directory of 4700000 bytes"),
    "65535 members": (lambda s: packed(_members(s), end={"members": 65535}), "65535 members"),
    "tensors with a header of 2^63 bytes": (lambda s: _theta(s, struct.pack("<Q", 2**63) + b"{}"), "(?i)header"),
    "tensors with a header of 90 MB": (lambda s: _theta(s, struct.pack("<Q", 90 << 20) + b"{}"), "(?i)header"),
    "tensors of 2^62 values": (
        lambda s: _theta(
            s, _tensors(b'{"0.theta":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,16]}}', bytes(16))
        ),
        "(?i)invalid|overflow|shape",
    ),
    "tensors that claim 8 GB": (
        lambda s: _theta(
            s, _tensors(b'{"0.theta":{"dtype":"F32","shape":[2000000000],"data_offsets":[0,8000000000]}}', bytes(8))
        ),
        "(?i)buffer|incomplete|metadata",
    ),
    "4 MB of brackets": (lambda s: _json_with(s, b"[" * (4 * 10**6)), "RecursionError|nested"),
    "data of 5 MB": (lambda s: _json_with(s, b'"' + b"x" * (5 << 20) + b'"'), "larger than"),
    "an observation shape that multiplies lists": (
        lambda s: packed(
            _members({**s, "data": re.sub(rb'"obs_shape": \[', b'"obs_shape": [' + b"9," * 12 + b"[2],", s["data"])})
        ),
        "'policy.obs_shape' is",
    ),
    # writes somewhere else, or holds more than a checkpoint
    "a name that leads up": (lambda s: _with(s, b"../../escaped"), r"escaped.* not a part"),
    "a name from the root": (lambda s: _with(s, b"/tmp/escaped"), "escaped.* not a part"),
    "a name that leads up behind a known one": (lambda s: _with(s, b"trainings.safetensors/../../escaped"), "not a part"),
    "a symbolic link": (
        lambda s: _with(s, b"link", b"/etc/passwd", central={"attributes": 0o120777 << 16}),
        "link.* not a part",
    ),
    "a folder": (lambda s: _with(s, b"sub/", b""), "sub/.* not a part"),
    "a pickle": (lambda s: _with(s, b"extra.pkl", pickle.dumps(Bomb())), "extra.pkl.* not a part"),
    "a readme": (lambda s: _with(s, b"README", b"hello"), "README.* not a part"),
    "a pickle for theta": (lambda s: _theta(s, pickle.dumps(Bomb())), "(?i)header|damaged"),
    # one thing to this reader, another to the next
    "theta twice": (lambda s: _with(s, b"trainings.safetensors", s["trainings.safetensors"]), "trainings.* twice"),
    "theta twice, by zipfile": (
        lambda s: _with_zipfile(s, lambda a: a.writestr("trainings.safetensors", b"other")),
        "trainings.* twice",
    ),
    "data twice": (lambda s: _with(s, b"data", s["data"]), "data.* twice"),
    "members on top of each other": (lambda s: packed(_members(s, central={"at": 0})), "overlaps"),
    "another name in the local header": (lambda s: packed(_members(s, local={"name": b"other.safetensors"})), "differs"),
    "another size in the local header": (lambda s: packed(_members(s, local={"size": 1, "full": 1})), "differs"),
    "another checksum in the local header": (lambda s: packed(_members(s, local={"crc": 0})), "differs"),
    "a field in the local header": (lambda s: packed(_members(s, local={"extra": b"hidden"})), "overlaps|differs|hidden"),
    "a field in the directory": (lambda s: packed(_members(s, central={"extra": b"\xfe\xca\0\0"})), "extended"),
    "a member's comment": (lambda s: packed(_members(s, central={"comment": b"hidden"})), "extended"),
    "a name that goes on behind a zero": (
        lambda s: packed(
            _members(s, local={"name": b"trainings.safetensors\0x"}, central={"name": b"trainings.safetensors\0x"})
        ),
        "overlaps|differs|hidden",
    ),
    "bytes before the directory": (lambda s: packed(_members(s), before_directory=b"hidden"), "hidden between"),
    "no end record": (lambda s: packed(_members(s))[:-22], "cut off"),
    "encrypted": (lambda s: packed(_members(s, local={"flags": 1}, central={"flags": 1})), "encrypted"),
    "with data descriptors": (lambda s: _with_zipfile(s, lambda _: None, stream=True), "encrypted or extended"),
    "with a flag for descriptors": (lambda s: packed(_members(s, central={"flags": 8})), "encrypted or extended"),
    "zip64 members": (lambda s: _with_zipfile(s, lambda _: None, zip64=True), "overlaps|extended|differs"),
    "zip64 end records": (
        lambda s: packed(
            _members(s),
            end={"members": 0xFFFF, "size": 0xFFFFFFFF},
            before_end=b"PK\x06\x06" + bytes(52) + b"PK\x06\x07" + bytes(16),
        ),
        "65535 members",
    ),
    "a comment": (lambda s: packed(_members(s), comment=b"hello"), "cut off"),
    "a comment that is an end record": (lambda s: packed(_members(s), comment=packed([])), "end record"),
    # JSON that is none, or more than it seems
    "a key twice": (lambda s: _json_with(s, b'1, "more": 2'), "twice"),
    "a key twice, deep inside": (lambda s: _json_with(s, b'{"a": [{"b": 1, "b": 1}]}'), "twice"),
    "the format twice": (lambda s: _json_with(s, b'1, "format_version": 1'), "twice"),
    "NaN": (lambda s: _json_with(s, b"NaN"), "NaN"),
    "Infinity": (lambda s: _json_with(s, b"[-Infinity]"), "-Infinity"),
    "an int of 5000 digits": (lambda s: _json_with(s, b"9" * 5000), "digits"),
    "nested past the limit": (lambda s: _json_with(s, b"[" * 64 + b"]" * 64), "nested more than 64"),
    "nested 900 deep": (lambda s: _json_with(s, b'{"a":' * 900 + b"1" + b"}" * 900), "nested more than 64"),
    "nested 100000 deep": (lambda s: _json_with(s, b"[" * 100_000 + b"]" * 100_000), "RecursionError|nested"),
    "not UTF-8": (lambda s: _json_with(s, b'"\xff\xfe"'), "utf-8"),
    "a list of a million layers": (
        lambda s: packed(
            _members({**s, "data": re.sub(rb'"layer_sizes": \[', b'"layer_sizes": [' + b"1," * 10**6, s["data"])})
        ),
        "'policy.layer_sizes' is damaged: layer sizes",
    ),
    "a step size of 400 digits": (
        lambda s: packed(
            _members({**s, "data": re.sub(rb'"learning_rate": [\d.]+', b'"learning_rate": 1' + b"0" * 400, s["data"])})
        ),
        "settings are damaged",
    ),
}

LOAD_ALL = """
import json, os, resource, sys, time
from pathlib import Path

import envs_for_tests
from fastes import CheckpointError, FastES

FastES("Toy-v0", n_workers=0).close()  # whatever is imported late is part of the baseline
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (3 << 29)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for name in sorted(os.listdir(sys.argv[1])):
    started = time.perf_counter()
    try:
        FastES.load(Path(sys.argv[1], name), n_workers=0).close()
        kind, reason = "", ""
    except BaseException as error:
        kind, reason = type(error).__name__, str(error)
    print(json.dumps([name, kind, reason[:600], len(reason), time.perf_counter() - started]), flush=True)
"""


class Outcome(NamedTuple):
    """kind: the exception's name, empty when the file was loaded; length: of its message, characters."""

    kind: str
    reason: str
    length: int
    seconds: float


@pytest.fixture(scope="module")
def outcomes(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Every file is loaded in a process with 1.5 GB of address space to go, in a folder that must stay empty."""
    folder = tmp_path_factory.mktemp("hostile")
    files, working = folder / "files", folder / "a" / "b"
    files.mkdir()
    working.mkdir(parents=True)
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, make in itertools.chain(GOOD.items(), ((name, make) for name, (make, _) in HOSTILE.items())):
        (files / f"{name}.zip").write_bytes(make(members))
    names = sorted(os.listdir(files))
    before = _tree(folder)
    done = run_script(LOAD_ALL, working, str(files))
    assert done.returncode == 0, done.stderr[-2000:]
    assert _tree(folder) - before == {Path("a/b/script.py")}
    assert not Path("/tmp/escaped").exists()
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[0] for line in found] == names
    shutil.rmtree(files)
    return {name.removesuffix(".zip"): Outcome(*rest) for name, *rest in found}


def _tree(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", GOOD)
def test_files_packed_here_are_loaded(name: str, outcomes: dict[str, Outcome]) -> None:
    """Otherwise the hostile ones would be refused for what is wrong with the packing."""
    assert outcomes[name].kind == "", outcomes[name]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_for_what_it_is(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.kind == "CheckpointError", outcome
    assert re.search(HOSTILE[name][1], outcome.reason), outcome.reason
    assert "MemoryError" not in outcome.reason
    assert outcome.length < 2000
    assert outcome.seconds < 60.0


# --- damaged, and loaded with policy= --------------------------------------------------------------------------------


def chosen(parameters: Any, observation: Any) -> Any:
    return parameters[:1] * observation[:1]


@pytest.fixture(scope="module")
def saved_custom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a model whose policy a file cannot describe."""
    path = tmp_path_factory.mktemp("custom") / "m.zip"
    with FastES("Toy-v0", CallablePolicy(chosen, 2), n_workers=0, preset="default", noise_table_size=1000) as model:
        model.save(path)
    return path


@pytest.mark.parametrize("with_policy", [False, True])
@pytest.mark.parametrize("settings", ["x", [], None, 3, {"policy": 3}, {"policy": None}, {"sigma": "x"}, {"policy_kwargs": 1}])
def test_damaged_settings_are_said_with_and_without_a_policy(
    settings: Any, with_policy: bool, saved: Path, saved_custom: Path, tmp_path: Path
) -> None:
    def damage(data: Any) -> None:
        data["settings"] = {**data["settings"], **settings} if isinstance(settings, dict) else settings

    policy = {"policy": CallablePolicy(chosen, 2)} if with_policy else {}
    damaged = edited(saved_custom if with_policy else saved, tmp_path / "t.zip", damage)
    with pytest.raises(CheckpointError, match=r"settings.* damaged"):
        FastES.load(damaged, n_workers=0, **policy)


@pytest.mark.parametrize("settings", ["x", [], None, {}, {"policy": 3}, {"policy": ["x"]}])
def test_damaged_settings_are_said_where_the_file_describes_the_policy(settings: Any, saved: Path, tmp_path: Path) -> None:
    damaged = edited(saved, tmp_path / "t.zip", lambda data: data.update(settings=settings))
    with pytest.raises(CheckpointError, match=r"checkpoint's '(settings|settings\.policy)' is .* damaged"):
        FastES.load(damaged, policy=CallablePolicy(chosen, 2), n_workers=0)


def test_a_training_that_no_checkpoint_would_hold_is_refused(saved: Path, tmp_path: Path) -> None:
    """A small file can ask for it: the returns of each waiting evaluation's candidates are saved, too."""
    greedy = edited(saved, tmp_path / "t.zip", lambda data: data["settings"].update(eval_lag=100, population_size=2**24))
    with pytest.raises(CheckpointError, match=r"eval_lag = 100: .* a checkpoint would grow to 13.6 GB"):
        FastES.load(greedy, n_workers=0)


@pytest.mark.parametrize("number", ["1", "-1", "00", "\u0660", "9" * 5000, ""], ids=lambda number: ascii(number)[:9])
def test_arrays_of_a_training_that_is_not_in_the_file_are_refused(number: str, saved: Path, tmp_path: Path) -> None:
    intact = read_checkpoint(saved)
    more = {**intact.arrays["trainings"], f"{number}.theta": intact.arrays["trainings"]["0.theta"]}
    write_checkpoint(tmp_path / "t", intact._replace(arrays={"trainings": more}))
    with pytest.raises(CheckpointError, match=rf"the array '{number[:90]}.* of none of them"):
        FastES.load(tmp_path / "t", n_workers=0)


def test_a_training_without_arrays_is_refused(saved: Path, tmp_path: Path) -> None:
    """As many as fit into the JSON member: the first that has none ends it."""

    def repeat(data: Any) -> None:
        data["trainings"] *= 5000

    repeated = edited(saved, tmp_path / "t.zip", repeat)
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match=r"array 'trainings\.1\.theta' is missing"):
        FastES.load(repeated, n_workers=0)
    assert time.perf_counter() - started < 60.0


def test_settings_without_a_policy_are_another_policys(saved_custom: Path, tmp_path: Path) -> None:
    older = edited(saved_custom, tmp_path / "t.zip", lambda data: data["settings"].pop("policy"))
    with pytest.raises(CheckpointMismatch, match=r"policy = 'CallablePolicy' cannot change on loading"):
        FastES.load(older, policy=CallablePolicy(chosen, 2), n_workers=0)


@pytest.mark.parametrize("name", ["obs_shape", "parameters"])
def test_thousands_of_dimensions_are_refused_before_they_are_multiplied(name: str, saved_custom: Path, tmp_path: Path) -> None:
    def lengthen(data: Any) -> None:
        many = [2**31 - 1] * 200_000
        data["policy"][name] = many if name == "obs_shape" else [["parameters", many]]

    damaged = edited(saved_custom, tmp_path / "t.zip", lengthen)
    started = time.perf_counter()
    with pytest.raises(CheckpointError, match=r"'policy(\.obs_shape)?' is .*damaged"):
        FastES.load(damaged, policy=CallablePolicy(chosen, 2), n_workers=0)
    assert time.perf_counter() - started < 60.0


def test_a_directory_behind_a_zip64_record_is_not_read(tmp_path: Path) -> None:
    """The end record counts one member; a zip64 record before it, which zipfile would believe, counts a hundred thousand."""
    members = 100_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = entry * members
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, members, members, len(directory), 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    content = directory + record + locator
    for start in (0, len(directory) + len(record), len(content) - 47):  # the last leads to what lies before the end record
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, start, 0)
        (tmp_path / "t.zip").write_bytes(content + end)
        with pytest.raises(CheckpointError, match="end record"):
            read_checkpoint(tmp_path / "t.zip")
