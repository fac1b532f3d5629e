"""Risk: a setting is lost or changed on its way through a file or a command line, or a wrong one is taken or named badly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastes import FastES, Settings
from fastes.checkpoints.file_format import Checkpoint
from fastes.cli.main import build_parser
from fastes.cli.setting_flags import given_settings
from fastes.models.checkpointing import checkpoint_of, settings_from
from fastes.policies.action_head import BOX_MAPPINGS
from fastes.policies.layers import ACTIVATIONS
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.obs_columns import checked_columns
from fastes.runs.run_config import CONFIG
from fastes.runs.run_folder import RunFolder
from fastes.setting_fields import described
from fastes.settings.preset_loader import tomllib

modest = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIELDS = {item.name: item for item in fields(Settings)}
ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(0.0, exclude_min=True, allow_infinity=False)

# --- valid values, by the fields' types and metadata -----------------------------------------------------------------


def _schedule(numbers: list[float]) -> Any:
    return "_".join(["lin", *map(repr, numbers)])


EXPONENTIAL_END = st.floats(1e-150, 1e150)  # the ratio of two is a float
EXPONENTIALS = st.tuples(EXPONENTIAL_END, EXPONENTIAL_END).map(lambda ends: "exp_{!r}_{!r}".format(*ends))
SCHEDULES = POSITIVE | st.lists(POSITIVE, min_size=1, max_size=2).map(_schedule) | EXPONENTIALS
WHOLE_END = st.floats(1.0, 2.0**30)
WHOLE_SCHEDULES = st.tuples(st.sampled_from(["lin", "exp"]), WHOLE_END, WHOLE_END).map(
    lambda given: "{}_{!r}_{!r}".format(*given)
)
ANY_SCHEDULES = ANY_FLOAT | st.lists(st.floats(-1e307, 1e307), min_size=1, max_size=2).map(_schedule) | EXPONENTIALS
COLUMNS = st.lists(st.integers(0, 10**9), min_size=1, max_size=5, unique=True) | st.sampled_from(
    ["all", "0:45,60,100:", ":3", "7"]
)
POLICY_KWARGS = st.fixed_dictionaries(
    {},
    optional={
        "net_arch": st.lists(st.integers(1, 512), max_size=4),
        "activation_fn": st.sampled_from(ACTIVATIONS),
        "use_bias": st.booleans(),
        "action_mapping": st.sampled_from(BOX_MAPPINGS),
        "num_bins": st.integers(2, 1000),
    },
)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "population_size": st.integers(1, 2**20).map(lambda pairs: 2 * pairs),
    "sigma": SCHEDULES,
    "learning_rate": SCHEDULES,
    "alive_bonus": ANY_SCHEDULES,
    "episodes_per_candidate": st.integers(1, 2**62) | WHOLE_SCHEDULES,
    "generation_timesteps": st.integers(0, 10**15) | WHOLE_SCHEDULES,
    "obs_columns": COLUMNS.map(checked_columns),
    "policy": st.sampled_from(["MlpPolicy", "LinearPolicy"]),
    "policy_kwargs": POLICY_KWARGS,
    "step_timeout": POSITIVE | st.just("auto"),
    "target_return": ANY_FLOAT | st.sampled_from(["auto", "none", 1e308, 5e-324, -0.0]),
}


def valid(name: str) -> st.SearchStrategy[Any]:
    item, limits = FIELDS[name], described(FIELDS[name])
    if name in SPECIAL:
        return SPECIAL[name]
    if limits.choices:
        return st.sampled_from(limits.choices)
    if item.type == "bool":
        return st.booleans()
    if item.type == "int":
        return st.integers(int(limits.low or 0), int(limits.high or 2**62))
    assert item.type == "float", f"{name} is of a kind that these tests do not know: {item.type}"
    low = limits.above if limits.low is None else limits.low
    high = limits.below if limits.high is None else limits.high
    return st.floats(
        low,
        high,
        exclude_min=limits.above is not None,
        exclude_max=limits.below is not None,
        allow_nan=False,
        allow_infinity=False,
    )


def _in_whole_blocks(values: dict[str, Any]) -> dict[str, Any]:
    """With a largest population that is a multiple of the population."""
    block = values.get("population_size", Settings().population_size)
    largest = values.get("max_population_size", 0)
    return {**values, "max_population_size": largest // block * block} if largest else values


def _possible(values: dict[str, Any]) -> dict[str, Any]:
    """Without what other values rule out: a sigma or a shaping."""
    adapted = values.get("sigma_adaptation", "none") != "none"
    left_out = {"sigma"} if adapted else set()
    return {n: value for n, value in values.items() if n not in left_out and not (adapted and value == "signed_ranks")}


VALUES = st.fixed_dictionaries({}, optional={name: valid(name) for name in FIELDS}).map(_in_whole_blocks).map(_possible)


@pytest.fixture(scope="module")
def model() -> Iterator[FastES]:
    """A small model whose settings a test replaces: what is written is theirs."""
    with FastES(partial(Toy), n_workers=0, seed=0, preset="default", policy="LinearPolicy") as made:
        yield made


# --- round trips -----------------------------------------------------------------------------------------------------


@given(VALUES)
@modest
def test_settings_survive_a_checkpoint(model: FastES, values: dict[str, Any]) -> None:
    model.training = model.training._replace(settings=Settings().changed(**values))
    data = json.loads(json.dumps(checkpoint_of(model.selection, model.source).data, allow_nan=False))
    read = settings_from(Checkpoint(data, {}), {})
    assert read == model.settings
    assert {name: getattr(read, name) for name in values} == values
    assert list(map(type, read.to_dict().values())) == list(map(type, model.settings.to_dict().values()))


@pytest.mark.parametrize(("given_target", "target"), [(math.inf, math.inf), (-math.inf, -1e308), (1e308, 1e308)])
def test_infinite_targets_survive_a_checkpoint(model: FastES, given_target: float, target: float) -> None:
    """JSON has no infinity."""
    model.training = model.training._replace(settings=Settings(target_return=given_target))
    data = json.loads(json.dumps(checkpoint_of(model.selection, model.source).data, allow_nan=False))
    assert settings_from(Checkpoint(data, {}), {}).target(5.0) == target


@given(VALUES)
@modest
def test_settings_survive_a_config_file(model: FastES, tmp_path: Path, values: dict[str, Any]) -> None:
    model.training = model.training._replace(settings=Settings().changed(**values))
    (tmp_path / CONFIG).unlink(missing_ok=True)
    RunFolder(tmp_path).write_config(model, {"command": "fastes train"})
    read = tomllib.loads((tmp_path / CONFIG).read_text(encoding="utf-8"))["settings"]
    assert Settings().changed(**read) == model.settings


def flags(values: dict[str, Any], joined: bool) -> list[str]:
    """Settings as a user types them. joined: --flag=value rather than --flag value."""
    typed = []
    for name, value in {**values, **values.get("policy_kwargs", {})}.items():
        flag = "--" + name.replace("_", "-")
        if name == "policy_kwargs":
            continue
        if isinstance(value, bool):
            typed.append(flag if value else "--no-" + flag[2:])
        elif isinstance(value, dict):
            typed += [flag, json.dumps(value)]
        elif isinstance(value, list):
            typed += [flag, *map(str, value)]
        else:
            typed += [f"{flag}={value}"] if joined else [flag, str(value)]
    return typed


@given(VALUES, st.booleans())
@modest
def test_settings_survive_the_command_line(values: dict[str, Any], joined: bool) -> None:
    """Negative numbers after a space have a test of their own."""
    negative = any(isinstance(value, float) and math.copysign(1.0, value) < 0.0 for value in values.values())
    arguments = build_parser().parse_args(["train", "CartPole-v1", *flags(values, joined or negative)])
    read = given_settings(arguments)
    assert Settings().changed(**read) == Settings().changed(**values)
    assert set(read) == set(values) - ({"policy_kwargs"} if not values.get("policy_kwargs") else set())


@pytest.mark.parametrize("name", ["alive_bonus", "target_return"])
@pytest.mark.parametrize("text", ["-1", "-0.5", "-.5", "-1e-05", "-1E5", "-2.5e+3", "-1_000.0"])
def test_negative_numbers_after_a_space(name: str, text: str) -> None:
    """argparse alone takes -1e-05 for an option."""
    arguments = build_parser().parse_args(["train", "CartPole-v1", "--" + name.replace("_", "-"), text])
    assert getattr(Settings().changed(**given_settings(arguments)), name) == float(text)


NUMPY: dict[str, tuple[Any, ...]] = {
    "int": (np.int64, np.int32, np.uint8, np.uint64),
    "int | str": (np.int64, np.int32, np.uint8, np.uint64, float, np.float64),
    "float": (np.float64, np.float32, np.float16, np.int64, np.uint8, int),
    "ScheduleSetting": (np.float64, np.float32, np.float16, np.int64, np.uint8, int),
    "float | str": (np.float64, np.float32, np.float16, np.int64, np.uint8, int),
    "bool": (np.bool_,),
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, item in FIELDS.items() for kind in NUMPY.get(str(item.type), ())]
)
def test_numbers_of_numpy_are_plain_afterwards(name: str, kind: Any, model: FastES) -> None:
    """Each can be written into a checkpoint. The value fits the field."""
    limits = described(FIELDS[name])
    fits_one = (limits.below is None or limits.below > 1.0) and (limits.above is None or limits.above < 1.0)
    whole = Settings().population_size if name == "max_population_size" else 2
    value = kind(whole if str(FIELDS[name].type).startswith("int") or limits.above == 1.0 else 1 if fits_one else 0)
    model.training = model.training._replace(settings=Settings().changed(**{name: value}))
    data = json.loads(json.dumps(checkpoint_of(model.selection, model.source).data, allow_nan=False))
    assert data["settings"][name] == value
    assert settings_from(Checkpoint(data, {}), {}) == model.settings


# --- garbage ---------------------------------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    b"0.1",
    [],
    [0.1],
    (1, 2),
    {1, 2},
    1j,
    np.complex64(1.0),
    np.array([1, 2]),
    np.array(["adam", "sgd"]),
    np.array([]),
    Decimal("0.5"),
    object(),
    ...,
    Settings,
)
NO_NUMBERS: tuple[Any, ...] = (*JUNK, None, "", "x", "0.1", "1e3", {}, {"a": 1})
NO_INTS: tuple[Any, ...] = (
    *NO_NUMBERS,
    True,
    np.True_,
    1.5,
    2.0,
    math.nan,
    math.inf,
    -math.inf,
    np.float32(2.0),
    10**400,
    -(10**400),
)
NO_FLOATS: tuple[Any, ...] = (*NO_NUMBERS, True, math.nan, math.inf, -math.inf, np.float32(np.nan), 10**400, -(10**400))
NO_SCHEDULES: tuple[Any, ...] = (
    *(value for value in NO_FLOATS if value is not Settings),  # a class can be called
    *("lin", "lin_", "lin_x", "lin_1_2_3", "lin_nan", "lin_inf", "LIN_1", "lin_1_nan", "function"),
    *("exp_1", "exp_1_2_3", "exp_1_x", "exp_1_0", "exp_0_1", "exp_-1_-1", "exp_1_inf"),
)
NOT_POSITIVE: tuple[Any, ...] = ("lin_-1", "lin_1_-1", "lin_1_0", 0, 0.0, -0.0, -1, -5e-324, np.int64(0))
WRONG: dict[str, tuple[Any, ...]] = {
    "sigma": (*NO_SCHEDULES, *NOT_POSITIVE),
    "learning_rate": (*NO_SCHEDULES, *NOT_POSITIVE),
    "alive_bonus": (*NO_SCHEDULES, "lin_1e308_-1e308", "lin_-1e308_1.7e308"),
    "episodes_per_candidate": (
        *NO_SCHEDULES,
        *(1.5, 0, -1, 2**62 + 1, "lin_4", "lin_0.9_4", "lin_4_0.9", "lin_1_1e19", "lin_1_inf", lambda _: 2),
    ),
    "generation_timesteps": (
        *NO_SCHEDULES,
        *(1.5, -1, 10**15 + 1, "lin_4", "lin_0_4", "lin_4_0.9", "lin_1_1e16", "lin_1_inf", lambda _: 2),
    ),
    "obs_columns": (
        *(value for value in JUNK if not (isinstance(value, (tuple, np.ndarray)) and np.size(value) == 2 and 1 in value)),
        *("", " ", "x", "ALL", "-1", "1.5", "0:0", "3:1", "1,1", "0:3,2", "1:,5", "1,,2", "0:4:2", None, {}, 5, 0.5, True),
        *([-1], [True], [None], [[1]], [0, 0], ["0:2", 1], np.array([[1, 2]]), np.array([0.5]), b"1", {1: 2}),
    ),
    "target_return": (*JUNK, None, "", "x", "AUTO", {}, True, math.nan, np.float32(np.nan), 10**400),
    "step_timeout": (*JUNK, None, "", "x", "AUTO", "60", {}, True, math.nan, 0, -0.0, -1, -math.inf, np.float32(np.nan)),
    "policy": (*JUNK, None, 5, 0.5, True, {}),
    "policy_kwargs": (*(value for value in JUNK if not isinstance(value, dict)), 5, 0.5, True, "net_arch", "", math.nan),
    "population_size": (*NO_INTS, 0, 1, 3, -2, np.int64(7)),
}


def wrong(name: str) -> list[Any]:
    """Values of the wrong type, and those just outside of the field's limits."""
    item, limits = FIELDS[name], described(FIELDS[name])
    if name in WRONG:
        return list(WRONG[name])
    if limits.choices:
        return [
            *(value for value in NO_FLOATS if value is not Settings or not limits.missing),  # a class can be called
            0,
            *(f"{choice} " for choice in limits.choices),
            *(choice.upper() for choice in limits.choices),
        ]
    if item.type == "bool":
        return [*NO_FLOATS[:-2], 0, 1, 0.0, "True", np.int64(1)]
    values = list(NO_INTS if item.type == "int" else NO_FLOATS)
    step = 1 if item.type == "int" else 0.0
    if limits.low is not None:
        values.append(limits.low - step if step else math.nextafter(limits.low, -math.inf))
    if limits.high is not None:
        values.append(limits.high + step if step else math.nextafter(limits.high, math.inf))
    return [*values, *(bound for bound in (limits.above, limits.below) if bound is not None)]


