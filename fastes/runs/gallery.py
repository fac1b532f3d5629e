"""A page of trained policies: which runs it shows, how their pictures are called, and its text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fastes.runs.overview import UNREADABLE, Overview
from fastes.system.atomic_files import write_text
from fastes.system.digits import duration_in_words, in_digits, short

PAGE = "gallery.md"


class Exhibit(NamedTuple):
    """A run on the page.

    Attributes:
        run: Its overview.
        picture: Name of its GIF, in the page's folder.
        episode_return: The return of the episode in the picture.
    """

    run: Overview
    picture: str
    episode_return: float


def best_runs(runs: Iterable[Overview]) -> list[Overview]:
    """Return the run with the highest score of each environment and its arguments, by the environments' names."""
    best: dict[tuple[str, str], Overview] = {}
    for run in runs:
        if run.status != UNREADABLE and run.env:
            task = run.env, run.env_kwargs or "{}"
            known = best.setdefault(task, run)
            if _rank(run) > _rank(known):
                best[task] = run
    return [best[key] for key in sorted(best)]


def _rank(run: Overview) -> float:
    return float("-inf") if run.score is None else run.score


def picture_names(runs: Sequence[Overview]) -> list[str]:
    """Return a file name for the GIF of each run, after its environment, no two alike."""
    names: list[str] = []
    for run in runs:
        stem = re.sub(r"[^\w.-]+", "-", run.env).strip("-.") or "run"
        count = sum(re.fullmatch(rf"{re.escape(stem)}(-\d+)?\.gif", name) is not None for name in names)
        names.append(f"{stem}-{count + 1}.gif" if count else f"{stem}.gif")
    return names


def write_page(shown: Sequence[Exhibit], folder: Path) -> Path:
    """Write the page into the folder of its pictures, as Markdown; returns its path."""
    rows = [f"| ![{_cell(each.run.env)}]({each.picture}) | {_told(each)} |" for each in shown]
    path = folder / PAGE
    write_text(path, "\n".join(["# Gallery", "", "| | |", "|---|---|", *rows, ""]))
    return path


def _told(exhibit: Exhibit) -> str:
    """The text next to a picture."""
    run, result = exhibit.run, exhibit.run.result
    returns = [] if run.score is None else [run.score]
    if result is not None:
        returns = [result.mean, result.std]
    shown, *texts = in_digits(exhibit.episode_return, *returns, separator=",")
    score = f"best evaluation {texts[0]}" if texts else ""
    if result is not None:
        score = f"return {texts[0]} &plusmn; {texts[1]} over {result.episodes} episodes"
    time = "" if run.seconds is None else f" in {duration_in_words(run.seconds)}"
    lines = [
        f"**{_cell(run.env)}**" + (f" {_cell(run.env_kwargs)}" if run.env_kwargs.strip("{}") else ""),
        score,
        f"{shown} in the picture",
        f"{short(run.timesteps)} steps{time}" + ("" if run.seed is None else f", seed {run.seed}"),
        f"`{_cell(str(run.path))}`",
    ]
    return "<br>".join(filter(None, lines))


def _cell(text: str) -> str:
    """Text as a cell of a table has it."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "'")
