"""fastes gallery: the best run of each environment as a GIF, and a page that shows them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastes.checkpoints.locate import find_checkpoint
from fastes.cli.arguments import add_env_kwargs, add_wrapper, parse_env_kwargs
from fastes.cli.runs import add_folders, named_runs
from fastes.cli.saved_model import check_episodes, load_file
from fastes.errors import FastESError, summary_of
from fastes.runs.overview import Overview, read_overview
from fastes.system.console import say
from fastes.system.near_paths import printable

_OUT, _SECONDS, _WIDTH = Path("gallery"), 6.0, 320


def add_gallery(commands: Any) -> None:
    gallery = commands.add_parser(
        "gallery",
        help="draw the best run of each environment as a GIF, with a page that shows them",
        description="Draw an episode of the best run of each environment as a GIF, and write gallery.md, which shows them with "
        "their returns. It needs no screen.",
    )
    gallery.set_defaults(episodes=1, env=None)
    add_folders(gallery)
    gallery.add_argument("--out", type=Path, default=_OUT, metavar="DIR", help=f"folder of the files (default: {_OUT})")
    gallery.add_argument(
        "--seconds", type=float, default=_SECONDS, metavar="S", help=f"how long a GIF is at most (default: {_SECONDS:g})"
    )
    gallery.add_argument(
        "--width", type=int, default=_WIDTH, metavar="PIXELS", help=f"how wide a GIF is at most (default: {_WIDTH})"
    )
    gallery.add_argument("--first-seed", type=int, default=0, metavar="S", help="env seed of the episodes (default: 0)")
    add_env_kwargs(gallery)
    add_wrapper(gallery, " (default: those of each run folder)")


def run_gallery(arguments: argparse.Namespace) -> int:
    if not arguments.seconds > 0.0:
        raise ValueError(f"--seconds {arguments.seconds}: expected more than 0")
    if arguments.width < 16:
        raise ValueError(f"--width {arguments.width}: expected at least 16")
    check_episodes(arguments)
    parse_env_kwargs(arguments.env_kwargs)  # an error of all runs, and not of one
    from fastes.runs.gallery import Exhibit, best_runs, picture_names, write_page

    runs = best_runs(map(read_overview, named_runs(arguments.folders)))
    arguments.out.mkdir(parents=True, exist_ok=True)
    shown: list[Exhibit] = []
    for run, name in zip(runs, picture_names(runs), strict=True):
        try:
            exhibit = Exhibit(run, name, _draw(run, arguments.out / name, arguments))
        except Exception as error:
            said = str(error) if isinstance(error, (FastESError, ValueError, OSError)) else summary_of(error)
            say(f"{printable(str(run.path))} is left out: {printable(said)}")
            continue
        size = _size_in_words((arguments.out / name).stat().st_size)
        print(f"{arguments.out / name}: return {exhibit.episode_return:.2f}, {size}", flush=True)
        shown.append(exhibit)
    if not shown:
        raise FastESError("no run could be drawn; the lines above say why")
    print(write_page(shown, arguments.out))
    return 0


def _size_in_words(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _draw(run: Overview, path: Path, arguments: argparse.Namespace) -> float:
    """Draw an episode of a run's best parameters; returns its return."""
    from fastes.runs.video import play_episodes

    # what was typed is for the error, if it cannot be built
    as_typed = argparse.Namespace(**{**vars(arguments), "typed": ["play", str(run.path), "--video", str(path)]})
    limits = {"max_seconds": arguments.seconds, "widest": arguments.width}
    with load_file(find_checkpoint(run.path, "best"), as_typed, 0) as model:
        (played,) = play_episodes(model, first_seed=arguments.first_seed, video=path, caption=False, **limits)
    return played.episode_return
