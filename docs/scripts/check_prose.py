"""Check the English of pages, docstrings and messages against a table of habits that a native technical writer does not have.

python docs/scripts/check_prose.py                      # fails if a folder has more findings than prose_counts.txt allows
python docs/scripts/check_prose.py --show fastes/pools  # every finding there, with what to write instead
python docs/scripts/check_prose.py --update             # store today's counts; refused if their sum rises

Code, comments, examples and the addresses of links are not checked. Messages are the strings in fastes/ that have a space. A
rule is a pattern and advice; a space in a pattern matches any white space. To add a rule, add a line to RULES and an example to
tests/docs/test_prose.py.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COUNTS = Path(__file__).with_name("prose_counts.txt")
PYTHON_FOLDERS = ("fastes", "docs", "benchmarks", "wheels")
GENERATED = ("settings.md", "preset-settings.md", "command-line.md")  # docs/scripts/make_reference.py writes them
LONGEST_LINE = 128
MOST_NUMBERS = 6  # in a sentence; more belong into a table

PAGES, DOCSTRINGS, MESSAGES, ALL = "pages", "docstrings", "messages", "all"
_UNIT = (
    r"(?:lines?|steps?|bytes?|kB|MB|threads?|process(?:es)?|workers?|candidates?|episodes?|actions?|calls?|rows?|[numμ]?s|"
    r"seconds?|one|\d)"
)
_EACH = r"(?:usable )?(?:generation|second|core|CPU|candidate|step|worker|node|episode|process|value|row|seed|turn)"


class Rule(NamedTuple):
    """A habit.

    pattern: a regular expression; spaces match any white space.
    instead: what to write.
    where: which texts it is for.
    """

    name: str
    pattern: str
    instead: str
    where: str = ALL


RULES = (
    Rule("opening", r"\A(?:What|Of|Where|Whose|Those|That which)\b", "begin with a noun or a verb", DOCSTRINGS),
    Rule("who", r"\b[Ww]hom?\b", "name the process, function or class", DOCSTRINGS),
    Rule("person", r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody|[Ww]hoever)\b", "name the process, function or user"),
    Rule("per", rf"\b{_UNIT} an? {_EACH}\b", "per: 'one worker per core'"),
    Rule("told", r"\b(?:is|are|was|were|be|been) told\b|\btold (?:late|later|when|with)\b", "reported, passed, given"),
    Rule("booked", r"\bbook(?:ed|ing)\b", "committed, recorded"),
    Rule("met", r"\b(?:is|are|be) met\b", "handled, processed"),
    Rule("mend", r"\b[Mm]end(?:s|ed|ing)?\b", "fix, repair"),
    Rule("let go", r"\blet(?:s|ting)? go of\b", "release, drop"),
    Rule("go on", r"\b(?:[Gg]o|goes|going|went|gone) on\b(?! to\b)", "continue, resume"),
    Rule("but for", r"\bbut for\b", "except, apart from"),
    Rule("no more", r"\bno more\b(?! than\b)", "no longer, no further"),
    Rule("by itself", r"\bby (?:itself|themselves)\b", "automatically, on its own"),
    Rule("as ever", r"\bas ever\b", "as usual, as before"),
    Rule("so many", r"\bso (?:many|much|few)\b(?! that\b)", "this many, that much; or name the number"),
    Rule("anew", r"\banew\b", "again, newly"),
    Rule("from then on", r"\bfrom (?:there|then) on\b", "afterwards, from generation n"),
    Rule("by and by", r"\bby and by\b|\bby the way\b", "gradually; or leave it out"),
    Rule("beside", r"\b[Bb]eside\b", "next to, with, in addition to, compared with"),
    Rule("where for if", r"\bwhere (?:none|nothing|no|there|it is|they are|that is|one is|this is)\b", "if, when"),
    Rule("Where for if", r"(?<=[.:]\s)Where (?![^.?]*\?)", "If, When"),
    Rule("What as a subject", r"(?<=[.:]\s)What (?![^.?]*\?)", "name the noun"),
    Rule("pronoun chain", r"\b(?:that|those) of (?:that|those|these|it|them)\b|\bof (?:theirs|ours|hers)\b", "repeat the noun"),
    Rule("is no", r"\b(?!(?:there|There)\b)\w+ (?:is|are|was|were) no (?!longer|more|less|better|worse)\w+", "is not a"),
    Rule("archaic", r"\b(?:thereof|therein|wherein|whereof|hereby|thereby|thereupon|wherefore)\b", "a plain clause"),
    Rule("that is there", r"\b(?:that|which|who) (?:is|are|was|were) there\b", "that exists, available, present"),
    Rule("in the mean", r"\bin the mean\b", "on average"),
    Rule("has score", r"\b(?:seed|seeds|preset|policy|run) \d* ?(?:has|have|had) -?\d", "scores, reaches", PAGES),
    Rule("Of first", r"(?<=[.:]\s)Of (?!course)", "begin with the subject"),
    Rule("cannot", r"\bcan not\b", "cannot"),
    Rule("dear", r"\b(?:is|are|or) dear\b", "expensive"),
)
_COMPILED = tuple((rule, re.compile(rule.pattern.replace(" ", r"\s+"))) for rule in RULES)


class Finding(NamedTuple):
    path: Path
    line: int
    rule: str
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.words!r}: {self.instead}"


def findings_in(text: str, where: str) -> Iterator[tuple[int, Rule, str]]:
    """Yield (line from 0, rule, words) for each place of a text to which a rule of its kind applies."""
    for rule, pattern in _COMPILED:
        if rule.where in (ALL, where):
            for found in pattern.finditer(text):
                yield text.count("\n", 0, found.start()), rule, " ".join(found[0].split())


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def prose_of_page(text: str) -> str:
    """Return a Markdown page without code, comments, formulas and addresses, on the same lines."""
    text = re.sub(r"^( *)```.*?^\1```$", _blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$", _blank, text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]+`|\$[^$\n]+\$", "code", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def prose_of_docstring(text: str) -> str:
    """Return a docstring without code in backticks and without examples, on the same lines."""
    text = re.sub(r"``[^`]+``|`[^`]+`", lambda found: "code" + _blank(found), text)
    return "\n".join("" if line.lstrip().startswith((">>>", "...")) else line for line in text.split("\n"))


def sentences_with_many_numbers(prose: str) -> Iterator[tuple[int, str]]:
    """Yield (line from 0, its beginning) for each sentence outside of tables that has more than MOST_NUMBERS numbers."""
    outside = "\n".join("" if line.lstrip().startswith("|") else line for line in prose.split("\n"))
    for found in re.finditer(r"[^\s.](?:[^.\n]|\.(?=\S)|\n(?!\s*\n))*", outside):
        if len(re.findall(r"(?<![\w.])[-+]?\d[\d,.]*(?![\w.]*-v\d)", found[0])) > MOST_NUMBERS:
            yield outside.count("\n", 0, found.start()), " ".join(found[0].split())[:60]


def _long_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line from 0, its beginning) for each line that could be wrapped and is not."""
    in_block = False
    for number, line in enumerate(text.split("\n")):
        in_block ^= line.lstrip().startswith("```")
        if len(line) > LONGEST_LINE and not in_block and not line.lstrip().startswith("|"):
            yield number, line[:60]


