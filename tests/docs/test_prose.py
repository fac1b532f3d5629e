"""Risk: the check of English passes what it forbids, forbids what is right, or its allowance grows."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("check_prose", ROOT / "docs" / "scripts" / "check_prose.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["check_prose"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = _load()

EXAMPLES = {  # rule: a sentence that it is for, and the same in plain English
    "opening": ("What the pool was asked.", "The request."),
    "who": ("The one who asks waits.", "The caller waits."),
    "person": ("Then nobody waits.", "Then no worker waits."),
    "per": ("It starts one process a\ncore.", "It starts one process per core."),
    "told": ("The result is told later.", "The result is reported later."),
    "booked": ("A generation is booked whole.", "A generation is committed whole."),
    "met": ("An error is met when it comes.", "An error is handled when it comes."),
    "mend": ("Longer runs mend it.", "Longer runs fix it."),
    "let go": ("It lets go of the lock.", "It releases the lock."),
    "go on": ("Training goes on.", "Training continues."),
    "but for": ("All but for one.", "All except one."),
    "no more": ("It rises no more.", "It no longer rises, by no more than 1."),
    "by itself": ("It starts by itself.", "It starts automatically."),
    "as ever": ("Sums are as ever.", "Sums are as before."),
    "so many": ("A budget of so many steps.", "A budget of this many steps; so many that memory runs out."),
    "anew": ("It is built anew.", "It is built again."),
    "from then on": ("Calls count from then on.", "Calls count afterwards."),
    "by and by": ("It falls by and by.", "It falls gradually."),
    "beside": ("Beside SB3 it is fast.", "Compared with SB3 it is fast."),
    "where for if": ("It waits where there is a lag.", "It waits if there is a lag; the folder where the file lies."),
    "Where for if": ("Yes. Where one fails, all stop.", "Yes. If one fails, all stop. Where is it?"),
    "What as a subject": ("Yes. What it gains is small.", "Yes. The gain is small. What is it?"),
    "pronoun chain": ("The bits are those of these.", "The bits are those of the kernels."),
    "is no": ("A long episode is no hang.", "A long episode is not a hang. There is no hang. It is no better."),
    "archaic": ("The state and the parts thereof.", "The state and its parts."),
    "that is there": ("Take the connection that is there.", "Take the existing connection."),
    "in the mean": ("It takes 3 s in the mean.", "It takes 3 s on average."),
    "has score": ("Then seed 3 has 4516.", "Then seed 3 scores 4516. The policy has a bias."),
    "Of first": ("Yes. Of a Dict it takes all.", "Yes. It takes all of a Dict. Of course."),
    "cannot": ("It can not do that.", "It cannot do that."),
    "dear": ("Steps are dear.", "Steps are expensive."),
}


def test_there_is_an_example_for_each_rule() -> None:
    assert set(EXAMPLES) == {rule.name for rule in check.RULES}
    assert len(check.RULES) == len(EXAMPLES), "two rules of one name"


@pytest.mark.parametrize("rule", check.RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_and_takes_what_is_right(rule: Any) -> None:
    wrong, right = EXAMPLES[rule.name]
    where = check.PAGES if rule.where == check.ALL else rule.where
    assert rule.name in [found.name for _, found, _ in check.findings_in(wrong, where)]
    assert rule.name not in [found.name for _, found, _ in check.findings_in(right, where)]
    if rule.where != check.ALL:
        other = check.DOCSTRINGS if where == check.PAGES else check.PAGES
        assert rule.name not in [found.name for _, found, _ in check.findings_in(wrong, other)]


def test_code_is_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n```python\n# nobody\n```\n`nobody` [a](nobody.md)\n<!-- nobody -->\nnobody\n", encoding="utf-8")
    assert [(each.line, each.rule) for each in check.findings_of_page(page)] == [(8, "person")]
    module = tmp_path / "module.py"
    module.write_text(
        'x = "nobody"\n\n\ndef f():\n    """Begin.\n\n    `nobody`: nobody.\n\n    >>> nobody\n    """\n', encoding="utf-8"
    )
    assert [(each.line, each.rule) for each in check.findings_of_module(module)] == [(7, "person")]


def test_messages_are_prose(tmp_path: Path) -> None:
    """A value may stand for any words; names, docstrings and the parts of an f-string are not messages of their own."""
    module = tmp_path / "module.py"
    module.write_text(
        'def f(n):\n    """Nobody."""\n    x = {"nobody": 1}\n    print(f"{n} is no number: {n!r}")\n'
        '    raise ValueError("a value "\n        "that nobody has")\n',
        encoding="utf-8",
    )
    assert [(each.line, each.rule) for each in check.findings_of_messages(module)] == [(4, "is no"), (5, "person")]


def test_numbers_and_long_lines_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    numbers = ", ".join(str(number) for number in range(1, check.MOST_NUMBERS + 2))
    table = f"| a |\n|---|\n| {numbers} |"
    text = f"One. Scores are {numbers}.\n\n{table}\n\nScores are 1, 2, 3.5. Scores are 4, 5 on A-v5.\n\n{'word ' * 40}\n"
    page.write_text(text, encoding="utf-8")
    assert [(each.line, each.rule) for each in check.findings_of_page(page)] == [(1, "numbers"), (9, "long line")]


def test_rows_without_a_header_are_no_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n\n```text\n| x |\n```\n", encoding="utf-8")
    assert [(each.line, each.rule) for each in check.findings_of_page(page)] == [(5, "table")]


def test_an_allowance_only_falls(tmp_path: Path) -> None:
    stored = tmp_path / "counts.txt"
    stored.write_text("a 3\nb 1\n", encoding="utf-8")
    check.update(Counter({"a": 1, "c": 2}), stored)  # a folder may move
    assert check.stored_counts(stored) == {"a": 1, "c": 2}
    with pytest.raises(SystemExit, match="4 findings, and 3 were allowed"):
        check.update(Counter({"a": 4}), stored)
    assert check.stored_counts(stored) == {"a": 1, "c": 2}
    stored.write_text("a 3\nb 1\na 2\n", encoding="utf-8")
    assert check.stored_counts(stored) == {"a": 2, "b": 1}, "as git's union of two updates leaves them"


def test_more_than_a_folder_is_allowed_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("Nobody waits.\n", encoding="utf-8")
    (tmp_path / "counts.txt").write_text("docs 1\n", encoding="utf-8")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "COUNTS", tmp_path / "counts.txt")
    assert check.main([]) == 0
    (tmp_path / "docs" / "page.md").write_text("Nobody waits. Nobody asks.\n", encoding="utf-8")
    assert check.main([]) == 1
    said = capsys.readouterr()
    assert "page.md:1: person: 'Nobody'" in said.out
    assert "docs: 2 findings, 1 allowed" in said.err


def test_the_repository_has_no_more_findings_than_are_stored() -> None:
    found, allowed = check.counts_of(check.all_findings()), check.stored_counts()
    assert found.total() <= allowed.total(), "python docs/scripts/check_prose.py --show FOLDER"
