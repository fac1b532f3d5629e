"""The cost of `fastes watch`: a long run's first answer, an update, the bytes it sends, and its memory over an hour.

With selenium, Chromium and its driver also what a browser takes from the address to the curve, and for an update.

python -m benchmarks.speed.watch
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import describe
from benchmarks.options import COUNT
from benchmarks.tables import markdown_table
from fastes.reports.progress_rows import read_progress
from fastes.training.record import Record
from fastes.watch.server import WatchServer
from fastes.watch.videos import Videos
from fastes.watch.watched_runs import WatchedRuns

OPEN_SECONDS, UPDATE_SECONDS, GROWTH = 1.0, 0.1, 1.1  # aims


def line(generation: int) -> str:
    """A row with as many digits as a training writes."""
    row = dict.fromkeys(Record._fields, generation * 1.2345678901)
    counts = {"generation": generation, "timesteps": 1000 * generation, "trial": 1, "seconds": 0.01}
    evaluation = {"eval_generation": generation if generation % 2 else 0, "eval_at": 1000 * generation - 1000}
    told = {"eval_return": generation * 0.1 if generation % 2 else float("nan")}
    return ",".join(str(value) for value in {**row, **counts, **evaluation, **told}.values())


def add_row(run: Path, generation: int) -> None:
    """Append a generation's row, as a training does."""
    with open(run / "progress.csv", "a") as file:
        file.write(line(generation) + "\n")


def check(shown: dict[str, list[list[float]]], run: Path) -> None:
    """Compare what is shown with the file: SystemExit if a bucket is not the mean of its rows."""
    columns = read_progress(run / "progress.csv")
    means, part = columns["return_mean"], shown["generations"]
    width = part["width"]  # type: ignore[call-overload]
    expected = [means[at : at + width].mean() for at in range(0, len(means), width)]
    if not np.allclose([row[3] for row in part["rows"]], expected, rtol=1e-5):  # type: ignore[call-overload]
        raise SystemExit("the page shows other numbers than the file has: nothing is timed")


