"""A figure of Matplotlib that a notebook shows without pyplot. Importing this module imports Matplotlib."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that draws itself as a PNG: a notebook knows other figures only once pyplot is imported."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