def _rows_without_a_header(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line from 0, its beginning) for each block of table rows that Markdown takes for a paragraph."""
    lines = ["", *re.sub(r"^( *)```.*?^\1```$", _blank, text, flags=re.MULTILINE | re.DOTALL).split("\n"), ""]
    for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False)):
        if line.startswith("|") and not before.startswith("|") and not re.fullmatch(r"\|[-:| ]+\|", after):
            yield number, line[:60]


def findings_of_page(path: Path) -> list[Finding]:
    """Check a Markdown page; lines count from 1."""
    text = path.read_text(encoding="utf-8")
    prose = prose_of_page(text)
    found = [Finding(path, line + 1, rule.name, words, rule.instead) for line, rule, words in findings_in(prose, PAGES)]
    found += [Finding(path, line + 1, "numbers", words, "a table") for line, words in sentences_with_many_numbers(prose)]
    found += [Finding(path, line + 1, "long line", words, f"wrap at {LONGEST_LINE}") for line, words in _long_lines(text)]
    found += [
        Finding(path, line + 1, "table", words, "no blank line before it") for line, words in _rows_without_a_header(text)
    ]
    return sorted(found, key=lambda each: each.line)


@functools.lru_cache(maxsize=1)
def _parsed(path: Path) -> ast.Module:
    """Return a module's syntax tree, which is read for docstrings and for messages, one after the other."""
    return ast.parse(path.read_text(encoding="utf-8"))


