"""Files with the name of a module of Python's own: they are imported in its place, by libraries too."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import TracebackType


def standard_name(name: str, file: str) -> str:
    """Advice if a module has taken the name of one of the standard library; '' if it has not."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names or os.path.abspath(file).startswith(sysconfig.get_path("stdlib") + os.sep):
        return ""
    return f"{file} has the name of Python's own module {top!r} and was imported in its place: rename the file"


def standard_name_among(trace: TracebackType | None) -> str:
    """The same for the modules in whose import an exception came."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and not code.co_filename.startswith("<"):
            advice = standard_name(str(trace.tb_frame.f_globals.get("__name__", "")), code.co_filename)
            if advice:
                return advice
        trace = trace.tb_next
    return ""
