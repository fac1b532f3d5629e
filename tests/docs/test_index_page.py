"""Risk: the page of the package index shows broken pictures, and links that lead nowhere."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def index_page() -> Callable[..., str]:
    made: Callable[..., str] = runpy.run_path(str(ROOT / "setup.py"))["index_page"]
    return made


def test_links_of_the_repository_become_text_and_pictures_go(index_page: Callable[..., str]) -> None:
    text = "![a robot](docs/a.gif)\nsee [the *page*](docs/b.md#c), [a paper](https://arxiv.org/abs/1), [below](#d)\n"
    assert index_page(text) == "\nsee the *page*, [a paper](https://arxiv.org/abs/1), [below](#d)\n"


def test_links_lead_to_the_repository_where_it_has_an_address(index_page: Callable[..., str]) -> None:
    text = "![a robot](docs/a.gif)\nsee [the page](docs/b.md#c), [a paper](https://arxiv.org/abs/1)\n"
    base = "https://example.org/fastes"
    shown = f"![a robot]({base}/raw/HEAD/docs/a.gif)\nsee [the page]({base}/blob/HEAD/docs/b.md#c)"
    assert index_page(text, base) == f"{shown}, [a paper](https://arxiv.org/abs/1)\n"


def test_no_file_is_linked_by_the_readme_of_the_index(index_page: Callable[..., str]) -> None:
    assert re.findall(r"\]\((?!https?:|#)", README)
    page = index_page(README)
    assert not re.findall(r"\]\((?!https?:|#)", page)
    assert "<img" not in page
    assert "](https://arxiv.org/" in page
