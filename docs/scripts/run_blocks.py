"""Run the code blocks of Markdown pages, as a reader would type them: Python blocks of a page share their names.

python docs/scripts/run_blocks.py docs/quickstart.md             # trainings cut short
python docs/scripts/run_blocks.py --full docs/quickstart.md      # as written, with the time of each block

A page runs in an empty folder of its own. `<!-- not run: reason -->` before a block leaves it out, `<!-- needs: torch -->`
anywhere says which modules a page cannot do without. `<!-- file: shop.py -->` before a block writes it to that file instead,
which later blocks can import or compile. Blocks are those that are fenced as python, bash or c. A text block right
behind a block is what that prints. Such a Python block runs as written, and has to print it. Of a bash block whose trainings
are cut short, only the lines before the first ... are compared. A line ... stands for any lines. Numbers that depend on the
machine may be any: seconds, processes, and the columns `steps/s` and `util`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SHORT_TIMESTEPS = 4500
_BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n+^```(?P<language>python|bash|c)\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OF_THE_MACHINE = re.compile(
    r"[\d.]+(?= s$)|\d+(?= workers?\b)|(?<=\d) +\d+ +\d+%$|[\d,]+(?= steps/s)|(?<=steps take about )[\d.,]+ \w+"
    r"|\d+(?= cores?\b)"
)
_ALIKE = 0.2  # of a number: other processors and versions of libraries give other ones
_NEEDS = re.compile(r"<!-- needs: ([\w. ]+) -->")
_NOT_RUN = "<!-- not run:"
_FILE = re.compile(r"<!-- file: (\w+\.(?:pyx?|c)) -->")
# `fastes train` with a budget that is short, whatever the page says; other commands as they are. It is longer for a resumed
# run, and for HalfCheetah, whose four trials need a generation of 4,000 steps each
_SHORT_COMMAND = """#!{python}
import sys
from fastes.cli.main import main
if sys.argv[1:2] == ["train"] and not {{"--help", "--help-all"}} & set(sys.argv):
    times = 10 if "--resume" in sys.argv else 5 if "HalfCheetah-v5" in sys.argv else 1
    sys.argv += ["--total-timesteps", str(times * {timesteps})]
sys.exit(main())
"""


class Block(NamedTuple):
    """A block of code on a page.

    line: where its code begins.
    run: whether it is to be run.
    output: what a text block behind it shows.
    file: the name under which it is written, in place of being run; '' if it is run.
    """

    line: int
    language: str
    code: str
    run: bool
    output: str = ""
    file: str = ""


def blocks_of(text: str) -> list[Block]:
    """The Python and bash blocks of a page."""
    found = []
    for match in _BLOCK.finditer("\n" + text):
        line = text.count("\n", 0, match.start("code") - 1) + 1
        file, run = _FILE.search(match["before"]), _NOT_RUN not in match["before"]
        found.append(Block(line, match["language"], match["code"], run, match["output"] or "", file[1] if file else ""))
    return found


def missing_modules(text: str) -> list[str]:
    """Those that a page needs and that are not installed."""
    needed = [name for names in _NEEDS.findall(text) for name in names.split()]
    return [name for name in needed if importlib.util.find_spec(name) is None]


def run_page(path: Path, full: bool) -> int:
    """Run a page's blocks in the working folder; returns how many. A block's exception names the page and its line."""
    blocks = [block for block in blocks_of(path.read_text(encoding="utf-8")) if block.run]
    shortly = contextlib.nullcontext if full else _trainings_cut_short
    names: dict[str, Any] = {"__name__": "__main__"}
    sys.path.insert(0, os.getcwd())
    for block in blocks:
        began = time.perf_counter()
        if block.file:
            Path(block.file).write_text(block.code, encoding="utf-8")
        elif block.language == "bash":
            out = subprocess.PIPE if block.output else None
            command = ["bash", "-euo", "pipefail", "-c", block.code]
            with shortly():
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{path}, line {block.line}: exit status {done.returncode}")
            _check_output(path, block, done.stdout or "", full)
        elif block.output:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                _execute(path, block, names)
            _check_output(path, block, said.getvalue(), whole=True)
        else:
            with shortly():
                _execute(path, block, names)
        print(f"{path.name}:{block.line}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return len(blocks)


def _execute(path: Path, block: Block, names: dict[str, Any]) -> None:
    code = "\n" * (block.line - 1) + block.code  # tracebacks then have the page's line numbers
    exec(compile(code, str(path), "exec"), names)


def _check_output(path: Path, block: Block, said: str, whole: bool) -> None:
    """whole: whether all of it is compared, and not only what stands before the first line that is left out."""
    if not prints_as_shown(block.output, said, whole):
        raise SystemExit(f"{path}, line {block.line}: it printed\n{said}and not\n{block.output}")


def prints_as_shown(shown: str, said: str, whole: bool = True) -> bool:
    """Whether the words are the same and the numbers alike; a line ... stands for any lines."""
    sections: list[list[str]] = [[]]
    for line in shown.splitlines():
        if line.strip() == "...":
            sections.append([])
        else:
            sections[-1].append(line)
    (first, *others), lines = sections, said.splitlines()
    if not _alike(first, lines[: len(first)]):
        return False
    if not whole:
        return True
    lines = lines[len(first) :]
    if not others:
        return not lines
    *inner, last = others
    for section in inner:
        ends = range(len(section), len(lines) + 1)
        end = next((end for end in ends if _alike(section, lines[end - len(section) : end])), None)
        if end is None:
            return False
        lines = lines[end:]
    return len(lines) >= len(last) and _alike(last, lines[len(lines) - len(last) :])


def _alike(shown: list[str], said: list[str]) -> bool:
    return len(shown) == len(said) and all(map(_line_alike, shown, said))


def _line_alike(shown: str, said: str) -> bool:
    shown, said = (_OF_THE_MACHINE.sub("", line) for line in (shown, said))
    if _NUMBER.sub("", shown).split() != _NUMBER.sub("", said).split():
        return False
    numbers = zip(_NUMBER.findall(shown), _NUMBER.findall(said), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=_ALIKE) for one, other in numbers)


@contextlib.contextmanager
def _trainings_cut_short() -> Iterator[None]:
    """`FastES.learn` and `fastes train` stop after a few thousand steps, in this process and in what it starts."""
    from fastes import FastES

    learn, path = FastES.learn, os.environ["PATH"]

    def short(self: Any, total_timesteps: Any = None, *args: Any, **kwargs: Any) -> Any:
        return learn(self, min(total_timesteps or SHORT_TIMESTEPS, SHORT_TIMESTEPS), *args, **kwargs)

    with tempfile.TemporaryDirectory(prefix="fastes-docs-") as folder:
        command = Path(folder) / "fastes"
        command.write_text(_SHORT_COMMAND.format(python=sys.executable, timesteps=SHORT_TIMESTEPS), encoding="utf-8")
        command.chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([folder, str(Path(sys.executable).parent), path])
        FastES.learn = short  # type: ignore[method-assign]
        try:
            yield
        finally:
            FastES.learn, os.environ["PATH"] = learn, path  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--full", action="store_true", help="trainings as long as the page says")
    args = parser.parse_args()
    page = args.page.resolve()
    if absent := missing_modules(page.read_text(encoding="utf-8")):
        raise SystemExit(f"{page.name} needs {', '.join(absent)}: install them first")
    with tempfile.TemporaryDirectory(prefix="fastes-docs-") as folder:
        os.chdir(folder)
        print(f"{run_page(page, args.full)} blocks")
        os.chdir("/")


if __name__ == "__main__":
    main()
