"""What presets, README and the site say of scores is what the tables under benchmarks/results hold, of today's settings."""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import defaultdict
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.csv_records import read_records
from benchmarks.learning import comparison, race
from benchmarks.learning.courses import COURSES, RACED
from benchmarks.learning.game_run import Score
from benchmarks.learning.own_task_run import Row, read_tasks
from benchmarks.learning.own_tasks import Scores, score_all
from benchmarks.learning.preset_run import Result
from benchmarks.learning.presets import results_of_today
from benchmarks.learning.reports import plots
from benchmarks.learning.reports.thresholds import OURS, first_reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.contestant import preset_fingerprint
from benchmarks.learning.runs.results import read_rows, runs_of
from benchmarks.tables import amount
from fastes.settings.preset_loader import all_presets, tomllib

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SCORE = r"; (\S+) \((\S+) to (\S+)\) after ([\d.]+)M steps on seeds (\d+) to (\d+), "
SOURCE = re.compile(SCORE + r"python -m benchmarks\.learning\.(\w+)")


def reported(env: str) -> tuple[tuple[str, str, str], int, range, str]:
    """Median, lowest and highest score as the preset's source gives them, timesteps, seeds, benchmark."""
    found = SOURCE.search(all_presets()[env]["source"])
    assert found is not None, f"{env}: no score in its source"
    median, low, high, millions, first, last, benchmark = found.groups()
    return (median, low, high), round(float(millions) * 1e6), range(int(first), int(last) + 1), benchmark


def final_scores(env: str, benchmark: str, timesteps: int) -> dict[int, float]:
    """The final score of each seed of a preset."""
    if benchmark == "presets":
        return {row.seed: row.final_mean for row in results_of_today(RESULTS / "learning.csv", env, env, timesteps)}
    runs = runs_of("fastes", env, Budget(steps=timesteps), [read_rows(RESULTS / benchmark / "results.csv")])
    return {run.final.seed: run.final.score for run in runs}


@pytest.mark.parametrize("env", sorted(COURSES))
def test_a_presets_source_has_the_scores_of_the_table(env: str) -> None:
    said, timesteps, seeds, benchmark = reported(env)
    scores = final_scores(env, benchmark, timesteps)
    assert set(seeds) <= set(scores)
    of = [scores[seed] for seed in seeds]
    for text, score in zip(said, (statistics.median(of), min(of), max(of)), strict=True):
        decimals = len(text.partition(".")[2])
        assert text == f"{score:.{decimals}f}"


@pytest.mark.parametrize("env", sorted(COURSES))
def test_the_page_of_presets_has_their_scores(env: str) -> None:
    text, _, _ = (ROOT / "docs" / "presets.md").read_text().partition("## What one recipe reaches without a race")
    (row,) = re.findall(rf"^\| {env} .*$", text, re.MULTILINE)
    name, _, timesteps, median, spread, _ = (cell.strip() for cell in row.strip("|").split("|"))
    said, steps, seeds, _ = reported(env)
    assert (median, spread) == (said[0], f"{said[1]} to {said[2]}")
    assert timesteps == f"{steps / 1e6:g}M"
    assert name == (env if len(seeds) == 5 else f"{env} ({len(seeds)})")


def test_the_page_of_presets_has_halfcheetahs_scores_over_20m_steps() -> None:
    env, flags = "HalfCheetah-v5", "--archive-size 24"
    rows = results_of_today(RESULTS / "learning.csv", env, env, 20_000_000, flags)
    scores, stds = sorted(row.final_mean for row in rows), sorted(row.final_std for row in rows)
    assert {row.seed for row in rows} == set(reported(env)[2])
    page, readme = (" ".join((ROOT / name).read_text().split()) for name in ("docs/presets.md", "README.md"))
    median = f"{statistics.median(scores):.0f}"
    assert f"`--total-timesteps 20000000 {flags}`" in page
    assert f"scores {median} on the same seeds ({scores[0]:.0f} to {scores[-1]:.0f})" in page
    assert f"and {stds[0]:.0f} to {stds[-1]:.0f} after 20M" in page
    (usual, low, _), *_ = reported(env)
    assert f"scores {usual} ({low}) after 4M steps and {median} ({scores[0]:.0f}) after 20M" in readme


