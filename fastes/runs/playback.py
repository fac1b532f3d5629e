"""Episodes that a model has played, with their video: as a list, and as a notebook shows them."""

from __future__ import annotations

import mimetypes
import os
import tempfile
from base64 import b64encode
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from fastes.errors import check_int
from fastes.models.model import Model
from fastes.runs.video import Played, play
from fastes.system.console import in_notebook
from fastes.system.html_tables import html_table

_MOST_ROWS = 20


class Playback(list[Played]):
    """The episodes of `model.play`, in their order. A notebook shows their returns, and the video.

    Attributes:
        video: The video's content; b'' outside of a notebook, and without one.
        video_type: Its MIME type, such as video/mp4.
    """

    def __init__(self, episodes: Iterable[Played], video: bytes = b"", video_type: str = "video/mp4") -> None:
        super().__init__(episodes)
        self.video, self.video_type = video, video_type

    def _repr_html_(self) -> str:
        """Return the video, which is part of the text, above a table of returns."""
        rows = [(f"env seed {each.env_seed}", f"return {each.episode_return:.2f}, {each.length:,} steps") for each in self]
        more = [("...", f"{len(rows):,} episodes in all")] if len(rows) > _MOST_ROWS else []
        table = html_table("Episodes", [*rows[:_MOST_ROWS], *more])
        if not self.video:
            return table
        source = f"data:{self.video_type};base64,{b64encode(self.video).decode('ascii')}"
        if self.video_type.startswith("image/"):  # a GIF
            return f'<img style="max-width: 100%" src="{source}">{table}'
        return f'<video controls loop muted style="max-width: 100%" src="{source}"></video>{table}'


def play_back(
    model: Model,
    episodes: int,
    first_seed: int,
    video: str | os.PathLike[str] | None,
    render: bool,
    max_frames: int | None,
    max_seconds: float | None,
) -> Playback:
    """Play episodes as `Agent.play` says. ValueError for a video in a window, and limits that no video can have."""
    if video is not None and render:
        raise ValueError(f"video = {video!r} and render = True: expected one of them, a file or a window")
    if max_frames is not None:
        check_int("max_frames", max_frames, 1)
    if max_seconds is not None and not max_seconds > 0.0:
        raise ValueError(f"max_seconds = {max_seconds!r}: expected more than 0, or None for no limit")
    is_shown = in_notebook() and not render
    with tempfile.TemporaryDirectory(prefix="fastes-play-") if is_shown else nullcontext() as folder:
        file = Path(folder) / "episodes.mp4" if video is None and folder is not None else video
        played = play(
            model,
            episodes,
            first_seed=first_seed,
            video=file,
            render=render,
            max_frames=max_frames,
            max_seconds=max_seconds,
        )
        if file is None or not is_shown:
            return Playback(played)
        return Playback(played, Path(file).read_bytes(), mimetypes.guess_type(file)[0] or "video/mp4")
