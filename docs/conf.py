"""Settings of Sphinx for this site. `make docs` builds it, with warnings as errors."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

project = "FastES"
copyright = "the FastES authors"
release = version = metadata.version("fastes")
html_title = "FastES"
html_theme = "furo"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx-mathjax-offline", "sphinx_copybutton"]
exclude_patterns = ["scripts"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = "$ "
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what is taken
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
default_role = "code"  # docstrings quote names with single backticks
suppress_warnings = ["misc.highlighting_failure"]

_ENTRY = re.compile(r"^(\s*)((?:[A-Za-z_]\w*(?:, )?)+): (.+)$")
_GOOGLE = re.compile(r"^\s*(?:Args|Attributes|Example|Examples|Note|Raises|Returns|Yields):$")  # napoleon's


def _as_rst(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Turn plain text into reStructuredText: stars stay stars; `name: meaning` lines become a list, or are napoleon's."""
    is_google = any(_GOOGLE.match(line) for line in lines)
    written: list[str] = []
    in_entries = False
    for line in lines:
        line = line.replace("*", r"\*").replace("|", r"\|") if ">>>" not in line else line
        line = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", line) if ">>>" not in line else line
        if not is_google and (found := _ENTRY.match(line)) is not None and not line.lstrip().startswith((">>>", "http")):
            if not in_entries and written and written[-1].strip():
                written.append("")
            indent, names, meaning = found.groups()
            written.append(f"{indent}- **{names}**: {meaning}")
            in_entries = True
        elif in_entries and line.strip():
            written.append(f"  {line.strip()}")
        else:
            in_entries = False
            written.append(line)
    lines[:] = written


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _as_rst, priority=400)  # before napoleon, at 500
