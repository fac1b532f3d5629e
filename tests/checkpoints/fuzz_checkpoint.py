"""Risk: bytes that call themselves a checkpoint crash the reader, hang it, fill the memory, or get past it in a strange state.

A coverage-guided fuzz of FastES.load and of acting with what it loads. Needs atheris (3.0.0: Linux, Python 3.11 to 3.13).

    python tests/checkpoints/fuzz_checkpoint.py --seconds 60 [--corpus FOLDER] [--seed N]

Inputs are whole files. The mutator takes one apart and edits its bytes, its JSON values or its arrays; what it edits inside
is packed again with the right layout and CRC-32s, and mostly with the right SHA-256 checksums: other edits would get no
further than these. Exits with 1 and the input's place when something other than CheckpointError comes out.
"""

from __future__ import annotations

import argparse
import base64
import errno
import hashlib
import inspect
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from safetensors.numpy import load as load_tensors

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

import envs_for_tests
from training import assert_same_state, learn

from fastes import CheckpointError, FastES
from fastes.checkpoints import file_format
from fastes.checkpoints.file_format import GROUPS
from fastes.checkpoints.writer import write_zip

MAX_INPUT_BYTES, MAX_SECONDS, MAX_RSS_MB = 24_000, 10, 1500
MEMBERS = ("data", *(f"{group}.safetensors" for group in GROUPS))
SPACES = {
    "FuzzMultiDiscrete-v0": (
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1.0, 1.0, (2,))}),
        spaces.MultiDiscrete([2, 3], dtype=np.int32, start=[-1, 5]),
    ),
    "FuzzImage-v0": (
        spaces.Dict({"image": spaces.Box(0, 255, (2, 3, 2), np.uint8), "where": spaces.Box(-1.0, 1.0, (1,))}),
        spaces.Discrete(2),
    ),
    "FuzzImages-v0": (
        spaces.Dict({"a": spaces.Box(0, 255, (3, 2, 1), np.uint8), "b": spaces.Box(0, 255, (1, 2, 2), np.uint8)}),
        spaces.Discrete(2),
    ),
    "FuzzMultiBinary-v0": (spaces.Box(0, 255, (2, 2), np.uint8), spaces.MultiBinary([2, 2])),
}
CNN: dict[str, Any] = {"cnn": [[2, 2, 1]], "features_extractor_kwargs": {"features_dim": 2}}
SEEDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CartPole-v1", {"policy_kwargs": {"net_arch": [4]}, "sample_actions": True}),
    ("CartPole-v1", {"policy": "LinearPolicy", "optimizer": "sgd", "learning_rate": "lin_0.1_0.01"}),
    ("Toy-v0", {"policy": "LinearPolicy", "policy_kwargs": {}, "generation_timesteps": 60}),
    ("Pendulum-v1", {"policy_kwargs": {"net_arch": [2], "activation_fn": "relu"}, "action_noise": 0.1, "episode_cap": "mean"}),
    ("Pendulum-v1", {"policy": "LinearPolicy", "policy_kwargs": {"action_mapping": "bins", "num_bins": 3}}),
    ("Toy-v0", {"policy_kwargs": {"net_arch": [], "action_mapping": "squash"}, "target_return": float("inf")}),
    ("Toy-v0", {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 2, "n_lstm_layers": 2}}),
    ("FuzzMultiDiscrete-v0", {"policy": "LinearPolicy", "normalize_obs": False, "optimizer": "clipup"}),
    ("FuzzMultiBinary-v0", {"policy": "LinearPolicy", "alive_bonus": "lin_-1_2.5"}),
    ("FuzzMultiBinary-v0", {"policy": "CnnPolicy", "policy_kwargs": {**CNN, "batch_norm": "none", "activation_fn": "elu"}}),
    ("FuzzImage-v0", {"policy": "CnnPolicy", "policy_kwargs": CNN}),
    ("FuzzImage-v0", {"policy": "CnnLstmPolicy", "policy_kwargs": {**CNN, "cell": "gru", "lstm_hidden_size": 2}}),
    ("FuzzImages-v0", {"policy": "MultiInputPolicy", "policy_kwargs": {**CNN, "net_arch": [2]}}),
    ("Toy-v0", {"policy": "LinearPolicy", "sigma_adaptation": "scalar"}),
    ("Toy-v0", {"policy": "LinearPolicy", "trials": 3, "rungs": 2, "eval_lag": 0, "episode_cap": "mean"}),
    ("Toy-v0", {"policy": "LinearPolicy", "eval_lag": 2, "eval_every": 2}),
    ("Toy-v0", {"policy": "LinearPolicy", "eval_lag": 0, "archive_size": 1}),
    ("Toy-v0", {"policy": "LinearPolicy", "optimizer": "sgd", "sigma_adaptation": "per_parameter", "perturbed_fraction": 0.5}),
)


