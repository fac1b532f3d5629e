"""Risk: statistics get lost, or stand somewhere else than Stable-Baselines3's logger would have put them."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from envs_for_tests import Toy
from processes import environment

from fastes import FastES
from fastes.sb3 import logger as ours
from fastes.training.record import Record

TEXT = ["stdout", "log", "csv", "json"]
# one dictionary a dump; at most one new key in each, since SB3's CSV has those of one dump in the order of a set
DUMPS: list[dict[str, Any]] = [
    {"rollout/ep_rew_mean": 21.456789},
    {"rollout/ep_rew_mean": float("nan"), "time/fps": 1234},
    {"rollout/ep_rew_mean": np.float32(0.1), "time/fps": np.int64(7), "time/note": 'a "quoted", word'},
    {"time/fps": 3, "plain": True},
    {"rollout/ep_rew_mean": np.float64(1e-9), "plain": np.bool_(False), "rollout/success_rate": float("inf")},
    {"train/deep/er": -12345678.9, "plain": None, "rollout/ep_rew_mean": np.array([2.5]), "time/fps": np.float64("nan")},
    {"train/a_key_that_is_far_too_long_for_a_table": "a value that is far too long for a table, too", "plain": "x"},
]


@pytest.fixture
def theirs() -> ModuleType:
    return pytest.importorskip("stable_baselines3.common.logger")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SB3_LOGDIR", raising=False)
    monkeypatch.delenv("SB3_LOG_FORMAT", raising=False)


def tell(logger: Any, dumps: list[dict[str, Any]] = DUMPS) -> None:
    for step, values in enumerate(dumps):
        for key, value in values.items():
            logger.record(key, value)
        logger.dump(step=100 * step)
    logger.close()


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if "tfevents" not in path.name}


def both(theirs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], act: Any, formats: list[str] = TEXT) -> Any:
    """(files, stdout) after the same calls of their logger and of ours."""
    found = []
    for module in (theirs, ours):
        folder = tmp_path / module.__name__
        act(module.configure(str(folder), formats))
        out = capsys.readouterr().out
        found.append((files_in(folder), out.replace(str(folder), "FOLDER")))
        for text in found[-1][0]:
            found[-1][0][text] = found[-1][0][text].replace(str(folder), "FOLDER")
    return found


def events(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(folder), size_guidance={accumulator.TENSORS: 0}).Reload()


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = events(folder)
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def texts(folder: Path) -> dict[str, list[tuple[int, str]]]:
    found = events(folder)
    tags = found.Tags()["tensors"]
    return {tag: [(event.step, event.tensor_proto.string_val[0].decode()) for event in found.Tensors(tag)] for tag in tags}


def test_files_and_tables_equal_those_of_sb3(theirs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (their_files, their_out), (our_files, our_out) = both(theirs, tmp_path, capsys, tell)
    assert set(our_files) == {"log.txt", "progress.csv", "progress.json"}
    assert our_files == their_files
    assert our_out == their_out
    assert our_out.count("| rollout/") == 5
    assert our_files["log.txt"] == our_out


def test_new_keys_of_one_dump_are_the_same_cells(
    theirs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = [{f"a/{i}": i for i in range(5)}, {"b": 1.5, "c": "x", "a/0": 7}, {"d": 1, "e": 2, "f": 3}]
    (theirs_, _), (ours_, _) = both(theirs, tmp_path, capsys, lambda logger: tell(logger, dumps), ["csv"])
    rows = [list(csv.DictReader(io.StringIO(files["progress.csv"]))) for files in (theirs_, ours_)]
    assert rows[0] == rows[1]
    assert len(rows[1]) == 3
    assert ours_["progress.csv"].splitlines()[0] == "a/0,a/1,a/2,a/3,a/4,b,c,d,e,f"


def test_means_exclusions_messages_and_levels_equal_those_of_sb3(
    theirs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def act(logger: Any) -> None:
        for value in (1.0, None, 2.5, 0.1):
            logger.record_mean("mean/x", value)
        assert logger.name_to_value["mean/x"] == pytest.approx(1.2)
        logger.record("only/json", 1, exclude=("stdout", "csv"))
        logger.record("only/table", 2, exclude=("csv", "json"))
        logger.record("not/log", 3, exclude=("log", "csv"))  # two new columns have any order in SB3
        logger.dump(1)
        assert dict(logger.name_to_value) == {}
        logger.record_mean("mean/x", 8)
        logger.log("two", 1, "words")
        logger.debug("unheard")
        logger.set_level(ours.DEBUG)
        logger.debug("heard")
        logger.set_level(ours.ERROR)
        for call in (logger.info, logger.warn, logger.error):
            call(call.__name__)
        logger.dump(2)
        logger.set_level(ours.DISABLED)
        logger.record("mean/x", 9)
        logger.error("unheard")
        logger.dump(3)
        assert dict(logger.name_to_value) == {"mean/x": 9}
        assert logger.get_dir() == logger.dir
        logger.close()

    their, our = both(theirs, tmp_path, capsys, act)
    assert our == their
    assert "two 1 words\nheard\nerror\n" in our[1]
    assert our[1].startswith("Logging to FOLDER\n")


def test_tensorboard_has_what_sb3_puts_there(theirs: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    pytest.importorskip("tensorboard")
    for module in (theirs, ours):
        logger = module.configure(str(tmp_path / module.__name__), ["tensorboard"])
        logger.record("a key, with marks", 1.5)
        logger.record("out", 1.5, exclude="tensorboard")
        logger.dump(-1)
        tell(logger, [{key: value for key, value in values.items() if key != "plain"} for values in DUMPS])
    found = [tmp_path / module.__name__ for module in (ours, theirs)]
    assert repr(scalars(found[0])) == repr(scalars(found[1]))
    assert texts(found[0]) == texts(found[1])
    assert events(found[0]).Tags()["histograms"] == events(found[1]).Tags()["histograms"] == ["rollout/ep_rew_mean"]
    assert [step for step, _ in scalars(found[0])["time/fps"]] == [100, 200, 300, 500]
    assert texts(found[0])["time/note/text_summary"] == [(200, 'a "quoted", word')]
    assert "out" not in scalars(found[0])


def test_tensorboard_has_a_dump_when_the_dump_ends(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    logger = ours.configure(tmp_path, ["tensorboard"])
    for step in range(1, 6):
        logger.record("x", step)
        logger.record("flag", np.bool_(step % 2))
        logger.record("nan", math.nan)
        logger.dump(step)
        assert scalars(tmp_path)["x"] == [(i, float(i)) for i in range(1, step + 1)]
    assert scalars(tmp_path)["flag"][0] == (1, 1.0)
    assert math.isnan(scalars(tmp_path)["nan"][0][1])
    logger.close()
    logger.close()


def test_two_loggers_of_one_folder_and_second_keep_their_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    for _ in range(2):
        tell(ours.configure(tmp_path, ["tensorboard"]), [{"x": 1}])
    assert len(list(tmp_path.glob("*tfevents*"))) == 2


def test_sb3s_special_values_are_passed_over_or_shown(theirs: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    pyplot = pytest.importorskip("matplotlib.figure")
    torch = pytest.importorskip("torch")
    special = {
        "s/video": theirs.Video(torch.zeros(1, 2, 3, 8, 8), 40),
        "s/figure": theirs.Figure(pyplot.Figure(figsize=(1, 1)), close=True),
        "s/image": theirs.Image(np.zeros((8, 8, 3), np.uint8), "HWC"),
        "s/hparam": theirs.HParam({"lr": 0.1, "name": "x", "flag": True}, {"x": 0.0}),
    }
    tell(ours.configure(tmp_path, ["log", "csv", "json", "tensorboard"]), [{"x": 1, **special}])
    files = files_in(tmp_path)
    assert "s/" not in "".join(files.values())
    assert files["progress.csv"] == "x\n1\n"
    found = events(tmp_path)
    assert sorted(found.Tags()["images"]) == ["s/figure", "s/image"]
    assert "hparams" in found.summary_metadata["_hparams_/experiment"].plugin_data.plugin_name


def test_a_sb3_format_can_be_used(theirs: ModuleType, tmp_path: Path) -> None:
    tell(ours.Logger(None, [theirs.JSONOutputFormat(str(tmp_path / "their.json"))]), [{"x": 1}, {"y": 2}])
    assert (tmp_path / "their.json").read_text() == '{"x": 1}\n{"y": 2}\n'


def test_what_sb3_breaks_on_is_kept(tmp_path: Path) -> None:
    dumps: list[dict[str, Any]] = [
        {"x": "two\nlines", "list": [1, 2]},
        {"x": np.str_("a"), "later, on": 1},
        {"same/" + 40 * "k" + "1": 1, "same/" + 40 * "k" + "2": 2, "path": Path("p")},
    ]
    logger = ours.configure(tmp_path, ["csv", "json", "log"])
    logger.dump()
    tell(logger, dumps)
    files = files_in(tmp_path)
    rows = list(csv.DictReader(io.StringIO(files["progress.csv"], newline="")))
    assert [row["x"] for row in rows] == ["two\nlines", "a", ""]
    assert [row["later, on"] for row in rows] == ["", "1", ""]
    assert rows[0]["list"] == "[1, 2]"
    lines = [json.loads(line) for line in files["progress.json"].splitlines()]
    assert [line.get("x") for line in lines] == [None, "two\nlines", "a", None]
    assert lines[3]["path"] == "p"
    assert files["log.txt"].count("kkk...") == 2


@pytest.fixture(params=["none", "gaps", "names"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folders = {
        "none": [],
        "gaps": ["ES_1", "ES_3", "ES_10", "ES_07"],
        "names": ["ES_2", "ES_2_9", "ES_x_8", "MYES_7", "ES_", "ES_5a", "es_6", "E[S]_4", "_3"],
    }
    for name in folders[request.param]:
        (tmp_path / "runs" / name).mkdir(parents=True)
    return tmp_path / "runs"


@pytest.mark.parametrize("name", ["ES", "ES_2", "E[S]", "", "new"])
def test_folders_are_numbered_as_by_sb3(theirs: ModuleType, runs: Path, name: str) -> None:
    pytest.importorskip("tensorboardX")
    configure_logger = pytest.importorskip("stable_baselines3.common.utils").configure_logger
    for reset in (True, False, True, False):
        before = set(runs.iterdir()) if runs.exists() else set()
        logger = configure_logger(0, str(runs), name, reset)
        logger.close()
        for path in set(runs.iterdir()) - before:
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        mine = ours.configure_run(0, runs, name, reset)
        mine.close()
        assert mine.get_dir() == logger.get_dir()


def test_a_first_run_and_the_next_ones(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    seen = []
    for reset in (True, True, False, False, True):
        logger = ours.configure_run(0, tmp_path / "tb[1]", "sweep/ES", reset)
        seen.append(Path(str(logger.dir)).relative_to(tmp_path / "tb[1]").as_posix())
        logger.close()
    assert seen == ["sweep/ES_1", "sweep/ES_2", "sweep/ES_2", "sweep/ES_2", "sweep/ES_3"]


def test_without_verbosity_and_tensorboard_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logger = ours.configure_run()
    tell(logger)
    logger.log("unheard")
    assert logger.output_formats == []
    assert logger.get_dir() is None
    assert capsys.readouterr().out == ""
    tell(ours.configure_run(verbose=1), [{"x": 1}])
    assert capsys.readouterr().out == "---------\n| x | 1 |\n---------\n"
    assert list(tmp_path.iterdir()) == []


def test_settings_from_the_environment_are_honoured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tell(logger := ours.configure())
    assert Path(str(logger.dir)).parent == tmp_path
    assert Path(str(logger.dir)).name.startswith("SB3-")
    assert set(files_in(Path(str(logger.dir)))) == {"log.txt", "progress.csv"}
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path / "named"))
    monkeypatch.setenv("SB3_LOG_FORMAT", "json,,csv")
    capsys.readouterr()
    tell(ours.configure())
    assert set(files_in(tmp_path / "named")) == {"progress.json", "progress.csv"}
    assert ours.configure_run().dir == str(tmp_path / "named")
    assert capsys.readouterr().out == ""


def test_a_wrong_format_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"format 'jsn' is unknown: there are stdout, .*; did you mean 'json'"):
        ours.configure(tmp_path / "new", ["csv", "jsn"])
    with pytest.raises(ValueError, match=r"write \['csv'\]"):
        ours.configure(tmp_path / "new", "csv")
    assert list(tmp_path.iterdir()) == []


class Image(NamedTuple):
    """As SB3's."""

    image: Any
    dataformats: str


