"""Risk: what the browser shows is not what the files have, or the page breaks on a run that is torn, deleted or long.

Needs selenium, Chromium and its driver; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import environment, fastes_command, wait_until
from written_runs import progress_line, write_progress, write_run

from fastes.reports.progress_rows import read_progress
from fastes.runs.folder_lock import FolderLock
from fastes.watch import watched_runs
from fastes.watch.server import WatchServer
from fastes.watch.videos import Videos

selenium = pytest.importorskip("selenium")
CHROMIUM, DRIVER = (
    next(filter(None, map(shutil.which, names)), None) for names in (("chromium", "google-chrome"), ("chromedriver",))
)
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no Chromium, or no driver for it", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver import ActionChains  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

SMALL = ["--preset", "default", "--population-size", "8", "--target-return", "none", "--workers", "0", "--quiet"]
TRAIN = ["train", "CartPole-v1", *SMALL, "--total-timesteps"]


class Page:
    """A browser with the page for some runs."""

    server: WatchServer
    is_damaged = False

    def __init__(self, browser: webdriver.Chrome, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, *names: str, width: int = 1300, height: int = 1200, dark: bool = False, mobile: bool = False) -> Page:
        self._emulate("setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self._emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.browser.get("about:blank")
        self.browser.get(self.address + "".join(f"{'&' if n else '#'}run={name}" for n, name in enumerate(names)))
        self.until("typeof charts !== 'undefined'", "the page's scripts run")  # the driver may return before
        return self

    def _emulate(self, what: str, **values: Any) -> None:
        self.browser.execute_cdp_cmd(f"Emulation.{what}", values)

    def js(self, expression: str) -> Any:
        return self.browser.execute_script(f"return {expression}")

    def until(self, expression: str, what: str) -> None:
        wait_until(lambda: bool(self.js(expression)), what)

    def line(self, chart: str, label: str) -> tuple[list[float], list[float]]:
        """What a chart shows under a label: x and y, where y is known."""
        labels = self.js(f"charts.{chart}.plot.series.map((line) => line.label)")
        at = next(number for number, each in enumerate(labels) if each.startswith(label))
        x, y = self.js(f"[charts.{chart}.plot.data[0], charts.{chart}.plot.data[{at}]]")
        known = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
        return [a for a, _ in known], [b for _, b in known]

    @property
    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield browser
    browser.quit()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(watched_runs, "SEARCH_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    return Path("runs")


@pytest.fixture
def page(root: Path, browser: webdriver.Chrome) -> Iterator[Page]:
    videos = Videos()
    with WatchServer([root], 0, videos) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = Page(browser, server.address)
        page.server = server
        yield page
        errors = page.errors  # the browser forgets them then
        browser.get("about:blank")
        errors += page.errors  # of requests that were under way: they belong to no later test
        left = [] if page.is_damaged else [error for error in errors if "ERR_" not in error]
        server.shutdown()
        thread.join()
    videos.close()
    assert left == []


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.browser.switch_to.active_element.send_keys(key)


def evaluations_of(run: Path) -> tuple[list[float], list[float]]:
    columns = read_progress(run / "progress.csv")
    told = np.isfinite(columns["eval_return"])
    return columns["eval_at"][told].tolist(), columns["eval_return"][told].tolist()


def test_a_real_training_is_shown_while_it_goes_on_and_at_its_end(page: Page, root: Path) -> None:
    page.open()
    page.until("!document.getElementById('none').hidden", "the page says that there are no runs")
    with subprocess.Popen([*fastes_command(), *TRAIN, "1000000000"], env=environment(), cwd=root.parent) as training:
        try:
            page.until("chosen.length && runs.get(chosen[0])?.status === 'running'", "the training is shown")
            page.until("charts.returns.plot?.data[0].length > 10", "its curve is shown")
            page.until("charts.population.plot", "its population is shown")
            before = page.js("runs.get(chosen[0]).timesteps")
            page.until(f"runs.get(chosen[0]).timesteps > {before}", "it goes on")
            assert "left" in page.browser.find_element(By.ID, "facts").text
        finally:
            training.kill()
    run = root / "CartPole-v1" / "1"
    page.until("runs.get(chosen[0]).status === 'stopped'", "the page sees that it was killed")
    columns = read_progress(run / "progress.csv")
    page.until(f"charts.returns.plot.data[0].at(-1) === {columns['timesteps'][-1]}", "the last generation is shown")
    at, returns = evaluations_of(run)
    count = page.js("Object.values(runs.get(chosen[0]).trials)[0].evaluations.length")
    width = next(1 << power for power in range(64) if -(-len(at) // (1 << power)) <= count)  # evaluations of a point
    parts = [slice(first, first + width) for first in range(0, len(at), width)]
    shown = page.line("returns", "one evaluation")
    assert shown[0] == [at[part][-1] for part in parts]
    assert shown[1] == pytest.approx([np.mean(returns[part]) for part in parts], rel=1e-5)
    total = page.js("Object.values(runs.get(chosen[0]).trials)[0].generations.at(-1)[0]")
    assert total == columns["timesteps"][-1]
    counts = page.js("charts.population.plot.data[1]")
    assert sum(counts) == 8


def test_what_is_drawn_is_what_the_file_has(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=40)
    write_progress(run, [progress_line(number, cpu_seconds=3.0 * number) for number in range(1, 41)])
    page.open()
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    assert page.line("returns", "one evaluation") == evaluations_of(run)
    assert page.line("returns", "population, mean")[1] == read_progress(run / "progress.csv")["return_mean"].tolist()
    page.browser.find_element(By.ID, "axis").send_keys("time")
    page.until("charts.returns.plot.series[0].label === 'time'", "time is shown")
    assert page.line("returns", "one evaluation")[0] == [4.0 * n - 2.0 for n in range(1, 21)]
    page.browser.find_element(By.ID, "axis").send_keys(Keys.ARROW_DOWN)
    page.until("charts.returns.plot.series[0].label === 'CPU time'", "CPU time is shown")
    assert page.line("returns", "one evaluation")[0] == [6.0 * n - 3.0 for n in range(1, 21)]


def test_a_run_grows_and_is_torn_and_goes(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=10, noted={"finished": False})
    page.open()
    page.until("charts.returns.plot?.data[0].length > 5", "the curve is shown")
    lines = [progress_line(number) for number in range(1, 16)]
    write_progress(run, lines)
    page.until("runs.get(chosen[0])?.generations === 15", "new rows are shown")
    with open(run / "progress.csv", "a") as file:
        file.write(progress_line(16)[:20])
    (run / "config.toml").write_text("torn = ")
    page.until("runs.get(chosen[0])?.reason", "the page says what it cannot read")
    page.until(
        f"document.getElementById('title').textContent === {json.dumps(str(run))}", "it has a name without an environment"
    )
    assert page.js("runs.get(chosen[0]).generations") == 15
    shutil.rmtree(run)
    page.until("table.size === 0 && document.getElementById('view').hidden", "the run is gone")


def test_the_histogram_moves_with_the_population(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1")
    (run / "population.json").write_text('{"generation": 1, "low": 8, "high": 40, "counts": [1, 2]}')
    page.open()
    page.until("charts.population.plot?.scales.x.max === 40", "the first population is shown")
    legend = "document.querySelector('#population .u-legend').textContent"
    page.until(f"{legend} === 'return32candidates2'", "the legend tells the highest bar")
    (run / "population.json").write_text('{"generation": 9, "low": 200, "high": 500, "counts": [3, 4]}')
    page.js("update()")
    page.until(
        "charts.population.plot.scales.x.min === 200 && charts.population.plot.scales.x.max === 500", "the next one is shown"
    )
    page.until(f"{legend} === 'return425candidates4'", "and that of the next one")


def test_a_row_stays_in_its_place_while_runs_write(page: Page, root: Path) -> None:
    locks = [FolderLock(write_run(root / "CartPole-v1" / str(number), noted={"finished": False})) for number in range(3)]
    for lock in locks:
        lock.take()
    page.open()
    page.until("document.querySelectorAll('.status-running').length === 3", "all are running")
    page.js("document.querySelectorAll('#runs tbody button')[1].focus()")
    write_progress(locks[2].folder, [progress_line(number) for number in range(1, 41)])
    page.until("document.querySelectorAll('#runs tbody tr')[2].cells[4].textContent === '4k'", "the last one has grown")
    assert page.js("document.activeElement.textContent").endswith("/1")
    for lock in locks:
        lock.release()


def test_a_damaged_run_stops_no_other(page: Page, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, damaged = (write_run(root / "CartPole-v1" / name) for name in ("whole", "damaged"))

    known = page.server.runs.run_since

    def run_since(name: str, cursor: Any) -> dict[str, Any]:
        if page.is_damaged and name == str(damaged):
            raise ZeroDivisionError("a number of a file")
        return known(name, cursor)

    monkeypatch.setattr(page.server.runs, "run_since", run_since)
    page.open(str(whole), str(damaged))
    page.until("charts.returns.plot", "both are shown")
    page.is_damaged = True
    write_progress(whole, [progress_line(number) for number in range(1, 41)])
    page.js("update()")
    page.until(f"runs.get({json.dumps(str(whole))}).generations === 40", "the other one goes on")
    page.until("document.getElementById('connection').textContent.includes('damaged: ZeroDivisionError')", "it says so")


def test_seeds_are_one_line_with_a_range(page: Page, root: Path) -> None:
    names = [str(write_run(root / "CartPole-v1" / str(seed), generations=40, seed=seed)) for seed in range(3)]
    other = str(write_run(root / "CartPole-v1" / "9", generations=40, sigma=0.5))
    page.open(other, *reversed(names))  # in whatever order they are chosen
    page.until("charts.returns.plot?.series.length === 5", "two groups are shown")
    labels = page.js("charts.returns.plot.series.map((line) => line.label)")
    assert labels[3] == "sigma 0.1, median and range of 3 seeds"
    assert labels[4] == f"sigma 0.5: {other}"
    assert page.js("document.querySelectorAll('#compared tr').length") == 5
    x, y = page.line("returns", "sigma 0.1")
    assert (x[0], y[0]) == (100.0, 4.0)
    assert len(x) >= 199
    for chart in ("speed", "utilisation"):
        named = page.js(f"charts.{chart}.plot.series.map((line) => line.label)")
        assert named[1:] == ["sigma 0.1", f"sigma 0.5: {other}"]
        x, y = page.line(chart, "sigma 0.1")
        assert set(y) == {0.5}, "that of each"
    assert not page.browser.find_element(By.ID, "facts").is_displayed()


@pytest.mark.parametrize("solved", [True, False])
def test_a_seed_that_ends_early_ends_no_others(page: Page, root: Path, solved: bool) -> None:
    """A solved one keeps its value, another one leaves. What has ended keeps no workers busy."""
    for seed, (generations, height) in enumerate(((20, 9.0), (40, 1.0), (40, 2.0))):
        run = write_run(root / "CartPole-v1" / str(seed), seed=seed, noted={"solved": solved and seed == 0})
        lines = [progress_line(number, eval_return=height) for number in range(2, generations + 1, 2)]
        write_progress(run, [progress_line(1), *lines])
    page.open(*(str(root / "CartPole-v1" / str(seed)) for seed in range(3)))
    page.until("runs.size === 3 && charts.returns.plot?.series.length === 4", "the group is shown")
    x, *rest = page.js("charts.returns.plot.data")
    assert (x[0], x[-1]) == (100.0, 3900.0)
    told = list(zip(*rest, strict=True))  # highest, lowest, median
    assert told[0] == (9.0, 1.0, 2.0)
    last = (9.0, 1.0, 2.0) if solved else (2.0, 1.0, 1.5)
    assert {each for at, each in zip(x, told, strict=True) if at > 1900} == {last}
    assert page.line("speed", "CartPole-v1")[0][-1] == 4000.0


def test_a_race_narrows(page: Page, root: Path) -> None:
    rungs = [
        {
            "at_timesteps": 400,
            "kept": 2,
            "scores": {"2": 9.0, "3": 8.0, "1": 1.0},
            "recipes": {"1": "linear", "2": "wide", "3": "net"},
        },
        {"at_timesteps": 900, "kept": 1, "scores": {"3": 20.0, "2": 10.0}, "recipes": {"2": "wide", "3": "net"}},
    ]
    run = write_run(root / "Own-v0" / "1", noted={"rungs": rungs, "recipe": "net"})
    lines = [progress_line(n, trial=trial) for n in range(1, 4) for trial in (1, 2, 3)] + [
        progress_line(n, trial=3) for n in (4, 5)
    ]
    write_progress(run, lines)
    page.open()
    page.until("document.querySelectorAll('#race tr').length === 4", "the race is shown")
    assert page.js("[...document.querySelectorAll('#race .on')].map((cell) => cell.textContent)") == [
        "1. wide: 9.00, continues",
        "1. net: 20.00, continues",
        "2. net: 8.00, continues",
    ]
    labels = page.js("charts.returns.plot.series.map((line) => line.label)")
    assert labels[1:] == ["linear", "wide", "population, mean", "one evaluation", "net, running median"]


def test_a_race_is_told_before_its_first_rung(page: Page, root: Path) -> None:
    run = write_run(root / "Own-v0" / "1", noted={"finished": False, "racing": {"1": "linear", "2": "wide"}})
    lock = FolderLock(run)
    lock.take()
    write_progress(run, [progress_line(n, trial=trial, eval_return=float(trial * n)) for n in (1, 2) for trial in (1, 2)])
    page.open()
    page.until("document.querySelectorAll('#race tr').length === 3", "the race is shown")
    assert page.js("[...document.querySelectorAll('#race td')].map((cell) => cell.textContent)") == [
        "1. wide: 2.67",
        "2. linear: 1.33",
    ], "running means, to which each evaluation gives a third"
    write_progress(run, [progress_line(n, trial=trial, eval_return=float(9 - trial)) for n in range(3) for trial in (1, 2)])
    page.until("document.querySelector('#race td').textContent === '1. linear: 8.00'", "the other one is ahead")
    lock.release()


def test_a_trial_with_a_single_evaluation_is_seen(page: Page, root: Path) -> None:
    run = write_run(root / "Own-v0" / "1")
    write_progress(run, [progress_line(n, trial=trial) for n, trial in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2))])
    page.open()
    page.until("charts.returns.plot", "its curve is shown")
    assert page.line("returns", "trial 2")[1] == [4.0]
    (shown,) = page.js(
        "charts.returns.plot.series.filter((line) => line.label === 'trial 2').map((line) => line.points.show())"
    )
    assert shown


def test_the_evaluation_that_came_with_the_end_is_shown(page: Page, root: Path) -> None:
    last = {"trial": 1, "at_timesteps": 2000, "mean": 77.0}
    write_run(root / "CartPole-v1" / "1", noted={"last_evaluation": last})
    page.open()
    page.until("charts.returns.plot", "its curve is shown")
    for _ in range(2):
        at, returns = page.line("returns", "one evaluation")
        assert (at[-1], returns[-1]) == (2000, 77.0)
        assert len(returns) == 11
        page.js("update()")
        page.until("!isAsking", "it has asked again")
    assert "newest evaluation\n77" in page.browser.find_element(By.ID, "facts").text


@pytest.mark.parametrize("count", [1, 50, 1000])
def test_many_runs(page: Page, root: Path, count: int) -> None:
    for number in range(count):
        write_run(root / f"Env{number % 7}-v1" / str(number), generations=3, seed=number)
    page.open()
    page.until(f"document.querySelectorAll('#runs tbody tr').length === {count}", "all runs are shown")
    page.browser.find_element(By.ID, "filter").send_keys(f"/{count - 1}")
    page.until("document.querySelectorAll('#runs tbody tr').length === 1", "the filter leaves one")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [380, 1300])
def test_it_fits_a_phone_by_day_and_night(page: Page, root: Path, width: int, dark: bool) -> None:
    write_run(root / ("A-very-long-name-of-an-environment-" * 3 + "v1") / "1", generations=40)
    page.open(width=width, dark=dark)
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    assert page.js("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.js("charts.returns.plot.width <= window.innerWidth")
    ground, text = (page.js(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark
    assert (sum(map(int, text[4:-1].split(","))) > 500) is dark


def test_it_can_be_used_by_keyboard(page: Page, root: Path) -> None:
    for number in range(4):
        write_run(root / "CartPole-v1" / str(number), seed=number)
    page.open()
    page.until("document.querySelectorAll('#runs tbody tr').length === 4", "all runs are shown")

    press(page, "/", *"/2")
    page.until("document.querySelectorAll('#runs tbody tr').length === 1", "the filter leaves one")
    press(page, Keys.ARROW_DOWN, Keys.ENTER)
    page.until("chosen.length === 1 && chosen[0].endsWith('/2')", "Enter chooses a run")
    press(page, Keys.ARROW_UP, Keys.BACKSPACE, Keys.BACKSPACE)
    page.until("document.querySelectorAll('#runs tbody tr').length === 4", "the arrow goes back to the filter")
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    second = page.js("document.querySelectorAll('#runs tbody tr')[1].name")
    page.until(f"chosen[0] === {json.dumps(second)}", "the arrow goes to the next run")
    press(page, Keys.ARROW_UP, " ")
    page.until(f"chosen.length === 2 && chosen[0] === {json.dumps(second)}", "the space bar compares")
    page.js("document.querySelector('#runs tbody input').focus()")
    press(page, " ")
    page.until("chosen.length === 1", "a tick that is taken away no longer compares")


def test_a_filter_that_finds_nothing_says_so(page: Page, root: Path) -> None:
    for number in range(2):
        write_run(root / "CartPole-v1" / str(number), seed=number)
    page.open()
    page.until("document.querySelectorAll('#runs tbody tr').length === 2", "all runs are shown")
    assert not page.browser.find_element(By.ID, "none").is_displayed()
    page.browser.find_element(By.ID, "filter").send_keys("walker")
    page.until("!document.getElementById('none').hidden", "it says so")
    assert page.browser.find_element(By.ID, "none").text.startswith("None of 2 runs has “walker”")
    page.browser.find_element(By.ID, "filter").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)
    page.until("document.getElementById('none').hidden", "all runs are shown again")


def test_runs_are_sorted_by_a_column(page: Page, root: Path) -> None:
    for name, generations in (("a", 30), ("b", 40), ("c", 20)):
        write_run(root / "CartPole-v1" / name, generations=generations)
    write_run(root / "CartPole-v1" / "none", generations=1)  # no evaluation yet
    page.open()
    page.until("document.querySelectorAll('#runs tbody tr').length === 4", "all runs are shown")
    by_score = page.browser.find_element(By.CSS_SELECTOR, "[data-sort=score]")
    for order, names in (("descending", ["b", "a", "c", "none"]), ("ascending", ["c", "a", "b", "none"])):
        by_score.click()
        assert by_score.find_element(By.XPATH, "..").get_attribute("aria-sort") == order
        assert page.js("[...document.querySelectorAll('#runs tbody tr')].map((row) => row.name.split('/').at(-1))") == names
    by_score.click()
    assert by_score.find_element(By.XPATH, "..").get_attribute("aria-sort") == "none"


def test_all_that_the_filter_leaves_are_compared(page: Page, root: Path) -> None:
    for number in range(20):
        write_run(root / f"Env{number // 16}-v1" / str(number), seed=number)
    page.open()
    page.until("document.querySelectorAll('#runs tbody tr').length === 20", "all runs are shown")
    page.browser.find_element(By.ID, "filter").send_keys("Env1")
    page.browser.find_element(By.ID, "all").click()
    page.until("runs.size === 4 && document.getElementById('title').textContent === '4 runs'", "four are compared")
    page.browser.find_element(By.ID, "filter").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)
    page.until("document.querySelectorAll('#runs tbody tr').length === 20 && !document.getElementById('all').checked", "all")
    page.browser.find_element(By.ID, "all").click()
    page.until("document.getElementById('title').textContent === '12 runs, the most that are compared'", "the first twelve")


# --- zoom -------------------------------------------------------------------------------------------------------------

PART = "[charts.returns.plot.scales.x.min, charts.returns.plot.scales.x.max]"
BEGINS = "[charts.returns, charts.speed, charts.utilisation].map((chart) => chart.plot.scales.x.min)"


def test_dragging_zooms_and_news_leave_it(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=40, noted={"finished": False})
    page.open()
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    whole = page.js(PART)
    assert whole == [0, 4000]
    chart = page.browser.find_element(By.CSS_SELECTOR, "#returns .u-over")
    mouse = ActionChains(page.browser).move_to_element_with_offset(chart, -100, 0)
    mouse.click_and_hold().move_by_offset(150, 0).release().perform()
    page.until("zoom.part !== null", "it is zoomed")
    part = page.js(PART)
    middle, width = 2000 - 25 * 4000 / chart.size["width"], 150 * 4000 / chart.size["width"]
    assert part == pytest.approx([middle - width / 2, middle + width / 2], abs=20)
    assert page.js(BEGINS) == [part[0]] * 3
    assert page.js("charts.returns.plot.scales.y.max") < 80  # of what is seen
    write_progress(run, [progress_line(number) for number in range(1, 61)])
    page.until("runs.get(chosen[0]).generations === 60", "news have come")
    assert page.js(PART) == part
    ActionChains(page.browser).double_click(chart).perform()
    page.until("zoom.part === null", "a double click shows all")
    assert page.js(PART) == [0, 6000]


class Finger:
    """Touches a page's elements in their middle."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def move(self, selector: str, right: float, down: float) -> None:
        """Move over an element, by pixels to the right and down."""
        x, y = self._middle_of(selector)
        self._touch("touchStart", x, y)
        for part in range(1, 9):
            self._touch("touchMove", x + right * part / 8, y + down * part / 8)
        self._touch("touchEnd")

    def _middle_of(self, selector: str) -> tuple[float, float]:
        place = self._page.browser.find_element(By.CSS_SELECTOR, selector)
        left, top, width, height = self._page.browser.execute_script(
            "const { left, top, width, height } = arguments[0].getBoundingClientRect(); return [left, top, width, height];",
            place,
        )
        return left + width / 2, top + height / 2

    def _touch(self, kind: str, *at: float) -> None:
        points = [dict(zip("xy", at, strict=True))] if at else []
        self._page.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.fixture