FIRST_REACHED = re.compile(r"(-?[\d.]+) (?:at ([\d.]+)M|by (\d) of (\d) seeds)")
IN_WORDS = {"Reacher-v5"}


@pytest.mark.parametrize("env", sorted(COURSES))
def test_the_page_of_presets_has_the_median_step_of_the_first_evaluation_as_good(env: str) -> None:
    cell = re.findall(rf"^\| {env} .*\| (.*?) \|$", (ROOT / "docs" / "presets.md").read_text(), re.MULTILINE)[0]
    found = FIRST_REACHED.fullmatch(cell)
    if not found:
        assert env in IN_WORDS
        return
    _, timesteps, of, benchmark = reported(env)
    if benchmark == "presets":
        rows = [row for row in results_of_today(RESULTS / "learning.csv", env, env, timesteps) if row.seed in of]
        assert {row.aim for row in rows} == {float(found[1])}
        steps = [math.inf if math.isnan(row.first_reached) else row.first_reached for row in rows]
    else:
        runs = runs_of("fastes", env, Budget(steps=timesteps), [read_rows(RESULTS / benchmark / "results.csv")])
        steps = [first_reached(run, float(found[1]), "steps") for run in runs if run.final.seed in of]
    assert len(steps) == len(of)
    if found[3]:
        assert int(found[3]) == sum(map(math.isfinite, steps)) < len(of) / 2
        assert int(found[4]) == len(of)
        return
    decimals = len(found[2].partition(".")[2])
    assert float(found[2]) == round(statistics.median(steps) / 1e6, decimals)


class LongTraining(NamedTuple):
    """A training of Humanoid; to_6000: core-hours to a running median of 6000."""

    seed: int
    core_hours: float
    score: float
    std: float
    worst: float
    length: float
    to_6000: float


def test_humanoids_scores_are_those_of_its_table() -> None:
    runs = read_records(RESULTS / "humanoid" / "runs.csv", LongTraining)
    scores = sorted(run.score for run in runs)
    assert [run.seed for run in runs] == [1, 2, 3]
    said = f"{statistics.median(scores):.0f} ({scores[0]:.0f} to {scores[-1]:.0f}) after 40M steps on seeds 1 to 3"
    assert said in all_presets()["Humanoid-v5"]["source"]
    page = (ROOT / "docs" / "presets.md").read_text()
    for run in runs:
        cells = f"{run.core_hours:.1f}", f"{run.score:.0f} +- {run.std:.0f}", f"{run.worst:.0f}", f"{run.length:.0f}"
        numbers = " | ".join((*cells, f"{run.to_6000:.1f} core-hours |"))
        assert re.search(rf"^\| {run.seed}.* \| 40M \| {re.escape(numbers)}$", page, re.MULTILINE), numbers
    for path in ("README.md", "CHANGELOG.md"):
        words = " ".join((ROOT / path).read_text().split())
        told = [f"{run.score:.0f}" for run in runs]
        assert f"{', '.join(told[:2])} and {told[2]}" in words, path


RACE_ROW = re.compile(r"^\| (\S+-v\d) \| ([\d.]+)M \| (.*?) ?\|$", re.MULTILINE)
MUJOCO = {"HalfCheetah-v5", "Hopper-v5", "Swimmer-v5", "Reacher-v5", "Walker2d-v5", "Ant-v5"}
PENDULUMS = {"InvertedPendulum-v5", "InvertedDoublePendulum-v5"}
AGAINST_PPO = {"HumanoidStandup-v5", "Pusher-v5"}


@pytest.mark.parametrize(("page", "tasks"), [("README.md", MUJOCO), ("docs/results.md", MUJOCO | PENDULUMS | AGAINST_PPO)])
def test_readme_and_the_page_of_results_have_the_returns_and_times_of_the_race(page: str, tasks: set[str]) -> None:
    rows = RACE_ROW.findall((ROOT / page).read_text())
    assert {env for env, _, _ in rows} == tasks
    table = [read_rows(RESULTS / "race" / "results.csv")]
    told = set()
    for env, millions, said in rows:
        cells = [cell.strip() for cell in said.split("|")]
        for algo, steps in (("fastes", round(float(millions) * 1e6)), ("ppo", 1_000_000), ("trpo", 1_000_000)):
            said_score, said_time = cells.pop(0), cells.pop(0)
            if not said_score:
                assert not said_time, (env, algo)
                continue
            told.add((env, algo))
            finals = [run.final for run in runs_of(algo, env, Budget(steps=steps), table)]
            scores, decimals = [final.score for final in finals], 1 if env in {"Reacher-v5", "Pusher-v5"} else 0
            assert len(finals) == 3
            worst = f" ({min(scores):.{decimals}f})"
            assert said_score == f"{statistics.median(scores):.{decimals}f}{worst}", (env, algo)
            assert said_time == f"{statistics.median(final.wall for final in finals):.0f}", (env, algo)
    assert told == {(row.env, row.algo) for row in table[0] if row.env in tasks}