def messages_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) for each text with a space that is not a docstring. A number stands for a value in an f-string."""
    parts = set()
    for node in ast.walk(tree):  # a node comes before its parts
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(node.value)
        text = None
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = node.value
        if text is not None and " " in text:
            yield node.lineno, text


def findings_of_messages(path: Path) -> list[Finding]:
    """Check the messages of a module; each finding has the line in which its message begins."""
    return [
        Finding(path, line, rule.name, words, rule.instead)
        for line, text in messages_of(_parsed(path))
        for _, rule, words in findings_in(text, MESSAGES)
    ]


def findings_of_module(path: Path) -> list[Finding]:
    """Check the docstrings of a module; lines count from 1."""
    found = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                first = node.body[0].lineno
                for line, rule, words in findings_in(prose_of_docstring(text), DOCSTRINGS):
                    found.append(Finding(path, first + line, rule.name, words, rule.instead))
    return sorted(found, key=lambda each: each.line)


def all_findings() -> list[Finding]:
    """Check every page, docstring and message of the repository."""
    found: list[Finding] = []
    for path in sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")):
        if path.name not in GENERATED and path.name != "CHANGELOG.md":
            found += findings_of_page(path)
    for folder in PYTHON_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += findings_of_module(path)
            if folder == "fastes":
                found += findings_of_messages(path)
    return found


def folder_of(path: Path) -> str:
    """Return the folder that a file is counted under: its top two, as `fastes/pools` and `docs/guide`; '.' for README.md."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2]) or "."


def counts_of(findings: list[Finding]) -> Counter[str]:
    return Counter(folder_of(each.path) for each in findings)


def stored_counts(path: Path | None = None) -> Counter[str]:
    """Read the counts that are allowed: one `folder number` per line, the lowest if a merge has left several of a folder."""
    counts: Counter[str] = Counter()
    for line in (path or COUNTS).read_text(encoding="utf-8").splitlines():
        if line.strip():
            folder, number = line.split()
            counts[folder] = min(int(number), counts.get(folder, int(number)))
    return counts


def update(found: Counter[str], path: Path) -> None:
    """Store today's counts. Raise SystemExit if there are more in all than were allowed."""
    allowed = stored_counts(path)
    if found.total() > allowed.total():
        raise SystemExit(f"{found.total()} findings, and {allowed.total()} were allowed: fix {found.total() - allowed.total()}")
    path.write_text("".join(f"{folder} {number}\n" for folder, number in sorted(found.items())), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the check; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--show", metavar="PATH", help="print every finding under this path, allowed or not")
    parser.add_argument("--update", action="store_true", help="store today's counts")
    options = parser.parse_args(arguments)
    findings = all_findings()
    found, allowed = counts_of(findings), stored_counts()
    if options.update:
        update(found, COUNTS)
        return 0
    if options.show is not None:
        below = Path(options.show).resolve()
        for each in findings:
            if below in (each.path, *each.path.parents):
                print(each)
        return 0
    worse = sorted(folder for folder in found if found[folder] > allowed[folder])
    for folder in worse:
        print(*(each for each in findings if folder_of(each.path) == folder), sep="\n")
        print(f"{folder}: {found[folder]} findings, {allowed[folder]} allowed (a folder moved? --update)", file=sys.stderr)
    if not worse and found.total() < allowed.total():
        print(f"{allowed.total() - found.total()} findings fewer than allowed: store that by --update")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