def finger(page: Page) -> Iterator[Finger]:
    def emulate(*, touch: bool) -> None:
        page.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})

    emulate(touch=True)
    yield Finger(page)
    emulate(touch=False)


def test_a_finger_zooms_sideways_and_scrolls_up_and_down(page: Page, root: Path, finger: Finger) -> None:
    write_run(root / "CartPole-v1" / "1", generations=40)
    page.open(width=380, height=700, mobile=True)
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    assert page.js("getComputedStyle(document.querySelector('.hint.touched')).display") == "block"
    page.browser.execute_script("document.getElementById('returns').scrollIntoView({ block: 'center' })")
    width = page.js("document.querySelector('#returns .u-over').clientWidth")
    finger.move("#returns .u-over", 100, 10)
    page.until("zoom.part !== null", "it is zoomed")
    part = page.js(PART)
    assert part == pytest.approx([2000, 2000 + 100 * 4000 / width], abs=60)
    assert page.js(BEGINS) == [part[0]] * 3
    assert page.js("charts.returns.plot.select.width") == 0
    before = page.js("scrollY")
    page.browser.execute_script("addEventListener('scrollend', () => { window.hasScrolled = true; }, { once: true })")
    finger.move("#returns .u-over", 10, -200)
    page.until("window.hasScrolled", "the page has scrolled and stands still: a click would only stop it")
    assert page.js("scrollY") > before + 100
    assert page.js(PART) == part
    assert page.js("charts.returns.plot.select.width") == 0
    page.browser.find_element(By.CSS_SELECTOR, "[data-zoom=whole]").click()
    assert page.js(PART) == [0, 4000]


