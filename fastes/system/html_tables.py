"""Tables in HTML, by which objects show themselves in a notebook: without scripts and colours, so that any theme fits."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_LEFT = ' style="text-align: left"'


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table with a title and rows of a name and a value, all of which may be any text.

    >>> html_table("<a>", [("mean", 1.5)]).count("&lt;a&gt;")
    1
    """
    lines = (f'<tr><th scope="row"{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(str(value))}</td></tr>' for name, value in rows)
    return f'<table><thead><tr><th colspan="2"{_LEFT}>{escape(title)}</th></tr></thead><tbody>{"".join(lines)}</tbody></table>'
