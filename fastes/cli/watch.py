"""fastes watch: a page that shows runs while they train."""

from __future__ import annotations

import argparse
import contextlib
import warnings
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastes.cli.arguments import RUNS
from fastes.cli.stop_on_signal import StopOnSignal

if TYPE_CHECKING:
    from fastes.watch.server import WatchServer
    from fastes.watch.videos import Videos

PORT = 6789
_TRIED = 20  # ports, from PORT on


def add_watch(commands: Any) -> None:
    watch = commands.add_parser(
        "watch",
        help="show runs in the browser, live",
        description="Serve a page that shows running and finished trainings: learning curves, the newest population, the "
        "race of recipes, settings, and videos on demand. It reads run folders and changes nothing. Only this machine can open "
        "it.",
    )
    watch.add_argument(
        "runs",
        nargs="*",
        type=Path,
        default=[RUNS],
        metavar="RUN",
        help=f"run folders, or folders of them (default: {RUNS})",
    )
    watch.add_argument("--port", type=int, help=f"of the page (default: {PORT}, or the next one that is free)")
    watch.add_argument("--env", metavar="MODULE:ID", help="environment of videos, if it is your own: as of fastes play")
    watch.add_argument("--open", action="store_true", help="open the page in the browser")


def run_watch(arguments: argparse.Namespace) -> int:
    from fastes.watch.videos import Videos, play_command

    if arguments.port is not None and not 0 <= arguments.port < 65536:
        raise ValueError(f"--port {arguments.port}: expected a number up to 65535, or 0 for any port that is free")
    for path in arguments.runs:
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file: expected a run folder, or a folder of them")
        if not path.exists():
            warnings.warn(f"{path} does not exist yet: the page shows its runs once it does", stacklevel=2)
    command = partial(play_command, env=arguments.env or "")
    with contextlib.ExitStack() as opened:
        opened.enter_context(StopOnSignal()).training_has_ended()  # Ctrl-C has nothing to wait for
        videos = opened.enter_context(contextlib.closing(Videos(command)))
        server = opened.enter_context(_open_server(arguments.runs, arguments.port, videos))
        print(f"{server.address} shows {', '.join(map(str, arguments.runs))}; Ctrl-C ends it", flush=True)
        if arguments.open:
            webbrowser.open(server.address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _open_server(runs: list[Path], port: int | None, videos: Videos) -> WatchServer:
    """Return the server at a port; for None at the first free one from PORT on."""
    from fastes.watch.server import WatchServer

    if port is None:
        for each in range(PORT, PORT + _TRIED):
            with contextlib.suppress(OSError):
                return WatchServer(runs, each, videos)
    try:
        return WatchServer(runs, port or 0, videos)
    except OSError as error:
        raise OSError(
            f"--port {port} cannot be used ({error.strerror}): pass another one, or 0 for any that is free"
        ) from error
