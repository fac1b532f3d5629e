"""Work that waits for a pool now and then: who drives it may do other work meanwhile, such as that of another training."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")
Steps = Generator[int, None, _Result]  # yields the ticket of the request that it waits for, and goes on once that is finished
