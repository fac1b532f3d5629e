"""Event files of TensorBoard, made with tensorboardX or tensorboard, without torch."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fastes.errors import warn_user
from fastes.system.console import fill_standard_descriptors
from fastes.system.installation import install_command

# SB3's classes of values that are not numbers -> attributes that distinguish them from other classes of that name
_SPECIAL = {
    "Video": ("frames", "fps"),
    "Figure": ("figure", "close"),
    "Image": ("image", "dataformats"),
    "HParam": ("hparam_dict", "metric_dict"),
}


class HParam(NamedTuple):
    """Hyper-parameters as SB3's class of this name has them."""

    hparam_dict: Mapping[str, Any]
    metric_dict: Mapping[str, Any]


def special_kind(value: object) -> str:
    """Return the name of the special class of SB3 that a value has, or ''."""
    names = (kind.__name__ for kind in type(value).__mro__)
    return next((name for name in names if name in _SPECIAL and all(hasattr(value, part) for part in _SPECIAL[name])), "")


_files = itertools.count()


class _Package(NamedTuple):
    """Names of the modules of a package that event files are made with.

    Attributes:
        messages: The package of the protocol's messages.
        checksum: The module that has masked_crc32c.
        summaries, figures: Modules that make messages of images, figures and hyper-parameters.
        writers: The module whose EventFileWriter W&B's sync_tensorboard replaces, and the one that defines it.
    """

    messages: str
    checksum: str
    summaries: str
    figures: str
    writers: tuple[str, str]


_PACKAGES = {  # the first one that is installed
    "tensorboardX": _Package(
        "tensorboardX.proto",
        "tensorboardX.record_writer",
        "tensorboardX.summary",
        "tensorboardX.utils",
        ("tensorboardX.writer", "tensorboardX.event_file_writer"),
    ),
    "tensorboard": _Package(
        "tensorboard.compat.proto",
        "tensorboard.compat.tensorflow_stub.pywrap_tensorflow",
        "torch.utils.tensorboard.summary",
        "torch.utils.tensorboard._utils",
        ("tensorboard.summary.writer.event_file_writer", "tensorboard.summary.writer.event_file_writer"),
    ),
}


def check_tensorboard() -> None:
    """Raise ImportError if neither tensorboardX nor tensorboard is installed."""
    _package()


def load_tensorboard() -> None:
    """Import what an EventFile needs. Call it in the main thread: torch is hidden meanwhile."""
    package = _package()
    load(package.checksum)
    load(f"{package.messages}.event_pb2")
    if package.summaries.startswith("tensorboardX."):
        load(package.summaries)


def _package() -> _Package:
    """Return the package that event files are made with."""
    for name, package in _PACKAGES.items():
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:  # no folder of that name, such as one of event files
                return package
        except ValueError:  # it is None in sys.modules
            continue
    raise ImportError(f"logging to TensorBoard needs tensorboardX or tensorboard: {install_command('tensorboard')}")


class EventFile:
    """An event file for TensorBoard, which is complete after each write.

    Numbers and bools become scalars, strings text, arrays histograms. SB3's Image, Figure and HParam are shown, its Video is
    left out.

    Raises:
        ImportError: If neither tensorboardX nor tensorboard is installed.
    """

    def __init__(self, folder: str) -> None:
        self._package = _package()
        self._event = self._messages("event").Event
        self._checksum = load(self._package.checksum).masked_crc32c
        self._has_warned = False
        os.makedirs(folder, exist_ok=True)
        _announce(folder, *self._package.writers)
        # seconds first: TensorBoard reads a folder's files in the order of their names
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        fill_standard_descriptors()
        self.file = open(os.path.join(folder, name), "xb")  # noqa: SIM115
        self._append(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, values: Mapping[str, Any], step: int = 0) -> None:
        """Write values by name. step: position on TensorBoard's horizontal axis."""
        event = self._event(wall_time=time.time(), step=int(step))
        for key in sorted(values):
            self._add(event.summary, key, values[key])
        self._append(event)

    def restart(self, step: int) -> None:
        """Let TensorBoard forget what earlier files of the folder have at a step and after it."""
        log = self._messages("event").SessionLog
        self._append(self._event(wall_time=time.time(), step=int(step), session_log=log(status=log.START)))

    def close(self) -> None:
        self.file.close()

    def _messages(self, name: str) -> ModuleType:
        return load(f"{self._package.messages}.{name}_pb2")

    def _append(self, event: Any) -> None:
        """Write a TFRecord: length, its checksum, content, its checksum.

        SummaryWriter is not used: after its flush a thread still writes.
        """
        content: bytes = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        checks = (struct.pack("<I", self._checksum(part)) for part in (length, content))
        self.file.write(length + next(checks) + content + next(checks))
        self.file.flush()

    def _add(self, summary: Any, key: str, value: Any) -> None:
        kind = special_kind(value)
        if isinstance(value, str):
            self._add_text(summary, key, value)
        elif isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            summary.value.add(tag=key, simple_value=float(value))
        elif kind in ("HParam", "Image", "Figure"):
            try:
                self._add_special(summary, key, kind, value)
            except ImportError as error:
                self._warn_once(f"{key} is left out of TensorBoard's files: that needs tensorboardX or torch ({error})")
        elif hasattr(value, "dtype"):
            self._add_histogram(summary, key, np.asarray(value))

    def _add_text(self, summary: Any, key: str, text: str) -> None:
        plugin = self._messages("summary").SummaryMetadata.PluginData(plugin_name="text", content=b"")
        added = summary.value.add(tag=f"{key}/text_summary", metadata={"plugin_data": plugin})
        added.tensor.dtype = self._messages("types").DT_STRING
        added.tensor.tensor_shape.dim.add(size=1)
        added.tensor.string_val.append(text.encode(errors="backslashreplace"))

    @staticmethod
    def _add_histogram(summary: Any, key: str, values: Any) -> None:
        """Add a histogram of the finite values."""
        values = np.ravel(values).astype(np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            return
        counts, limits = np.histogram(values, bins="auto")
        added = summary.value.add(tag=key).histo
        added.min, added.max, added.num = float(values.min()), float(values.max()), float(values.size)
        added.sum, added.sum_squares = float(values.sum()), float(values.dot(values))
        added.bucket_limit.extend(limits.tolist())
        added.bucket.extend([0.0, *counts.tolist()])

    def _add_special(self, summary: Any, key: str, kind: str, value: Any) -> None:
        make = load(self._package.summaries)
        if kind == "HParam":
            for part in make.hparams(dict(value.hparam_dict), dict(value.metric_dict)):
                summary.value.extend(part.value)
            return
        if kind == "Image":
            image, order = value.image, value.dataformats
        else:
            image, order = load(self._package.figures).figure_to_image(value.figure, value.close), "CHW"
        summary.value.add(tag=key, image=make.image("", image, dataformats=order).value[0].image)

    def _warn_once(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_user(message)


def _announce(folder: str, place: str, original: str) -> None:
    """Make a writer if the package's own class was replaced: that is how W&B's sync_tensorboard learns of a folder."""
    writer = getattr(sys.modules.get(place), "EventFileWriter", None)
    if writer is not None and writer.__module__ != original:
        writer(folder).close()


def load(name: str) -> ModuleType:
    """Import a module of one of the packages."""
    with _torch_hidden() if name.startswith("tensorboardX.") else nullcontext():
        return importlib.import_module(name)


@contextmanager
def _torch_hidden() -> Iterator[None]:
    """Keep tensorboardX from importing torch, which takes seconds and serves only a type hint."""
    hidden = not {"tensorboardX", "torch"} & set(sys.modules)
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["torch"]