def resident_kib() -> int:
    """Memory of this process."""
    return int(next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmRSS")).split()[1])


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window; None if it or selenium is missing."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None or importlib.util.find_spec("selenium") is None:
        yield None
        return
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1300,1200"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=Service(driver)) as made:
        yield made


def in_browser(run: Path, generations: int, updates: int) -> tuple[float, float, list[float]] | None:
    """Return seconds from the address to a part of the curve and to all of it, and of each update; None without a browser."""
    videos = Videos()
    with browser() as chromium, WatchServer([run.parent], 0, videos) as server:
        if chromium is None:
            return None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        began = time.perf_counter()
        chromium.get(server.address)
        part, whole = (
            _seconds_until(chromium, began, what) for what in ("charts.speed.plot", "[...runs.values()][0]?.complete")
        )
        chromium.execute_script("clearTimeout(timer)")
        seconds = []
        for number in range(updates):
            add_row(run, generations + number + 1)
            once = "const [done] = arguments, began = performance.now(); update().then(() => { clearTimeout(timer); "
            once += "requestAnimationFrame(() => setTimeout(() => done(performance.now() - began))); });"  # once it is drawn
            seconds.append(chromium.execute_async_script(once) / 1e3)
        if chromium.execute_script("return [...runs.values()][0].generations") != generations + updates:
            raise SystemExit("the page lacks rows: its updates are no measurement")
        server.shutdown()
    videos.close()
    return part, whole, seconds


def _seconds_until(chromium: Any, began: float, what: str) -> float:
    while not chromium.execute_script(f"return Boolean(typeof charts !== 'undefined' && {what})"):
        time.sleep(0.01)
    return time.perf_counter() - began


class Followed(NamedTuple):
    """The cost of a long run to the server, in seconds unless it says otherwise.

    Attributes:
        first_part: From the run's folder to the first answer.
        whole: To the answer that completes the curves.
        whole_cpu: CPU time of that.
        read: To read the file at once, as `fastes plot` does.
        updates: Each update.
        sent: Bytes of each update.
        memory: KiB of this process after each update.
    """

    first_part: float
    whole: float
    whole_cpu: float
    read: float
    updates: list[float]
    sent: list[int]
    memory: list[int]

    @property
    def bytes_grown(self) -> float:
        """Bytes of the last tenth of the updates over those of the first, medians."""
        tenth = self._tenth
        return statistics.median(self.sent[-tenth:]) / statistics.median(self.sent[:tenth])

    @property
    def memory_grown(self) -> float:
        """Memory at the end over that after the first tenth of the updates."""
        return self.memory[-1] / self.memory[self._tenth - 1]

    @property
    def _tenth(self) -> int:
        return max(len(self.sent) // 10, 1)


def write_run(run: Path, generations: int) -> None:
    """Write the folder of a run of this many generations."""
    run.mkdir(parents=True)
    (run / "config.toml").write_text('[run]\nenv = "Own-v0"\n[settings]\ntotal_timesteps = 1000000000\n')
    (run / "progress.csv").write_text("\n".join([",".join(Record._fields), *map(line, range(1, generations + 1)), ""]))


def follow(run: Path, generations: int, updates: int) -> Followed:
    """Open a run, and follow it while it gets a row per update. SystemExit if anything that is shown is wrong."""
    began, cpu_began = time.perf_counter(), time.process_time()
    runs = WatchedRuns([run.parent])
    answer = json.dumps(runs.run_since(str(run), {}))
    first_part = time.perf_counter() - began
    while not (known := json.loads(answer))["complete"]:
        answer = json.dumps(runs.run_since(str(run), {}))
    whole, whole_cpu = time.perf_counter() - began, time.process_time() - cpu_began
    began = time.perf_counter()
    read_progress(run / "progress.csv")
    followed = Followed(first_part, whole, whole_cpu, time.perf_counter() - began, [], [], [])
    check(known["trials"]["1"], run)
    cursor = known["cursor"]
    for number in range(updates):
        add_row(run, generations + number + 1)
        began = time.perf_counter()
        answer = json.dumps(runs.run_since(str(run), cursor))
        followed.updates.append(time.perf_counter() - began)
        followed.sent.append(len(answer))
        followed.memory.append(resident_kib())
        cursor = json.loads(answer)["cursor"]
    check(runs.run_since(str(run), {})["trials"]["1"], run)
    return followed


def table(followed: Followed, drawn: tuple[float, float, list[float]] | None, generations: int) -> str:
    """Return a table of measurements and aims. drawn: the result of `in_browser`."""
    opens, update = f"{OPEN_SECONDS:g}", f"{1e3 * UPDATE_SECONDS:.0f}"
    rows = [
        [f"a run of {generations:,} generations shows a part, s", f"{followed.first_part:.2f}", opens],
        ["all of it, s", f"{followed.whole:.2f}", opens],
        ["CPU time of that, s", f"{followed.whole_cpu:.2f}", ""],
        ["over reading its file as `fastes plot` does", f"{followed.whole / followed.read:.2f}", ""],
        ["an update, median, ms", f"{1e3 * statistics.median(followed.updates):.1f}", update],
        ["an update, 99 of 100, ms", f"{1e3 * float(np.quantile(followed.updates, 0.99)):.1f}", update],
        ["bytes of an update, median", f"{statistics.median(followed.sent):,.0f}", ""],
        ["bytes, last tenth over first", f"{followed.bytes_grown:.2f}", f"{GROWTH:g}"],
        ["memory, end over first tenth", f"{followed.memory_grown:.2f}", f"{GROWTH:g}"],
    ]
    if drawn is None:
        rows.append(["in Chromium: not measured, it or selenium is missing", "", ""])
    else:
        part, whole, updates = drawn
        rows += [
            ["in Chromium: a part, s", f"{part:.2f}", opens],
            ["in Chromium: all of it, s", f"{whole:.2f}", ""],
            ["in Chromium: an update, median, ms", f"{1e3 * statistics.median(updates):.1f}", update],
            ["in Chromium: an update, the longest, ms", f"{1e3 * max(updates):.1f}", ""],
        ]
    return markdown_table(["", "measured", "aim"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=COUNT, default=100_000, help="of the long run")
    parser.add_argument("--updates", type=COUNT, default=3_600, help="one per second of an hour")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "Own-v0" / "1"
        write_run(run, arguments.generations)
        rows = (run / "progress.csv").read_bytes()
        followed = follow(run, arguments.generations, arguments.updates)
        (run / "progress.csv").write_bytes(rows)  # without those of the updates
        drawn = in_browser(run, arguments.generations, min(arguments.updates, 100))
    print(describe(), "\n")
    print(table(followed, drawn, arguments.generations))
    is_quick = followed.whole <= OPEN_SECONDS and np.quantile(followed.updates, 0.99) <= UPDATE_SECONDS
    return 0 if is_quick and max(followed.bytes_grown, followed.memory_grown) <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
