"""Draw docs/architecture.svg from the layers in docs/architecture.md. Run by `make docs`; a test compares the two.

python docs/scripts/draw_architecture.py        # writes the picture
python docs/scripts/draw_architecture.py -      # prints it
"""

from __future__ import annotations

import re
import sys
import textwrap
from html import escape
from pathlib import Path

HERE = Path(__file__).parents[1]
LAYER = re.compile(r"^\| (`[\w./]+`(?:, `[\w./]+`)*) \| ([^|]+) \|$", re.MULTILINE)
LINE, GAP, WIDTH, NAME, TOP = 17, 6, 1080, 300, 20
NAME_LETTERS, LETTERS = 32, 104  # of a line: the widest font that a reader may have takes 7 pixels per letter, 8 if bold
FOLDER, MODULE, CORE = "#eef3fb", "#ffffff", "#f2f0f7"


def picture(layers: list[tuple[str, str]]) -> str:
    """The layers as rows, the highest first as in the table, and the C core below them."""
    parts, y = list[str](), TOP
    for name, sentence in layers:
        drawn, y = row(y, name.replace("`", ""), sentence, FOLDER if "/`" in name else MODULE)
        parts += drawn
    core, y = row(y + TOP // 2, "src/", "the arithmetic in C, bound as fastes._core", CORE)
    height = y - GAP + TOP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 2 * TOP} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{WIDTH + 2 * TOP}" height="{height}" fill="#ffffff"/>',
    ]
    return "\n".join([*head, *parts, *core, "</svg>"]) + "\n"


def row(y: int, name: str, sentence: str, fill: str) -> tuple[list[str], int]:
    """A box with a layer's name and its sentence, broken into lines, and where the next one begins."""
    names = textwrap.wrap(name, NAME_LETTERS)
    sentences = textwrap.wrap(sentence.strip().replace("`", ""), LETTERS)
    height = LINE * max(len(names), len(sentences)) + 12
    box = f'<rect x="{TOP}" y="{y}" width="{WIDTH}" height="{height}" rx="4" fill="{fill}" stroke="#445566"/>'
    return [box, *lines(TOP + 12, y, names, ' font-weight="bold"'), *lines(TOP + NAME, y, sentences)], y + height + GAP


def lines(x: int, y: int, texts: list[str], look: str = "") -> list[str]:
    """Lines of text in a box that begins at y."""
    return [
        f'<text x="{x}" y="{y + LINE * number + 18}"{look} fill="#222233">{escape(text)}</text>'
        for number, text in enumerate(texts)
    ]


def main() -> None:
    drawn = picture(LAYER.findall((HERE / "architecture.md").read_text(encoding="utf-8")))
    if sys.argv[1:] == ["-"]:
        print(drawn, end="")
    else:
        (HERE / "architecture.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
