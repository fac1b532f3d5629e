"""Risk: another site, another machine or a name with .. in it reads files, or a page is served that runs foreign code."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from processes import alive, children, environment, wait_until
from written_runs import write_run

from fastes.watch import videos as of_videos
from fastes.watch.server import WatchServer
from fastes.watch.videos import Videos, play_command

DRAW = "import sys, pathlib; pathlib.Path(sys.argv[2]).write_bytes(bytes(range(100)))"
FAIL = "import sys; print('first'); sys.exit('no such environment')"


def command(code: str) -> Callable[[Path, Path], list[str]]:
    return lambda run, file: [sys.executable, "-c", code, str(run), str(file)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "runs" / "1")
    (folder / "best.zip").write_bytes(b"1")
    return folder


@pytest.fixture
def server(run: Path) -> Iterator[WatchServer]:
    videos = Videos(command(DRAW))
    with WatchServer([run.parent], 0, videos) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    videos.close()


def ask(server: WatchServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def test_the_page_and_its_parts_come_from_here_alone(server: WatchServer) -> None:
    status, content, headers = ask(server, "/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert b"http" not in content.replace(b"<!doctype html>", b"")
    for name in ("watch.js", "charts.js", "watch.css", "uPlot.min.js", "uPlot.min.css"):
        assert name.encode() in content
        assert ask(server, f"/{name}")[0] == 200


def test_it_listens_to_this_machine_alone(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[no.url"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/runs", "/video.mp4?name=x"])
def test_pages_of_other_sites_are_refused(server: WatchServer, path: str, headers: dict[str, str]) -> None:
    assert ask(server, path, **headers)[0] == 403


def test_a_link_to_the_page_may_be_anywhere(server: WatchServer) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(server, "/", **link)[0] == 200
    assert ask(server, "/runs", **link)[0] == 403


def test_what_nobody_thought_of_ends_no_connection(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a number of a file")

    monkeypatch.setattr(server.runs, "rows_since", fail)
    status, words, _ = ask(server, "/runs")
    assert (status, words) == (500, b"ZeroDivisionError: a number of a file")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:8000"])
def test_its_own_names_are_taken_also_through_a_tunnel(server: WatchServer, host: str) -> None:
    assert ask(server, "/runs", Host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/%2e%2e/server.py",
        "/page/watch.js",
        "/etc/passwd",
        "//etc/passwd",
        "/run?name=/etc",
        "/run?name=" + quote("../outside"),
        "/run",
        "/video?name=..",
        "/video.mp4?name=..&number=1",
        "/run?name=%00",
    ],
)
def test_nothing_else_can_be_read(server: WatchServer, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize(
    "cursor", ["x", "[]", "3", '{"reading": 1, "trials": {"1": 3}}', '{"reading": 1, "trials": 5}', "[" * 9000]
)
def test_a_cursor_that_is_none(server: WatchServer, run: Path, cursor: str) -> None:
    ask(server, f"/run?name={quote(str(run))}")
    assert ask(server, f"/run?name={quote(str(run))}&cursor={quote(cursor)}")[0] == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD"])
def test_there_is_no_way_to_change_anything(server: WatchServer, method: str) -> None:
    assert ask(server, "/runs", method)[0] == 501
    assert ask(server, "/runs", "POST")[0] == 404


def test_the_files_of_a_run_stay_as_they_are(server: WatchServer, run: Path) -> None:
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in run.iterdir()}
    ask(server, "/runs")
    ask(server, f"/run?name={quote(str(run))}")
    ask(server, f"/video?name={quote(str(run))}", "POST")
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in run.iterdir()} == before


def test_a_video_is_drawn_once_it_is_asked_for(server: WatchServer, run: Path) -> None:
    name = quote(str(run))

    def state() -> dict[str, object]:
        return json.loads(ask(server, f"/video?name={name}")[1])

    assert state()["state"] == "none"
    assert json.loads(ask(server, f"/video?name={name}", "POST")[1])["began"] is True
    wait_until(lambda: state()["state"] == "ready", "the video is ready")
    assert state() == {"state": "ready", "newest": True, "number": 1, "error": "", "has_policy": True, "busy": False}
    status, content, headers = ask(server, f"/video.mp4?name={name}&number=1")
    assert (status, content, headers["Content-Type"]) == (200, bytes(range(100)), "video/mp4")
    status, content, headers = ask(server, f"/video.mp4?name={name}&number=1", Range="bytes=90-")
    assert (status, content, headers["Content-Range"]) == (206, bytes(range(90, 100)), "bytes 90-99/100")
    assert ask(server, f"/video.mp4?name={name}&number=1", Range="bytes=100-200")[0] == 416
    assert ask(server, f"/video.mp4?name={name}&number=2")[0] == 404
    (run / "best.zip").write_bytes(b"22")
    assert state()["newest"] is False


def test_a_folder_of_videos_that_was_cleaned_is_made_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    videos = Videos(command(DRAW))
    for number in (1, 2):
        assert videos.draw(run)
        wait_until(lambda: videos.state_of(run)["state"] == "ready", "the video is drawn")
        file = videos.file_of(run, number)
        assert file is not None
        shutil.rmtree(file.parent)
        assert videos.state_of(run)["state"] == "none"
    videos.close()
    assert list(tmp_path.glob("fastes-watch-*")) == []


def test_another_site_cannot_have_a_video_drawn(server: WatchServer, run: Path) -> None:
    assert ask(server, f"/video?name={quote(str(run))}", "POST", Origin="http://evil.example")[0] == 403
    assert json.loads(ask(server, f"/video?name={quote(str(run))}")[1])["state"] == "none"


def test_a_video_that_fails_says_why(run: Path) -> None:
    videos = Videos(command(FAIL))
    assert videos.draw(run)
    wait_until(lambda: videos.state_of(run)["state"] == "failed", "the video failed")
    assert videos.state_of(run)["error"] == "no such environment"
    videos.close()


def test_the_advice_for_an_environment_of_ones_own_is_of_this_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is registered by a file that lies here, which a checkpoint cannot name."""
    (tmp_path / "bakery.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Bakery-v0', entry_point=CartPoleEnv, max_episode_steps=20)\n"
    )
    monkeypatch.chdir(tmp_path)
    fastes = [sys.executable, "-m", "fastes"]
    flags = ["--preset", "default", "--total-timesteps", "100", "--workers", "0", "--population-size", "4", "-q"]
    subprocess.run([*fastes, "train", "bakery:Bakery-v0", *flags], env=environment(), check=True, timeout=120)
    (run,) = (tmp_path / "runs").glob("*/1")
    videos = Videos()
    assert videos.draw(run)
    wait_until(lambda: videos.state_of(run)["state"] == "failed", "the video failed")
    assert str(videos.state_of(run)["error"]).endswith("Type: fastes watch --env bakery:Bakery-v0")
    videos.close()
    videos = Videos(partial(play_command, env="bakery:Bakery-v0"))
    assert videos.draw(run)
    wait_until(lambda: videos.state_of(run)["state"] == "ready", "the advice helps")
    videos.close()