def _without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """As if these were not installed."""
    for package in packages:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)


def test_a_callback_writes_to_tensorboards_file_itself(theirs: ModuleType, tmp_path: Path) -> None:
    """As SB3's documentation shows it."""
    pytest.importorskip("tensorboardX")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    callbacks = pytest.importorskip("stable_baselines3.common.callbacks")

    class Writes(callbacks.BaseCallback):  # type: ignore[misc, name-defined]
        def _on_training_start(self) -> None:
            formats = self.logger.output_formats
            self.writer = next(each for each in formats if isinstance(each, theirs.TensorBoardOutputFormat)).writer

        def _on_step(self) -> bool:
            if self.n_calls == 10:
                self.writer.add_text("own/note", "a value", self.num_timesteps)
                self.writer.add_scalar("own/number", np.float32(2.5), self.num_timesteps)
                self.writer.add_image("own/image", np.zeros((3, 4, 4), np.uint8), self.num_timesteps)
                self.writer.flush()
            return True

    with FastES(Toy, preset="default", n_workers=0, population_size=4, tensorboard_log=tmp_path, seed=0) as model:
        model.learn(200, Writes())
        model.logger.close()
    (folder,) = tmp_path.iterdir()
    (file,) = folder.iterdir()
    events = accumulator.EventAccumulator(str(file))
    events.Reload()
    assert [event.value for event in events.Scalars("own/number")] == [2.5]
    assert "own/note/text_summary" in events.Tags()["tensors"]
    assert events.Tags()["images"] == ["own/image"]
    assert "rollout/ep_rew_mean" in events.Tags()["scalars"]