def wrongly(build: Callable[[], object], name: str, value: Any) -> list[str]:
    """What is wrong with how build refuses the value; nothing for an error that names the setting."""
    shown = f"{value!r:.60}"
    try:
        build()
    except Exception as error:
        named = type(error) in (ValueError, TypeError) and name in str(error)
        return [] if named else [f"{shown}: {type(error).__name__}: {error!s:.100}"]
    return [f"{shown} was taken"]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.filterwarnings("ignore")
def test_garbage_is_refused_by_name(name: str) -> None:
    takes_bools = FIELDS[name].type == "bool" or "on" in described(FIELDS[name]).choices
    values = [value for value in wrong(name) if not (value is True and takes_bools)]
    assert len(values) > 10
    assert [found for value in values for found in wrongly(partial(Settings().changed, **{name: value}), name, value)] == []


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=4,
)


@given(st.sampled_from(list(FIELDS)), ANYTHING)
@settings(modest, max_examples=300)
def test_anything_is_taken_as_it_is_or_refused_by_name(model: FastES, name: str, value: Any) -> None:
    try:
        chosen = Settings().changed(**{name: value})
    except (ValueError, TypeError):
        assert wrongly(partial(Settings().changed, **{name: value}), name, value) == []
        return
    if name == "policy_kwargs":  # checked with the spaces, when a policy is made
        assert value is None or isinstance(value, dict)
        return
    if name == "obs_columns":  # a list becomes a string
        value = checked_columns(value)
    assert getattr(chosen, name) == value
    if name != "policy" and value not in (math.inf, -math.inf):  # JSON has no infinity
        model.training = model.training._replace(settings=chosen)
        data = json.loads(json.dumps(checkpoint_of(model.selection, model.source).data, allow_nan=False))
        assert settings_from(Checkpoint(data, {}), {}) == chosen


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (
            "net_arch",
            [*JUNK[:1], 5, "64", 0.5, [0], [-1], [1.5], ["64"], [None], [[64]], {"vf": [64]}, [True, "x"], [2, math.nan]],
        ),
        ("activation_fn", [*JUNK, None, "", "sigmoid", 5, ["tanh"], np.array(["tanh", "relu"])]),
        ("use_bias", [*JUNK, "no", 0, 1, 0.0]),
        ("action_mapping", [*JUNK, None, "", "CLIP", 5, ["clip"], np.array(["clip", "bins"])]),
        ("num_bins", [*JUNK, None, "", "5", 1, 0, -3, 2.5, math.nan, True]),
        ("no_such_key", [None, 1, "x"]),
    ],
)
def test_garbage_in_policy_kwargs_is_refused_by_name(key: str, values: list[Any]) -> None:
    box = spaces.Box(-1.0, 1.0, (2,))

    def build(value: Any) -> object:
        return make_policy_spec("MlpPolicy", box, box, Settings(policy_kwargs={key: value}).policy_kwargs)

    assert [found for value in values for found in wrongly(partial(build, value), key, value)] == []


def test_what_is_tuned_may_be_tuned() -> None:
    """Budgets, evaluation and faults change no learning: neither starts nor the search differ in them."""
    drawn = {name for name, item in FIELDS.items() if described(item).tried is not None}
    assert {"optimizer", "population_size"} <= drawn
    assert [name for name in drawn if not described(FIELDS[name]).affects_learning] == []
