"""Risk: descriptors or processes run out while workers start, nobody says which limit it was, and what had begun stays."""

from __future__ import annotations

import errno
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, toy
from processes import children, run_script, second_process_fails
from training import Result, assert_same, learn

from fastes import FastES
from fastes.es.noise_table import NoiseTable
from fastes.system.limits import explained


@pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="subprocess forgets /dev/null where no descriptor is left: gh-87474")
def test_every_place_at_which_descriptors_run_out(undisturbed: Result, tmp_path: Path) -> None:
    script = """
        import errno, json, os, resource
        from faults import SETTINGS, toy
        from processes import children
        from training import learn
        from fastes import FastES

        def held():
            return sorted(int(fd) for fd in os.listdir("/proc/self/fd"))

        with FastES(toy(), preset="default", n_workers=1, **SETTINGS) as other:  # whatever is imported late is there then
            learn(other, 1)
        model, said = FastES(toy(), preset="default", n_workers=3, **SETTINGS), []
        before, (soft, hard) = held(), resource.getrlimit(resource.RLIMIT_NOFILE)
        for room in range(1, 40):
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) - 1 + room, hard))
            try:
                learn(model, 1)
                break
            except OSError as error:
                assert error.errno == errno.EMFILE, error
                said.append(str(error))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert held() == before
            assert children() == []
            assert model.generation == 0
        learn(model, 4)
        model.save("m")
        print(json.dumps([len(before) - 1, said]))
    """
    result = run_script(script, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    first, said = json.loads(result.stdout)
    assert len(said) > 8
    for number, text in enumerate(said, first + 1):
        assert f"of 3 workers could be started, then none (Too many open files): this process has {number} " in text
        assert "RLIMIT_NOFILE" in text
        assert "`ulimit -n`" in text
    assert {text[:10] for text in said} >= {"[Errno 24]"}
    with FastES.load(tmp_path / "m", toy(), 0) as model:
        assert model.theta.tobytes() == undisturbed.state.arrays["trainings"]["0.theta"].tobytes()


def test_processes_that_run_out_name_the_limits(monkeypatch: pytest.MonkeyPatch, undisturbed: Result) -> None:
    with FastES(toy(), preset="default", n_workers=3, **SETTINGS) as model:
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", second_process_fails())
            with pytest.raises(BlockingIOError, match=r"1 of 3 workers could be started, .*`ulimit -u`.*fewer workers"):
                learn(model, 4)
        assert children() == []
        records = learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


def test_the_limit_of_a_container(tmp_path: Path) -> None:
    group = tmp_path / "cgroup" / "docker"
    group.mkdir(parents=True)
    (group / "pids.max").write_text("100\n")
    (group / "pids.current").write_text("100\n")
    (tmp_path / "self").write_text("0::/docker\n")
    error = explained(BlockingIOError(errno.EAGAIN, "no"), 8, 3, str(tmp_path / "cgroup"), str(tmp_path / "self"))
    assert isinstance(error, BlockingIOError)
    assert f"100 in the container ({group}/pids.max, 100 are in use)" in str(error)


def test_another_error_stays_as_it_is() -> None:
    for error in (FileNotFoundError(errno.ENOENT, "no interpreter"), RuntimeError("another")):
        with pytest.raises(type(error), match=r"no interpreter|another"):
            explained(error, 2, 0)


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    return monkeypatch


def test_a_thread_that_cannot_be_started_starts_no_worker_later(undisturbed: Result) -> None:
    """Workers are started from a thread where learn runs in another than the main one."""
    found: list[Any] = []

    def run() -> None:
        with FastES(toy(), preset="default", n_workers=1, **SETTINGS) as model:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("threading.Thread.start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
                with pytest.raises(BlockingIOError, match="0 of 1 workers could be started"):
                    learn(model, 4)
            records = learn(model, 4)
            found.extend([Result(model.snapshot(), records), len(children())])

    from fastes.pools.processes import worker_process as process

    process.spawner.cache_clear()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert_same(undisturbed, found[0])
    assert found[1] == 1


def test_a_noise_table_is_drawn_without_threads_where_there_are_none(no_thread: pytest.MonkeyPatch) -> None:
    no_thread.setattr("fastes.es.noise_table.available_cpus", lambda: 4)
    table = NoiseTable(1 << 22, 3)
    drawn = table.values.copy()
    no_thread.undo()
    table.release()
    assert drawn.tobytes() == table.values.tobytes()