def test_the_races_lines_are_those_of_its_runs() -> None:
    words = re.sub(" +", " ", (RESULTS / "race" / "race.md").read_text())
    table, asked = [read_rows(RESULTS / "race" / "results.csv")], argparse.Namespace(es_timesteps=None, timesteps=1_000_000)
    met = 0
    for peer in race.PEERS:
        for env in RACED:
            budget = race.our_budget(asked, env, peer)
            theirs, ours = runs_of(peer, env, Budget(steps=1_000_000), table), runs_of(OURS, env, budget, table)
            if theirs and ours:
                met += 1
                line = f"| {' | '.join(race.line_of(env, peer, theirs, ours, budget))} |"
                assert re.sub(" +", " ", line) in words, line
    assert met == 18


def test_rows_that_tell_their_settings_have_the_presets_of_today() -> None:
    """Those of a preset before a change are no results of the one that the package has."""
    noted: dict[str, set[str]] = defaultdict(set)
    for benchmark in ("race", "table1", "head_to_head"):
        for row in read_rows(RESULTS / benchmark / "results.csv"):
            if row.algo == "fastes" and (found := re.search(r"preset (\S+) \((\w{8})\)", row.note)):
                noted[found[1]].add(found[2])
    for result in read_records(RESULTS / "learning.csv", Result):
        if result.settings and result.preset == result.env:
            noted[result.env].add(result.settings)
    assert "HalfCheetah-v5" in noted
    for env, found in noted.items():
        assert found == {preset_fingerprint(env)}, env


# --- environments without a preset --------------------------------------------------------------------------------------


class Worth(NamedTuple):
    """The returns of a task that score 0 and 1."""

    timesteps: int
    nothing: float
    full: float


def tasks_of(part: str) -> dict[str, Worth]:
    """The tasks of the study that the default was chosen on ("choose"), or tested on alone ("test")."""
    table = tomllib.loads((RESULTS / "studies" / "defaults" / "defaults.toml").read_text(encoding="utf-8"))
    return {env: Worth(**values) for env, values in table[part].items()}


MEASURED_SINCE = {"HalfCheetah-v5": 4516.0, "Pendulum-v1": -168.0}  # on other seeds, or over more steps: the study's own scale


def test_a_score_of_one_is_what_the_preset_reaches() -> None:
    tasks = {env: task for env, task in (tasks_of("choose") | tasks_of("test")).items() if env in COURSES}
    assert {*tasks_of("choose"), "Pusher-v5", "HumanoidStandup-v5", "BipedalWalker-v3"} <= set(tasks)
    # the study keeps the scale that it was made with: some presets were measured again since
    assert {env: task.full for env, task in tasks.items()} == pytest.approx(
        {env: MEASURED_SINCE.get(env, float(reported(env)[0][0])) for env in tasks}, rel=0.07
    )


