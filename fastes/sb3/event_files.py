"""TensorBoard's event files, made of the messages of tensorboardX or of tensorboard itself, whichever is installed."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import socket
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fastes.sb3.output_formats import included, special_kind
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.installation import install_command

_files = itertools.count()


class _Package(NamedTuple):
    """Where a package has what event files are made of.

    messages: the package of the protocol's messages.
    checksum: the module with masked_crc32c.
    summaries, figures: modules that make messages of images, figures and hyper-parameters.
    writers: modules whose EventFileWriter W&B's sync_tensorboard replaces, and where it is defined.
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
    """Raise ImportError where nothing is installed that event files can be made of."""
    _package()


def _package() -> _Package:
    for name, package in _PACKAGES.items():
        try:
            if importlib.util.find_spec(name) is not None:
                return package
        except ValueError:  # it is None in sys.modules
            continue
    raise ImportError(f"logging to TensorBoard needs tensorboardX or tensorboard: {install_command('tensorboard')}")


class TensorBoardOutputFormat:
    """An event file for TensorBoard, which has all of a dump when the dump ends.

    Numbers and bools become scalars, strings text, arrays histograms. SB3's Image, Figure and HParam are shown, its Video is
    not.

    Raises ImportError where neither tensorboardX nor tensorboard is installed.
    """

    def __init__(self, folder: str) -> None:
        self._package = _package()
        self._event = self._messages("event").Event
        self._checksum = _module(self._package.checksum).masked_crc32c
        self._has_warned = False
        os.makedirs(folder, exist_ok=True)
        _announce(folder, *self._package.writers)
        # seconds first: TensorBoard reads a folder's files in the order of their names
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        fill_standard_descriptors()
        self.file = open(os.path.join(folder, name), "xb")  # noqa: SIM115
        self._append(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        event = self._event(wall_time=time.time(), step=int(step))
        values = included(key_values, key_excluded, "tensorboard")
        for key in sorted(values):
            self._add(event.summary, key, values[key])
        self._append(event)

    def close(self) -> None:
        self.file.close()

    def _messages(self, name: str) -> ModuleType:
        return _module(f"{self._package.messages}.{name}_pb2")

    def _append(self, event: Any) -> None:
        """A TFRecord: length, its checksum, content, its checksum. SummaryWriter would leave some to a thread after flush."""
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
        """Values that are not finite are in no bucket."""
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
        make = _module(self._package.summaries)
        if kind == "HParam":
            for part in make.hparams(dict(value.hparam_dict), dict(value.metric_dict)):
                summary.value.extend(part.value)
            return
        if kind == "Image":
            image, order = value.image, value.dataformats
        else:
            image, order = _module(self._package.figures).figure_to_image(value.figure, value.close), "CHW"
        summary.value.add(tag=key, image=make.image("", image, dataformats=order).value[0].image)

    def _warn_once(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(message, RuntimeWarning, stacklevel=6)


def _announce(folder: str, place: str, original: str) -> None:
    """Make a writer that was put in the place of the package's own: W&B's sync_tensorboard hears of folders that way."""
    writer = getattr(sys.modules.get(place), "EventFileWriter", None)
    if writer is not None and writer.__module__ != original:
        writer(folder).close()


def _module(name: str) -> ModuleType:
    with _torch_hidden() if name.startswith("tensorboardX.") else nullcontext():
        return importlib.import_module(name)


@contextmanager
def _torch_hidden() -> Iterator[None]:
    """tensorboardX imports torch, where there is one, for a type hint only: seconds that are saved here."""
    hidden = not {"tensorboardX", "torch"} & set(sys.modules)
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["torch"]
