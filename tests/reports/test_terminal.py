"""Risk: what a terminal shows of a training is garbled: stale copies of the bar, rows that are glued to it."""

from __future__ import annotations

import io
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from envs_for_tests import Toy
from processes import environment, fastes_command
from terminals import BAR, Terminal, shown

from fastes import FastES
from fastes.reports.console_log import ConsoleLog, console_header, console_line
from fastes.system.console import BottomLine, TolerantStream, fitted
from fastes.training.record import Record
from fastes.training.selection import Rung

RECORD = Record(**{name: 0.5 if kind == "float" else 1 for name, kind in Record.__annotations__.items()})
TRAIN = ["train", "envs_for_tests:Toy-v0", "--preset", "default", "--net-arch", "4", "--target-return", "none", "--seed", "0"]
SMALL = ["--population-size", "4", "--noise-table-size", "2000", "--env-kwargs", "step_seconds=0.0005", "noisy=true"]
ONE = ["--workers", "1", "--trials", "2", "--archive-size", "2", "-v"]
SAID = [
    "2 trials: trial [12] .*, trial [12] .*",
    "2 trials: trial [12] has won and continues alone",
    "final selection among 3: .* win, return .*",
    "winner of the final selection: return .*",
]
KINDS = {
    "one-80": ([*ONE], 80, SAID),
    "one-120": ([*ONE], 120, SAID),
    "seeds": (["--workers", "2", "--seeds", "2"], 80, [r"median return -?\d+\.\d"]),
}
ROW = re.compile(r" +\d+ +\d+ +\d+ +-?(?:\d+\.\d|0\.\d\d) +.*%")


def _joined(lines: list[str], columns: int) -> list[str]:
    """Lines as they were written: those that fill the terminal go on in the next one."""
    joined, goes_on = list[str](), False
    for line in lines:
        joined[-1:] = [joined[-1] + line] if goes_on else [*joined[-1:], line]
        goes_on = len(line) == columns
    return joined


@pytest.mark.parametrize("kind", KINDS)
def test_the_bar_is_the_last_line_and_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    (flags, columns, said), bars = KINDS[kind], list[str]()

    def look(lines: list[str]) -> None:
        found = [number for number, line in enumerate(lines) if BAR.search(line)]
        assert len(found) <= 1, lines
        assert all(number == len(lines) - 1 for number in found) or kind == "seeds", lines
        bars.extend(lines[number] for number in found)

    command = [*fastes_command(), *TRAIN, *SMALL, *flags, "--total-timesteps", "800"]
    lines = shown(command, columns, tmp_path, environment(), look)
    assert bars
    assert all(re.match(r" *\d+%\|.+\| .*\[\d\d:\d\d<(\?|\d\d:\d\d)", bar) for bar in bars if bar.endswith("]")), bars
    left = [line for line in lines if BAR.search(line)]
    assert len(left) == (kind == "seeds"), "where rows tell of the training, nothing is left of the bar"
    whole = _joined(lines, columns)
    missing = [text for text in said if not any(re.fullmatch(text, line) for line in whole)]
    assert not missing, (missing, whole[-12:])
    assert sum(line.startswith("toy: ") for line in whole) >= 1, "what an environment says has a line of its own"
    if kind != "seeds":
        rows = [line for line in lines if line.strip()[:1].isdigit() and not re.search("timesteps in|trials: |preset", line)]
        assert len(rows) > 5
        assert all(ROW.fullmatch(row) and len(row) <= columns for row in rows), rows


