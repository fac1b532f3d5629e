"""MuJoCo's warnings: each is shown once, if a user can act on it, and no MUJOCO_LOG.TXT is left in the working directory."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fastes.envs.import_hook import after_import
from fastes.errors import warn_user
from fastes.system.console import tolerant

_UNSTABLE = (
    "MuJoCo then starts the simulation again within the episode. Smaller actions help, or a smaller timestep in the model's "
    "XML; actions that are not finite cause it, too"
)
_WHERE = re.compile(r"\s+at \w+ -?\d+|\s*Time = -?[\d.e+-]+\.?")  # what differs from one time to the next
told: set[str] = set()  # messages that this process has shown, or that are not to be shown
_of_models: list[str] | None = None  # warnings since a build began; None while nothing is built


def listen_to_mujoco() -> None:
    """Take MuJoCo's warnings from now on, in this process, unless another handler takes them; MuJoCo need not be imported."""
    after_import("mujoco", _take_warnings)


def _take_warnings() -> None:
    mujoco = sys.modules["mujoco"]
    if hasattr(mujoco, "set_mju_user_warning") and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_pass_on)


def _pass_on(message: str) -> None:
    """Take a warning. MuJoCo's C code calls this: nothing may be raised here."""
    if _of_models is not None:
        _of_models.append(message)
        return
    text = _text_of(message)
    if text not in told:
        told.add(text)
        advice = f" {_UNSTABLE}." if "unstable" in text else ""
        with contextlib.suppress(Exception):  # the same words in all workers: their parent shows a line once
            print(f"fastes: warning: MuJoCo says: {text}.{advice}", file=tolerant(sys.stderr), flush=True)


@contextlib.contextmanager
def mujoco_listened_to() -> Iterator[list[Any]]:
    """Collect the warnings about a model while an environment is built in the block, and show them afterwards.

    The block puts the environment into the list. Warnings about a model that is part of an installed package are dropped, now
    and later: users do not edit those.
    """
    global _of_models
    listen_to_mujoco()
    before, _of_models = _of_models, []
    built: list[Any] = []
    try:
        yield built
    finally:
        messages, _of_models = _of_models, before
        model = getattr(getattr(built[0], "unwrapped", None), "fullpath", "") if built else ""
        if _is_installed(str(model)):
            told.update(map(_text_of, messages))
        else:
            _tell_of_model(str(model) or "a model", messages)


def _text_of(message: str) -> str:
    return _WHERE.sub("", message).strip().rstrip(".")


def _tell_of_model(model: str, messages: Sequence[str]) -> None:
    for message in messages:
        if (text := f"MuJoCo says of {model}: {message}") not in told:
            told.add(text)
            warn_user(text)


def _is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed package, so that users do not edit it."""
    return any(part in ("site-packages", "dist-packages") for part in path.split(os.sep))