def test_zoom_by_keyboard_and_buttons(page: Page, root: Path) -> None:
    write_run(root / "CartPole-v1" / "1", generations=40)
    write_run(root / "CartPole-v1" / "2", generations=40, sigma=0.3)
    page.open(str(root / "CartPole-v1" / "1"))
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    page.js("charts.returns.picture.focus()")
    for key, part in (
        ("+", [1000, 3000]),
        (Keys.ARROW_LEFT, [500, 2500]),
        (Keys.ARROW_LEFT, [0, 2000]),
        (Keys.ARROW_LEFT, [0, 2000]),
        ("+", [500, 1500]),
        (Keys.ARROW_RIGHT, [750, 1750]),
        ("-", [250, 2250]),
        ("-", [0, 4000]),
        ("+", [1000, 3000]),
        ("0", [0, 4000]),
    ):
        press(page, key)
        assert page.js(PART) == part, key
    assert page.js("zoom.part === null && document.querySelector('[data-zoom=whole]').disabled")
    for name, part in (("in", [1000, 3000]), ("right", [1500, 3500]), ("out", [0, 4000]), ("in", [1000, 3000])):
        page.browser.find_element(By.CSS_SELECTOR, f"[data-zoom={name}]").click()
        assert page.js(PART) == part, name
    assert page.browser.find_element(By.ID, "part").text == "1k to 3k"
    page.browser.find_elements(By.CSS_SELECTOR, "#runs tbody input:not(:checked)")[0].click()
    page.until("runs.size === 2 && document.getElementById('title').textContent === '2 runs'", "another is compared")
    assert page.js(PART) == [1000, 3000]
    page.browser.find_element(By.ID, "axis").send_keys("time")
    page.until("charts.returns.plot.series[0].label === 'time'", "time is shown")
    assert page.js("zoom.part") is None


