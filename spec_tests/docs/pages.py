"""What a page asks of its reader: files to save, commands to run, and the output to expect.

Every fence names its language. ``sh`` and ``console`` fences are run, in the order of the page, and
a comment on the line before a fence says more about it:

``<!-- file: NAME -->``        the fence is a file, which the reader saves under this name
``<!-- output -->``            the fence (``text``) is what the last command has printed
``<!-- serves: PORT -->``      the fence's last command runs on; it is ready when PORT accepts
``<!-- needs: NAME -->``       the section is run only where this program or package is there
``<!-- not run: REASON -->``   the fence cannot be run on one machine without a network
``<!-- status: N -->``         the fence's last command ends with this exit status

By itself between paragraphs, ``<!-- stop: PORT -->`` is the reader who presses Ctrl-C.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = {"sh", "console"}
SHOWN = {"text", "python", "toml", "yaml", "json", "ini", "nginx", "http", "{toctree}"}
"""Languages of fences that are not commands."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<body>.*?)^ *```$", re.M | re.S)
_HEADING = re.compile(r"^#+ ", re.M)
_COMMENT = re.compile(r"<!-- (file|output|serves|needs|not run|status|stop)(?:: ([^>]+?))? -->")


@dataclass(frozen=True)
class Step:
    """One fence that matters, or a stop."""

    line: int
    language: str
    body: str
    word: str = ""
    """The word of the comment before it."""
    value: str = ""
    section: int = 0
    """The heading under which it stands, as a count of headings."""


def pages() -> list[Path]:
    """All pages whose commands are run."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if path.name != "interface.md"]


def name_of(page: Path) -> str:
    """A page as the tests name it."""
    return str(page.relative_to(ROOT))


def steps(text: str) -> list[Step]:
    """The fences and stops of a page, in order. Raises ValueError for what is not understood."""
    found: list[tuple[int, Step]] = []
    fences = list(_FENCE.finditer(text))
    if text.count("```") != 2 * len(fences):
        raise ValueError("a fence without an end, or one within a line")
    inside = [range(fence.start(), fence.end()) for fence in fences]
    starts = [match.start() for match in _HEADING.finditer(text)]
    headings = [at for at in starts if not any(at in fence for fence in inside)]
    used: set[int] = set()
    for fence in fences:
        line = text.count("\n", 0, fence.start()) + 1
        language = fence["language"]
        if fence["indent"]:
            raise ValueError(f"line {line}: a fence within a list is not run")
        if language not in RUN | SHOWN:
            raise ValueError(f"line {line}: a fence has no known language, but {language!r}")
        word = value = ""
        before = text[: max(0, fence.start() - 1)]
        if (last := _COMMENT.search(before.rpartition("\n")[2])) is not None:
            word, value = last[1], last[2] or ""
            used.add(before.rpartition("\n")[0].count("\n") + 1)
        section = bisect_right(headings, fence.start())
        found.append((fence.start(), Step(line, language, fence["body"], word, value, section)))
    for comment in _COMMENT.finditer(text):
        row = text.count("\n", 0, comment.start())
        if comment[1] == "stop":
            step = Step(row + 1, "", "", "stop", comment[2])
            found.append((comment.start(), step))
        elif row not in used and row != 0:
            raise ValueError(f"line {row + 1}: {comment[0]} stands before no fence")
    return [step for _, step in sorted(found, key=lambda item: item[0])]


def is_run(step: Step) -> bool:
    """Whether the reader types this step into a terminal and the tests do so too."""
    return step.language in RUN and step.word != "not run"


_CONTINUED = re.compile(r"\\\n")


def commands(step: Step) -> list[tuple[str, str]]:
    """The commands of a step with the output that a ``console`` fence shows for each."""
    if step.language == "console":
        parts = re.split(r"^\$ ", step.body, flags=re.M)
        if parts[0].strip():
            raise ValueError(f"line {step.line}: a console fence begins with '$ '")
        return [_first_and_rest(part) for part in parts[1:]]
    found = [""]
    for row in _joined(step.body):
        node = _NODE_AT_END.match(row)
        before, last = (node[1], node[2]) if node else (row, "")
        if is_node(before):
            before, last = "", before
        if before:
            found[-1] += before + "\n"
        if last:
            found += [last, ""]
    return [(one, "") for one in found if one.strip()]


def _joined(body: str) -> Iterator[str]:
    """The lines of a script, each with those that a backslash at its end continues."""
    whole = ""
    for row in body.splitlines():
        whole += row
        if row.endswith("\\"):
            whole += "\n"
        else:
            yield whole
            whole = ""


def _first_and_rest(part: str) -> tuple[str, str]:
    rows = part.splitlines()
    count = 1
    while rows[count - 1].endswith("\\"):
        count += 1
    return "\n".join(rows[:count]), "\n".join(rows[count:])


_NODE = re.compile(
    r"^(?:\w+=\S+ +)*(?:python -m )?meshnode(?: +--(?!help|version)[a-z-]+(?: +\S+)?)*(?: +#.*)?$"
)
_NODE_AT_END = re.compile(rf"^(.*) && ({_NODE.pattern[1:-1]})$", re.S)


def is_node(command: str) -> bool:
    """Whether a command runs a node, which does not end by itself."""
    return _NODE.match(_CONTINUED.sub(" ", command)) is not None


def port_of(command: str) -> int:
    """The HTTP port of a node."""
    given = re.search(r"--port (\d+)", command)
    return int(given[1]) if given else 8000


_VARYING = (
    (re.compile(r"mn_[A-Za-z0-9_.-]+"), "mn_"),
    (re.compile(r"\bmesh1[0-9a-z]+"), "mesh1"),
    (re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{8,}(?![0-9A-Za-z])"), "#"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[0-9:.Z]*"), "0"),
    (re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?:e-?\d+)?"), "0"),
    (re.compile(r"\s+"), " "),
)
"""What differs from run to run: secrets, identifiers, figures, and widths of columns."""


def plain(text: str) -> str:
    """A line without what varies from run to run."""
    for pattern, same in _VARYING:
        text = pattern.sub(same, text)
    return text.strip()


def fits(shown: str, printed: str) -> str:
    """Why ``printed`` is not what the page shows, or "". ``...`` stands for anything, in a line or
    for lines; figures, identifiers and tokens may differ; further lines may follow."""
    lines = [plain(line) for line in printed.splitlines() if line.strip()]
    at, free = 0, True
    for row in shown.splitlines():
        if not row.strip():
            continue
        if row.strip() in ("...", "…"):
            free = True
            continue
        pattern = ".*".join(re.escape(plain(part)) for part in re.split(r"\.\.\.|…", row))
        pattern = pattern.replace(r"\ .*", r" ?.*").replace(r".*\ ", r".* ?")
        fitting = (n for n in range(at, len(lines)) if re.fullmatch(pattern, lines[n]))
        hit = next(fitting, None) if free else (at if at in fitting else None)
        if hit is None:
            return f"no line fits {row!r}"
        at, free = hit + 1, False
    return ""
