"""The render modes of all tasks of FastES."""

from __future__ import annotations


def checked_render_mode(render_mode: str | None) -> str | None:
    """Return a render mode as it is. Raises ValueError for one that the tasks do not have."""
    if render_mode not in (None, "ansi", "rgb_array"):
        raise ValueError(f"render_mode = {render_mode!r}: expected 'ansi' (text), 'rgb_array' (frames) or None")
    return render_mode
