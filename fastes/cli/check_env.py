"""fastes check-env: what a task is like, and whether a training on it can work."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from typing import Any

from fastes.cli.arguments import add_env_kwargs, add_short_help, add_wrapper, parse_env_kwargs
from fastes.cli.setting_flags import add_settings, given_settings
from fastes.cli.stop_on_signal import INTERRUPTED
from fastes.env_check.check import ERROR, EnvCheck, Finding, watched_check
from fastes.env_check.whereabouts import OVER, SIZE, Whereabouts
from fastes.envs.named_wrappers import make_wrapped_source
from fastes.envs.native.native_env import is_native
from fastes.envs.source import make_env_source
from fastes.pools.processes.worker import die_with_parent
from fastes.rollout.shared_block import anonymous_file
from fastes.system.child_python import python_command
from fastes.system.console import say, say_beside
from fastes.system.interrupts import signals_blocked_for_child

_MAIN = (
    "env",
    "env_kwargs",
    "wrapper",
    "episodes",
    "seconds",
    "preset",
    "total_timesteps",
    "workers",
    "json",
    "help",
    "help_all",
)
_SECONDS_TO_CLOSE = 5.0
_BOOT = """\
from fastes.cli.main import main
sys.exit(main([*{typed!r}, "--noted-in", "{noted_in}"]))
"""


def add_check_env(commands: Any) -> None:
    check = commands.add_parser(
        "check-env",
        help="what an environment is like for a training, and what is wrong with it",
        description="Play an environment for some seconds with random actions and random policies, and say how long episodes "
        "are, what returns are like, how fast it is, what a training would choose, and what harms one. The exit status is 1 if "
        "no training can work.",
        usage="%(prog)s env [flags]",
        add_help=False,
    )
    add_short_help(check, _MAIN)
    check.add_argument("env", help="environment id, such as HalfCheetah-v5 or module:Env-v0")
    add_env_kwargs(check)
    add_wrapper(check)
    check.add_argument("--episodes", type=int, default=40, metavar="N", help="episodes of random actions (default: 40)")
    check.add_argument(
        "--seconds", type=float, default=20.0, metavar="S", help="time for these, and for random policies (default: 20)"
    )
    check.add_argument("--preset", help="as of fastes train")
    check.add_argument("--workers", type=int, metavar="N", help="processes for that (default: one per usable core)")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument("--noted-in", type=int, help=argparse.SUPPRESS)  # descriptor for Whereabouts
    add_settings(check, steps="the budget of a training (default: that of its settings)")


def run_check_env(arguments: argparse.Namespace) -> int:
    """Check an environment in a process of its own, which it may crash; in this one if its id may be known here alone."""
    if arguments.noted_in is None and (arguments.from_shell or is_native(arguments.env)):
        return _run_in_child(arguments)
    if arguments.noted_in is None:
        return _show(_check(arguments, Whereabouts()), arguments)
    whereabouts = Whereabouts(arguments.noted_in)
    die_with_parent(os.getppid())
    try:
        return _show(_check(arguments, whereabouts), arguments)
    except KeyboardInterrupt:
        return INTERRUPTED  # the parent tells of it
    finally:
        whereabouts.enter(OVER)  # a library in C that calls exit does not come here


def _check(arguments: argparse.Namespace, whereabouts: Whereabouts) -> EnvCheck:
    try:
        return _played(arguments, whereabouts)
    except SystemExit as error:  # outside an episode, in which it is another error
        said = f"the environment called sys.exit({error.code!r}) {whereabouts}"
        return EnvCheck(arguments.env, findings=(Finding(ERROR, said),))


def _played(arguments: argparse.Namespace, whereabouts: Whereabouts) -> EnvCheck:
    kwargs = parse_env_kwargs(arguments.env_kwargs)
    wrappers = arguments.wrapper
    source = make_wrapped_source(arguments.env, kwargs, wrappers) if wrappers else make_env_source(arguments.env, kwargs)
    settings = given_settings(arguments)
    preset = {} if arguments.preset is None else {"preset": arguments.preset}
    return watched_check(
        whereabouts,
        source,
        settings.pop("policy", None),
        episodes=arguments.episodes,
        seconds=arguments.seconds,
        total_timesteps=settings.pop("total_timesteps", None),
        n_workers=arguments.workers,
        env_kwargs=None,
        **preset,
        **settings,
    )


def _show(check: EnvCheck, arguments: argparse.Namespace) -> int:
    """Print a check; return the exit status."""
    if arguments.json:
        print(json.dumps(check.to_json(), indent=2))
    else:
        for title, text in check.lines():
            if title:
                say_beside(title, text)
            else:
                say(text)
    sys.stdout.flush()
    return 0 if check.ok else 1


def _run_in_child(arguments: argparse.Namespace) -> int:
    """Run the command in another process, and say where a crash ended that; return the exit status."""
    noted_in = anonymous_file(SIZE)
    try:
        boot = _BOOT.format(typed=arguments.typed, noted_in=noted_in)
        # Ctrl-C is this process's to answer if nothing ends C; Python may have more to close, such as processes of its own
        with signals_blocked_for_child() if is_native(arguments.env) else contextlib.nullcontext():
            child = subprocess.Popen(python_command(boot), pass_fds=[noted_in])
        try:
            status = child.wait()
        except BaseException:
            if is_native(arguments.env):
                say(f"stopped {Whereabouts(noted_in)}")
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.send_signal(signal.SIGINT)
                    child.wait(_SECONDS_TO_CLOSE)
            child.kill()
            child.wait()
            raise
        whereabouts = Whereabouts(noted_in)
    finally:
        os.close(noted_in)
    if whereabouts.stage == OVER:
        if status < 0:
            say(_crash_in_words(status, whereabouts, arguments), file=sys.stderr)
        return abs(status)
    crash = Finding(ERROR, _crash_in_words(status, whereabouts, arguments))
    return _show(EnvCheck(arguments.env, findings=(crash,)), arguments)


def _crash_in_words(status: int, whereabouts: Whereabouts, arguments: argparse.Namespace) -> str:
    how = f"ended the process with exit status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):  # a signal without a name
            how = f"crashed (signal {signal.Signals(-status).name})"
    if not is_native(arguments.env):
        again = shlex.join(["fastes", *arguments.typed])
        advice = f". To see the line, run PYTHONFAULTHANDLER=1 {again}" if status < 0 else ""
        return f"the environment {how} {whereabouts}{advice}"
    library = arguments.env.rpartition(":")[0]
    return (
        f"the environment {how} {whereabouts}. To see the line, compile {library} with -g -fsanitize=address,undefined, and "
        'run this command after ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(cc -print-file-name=libasan.so)"'
    )
