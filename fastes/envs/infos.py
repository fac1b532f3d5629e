"""What an environment's infos say."""

from __future__ import annotations

import math
from typing import Any


def success_of(info: Any) -> float:
    """1.0 or 0.0 by the last step's info['is_success'], which goal environments give; NaN where it is missing."""
    success = info.get("is_success") if isinstance(info, dict) else None
    return math.nan if success is None else float(bool(success))