def test_a_logarithmic_axis(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=40)
    lines = [progress_line(number) for number in range(2, 41)]
    write_progress(run, [progress_line(1, eval_generation=1, eval_at=0, eval_return=3.0), *lines])
    page.open()
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    assert page.line("returns", "one evaluation")[0][0] == 0
    page.browser.find_element(By.ID, "log").click()
    page.until("charts.returns.plot.scales.x.distr === 3", "the axis is logarithmic")
    assert page.js(PART) == [100, 4000]
    x, y = evaluations_of(run)
    assert page.line("returns", "one evaluation") == (x[1:], y[1:])  # there is no logarithm of 0
    ticks = page.js("namedTicks(logTicks(...charts.returns.all)).filter(Boolean).map(short)")
    assert ticks == ["100", "200", "500", "1k", "2k"]
    page.browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
    assert page.js(PART) == pytest.approx([100 * 40**0.25, 100 * 40**0.75])
    assert page.browser.find_element(By.ID, "left-out").text == "1 value at 0 left out"
    page.browser.find_element(By.ID, "log").click()
    page.until("charts.returns.plot.scales.x.distr === 1", "the axis is linear")
    assert page.js(PART) == [0, 4000]
    assert page.browser.find_element(By.ID, "left-out").text == ""


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_logarithmic_axis_waits_for_values_above_0(page: Page, root: Path, seeds: int) -> None:
    """A line and a band of seeds alike."""
    names = [str(write_run(root / "CartPole-v1" / str(seed), seed=seed, noted={"finished": False})) for seed in range(seeds)]
    zeros = [progress_line(number, seconds=0.0) for number in range(1, 21)]
    for name in names:
        write_progress(Path(name), zeros)
    page.open(*names)
    page.until(f"runs.size === {seeds} && charts.returns.plot?.data[0].length", "they are shown")
    page.browser.find_element(By.ID, "axis").send_keys("time")
    page.browser.find_element(By.ID, "log").click()
    words = page.browser.find_element(By.ID, "left-out")
    assert words.text == "the axis is linear: no value above 0 yet"
    assert page.js("charts.returns.plot.scales.x.distr") == 1
    for name in names:
        write_progress(Path(name), [*zeros, *(progress_line(number) for number in range(21, 41))])
    page.until("charts.returns.plot.scales.x.distr === 3", "the axis is logarithmic as soon as it can be")
    page.until("[...runs.values()].every((run) => run.generations === 40)", "all are read")
    page.until(f"document.getElementById('left-out').textContent === '{30 * seeds} values at 0 left out'", "it counts them")
    for chart in ("returns", "speed", "utilisation"):
        assert page.js(f"Math.min(...charts.{chart}.plot.data[0])") > 0, chart