def test_one_video_at_a_time_and_none_outlives_the_server(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other")
    (other / "best.zip").write_bytes(b"1")
    videos = Videos(command("import time; time.sleep(1000)"))
    assert videos.draw(run)
    assert not videos.draw(other)
    (child,) = children()
    videos.close()
    assert not alive(child)


def test_a_video_that_hangs_is_given_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_videos, "MOST_SECONDS", 0.0)
    videos = Videos(command("import time; time.sleep(1000)"))
    assert videos.draw(run)
    (child,) = children()
    wait_until(lambda: videos.state_of(run)["state"] == "failed", "it is given up")
    assert "not done after" in videos.state_of(run)["error"]
    assert not alive(child)
    videos.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_command_with_what_it_began(tmp_path: Path, number: signal.Signals) -> None:
    """The process that draws, and the folder of videos."""
    (write_run(tmp_path / "runs" / "1") / "best.zip").write_bytes(b"1")
    hanging = tmp_path / "hanging"
    hanging.mkdir()
    (hanging / "sitecustomize.py").write_text("import sys, time\nif 'play' in sys.orig_argv: time.sleep(1000)\n")
    place = {
        **environment(),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": f"{hanging}{os.pathsep}{environment().get('PYTHONPATH', '')}",
    }
    as_usual = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    begin = "import sys; from fastes.cli.main import main; sys.exit(main(['watch', '--port', '0']))"
    command = [sys.executable, "-c", f"{as_usual}; {begin}"]
    with subprocess.Popen(command, env=place, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        port = int(watching.stdout.readline().split("/")[2].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", f"/video?name={quote('runs/1')}")
        assert json.loads(connection.getresponse().read())["began"] is True
        connection.close()
        (child,) = children(watching.pid)
        watching.send_signal(number)
        watching.wait()
    assert not alive(child)
    assert list(tmp_path.glob("fastes-watch-*")) == []


def test_a_run_without_a_policy_has_no_video(tmp_path: Path) -> None:
    videos = Videos(command(DRAW))
    run = write_run(tmp_path / "1")
    assert not videos.draw(run)
    assert videos.state_of(run)["has_policy"] is False
    videos.close()
