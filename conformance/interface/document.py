"""The interface as Markdown: texts with tables from the catalogue.

Terms: a *text* is a file of `text/` with one numbered section; the texts are in the order of their
names. A line of a text may be a *directive*, which is replaced by a part of the catalogue:

    {{fields X}}        the fields of the JSON resource X that belong to the section
    {{message X}}       the fields of the gRPC message X
    {{requirements}}    the remaining requirements of the section
    {{contents}}        the list of sections

Lines `- name: note` under the first two add notes that the catalogue does not have. In running text
`[GEN-001]`, `interface 4.2`, `native network 1.3` and `decision 0013` become links.

Invariants, enforced with `TextError`: each requirement has exactly one anchor; no text names a
field, a message or a requirement that is not in the catalogue.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import conformance
from conformance import passive
from conformance.catalogue import Condition, Origin, Requirement, load
from conformance.suite import checks

HOME = Path(conformance.__file__).parent
TYPES = {
    "ints": "array of int", "strings": "array of string",
    "string?": "string or null", "object?": "object or null",
}  # fmt: skip
_HEADING = re.compile(r"## ([0-9.]+) (.+)")
_DIRECTIVE = re.compile(r"\{\{(\w+)(?: ([\w-]+))?\}\}")
_NOTE = re.compile(r"- ([\w.\[\]=-]+): (.+)")
_IDS = re.compile(r"\[([A-Z]+(?:-[A-Z0-9]+)+)\]")
# The words of a citation, then numbers of which each becomes a link.
_CITATION = re.compile(
    r"\b(interface|native network|decisions?) "
    r"([0-9][0-9.]*[0-9]|[0-9])((?:(?:, | and )(?:[0-9][0-9.]*[0-9]|[0-9])(?!\w))*)"
)
_NUMBER = re.compile(r"[0-9][0-9.]*[0-9]|[0-9]")


class TextError(Exception):
    """A text and the catalogue contradict each other."""


def render(link: Callable[[str, str], str]) -> str:
    """Return the document. `link` makes links to decisions and to files of the suite."""
    maker = _Maker(link)
    parts = [maker.part(text) for text in _texts()]
    left = sorted(set(load()) - maker.placed)
    if left:
        raise TextError(f"not in any text: {left}")
    return "\n".join(parts).replace("{{contents}}", "\n".join(maker.contents)) + "\n"


def _texts() -> list[str]:
    folder = resources.files("conformance") / "interface" / "text"
    paths = sorted(folder.iterdir(), key=lambda path: path.name)
    return [path.read_text(encoding="utf-8") for path in paths if path.name.endswith(".md")]


class _Maker:
    """Fills in one text after the other, and records which requirements have been placed."""

    def __init__(self, link: Callable[[str, str], str]) -> None:
        self.placed: set[str] = set()
        self.contents: list[str] = []
        self._link = link
        self._section = ""

    def part(self, text: str) -> str:
        lines = text.splitlines()
        made: list[str] = []
        while lines:
            line = lines.pop(0)
            heading, directive = _HEADING.fullmatch(line), _DIRECTIVE.fullmatch(line)
            if heading:
                made += self._heading(heading[1], heading[2])
            elif directive and directive[1] != "contents":
                notes: dict[str, str] = {}
                while lines and (note := _NOTE.fullmatch(lines[0])):
                    notes[note[1]] = self._linked(note[2])
                    lines.pop(0)
                made += self._table(directive[1], directive[2] or "", notes)
            else:
                deeper = line.startswith("### ") and "." in self._section
                made.append(("#" if deeper else "") + self._linked(line))
        return "\n".join(made) + "\n"

    def _heading(self, number: str, title: str) -> list[str]:
        self._section = number
        indent = "  " * number.count(".")
        self.contents.append(f"{indent}- [{number} {title}](#section-{number})")
        anchor = f'<a id="section-{number}"></a>'
        return [anchor, "", f"##{'#' * number.count('.')} {number} {title}"]

    def _linked(self, line: str) -> str:
        """Turn the citations and ids of a line into links."""

        def number(kind: str, match: re.Match[str]) -> str:
            if kind == "interface":
                return f"[{match[0]}](#section-{match[0]})"
            return self._link(kind.removesuffix("s"), match[0])

        def citation(match: re.Match[str]) -> str:
            numbers = _NUMBER.sub(lambda found: number(match[1], found), match[2] + match[3])
            return f"{match[1]} {numbers}"

        def ident(match: re.Match[str]) -> str:
            if match[1] not in load():
                raise TextError(f"unknown requirement {match[1]}")
            return f"[{match[1]}](#{match[1]})"

        return _IDS.sub(ident, _CITATION.sub(citation, line))

    def _table(self, kind: str, name: str, notes: Mapping[str, str]) -> list[str]:
        if kind == "requirements":
            return self._requirements()
        rows = self._fields(name, notes) if kind == "fields" else self._message(name, notes)
        if kind not in ("fields", "message") or not rows:
            raise TextError(f"section {self._section}: nothing of {kind} {name}")
        if kind == "message":
            head = f"| number | **{name}** | type | meaning | requirement |"
        else:
            head = "| field | type | meaning | requirements |"
        return [head, "|" + "---|" * (head.count("|") - 1), *rows]

    def _fields(self, name: str, notes: Mapping[str, str]) -> list[str]:
        paths: dict[str, list[Requirement]] = {}
        for item in load().values():
            if item.field and item.field.of == name and item.section == self._section:
                paths.setdefault(item.field.path, []).append(item)
        self._known(notes, paths)
        rows = []
        for path, items in paths.items():
            rules = [item.field for item in items if item.field]
            typed = next(rule for rule in rules if rule.aspect != "present")
            meaning = [notes[path]] if path in notes else []
            meaning += [f"a {rule.format}" for rule in rules if rule.format]
            meaning += [_condition(rules[0].when)] if rules[0].when else []
            kind = TYPES.get(typed.aspect, typed.aspect)
            anchors = ", ".join(self._anchor(item) for item in items)
            rows.append(_row(f"`{path}`", kind, "; ".join(meaning), anchors))
        return rows

    def _message(self, name: str, notes: Mapping[str, str]) -> list[str]:
        items = [
            (item.message, item)
            for item in load().values()
            if item.message and item.message.name == name
        ]
        self._known(notes, (rule.field for rule, _ in items))
        return [
            _row(
                str(rule.number),
                f"`{rule.field}`",
                f"`{'repeated ' if rule.repeated else ''}{rule.type}`",
                notes.get(rule.field, ""),
                self._anchor(item),
            )
            for rule, item in items
        ]

    def _known(self, notes: Iterable[str], names: Iterable[str]) -> None:
        unknown = set(notes) - set(names)
        if unknown:
            raise TextError(f"section {self._section}: notes about unknown {sorted(unknown)}")

    def _requirements(self) -> list[str]:
        rows = []
        for item in load().values():
            if item.section != self._section or item.field or item.message:
                continue
            level = "open" if item.origin is Origin.SILENT else item.level.value
            rows.append(_row(self._anchor(item), level, _plain(item.text), self._judged(item)))
        return ["| requirement | level | statement | judged by |", "|---|---|---|---|", *rows]

    def _anchor(self, item: Requirement) -> str:
        if item.id in self.placed:
            raise TextError(f"two places for {item.id}")
        self.placed.add(item.id)
        shown = self._link(_file(item.check), item.id) if item.check else item.id
        return f'<a id="{item.id}"></a>{shown}'

    def _judged(self, item: Requirement) -> str:
        if item.check is None:
            return f"nothing: {_plain(item.unchecked or 'the interface leaves it open')}"
        shown_when = f", only {_plain(item.shown_when)}" if item.shown_when else ""
        return self._link(_file(item.check), f"`{item.check}`") + shown_when


def _condition(when: Condition) -> str:
    """Return the condition under which a field is present."""
    if when.above is not None:
        return f"where `{when.path}` is above {when.above:g}"
    return f"where `{when.path}` is {str(when.equals).lower()}"


def _plain(text: str) -> str:
    """Keep Markdown from reading `<height>` as a tag."""
    return text.replace("<", "&lt;")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@cache
def _file(check: str) -> str:
    """Return the file of a check, relative to the package."""
    if check in passive.CHECKS:
        source = inspect.getsourcefile(passive)
    else:
        source = inspect.getsourcefile(inspect.unwrap(checks()[check].function))
    return Path(source or "").relative_to(HOME).as_posix()