def test_a_missing_tensorboard_is_named_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "tensorboardX", "tensorboard")
    with pytest.raises(ImportError, match=r"needs tensorboardX or tensorboard: pip install .*tensorboard"):
        ours.configure_run(0, tmp_path / "new", "ES")
    with pytest.raises(ImportError, match="needs tensorboardX or tensorboard"):
        FastES("CartPole-v1", tensorboard_log=str(tmp_path / "new"), n_workers=0)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tensorboardX all is there; without torch, too, images and hyper-parameters are missing, and that is said."""
    pytest.importorskip("tensorboardX")
    pytest.importorskip("tensorboard")
    values: dict[str, Any] = {"x": 1.5, "flag": True, "note": "words", "many": np.arange(9.0)}
    special = {"image": Image(np.zeros((8, 8, 3), np.uint8), "HWC")}
    tell(ours.configure(tmp_path / "X", ["tensorboard"]), [values])
    _without(monkeypatch, "tensorboardX")
    tell(ours.configure(tmp_path / "itself", ["tensorboard"]), [values])
    found = [tmp_path / name for name in ("X", "itself")]
    assert scalars(found[1]) == scalars(found[0]) == {"x": [(0, 1.5)], "flag": [(0, 1.0)]}
    assert texts(found[1]) == texts(found[0]) == {"note/text_summary": [(0, "words")]}
    histogram = events(found[1]).Histograms("many")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0.0, 8.0, 9.0, 36.0)
    assert sum(histogram.bucket) == 9.0
    assert len(histogram.bucket) == len(histogram.bucket_limit)
    _without(monkeypatch, "torch")
    with pytest.warns(RuntimeWarning, match="image is left out of TensorBoard's files: that needs tensorboardX or torch"):
        tell(ours.configure(tmp_path / "bare", ["tensorboard"]), [{**values, **special}])
    assert scalars(tmp_path / "bare") == scalars(found[0])


def test_images_come_from_torch_where_tensorboardx_is_missing(
    theirs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch.utils.tensorboard")
    special = {"image": theirs.Image(np.zeros((8, 8, 3), np.uint8), "HWC"), "hparam": theirs.HParam({"lr": 0.1}, {"x": 0.0})}
    _without(monkeypatch, "tensorboardX")
    tell(ours.configure(tmp_path, ["tensorboard"]), [{"x": 1.0, **special}])
    found = events(tmp_path)
    assert found.Tags()["images"] == ["image"]
    assert "hparams" in found.summary_metadata["_hparams_/experiment"].plugin_data.plugin_name


def test_the_last_known_evaluation_is_logged(tmp_path: Path) -> None:
    """Where log_interval skips the generations with which evaluations are told."""
    logged = list[float]()

    class Format:
        def write(self, values: dict[str, Any], *_: Any) -> None:
            logged.append(values.get("es/eval_return", math.nan))

        def close(self) -> None: ...

    told = list[float]()

    def note(_: Any, record: Record) -> None:
        told.append(record.eval_return)

    small: dict[str, Any] = {"population_size": 4, "preset": "default", "seed": 0, "target_return": "none"}
    with FastES(Toy, n_workers=0, eval_every=4, eval_lag=0, **small) as model:
        model.set_logger(ours.Logger(None, [Format()]))
        model.learn(800, note, log_interval=2)
    assert [math.isnan(value) for value in told[:5]] == [False, True, True, True, False]
    assert logged == [told[number // 4 * 4] for number in range(1, len(told), 2)]


def test_files_that_were_opened_are_closed_when_the_next_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "progress.json").mkdir()
    with pytest.raises(IsADirectoryError):
        ours.configure(tmp_path, ["csv", "json"])


def test_a_progress_bar_stays_whole() -> None:
    from tqdm import tqdm

    class Screen(io.StringIO):
        name = "<stdout>"

    screen = Screen()
    with tqdm(total=3, file=screen):
        tell(ours.Logger(None, [ours.HumanOutputFormat(screen)]), [{"x": 1}])
        assert "\r---------\n| x | 1 |\n---------\n" in screen.getvalue()


@pytest.mark.parametrize("formats", ["", "stdout,log,csv,json", "tensorboard"])
def test_neither_torch_nor_sb3_is_imported(formats: str, tmp_path: Path) -> None:
    if formats == "tensorboard":
        pytest.importorskip("tensorboardX")
    code = (
        "import sys; from fastes.sb3.logger import configure\n"
        f"logger = configure({str(tmp_path)!r}, {formats!r}.split(','))\n"
        "logger.record('x', 1.0); logger.record('y', 'z'); logger.dump(); logger.close()\n"
        "print(*sorted({'torch', 'stable_baselines3', 'tensorflow'} & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr.strip()) == (0, "")


def test_torch_can_be_imported_after_tensorboardx() -> None:
    pytest.importorskip("tensorboardX")
    pytest.importorskip("torch")
    code = (
        "from fastes.reports.event_files import load; load('tensorboardX.summary')\n"
        "import torch; print(torch.zeros(1).sum().item())"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout.strip()) == (0, "0.0"), result.stderr