def register_environments() -> None:
    for name, (observations, choices) in SPACES.items():
        kwargs = {"observation_space": observations, "action_space": choices}
        gymnasium.register(name, entry_point=lambda kwargs=kwargs, **_: envs_for_tests.AnySpaces(**kwargs))


def write_seeds(folder: Path) -> None:
    """Checkpoints of small models after two generations."""
    for number, (env, changes) in enumerate(SEEDS):
        fixed = {"population_size": 2, "seed": number, "preset": "default", "max_episode_steps": 10, "noise_table_size": 1000}
        with FastES(env, n_workers=0, **fixed, **changes) as model:
            learn(model, 2)
            model.save(folder / f"{number}.zip")
        with FastES.load(folder / f"{number}.zip", n_workers=0) as model:
            act(model)


# --- what is tried ---------------------------------------------------------------------------------------------------


class Target:
    """Load bytes, act, look at the state; only CheckpointError may come out, or OSError for want of memory."""

    def __init__(self) -> None:
        self.first, self.second = os.memfd_create("first"), os.memfd_create("second")

    def __call__(self, content: bytes) -> None:
        os.ftruncate(self.first, 0)
        os.pwrite(self.first, content, 0)
        try:
            model = FastES.load(f"/proc/self/fd/{self.first}", n_workers=0)
        except CheckpointError:
            return
        except OSError as error:  # a whole file of a policy that is too large for this machine
            if error.errno != errno.ENOMEM:
                raise
            return
        with model:
            act(model)
            state = model.snapshot()
            if zlib.crc32(content) % 8 == 0:
                self._save_and_load(state)

    def _save_and_load(self, state: file_format.Checkpoint) -> None:
        """What was loaded can be saved, and is the same again."""
        os.ftruncate(self.second, 0)
        with open(self.second, "wb", closefd=False) as file:
            file.seek(0)
            write_zip(file, state)
        with FastES.load(f"/proc/self/fd/{self.second}", n_workers=0) as again:
            assert_same_state(state, again.snapshot())


def act(model: FastES) -> None:
    """Actions have the head's shape and dtype; only a wrong observation, or another environment's id, may be refused."""
    policy = model.policy_spec
    if policy.flattened:  # building environments is Gymnasium's: only the fuzz's own, as they were registered
        own = model.source.spec is not None and model.source.spec.id == "FuzzMultiDiscrete-v0"
        if not own or model.source.make_kwargs:
            return
        try:
            model.observation_space.seed(0)  # builds the environment, whose spaces may not be those of the file's policy
            model.predict(model.observation_space.sample())
        except (ValueError, TypeError) as error:
            if "observation" not in str(error):
                raise
        return
    head = policy.head
    for observation in (np.zeros(policy.obs_shape), np.full(policy.obs_shape, 200, np.uint8)):
        for deterministic in (True, False):
            action, _ = model.predict(observation, deterministic=deterministic)
            assert np.shape(action) == head.shape, (np.shape(action), head)
            if head.kind == "categorical" and not head.cast:
                low = np.reshape(head.start, head.shape)
                assert ((action >= low) & (action < low + np.reshape(head.nvec, head.shape))).all(), (action, head)


# --- how inputs are made ---------------------------------------------------------------------------------------------

