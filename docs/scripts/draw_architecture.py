"""Draw docs/architecture.svg from the layers in docs/architecture.md. Run by `make docs`; a test compares the two.

python docs/scripts/draw_architecture.py        # writes the picture
python docs/scripts/draw_architecture.py -      # prints it
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).parents[1]
LAYER = re.compile(r"^\| (`[\w./]+`(?:, `[\w./]+`)*) \| ([^|]+) \|$", re.MULTILINE)
ROW, WIDTH, NAME, TOP = 34, 1080, 370, 20
FOLDER, MODULE, CORE = "#eef3fb", "#ffffff", "#f2f0f7"


def picture(layers: list[tuple[str, str]]) -> str:
    """The layers as rows, the highest first as in the table, and the C core below them."""
    height = TOP + ROW * (len(layers) + 1) + 2 * TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * TOP} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{WIDTH + 2 * TOP}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, sentence) in enumerate(layers):
        parts += row(TOP + ROW * number, name.replace("`", ""), sentence, FOLDER if "/`" in name else MODULE)
    parts += row(TOP + ROW * len(layers) + TOP // 2, "src/", "the arithmetic in C, bound as fastes._core", CORE)
    return "\n".join([*parts, "</svg>"]) + "\n"


def row(y: int, name: str, sentence: str, fill: str) -> list[str]:
    """A box with a layer's name and its sentence."""
    return [
        f'<rect x="{TOP}" y="{y}" width="{WIDTH}" height="{ROW - 6}" rx="4" fill="{fill}" stroke="#445566"/>',
        f'<text x="{TOP + 12}" y="{y + 19}" font-weight="bold" fill="#222233">{escape(name)}</text>',
        f'<text x="{TOP + NAME}" y="{y + 19}" fill="#222233">{escape(sentence.strip().replace("`", ""))}</text>',
    ]


def main() -> None:
    drawn = picture(LAYER.findall((HERE / "architecture.md").read_text(encoding="utf-8")))
    if sys.argv[1:] == ["-"]:
        print(drawn, end="")
    else:
        (HERE / "architecture.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