def test_the_page_of_presets_has_what_a_race_reaches() -> None:
    """Means of scores over the groups of tasks, returns and CPU seconds of those held out, and what the page says of them."""
    tasks, rows = read_tasks(), read_records(RESULTS / "studies" / "own_tasks.csv", Row)
    scores = score_all(rows, tasks)
    _, _, page = (ROOT / "docs" / "presets.md").read_text().partition("## What a race reaches")
    page = page.partition("\n## ")[0]
    groups = re.findall(r"^\| (?:chosen on|held out): .* \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    for group, (count, cell) in zip(dict.fromkeys(task.group for task in tasks.values()), groups, strict=True):
        found = [scores[name, "auto"] for name, task in tasks.items() if task.group == group]
        assert int(count) == len(found)
        assert cell == "{:.2f} ({:.2f})".format(*map(statistics.fmean, zip(*found, strict=True)))
    methods = ("auto", "auto@ppo", "cma", "ars", "ppo")
    peers = {"cma", "ars"}  # which have no column in the table of the eight
    eight = [name for name, task in tasks.items() if task.group == "the eight of the issue"]
    held = [name for name, task in tasks.items() if task.split == "held out"]
    lines = {name: cells.split("|") for name, cells in re.findall(r"^\| (\S+-v\d) \|(.*)\|$", page, re.MULTILINE)}
    assert list(lines) == held + eight
    for name, (steps, zero, *cells, seconds, seconds_of_ppo) in lines.items():
        assert (int(steps.replace(",", "")), float(zero.replace(",", ""))) == (
            tasks[name].steps,
            pytest.approx(tasks[name].zero, rel=0.03, abs=0.01),
        )
        for cell, method in zip(cells, [each for each in methods if name in held or each not in peers], strict=True):
            found = [row.score for row in rows if (row.task, row.method) == (name, method)]
            assert numbers(cell) == (rounded(cell, (statistics.median(found), min(found))) if found else [])
            assert min(len(found), 2) == len(numbers(cell)), "a worst seed if there are several"
            assert method != "auto" or len(found) == 3
        for cell, method in ((seconds, "auto"), (seconds_of_ppo, "ppo")):
            assert float(cell) == round(statistics.median(r.cpu for r in rows if (r.task, r.method) == (name, method)))
    check_words_about_peers(page, scores, [name for name in held if tasks[name].group == "third-party"], eight)


def check_words_about_peers(page: str, scores: Scores, held: list[str], eight: list[str]) -> None:
    """The means over the tasks that were held out and over the eight, and on how many PPO is behind."""

    def mean(names: list[str], method: str, which: int = 0) -> str:
        return f"{statistics.fmean(scores[name, method][which] for name in names if (name, method) in scores):.2f}"

    page, both = " ".join(page.split()), [(scores[name, "auto@ppo"][0], scores[name, "ppo"][0]) for name in held]
    assert f"it then scores {mean(held, 'auto@ppo')}, and PPO {mean(held, 'ppo')}" in page
    assert f"On the eight it scores {mean(eight, 'auto@ppo')}, and PPO {mean(eight, 'ppo')}." in page
    worst = [mean(names, method, 1) for names in (held, eight) for method in ("auto@ppo", "ppo")]
    assert "worst seeds reach {} and {} over the 13, and {} and {} on the eight.".format(*worst) in page
    assert f"over the 13 it scores {mean(held, 'ppo')}, and the race {mean(held, 'auto')}." in page
    assert f"ARS ({mean(held, 'ars')}) and CMA-ES ({mean(held, 'cma')})" in page
    assert f"{mean(held, 'trpo')} over the 13, and {mean(eight, 'trpo')} over the eight" in page
    ahead, level = sum(ours > ppo + 0.01 for ours, ppo in both), sum(abs(ours - ppo) <= 0.01 for ours, ppo in both)
    assert (ahead, level, len(both)) == (4, 2, 13)


def numbers(cell: str) -> list[str]:
    return re.findall(r"-?\d[\d,.]*", cell)


def rounded(cell: str, values: tuple[float, float]) -> list[str]:
    """As the cell rounds its first two numbers."""
    return [f"{value:,.{len(said.partition('.')[2])}f}" for said, value in zip(numbers(cell), values, strict=False)]


# --- larger populations -------------------------------------------------------------------------------------------------


class Reached(NamedTuple):
    """When a training with `factor` times the preset's population first had a return; infinite for never."""

    env: str
    factor: int
    population: int
    aim: float
    generations: float
    steps: float
    on_64: float


def told(number: float) -> str:
    return amount(number) if math.isfinite(number) else "never"


def ratio(first: float, second: float) -> str:
    return f"{first / second:.1f}" if math.isfinite(first + second) and second else ""


def population_lines() -> list[str]:
    """The notebook's table: a line per factor, medians of the seeds, to each environment's last return."""
    rows, lines = read_records(RESULTS / "studies" / "populations.csv", Reached), []
    last = {row.env: max(other.aim for other in rows if other.env == row.env) for row in rows}
    for env, aim in last.items():
        groups: dict[int, list[Reached]] = defaultdict(list)
        for row in rows:
            if (row.env, row.aim) == (env, aim):
                groups[row.factor].append(row)
        medians = {
            factor: [statistics.median(getattr(row, name) for row in found) for name in ("generations", "steps", "on_64")]
            for factor, found in sorted(groups.items())
        }
        base = medians[1]
        for factor, (generations, steps, on_64) in medians.items():
            found = groups[factor]
            worst = max(row.generations for row in found)
            cells = (f"{env}, {aim:g}", str(factor), str(found[0].population), str(len(found)))
            figures = (f"{told(generations)} ({told(worst)})", ratio(base[0], generations), told(steps))
            lines.append("| " + " | ".join((*cells, *figures, ratio(steps, base[1]), ratio(base[2], on_64))) + " |")
    return lines


def test_the_notebook_has_the_medians_of_the_populations() -> None:
    text = (ROOT / "docs" / "notebook" / "populations.md").read_text()
    assert re.findall(r"^\| \w+-v\d, \d+ \|.*$", text, re.MULTILINE) == population_lines()


def test_the_page_of_comparisons_is_made_from_the_result_files() -> None:
    assert comparison.PAGE.read_text(encoding="utf-8") == comparison.page(comparison.compared())


def test_a_comparison_names_what_is_lost() -> None:
    lines = [comparison.Line(name, {"auto": ours, "ppo": 0.5}) for name, ours in (("a", 0.6), ("b", 0.505), ("c", 0.4))]
    assert comparison.losses(lines) == "FastES is behind PPO on 1 of 3: c."
    assert comparison.not_run(lines) == ""
    lines += [comparison.Line("d", {"auto": 0.5, "ppo": 0.4, "a2c": 0.7})]
    assert comparison.losses(lines) == "FastES is behind the best other method on 2 of 4: c, d."
    assert comparison.not_run(lines) == "Not run: A2C on 3 of 4 tasks. "


def test_tasks_of_the_page_of_comparisons_stand_from_the_largest_lead_to_the_largest_lag() -> None:
    for lines, table in (comparison.compared().in_time, comparison.compared().in_steps):
        leads = [comparison.lead(line) for line in lines]
        assert leads == sorted(leads, reverse=True)
        words = [word for word, _ in groupby(re.findall(r"\| +(ahead|level|behind) \|$", table, re.MULTILINE))]
        assert words == ["ahead", "level", "behind"]


def test_no_mark_of_a_picture_of_comparisons_hides_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    figures = []

    def new_figure(*arguments: Any, **options: Any) -> tuple[Any, list[Any]]:
        figures.append(plots.new_figure(*arguments, **options))
        return figures[-1]

    monkeypatch.setattr(comparison, "new_figure", new_figure)
    alike = comparison.Line(
        "InvertedPendulumSwingupBulletEnv-v0", dict.fromkeys(("auto", "ppo", "trpo", "a2c", "ars", "cma"), 0.5)
    )
    comparison.draw([alike, *comparison.compared().in_steps[0]], tmp_path / "picture.png", "title", "axis")
    ((figure, (axes,)),) = figures
    marks = [mark for mark in axes.lines if len(mark.get_xdata()) and mark.get_marker() != "|"]
    places = [axes.transData.transform(mark.get_xydata()[0]) * 72 / figure.dpi for mark in marks]
    assert len(marks) >= 5
    assert min(math.dist(*pair) for pair in combinations(places, 2)) > 0.9 * max(mark.get_markersize() for mark in marks)


def test_the_page_of_games_has_their_scores() -> None:
    """Seed 0 of each game, and how many of the trainings there are."""
    scores = read_records(RESULTS / "games" / "scores.csv", Score)
    page = " ".join((ROOT / "docs" / "guide" / "atari.md").read_text(encoding="utf-8").split())
    first = [score for score in scores if not score.flags and score.seed == 0]
    for score in first:
        frames, hours = f"{4 * score.decisions / 1e6:.3g}M", f"{score.cpu_seconds / 3600:.2f}"
        reached = f"{score.score:,g} +- {score.std:,g} | {score.worst:,g}"
        assert f"| {score.game} | {frames} | {hours} | {reached} |" in page
    for score in (score for score in scores if score.flags):
        assert f"| {score.game} | {score.score:,g} +- {score.std:,g} |" in page
    without_flags = [score for score in scores if not score.flags]
    assert f"has {len(without_flags)} of its 36 trainings so far" in page