STRANGE_NUMBERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, -(10**400))
STRANGE_FLOATS = (0.0, -0.0, 0.5, -1.0, 1e-320, 1e38, 1e39, 1e308, 1.5)
STRANGE = (
    None,
    True,
    False,
    "",
    "x",
    "function",
    "auto",
    "none",
    "nan",
    "inf",
    "-inf",
    "lin_1",
    "lin_1_1e999",
    "\ud800",
    "\x00",
)
STRANGE_LISTS: tuple[Any, ...] = ([], [[]], {}, [1], [2, 2], [0], [-1], {"id": "CartPole-v1"}, {"a": 1}, ["x"])
WORDS = (
    *(
        "clip",
        "squash",
        "bins",
        "categorical",
        "binary",
        "float32",
        "float64",
        "int64",
        "int8",
        "int32",
        "uint8",
        "tanh",
        "relu",
    ),
    *("elu", "identity", "dense", "convolution", "image_convolution", "append", "join", "virtual_batch_norm"),
    *("lstm", "gru", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy"),
    *("adam", "sgd", "clipup", "LinearPolicy", "MlpPolicy", "centered_ranks", "standardized", "nes", "signed_ranks"),
    *("mean", "share", *SPACES, "Toy-v0"),
)
TENSOR_TYPES = ("F32", "F64", "F16", "BF16", "I64", "I32", "I8", "U8", "U64", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "X")


def mutate(content: bytes, max_size: int, seed: int) -> bytes:
    """One to four edits at one level: the file, a member's bytes, the JSON values, or the arrays."""
    chance = random.Random(seed)
    members = members_of(content)
    if members is None or chance.random() < 0.15:
        return bytes(atheris.Mutate(content, max_size))
    edit = chance.choice((edit_bytes, edit_json, edit_json, edit_json, edit_arrays, edit_arrays, edit_text))
    for _ in range(chance.choice((1, 1, 2, 4))):
        edit(members, chance)
    if chance.random() < 0.9:
        put_checksums(members)
    packed = pack(members, chance)
    return packed if len(packed) <= max_size else bytes(atheris.Mutate(content, max_size))


def crossover(first: bytes, second: bytes, max_size: int, seed: int) -> bytes:
    """Members of one file in another: its arrays, its policy or its settings."""
    chance, mine, other = random.Random(seed), members_of(first), members_of(second)
    if mine is None or other is None:
        return first[:max_size]
    for name in other:
        if chance.random() < 0.5 and name != "data":
            mine[name] = other[name]
    ours, theirs = json_of(mine), json_of(other)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        ours.update({key: value for key, value in theirs.items() if chance.random() < 0.4})
        mine["data"] = json.dumps(ours).encode()
    put_checksums(mine)
    packed = pack(mine, chance)
    return packed if len(packed) <= max_size else first[:max_size]


def members_of(content: bytes) -> dict[str, bytes] | None:
    """Name -> bytes of members that lie one after the other; None when there is none."""
    at, found = 0, {}
    while content[at : at + 4] == b"PK\x03\x04" and at + 30 <= len(content):
        size, name_size, extra = struct.unpack_from("<IHH", content, at + 22)
        start = at + 30 + name_size + extra
        found[content[at + 30 : at + 30 + name_size].decode("latin-1")] = content[start : start + size]
        at = start + size
    return found or None


def pack(members: dict[str, bytes], chance: random.Random) -> bytes:
    """The file, seldom in another order or with one member less."""
    names = list(members)
    if chance.random() < 0.03:
        chance.shuffle(names)
    if chance.random() < 0.03:
        names.pop()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), members[name])
    return file.getvalue()


def json_of(members: dict[str, bytes]) -> Any:
    try:
        return json.loads(members.get("data", b""))
    except (ValueError, RecursionError):
        return None


def put_checksums(members: dict[str, bytes]) -> None:
    """The JSON member says what the arrays are, where both can be read. Written from the format's description."""
    data = json_of(members)
    if not isinstance(data, dict):
        return
    sums: dict[str, dict[str, str]] = {}
    for name, content in members.items():
        if name.endswith(".safetensors"):
            try:
                arrays = load_tensors(content)
            except BaseException:  # the reader will say so as well
                continue
            sums[name.removesuffix(".safetensors")] = {
                key: hashlib.sha256(f"{a.dtype.str} {a.shape}\n".encode() + a.tobytes()).hexdigest()
                for key, a in arrays.items()
            }
    data.update(format="fastes-checkpoint", format_version=1, checksums=sums)
    members["data"] = json.dumps(data).encode("utf-8")