# --- what is read by eyes that see other colours, or by none -----------------------------------------------------------

SEEN = {  # linear RGB as it is seen without one kind of cone; Machado et al. 2009
    "all": np.eye(3),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours."""
    dark, light = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    part = np.cbrt(np.maximum(TO_XYZ @ seen @ linear(colour), 0) / [0.9505, 1.0, 1.089])
    return np.array([116 * part[1] - 16, 500 * (part[0] - part[1]), 200 * (part[1] - part[2])])


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_and_differ(page: Page, root: Path, dark: bool) -> None:
    page.open(dark=dark)
    names = ("ground", "raised", "text", "soft", "accent", "running", "stopped")
    ground, raised, *texts = (page.js(f"ofPage('--{name}')") for name in names)
    assert min(contrast(text, behind) for text in texts for behind in (ground, raised)) >= 4.5  # WCAG AA
    lines = page.js("colours()")
    assert min(contrast(line, ground) for line in lines) >= 3.0
    for kind, seen in SEEN.items():
        apart = min(np.linalg.norm(lab(one, seen) - lab(other, seen)) for at, one in enumerate(lines) for other in lines[:at])
        assert apart > 15, kind
    assert page.js("new Set(Array.from({ length: MOST_SHOWN }, (_, n) => colour(n) + dash(n))).size === MOST_SHOWN")


def test_all_that_can_be_used_has_a_name(page: Page, root: Path) -> None:
    names = [str(write_run(root / "CartPole-v1" / str(seed), generations=40, seed=seed)) for seed in range(2)]
    (Path(names[0]) / "population.json").write_text('{"generation": 1, "low": 8, "high": 40, "counts": [1, 2]}')
    for shown in (names[:1], names):
        page.open(*shown)
        page.until(f"runs.size === {len(shown)} && charts.utilisation.plot", "they are shown")
        returns = "document.querySelector('#returns [role=img]').getAttribute('aria-label')"
        page.until(f"{returns}.startsWith('Return of an episode, steps from 0 to ')", "the curve is told in words")
        page.browser.execute_cdp_cmd("Accessibility.enable", {})
        nodes = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = ("button", "checkbox", "combobox", "image", "link", "progressbar", "region", "searchbox", "Video")
        known = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
        assert [role for role, name in known if role in roles and not name.strip()] == []
        assert [name for role, name in known if role == "searchbox"] == ["Filter"]
    assert page.js(returns).endswith("0 to 3.9k; newest: CartPole-v1, median and range of 2 seeds 76.00")


def test_the_legend_tells_the_newest_value_and_switches_lines_by_keyboard(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=40, noted={"finished": False})
    page.open()
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    one = "document.querySelectorAll('#returns .u-series')[2]"
    assert page.js(f"{one}.textContent").endswith("80.00")
    page.js(f"{one}.querySelector('th').focus()")
    press(page, Keys.ENTER)
    page.until("charts.returns.plot.series[2].show === false", "the line is off")
    write_progress(run, [progress_line(number) for number in range(1, 61)])
    page.until(f"{one}.textContent.endsWith('120.0')", "the newest value is told")
    assert page.js("charts.returns.plot.series[2].show") is False


@pytest.mark.parametrize("width", [380, 800, 1300])
def test_nothing_lies_over_anything(page: Page, root: Path, width: int) -> None:
    names = [str(write_run(root / "CartPole-v1" / str(seed), generations=40, sigma=0.1 + seed)) for seed in range(12)]
    for shown in (names[:1], names):
        page.open(*shown, width=width)
        page.until(f"runs.size === {len(shown)} && charts.utilisation.plot", "they are shown")
        boxes = page.js(
            "[...document.querySelectorAll('#view > *, .pair > *, .tools > *, figure > *, .uplot > *')].filter((each) =>"
            " each.offsetWidth).map((each) => { const { left, top, right, bottom } = each.getBoundingClientRect();"
            " return [left, top, right, bottom, [...each.parentElement.children].indexOf(each),"
            " each.parentElement.id || each.parentElement.className]; })"
        )
        for at, (left, top, right, bottom, number, parent) in enumerate(boxes):
            assert right <= width + 0.5, (number, parent)
            for other in boxes[:at]:
                if other[5] == parent:
                    apart = min(right, other[2]) - max(left, other[0]) < 1 or min(bottom, other[3]) - max(top, other[1]) < 1
                    assert apart, (parent, number, other[4])


def test_nothing_is_drawn_while_nothing_is_new(page: Page, root: Path) -> None:
    run = write_run(root / "CartPole-v1" / "1", generations=40, noted={"finished": False})
    page.open()
    page.until("charts.returns.plot?.data[0].length > 30", "the curve is shown")
    page.browser.execute_script("window.drawn = 0; charts.returns.plot.setData = () => { drawn += 1; };")
    page.browser.execute_async_script("const [done] = arguments; update().then(update).then(done)")
    assert page.js("drawn") == 0
    write_progress(run, [progress_line(number) for number in range(1, 42)])
    page.until("drawn > 0", "a new row is drawn")


# --- an hour -----------------------------------------------------------------------------------------------------------


UPDATES, KEPT, WINDOWS = 300, 512, 8  # updates of a window; bytes that each may keep; windows


def test_watching_for_long_takes_no_more_memory(page: Page, root: Path) -> None:
    """A leak grows in every window of updates; what the browser compiles, or has not collected yet, does not."""
    run = write_run(root / "CartPole-v1" / "1", generations=1100, noted={"finished": False})
    page.open()
    page.until("charts.utilisation.plot", "it is shown")
    page.js("clearTimeout(timer)")
    page.until("!isAsking", "no update is under way")
    page.browser.execute_cdp_cmd("Performance.enable", {})

    def after_updates() -> dict[str, float]:
        with open(run / "progress.csv", "a") as file:
            file.write(progress_line(1101) + "\n")
        page.browser.execute_async_script(  # a call for each update would leave its own traces in the browser
            "const [count, done] = arguments, once = () => update().then(() => clearTimeout(timer));"
            "Array.from({ length: count - 1 }).reduce((before) => before.then(once), once()).then(done)",
            UPDATES,
        )
        page.browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        metrics = page.browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    may_grow = {"Nodes": 0, "JSEventListeners": 0, "JSHeapUsedSize": UPDATES * KEPT}
    grown, before = [], after_updates()
    for _ in range(WINDOWS):
        after = after_updates()
        grown.append({name: after[name] - before[name] for name in may_grow})
        if all(grown[-1][name] <= most for name, most in may_grow.items()):
            return
        before = after
    pytest.fail(f"each window of {UPDATES} updates has left more than it may: {grown}")


def test_a_long_run_is_shown_before_all_is_read(page: Page, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_runs, "SPENT_SECONDS", 0.0)
    run = write_run(root / "CartPole-v1" / "1", generations=1)
    with open(run / "progress.csv", "a") as file:
        file.write((progress_line(2) + "\n") * 100_000)
    known, may_go_on = page.server.runs.run_since, threading.Event()

    def run_since(name: str, cursor: Any) -> dict[str, Any]:
        if cursor:
            may_go_on.wait()
        return known(name, cursor)

    monkeypatch.setattr(page.server.runs, "run_since", run_since)
    page.open()
    page.until("charts.speed.plot?.data[0].length > 100", "a part is shown")
    assert page.js("[...runs.values()][0].complete") is False
    page.browser.execute_script(
        "window.waits = []; const known = setTimeout;"
        "window.setTimeout = (what, wait) => { if (what === update) waits.push(wait); return known(what, wait); };"
    )
    may_go_on.set()
    page.until("[...runs.values()][0].complete", "all is read")
    assert page.js("waits[0]") < 100  # it asks for the rest at once
    assert page.js("Object.values([...runs.values()][0].trials)[0].generations.at(-1)[1]") == 200_002.0


def test_names_and_settings_are_text(page: Page, root: Path) -> None:
    evil = "<img src=x onerror=document.title='owned'>"
    write_run(root / evil / "1", noted={"env": evil}, policy=evil)
    page.open()
    page.until("charts.returns.plot?.data[0].length > 10", "the curve is shown")
    assert page.js("document.querySelectorAll('img').length") == 0
    assert page.browser.title == "FastES runs"
    assert evil in page.browser.find_element(By.ID, "title").text


def test_a_name_that_is_no_text_can_be_chosen(page: Page, root: Path) -> None:
    write_run(root / os.fsdecode(b"a\xffb") / "1", generations=40)
    write_run(root / "other" / "1")
    page.open()
    page.until("document.querySelectorAll('#runs tbody tr').length === 2", "both are listed")
    named = "[...document.querySelectorAll('#runs tbody button')].find((each) => each.textContent.startsWith('runs/a'))"
    assert page.js(f"{named}.textContent") == r"runs/a\xffb/1"
    page.js(f"{named}.click()")
    page.until("runs.get(chosen[0])?.generations === 40 && charts.returns.plot?.data[0].length > 30", "its curve is shown")
    assert page.js("document.getElementById('view').hidden") is False


def test_an_address_of_a_run_that_is_gone_says_so(page: Page, root: Path) -> None:
    kept, going = (write_run(root / "CartPole-v1" / name) for name in ("kept", "going"))
    words = "document.getElementById('gone').textContent"
    page.open("runs/CartPole-v1/old")
    page.until(f"{words}.startsWith('There is no run runs/CartPole-v1/old. The first')", "it says so")
    page.open("runs/CartPole-v1/old", str(going))
    page.until(f"{words} === 'There is no run runs/CartPole-v1/old.'", "of some of them, too")
    page.browser.find_element(By.CSS_SELECTOR, "#runs tbody tr.shown button").click()
    assert page.js(words) == ""
    assert page.js("chosen") == [str(going)]
    page.is_damaged = True  # a request may be under way, and finds nothing
    shutil.rmtree(going)
    page.until(f"{words}.startsWith('There is no run {going}')", "and of one that goes")
    assert page.js("chosen") == [str(kept)]


def test_a_command_that_ends_is_told(root: Path, browser: webdriver.Chrome) -> None:
    write_run(root / "CartPole-v1" / "1")
    command = [*fastes_command(), "watch", "--port", "0"]
    with subprocess.Popen(command, env=environment(), cwd=root.parent, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        page = Page(browser, server.stdout.readline().split()[0]).open()
        page.until("charts.returns.plot", "the curve is shown")
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
        page.js("update()")
        page.until("document.getElementById('connection').classList.contains('lost')", "the page says that nobody answers")
    assert "still running" in browser.find_element(By.ID, "connection").text
    browser.get("about:blank")


def test_a_video_that_cannot_be_asked_for_says_why(page: Page, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(_: Path) -> bool:
        raise OSError("no space left")

    monkeypatch.setattr(page.server.videos, "draw", draw)
    (write_run(root / "CartPole-v1" / "1") / "best.zip").write_bytes(b"")
    page.open()
    page.until("charts.returns.plot && !document.getElementById('draw').disabled", "a video can be drawn")
    page.is_damaged = True
    page.browser.find_element(By.ID, "draw").click()
    words = "document.getElementById('video-words').textContent"
    says_why = f"{words}.startsWith('it could not be drawn') && {words}.endsWith('no video can be drawn: no space left')"
    page.until(says_why, "it says why")
    page.browser.execute_async_script("const [done] = arguments; update().then(update).then(done)")
    assert page.js(f"{says_why} && !document.getElementById('draw').disabled")


def test_a_video_of_the_best_policy(page: Page, root: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    subprocess.run([*fastes_command(), *TRAIN, "2000"], env=environment(), cwd=root.parent, check=True)
    page.open()
    page.until("charts.returns.plot && !document.getElementById('draw').disabled", "a video can be drawn")
    page.browser.find_element(By.ID, "draw").click()
    page.until("!document.getElementById('video').hidden", "it is drawn")
    page.until("document.getElementById('video').videoWidth > 100", "the browser plays it")