def test_there_are_few_rows_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, one a second, and the last; each with the last evaluation since the row before."""
    rows, now = list[list[str]](), 0.0
    monkeypatch.setattr("fastes.reports.console_log.time", SimpleNamespace(monotonic=lambda: now))

    def train(seconds: float) -> list[str]:
        nonlocal now
        file = io.StringIO()
        log = ConsoleLog(file, seconds=seconds)
        model: Any = SimpleNamespace(
            solved=False, generation=8, num_timesteps=8, selection=SimpleNamespace(is_open=False, is_new_race=False)
        )
        model.training = SimpleNamespace(cuts_endless_episodes=False)
        log.on_start(model, 10)
        for generation in range(1, 11):
            evaluated = generation % 3 == 1
            record = RECORD._replace(
                generation=generation,
                eval_generation=generation * evaluated,
                eval_return=100.0 + generation if evaluated else math.nan,
            )
            log.on_generation(model, record)
            now += 0.4
        log.on_end(model)
        rows[:] = [line.split() for line in file.getvalue().splitlines()[1:]]
        return [row[0] for row in rows]

    assert train(0.0) == [str(number) for number in range(1, 11)]
    assert train(1.0) == ["1", "4", "7", "10"]
    assert [row[4] for row in rows] == ["101.0", "104.0", "107.0", "110.0"]
    assert train(1.3) == ["1", "5", "9", "10"]
    assert [row[4] for row in rows] == ["101.0", "104.0", "107.0", "110.0"]


class Lucky(Toy):
    """A quarter of its episodes return 1, the others 0."""

    def step(self, action: Any) -> Any:
        observation, _, ended, truncated, info = super().step(action)
        return observation, float(ended and self.env_seed % 4 == 0), ended, truncated, info


def test_a_failed_confirmation_counts_steps_as_rows_do() -> None:
    """Those of all trials."""
    file, told_and_noted, records = io.StringIO(), list[tuple[int, int]](), list[Record]()

    def note(_: Any, record: Record) -> None:
        records.append(record)
        told = re.findall(r"^not confirmed.*: the evaluation of 1\.0 after (\d+) steps;", file.getvalue(), re.MULTILINE)
        if len(told) > len(told_and_noted):
            told_and_noted.append((int(told[-1]), record.eval_at))

    target = {"target_return": 1.0, "target_episodes": 20, "eval_lag": 0}
    with FastES(Lucky, preset="default", population_size=4, trials=2, seed=0, n_workers=0, **target) as model:
        model.learn(3000, [ConsoleLog(file), note])
    assert {record.trial for record in records} == {1, 2}
    assert len(told_and_noted) > 3
    assert all(told == noted for told, noted in told_and_noted), told_and_noted


def test_many_failed_confirmations_do_not_bury_the_rows() -> None:
    """The first, second, fourth and so on have a line, which counts them; with a row per generation all have one."""
    evaluation: Any = SimpleNamespace(mean=7.0, returns=[5.0] * 20)
    finished: Any = SimpleNamespace(evaluation=evaluation, pending=SimpleNamespace(timesteps=100))
    model: Any = SimpleNamespace(target_return=6.0, generation=8)
    model.selection = SimpleNamespace(is_open=False, is_new_race=False, steps_of_others=250)
    model.training = SimpleNamespace(cuts_endless_episodes=False)
    for seconds, counts in ((1.0, [1, 2, 4, 8, 16, 32]), (0.0, [*range(1, 41)])):
        file = io.StringIO()
        log = ConsoleLog(file, seconds=seconds)
        for _ in range(2):  # learn is called twice
            log.on_start(model, 10)
            for _ in range(40):
                log.on_not_confirmed(model, finished, evaluation)
        said = "the evaluation of 7.0 after 350 steps; 20 fresh episodes give 7.0 (target 6)"
        expected = [f"not confirmed{f' ({count} so far)' if count > 1 else ''}: {said}" for count in counts]
        assert file.getvalue().splitlines() == 2 * expected


def test_a_winner_of_an_archive_tells_whose_steps_it_counts() -> None:
    evaluation: Any = SimpleNamespace(returns=[5.0] * 50, in_words=lambda: "return 5.0")
    winner = SimpleNamespace(last=evaluation, snapshot=SimpleNamespace(generation=7, timesteps=100))
    result: Any = SimpleNamespace(winner=winner, finalists=[winner] * 3)
    for others, said in ((0, "after 100 steps win"), (50, "after 100 steps of its trial win")):
        file = io.StringIO()
        model: Any = SimpleNamespace(generation=9, selection=SimpleNamespace(steps_of_others=others))
        ConsoleLog(file).on_final_selection(model, result)
        assert file.getvalue() == f"final selection among 3: the parameters {said}, return 5.0 over 50 episodes\n"


def test_rows_of_several_trials_have_a_column_for_them() -> None:
    file = io.StringIO()
    model: Any = SimpleNamespace(
        solved=False,
        generation=8,
        num_timesteps=8,
        settings=SimpleNamespace(trials=3),
        selection=SimpleNamespace(is_open=True, is_new_race=False),
    )
    model.training = SimpleNamespace(cuts_endless_episodes=False)
    log = ConsoleLog(file)
    log.on_start(model, 100)
    for trial in (1, 2, 3):
        log.on_generation(model, RECORD._replace(trial=trial, eval_generation=trial == 1, eval_return=9.0))
    log.on_rung(model, Rung(1, 2, ((2, 5.0), (1, 4.0), (3, -1.5)), 2))
    log.on_rung(model, Rung(2, 2, ((1, 7.0), (2, 6.0)), 1))
    log.on_rung(model, Rung(1, 1, ((1, 7.25), (2, 6.0)), 1, ("linear", "network"), 1.5))
    header, *rows, first, on, second, alone, race, won = file.getvalue().splitlines()
    assert header.split()[0] == "trial"
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert [row.split()[5] for row in rows] == ["9.0", "-", "-"], "no trial has the evaluation of another"
    assert (first, on) == (
        "rung 1 of 2: trial 2 5.0, trial 1 4.0, trial 3 -1.5",
        "rung 1 of 2: trials 1 and 2 continue",
    )
    assert (second, alone) == ("rung 2 of 2: trial 1 7.0, trial 2 6.0", "rung 2 of 2: trial 1 has won and continues alone")
    assert race == "2 recipes: linear 7.2, network 6.0"
    assert won == "2 recipes: linear has won and continues alone; its episodes return 7.25 +- 1.5"


def test_sentences_are_broken_between_words_on_a_terminal_alone() -> None:
    class Wide(io.StringIO):
        def isatty(self) -> bool:
            return True

    told = "a sentence of many words. " * 4 + "To continue: fastes train --resume " + "x/" * 40
    assert fitted(told, io.StringIO()) == told
    assert fitted(told, None) == told
    *lines, command = fitted(told, Wide()).split("\n")
    assert " ".join([*lines, command]) == told
    assert all(len(line) <= 80 for line in lines)
    assert command == told[told.index("fastes") :], "it can be copied"


def test_a_narrow_terminal_has_fewer_columns() -> None:
    whole = console_header()
    for columns in (10, 40, 80, len(whole) - 1, len(whole), 200):
        header = console_header(columns)
        assert len(header) <= columns
        assert ("eval" in header) == (columns >= 40)
        assert (header == whole) == (columns >= len(whole))
        assert len(console_line(RECORD, columns)) == len(header)


def test_what_is_printed_during_learn_goes_above_its_bar(tmp_path: Path) -> None:
    """By the user's callback, a warning, a line in parts, a logger's table and tqdm.write."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, warnings, tqdm\n"
        "from envs_for_tests import Toy\n"
        "from fastes import FastES\n"
        "from fastes.sb3.logger import configure\n"
        "def tell(model, record):\n"
        "    print('printed')\n"
        "    print('in ', end=''); print('parts')\n"
        "    print('an error', file=sys.stderr)\n"
        "    tqdm.tqdm.write('by tqdm')\n"
        "    warnings.warn(f'warning {record.generation}')\n"
        "env = lambda: Toy(step_seconds=0.001)\n"
        "model = FastES(env, population_size=4, preset='default', n_workers=0, target_return='none')\n"
        "model.set_logger(configure('log', ['stdout']))\n"
        "model.learn(600, tell, progress_bar=True)\n"
        "print('after')\n"
    )
    several = list[str]()

    def look(lines: list[str]) -> None:
        bars = [line for line in lines if BAR.search(line)]
        several.extend(bars if len(bars) > 1 else ())

    lines = shown([sys.executable, str(script)], 100, tmp_path, environment(), look)
    assert not several
    assert lines[-1] == "after"
    assert re.fullmatch(r"100%\|█+\| \d+ steps \[00:\d\d<00:00, .* steps/s, eval .*\]", lines[-2]), lines[-2]
    said = ("printed", "in parts", "an error", "by tqdm")
    assert [lines.count(text) for text in said] == [lines.count("printed")] * 4 != [0] * 4
    without_spaces = "".join(lines).replace(" ", "")  # a long path breaks the line anywhere
    assert "UserWarning:warning1warnings.warn(" in without_spaces, lines[:20]
    assert any(re.fullmatch(r"\| time/ +\| +\|", line) for line in lines)


def test_what_the_terminal_itself_echoes_leaves_no_stale_bar() -> None:
    terminal, stream = Terminal(80), io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    stream.write = lambda text: terminal.feed(text.encode())  # type: ignore[assignment, method-assign, return-value]
    bar = BottomLine(stream)
    bar.show("50% " + "x" * 200)
    terminal.feed(b"^C")
    TolerantStream(stream).write("a row\n")
    bar.show("51%")
    assert terminal.lines() == ["a row", "51%"]
    bar.end(stays=True)
    TolerantStream(stream).write("after\n")
    assert terminal.lines() == ["a row", "51%", "after"]