def edit_bytes(members: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(list(members))
    members[name] = bytes(atheris.Mutate(members[name], len(members[name]) + 64))


def edit_text(members: dict[str, bytes], chance: random.Random) -> None:
    """Nesting, long numbers, doubled keys: what a parsed value cannot express."""
    text = members.get("data", b"")
    at = chance.choice([match.end() for match in re.finditer(rb"[:,\[{]\s*", text)] or [0])
    deep = chance.choice((20, 300, 900, 2000))
    piece = chance.choice(
        (
            b"[" * deep + b"]" * deep,
            b'{"a":' * deep + b"1" + b"}" * deep,
            b"9" * deep,
            b"1e999",
            b"NaN",
            b"-Infinity",
            b'"\\ud800"',
        )
    )
    end = re.compile(rb"[,\]}\n]").search(text, at)
    members["data"] = text[:at] + piece + text[end.start() if end else at :]


def edit_json(members: dict[str, bytes], chance: random.Random) -> None:
    data = json_of(members)
    places = list(places_of(data))
    if not places:
        return
    holder, key = chance.choice(places)
    old, what = holder[key], chance.random()
    if what < 0.08:
        del holder[key]
    elif what < 0.16 and isinstance(holder, list):
        holder.insert(key, old)
    elif what < 0.24 and isinstance(holder, dict):
        holder[chance.choice((f"{key}x", "__class__", "", *WORDS[:3]))] = holder.pop(key) if chance.random() < 0.5 else old
    elif what < 0.34:
        holder[key] = chance.choice(places)[0]
        if has_cycle(data):
            holder[key] = None
    else:
        holder[key] = other_value(old, chance)
    members["data"] = json.dumps(data).encode()


def other_value(old: Any, chance: random.Random) -> Any:
    if isinstance(old, (int, float)) and abs(old) < 1e300 and chance.random() < 0.4:
        return chance.choice((old + 1, old - 1, -old, old * 2, float(old), int(old), old + 0.5))
    if isinstance(old, list) and chance.random() < 0.4:
        return chance.choice((old[:-1], old + old, old * 20, [old], [*old, 0], [1] * len(old), old[::-1]))
    if isinstance(old, str) and chance.random() < 0.5:
        return chance.choice(WORDS)
    return chance.choice(chance.choice((STRANGE_NUMBERS, STRANGE_FLOATS, STRANGE, STRANGE_LISTS, WORDS)))


def places_of(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield value, key
        yield from places_of(below)


def has_cycle(data: Any) -> bool:
    try:
        json.dumps(data)
    except (ValueError, RecursionError):
        return True
    return False


def edit_arrays(members: dict[str, bytes], chance: random.Random) -> None:
    """Values and headers of a safetensors member: u64 length of the header, header, values."""
    names = [name for name in members if name.endswith(".safetensors") and len(members[name]) > 8]
    if not names:
        return
    name = chance.choice(names)
    content = members[name]
    (length,) = struct.unpack_from("<Q", content)
    try:
        header, values = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    except (ValueError, RecursionError):
        return
    what = chance.random()
    if what < 0.4 and len(values) >= 8:
        at = chance.randrange(len(values) - 7)
        at -= at % 4 if chance.random() < 0.8 else 0
        new = chance.choice(
            (b"\0\0\x80\x7f", b"\0\0\xc0\x7f", b"\xff\xff\x7f\x7f", b"\xff" * 8, b"\0" * 8, b"\0" * 7 + b"\x80")
        )
        values[at : at + len(new)] = new
    elif what < 0.55:
        resize(header, values, chance)
    elif what < 0.85 and isinstance(header, dict):
        edit_header(header, chance)
    else:
        length = chance.choice((0, 1, len(content), 2**31, 2**63, 2**64 - 1))
        members[name] = struct.pack("<Q", length) + content[8:]
        return
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    members[name] = struct.pack("<Q", len(packed)) + packed + bytes(values)


def resize(header: Any, values: bytearray, chance: random.Random) -> None:
    """The last array of a member gets longer or shorter, with all that says so."""
    try:
        last = max((one for one in header.values() if "data_offsets" in one), key=lambda one: one["data_offsets"][1])
        begin, end = last["data_offsets"]
        if not 0 <= begin <= end <= len(values):
            return
        width = max(1, (end - begin) // max(1, int(np.prod(last["shape"]))))
        count = chance.choice((0, 1, 2, 3, 5, 30, 31, (end - begin) // width + 1))
        last["shape"], last["data_offsets"] = [count], [begin, begin + count * width]
        values[begin:] = values[begin : begin + count * width].ljust(count * width, b"\0")
    except (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError):
        return


def edit_header(header: dict[str, Any], chance: random.Random) -> None:
    name = chance.choice([*header, "x"])
    entry = header.get(name)
    if not isinstance(entry, dict) or chance.random() < 0.2:
        header[chance.choice(("__metadata__", "0.theta", "1.theta", "0.normalizer.mean", "0.optimizer.m", "00.theta", "x"))] = (
            header.pop(name, {"a": "b"})
        )
        return
    entry["dtype"] = chance.choice((entry.get("dtype"), chance.choice(TENSOR_TYPES)))
    shape = chance.choice((entry.get("shape"), [], [0], [1, 1], [-1], [2**63], [2**32, 2**32], [2] * 33, [0, 2**62]))
    entry["shape"] = chance.choice((entry.get("shape"), shape))
    entry["data_offsets"] = chance.choice((*[entry.get("data_offsets")] * 4, [0, 0], [4, 0], [0, 2**63], [-1, 4], [0]))


INSTRUMENTED = (
    *(
        "agent",
        "errors",
        "envs.source",
        "policies.action_head",
        "policies.images",
        "policies.layers",
        "policies.named_policies",
        "policies.policy_keywords",
        "policies.policy_spec",
        "rollout.predictor",
    ),
    *(f"checkpoints.{name}" for name in ("reader", "field_checks", "policy_description", "env_description")),
    *(f"es.{name}" for name in ("optimizers", "schedules", "strategy")),
    *(
        "rollout.obs_normalizer",
        "settings.settings",
        "training.episode_cap",
        "training.adaptive_population",
        "models.checkpointing",
    ),
    *(f"training.{name}" for name in ("training", "selection", "evaluation", "archive", "counters")),
)


# --- running it ------------------------------------------------------------------------------------------------------


def instrument() -> None:
    """Every Python function from the file's bytes to the action."""
    import safetensors.numpy

    for module in (*(sys.modules[f"fastes.{name}"] for name in INSTRUMENTED), json.decoder, json, zipfile, safetensors.numpy):
        for item in vars(module).values():
            functions = [item, *vars(item).values()] if inspect.isclass(item) else [item]
            for function in functions:
                function = function.fget if isinstance(function, property) else getattr(function, "__func__", function)
                if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                    atheris.instrument_func(function)


def fuzz(arguments: list[str]) -> None:
    """The process that fuzzes; libFuzzer ends it."""
    global atheris
    import atheris

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    register_environments()
    instrument()
    atheris.Setup([sys.argv[0], *arguments], Target(), custom_mutator=mutate, custom_crossover=crossover)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="folder of inputs that are kept; a temporary one by default")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        seeds, corpus, found = Path(scratch, "seeds"), options.corpus or Path(scratch, "corpus"), Path(scratch, "found")
        for folder in (seeds, corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        register_environments()
        write_seeds(seeds)
        limits = [f"-max_total_time={options.seconds}", f"-timeout={MAX_SECONDS}", f"-rss_limit_mb={MAX_RSS_MB}"]
        rest = [f"-max_len={MAX_INPUT_BYTES}", "-len_control=0", f"-seed={options.seed}", "-print_final_stats=1"]
        command = [sys.executable, __file__, "--fuzz", *limits, *rest, f"-artifact_prefix={found}/", str(corpus), str(seeds)]
        exit_status, statistics = run(command)
        findings = keep(found)
    print({**statistics, "findings": findings, "exit": exit_status})
    return 1 if findings or exit_status else 0


STATISTICS = {
    "executions": r"stat::number_of_executed_units:\s+(\d+)",
    "executions/s": r"stat::average_exec_per_sec:\s+(\d+)",
    "slowest, s": r"stat::slowest_unit_time_sec:\s+(\d+)",
    "peak memory, MB": r"stat::peak_rss_mb:\s+(\d+)",
    "edges": r"\bcov: (\d+)",
    "features": r"\bft: (\d+)",
    "corpus": r"\bcorp: (\S+)",
    "seconds": r"Done \d+ runs in (\d+) second",
}


def run(command: list[str]) -> tuple[int, dict[str, str]]:
    """Exit status and the last of each number that libFuzzer prints; other lines are passed on."""
    statistics: dict[str, str] = {}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if not re.match(r"#\d+\s+(NEW|REDUCE)", line):
                sys.stderr.write(line)
            for name, pattern in STATISTICS.items():
                if match := re.search(pattern, line):
                    statistics[name] = match[1]
    return process.returncode, statistics


def keep(found: Path) -> int:
    """Move findings into the working folder and print them; how many there are."""
    inputs = sorted(found.iterdir())
    for path in inputs:
        kept = shutil.copy(path, f"fuzz-{path.name}")
        print(f"finding: {kept}\n{base64.b64encode(path.read_bytes()).decode()}")
    return len(inputs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz(sys.argv[2:])
    sys.exit(main())
