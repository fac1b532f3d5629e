"""Risk: a notebook of the examples fails, or a real kernel shows something else than our stand-ins for it do."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "quick_start.ipynb"
PICTURE, TABLE = "image/png", "text/html"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the files of Jupyter and IPython out of the user's folders."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def _execute(notebook: Any, folder: Path) -> list[list[dict[str, Any]]]:
    """Run a notebook in a kernel of this Python. Returns the outputs of each code cell: MIME type -> content."""
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [each for cell in cells for each in cell.outputs if each.output_type == "error"]
    return [[output.data for output in cell.outputs if "data" in output] for cell in cells]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_an_example_has_no_outputs(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)
    assert {cell.execution_count for cell in code} == {None}


def test_the_example_runs(tmp_path: Path) -> None:
    _, learn, (figure,), (evaluation,), _ = _execute(nbformat.read(EXAMPLE, as_version=4), tmp_path)
    *_, curve, model = learn
    assert PICTURE in curve
    assert PICTURE in figure
    assert "solved: fresh episodes reach 475" in model[TABLE]
    mean = re.search(r"mean return</th><td[^>]*>([\d.]+)", evaluation[TABLE])
    assert mean is not None
    assert float(mean[1]) > 450.0


def test_the_example_of_an_own_environment_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "own_environment.ipynb", as_version=4)
    *_, (figure,), (evaluation,), _ = _execute(notebook, tmp_path)
    assert PICTURE in figure
    mean = re.search(r"mean return</th><td[^>]*>(-[\d.]+)", evaluation[TABLE])
    assert mean is not None
    assert float(mean[1]) > -100.0
    assert "degrees" in notebook.cells[-1].outputs[-1].text


@pytest.mark.slow
def test_a_kernel_shows_curve_and_video(tmp_path: Path) -> None:
    """The curve in one output, however often it is drawn, before and after pyplot has told IPython of its figures."""
    cells = [
        "from fastes import FastES\n"
        "import fastes.reports.live_curve as live\n"
        "live.SECONDS = 0.0\n"
        "model = FastES('CartPole-v1', seed=0, n_workers=0, target_return='none')\n"
        "model.learn(30_000, progress_bar=True);",
        "model.plot()",
        "import matplotlib.pyplot\nmodel.plot()",
    ]
    can_draw = all(importlib.util.find_spec(name) for name in ("imageio_ffmpeg", "pygame"))
    cells += ["model.play(max_seconds=0.5)"] if can_draw else []
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    (_, curve), (before,), (after,), *videos = _execute(notebook, tmp_path)
    assert [PICTURE in each for each in (curve, before, after)] == [True] * 3
    for (video,) in videos:
        assert video[TABLE].startswith("<video controls ")
