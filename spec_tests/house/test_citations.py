"""Every citation and every link in the repository leads somewhere.

Citations have the forms of CONTRIBUTING.md: ``interface 4.2``, ``native network 1.3``, and
``decision 0071``; several numbers may share the word.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools import interface_document

ROOT = Path(__file__).parents[2]
DECISIONS = {path.name[:4] for path in (ROOT / "decisions").glob("[0-9]*.md")}
GENERATED = {"docs/interface.md"}
"""Files whose citations are already links, which another test checks."""

TEXTS = "conformance/interface/text/"
"""Source texts of the generator; their links are relative to the generated file."""

SUFFIXES = {".md", ".proto", ".py", ".pyi", ".toml", ".txt", ".yaml", ".yml"}
SKIPPED = {"build", "out", "node_modules", "site-packages", "vectors"}

# White space within a citation would hide it from a search; a break between two numbers does not.
GAP = r"\s+(?:(?:#|//|>)\s*)?"
NUMBER = r"\d(?:\.\d)?(?![\w.]?\d)(?!\w)"
PAGE = r"\d{4}(?![\w-])"


def numbers(one: str) -> str:
    """A pattern for one or several numbers after the same word in a citation."""
    return rf"{one}(?:(?:,|{GAP}and|{GAP}to|,{GAP}and){GAP}{one})*"


SECTIONS = {
    "docs/interface.md": re.compile(rf"\b[Ii]nterface ({numbers(NUMBER)})"),
    "docs/native-network.md": re.compile(rf"\b[Nn]ative network ({numbers(NUMBER)})"),
}
CITED_RULES = re.compile(r"\b[Ii]nterface 4\.2,? rules? (\d(?:(?:, | and | to |-)\d)*)")
CITED_DECISIONS = re.compile(rf"\b[Dd]ecisions? ({numbers(PAGE)})")
OTHER_SPELLINGS = re.compile(
    rf"(?<!\w)\(document,?{GAP}(?:sections?{GAP})?{NUMBER}"  # (document, 4.2)
    rf"|(?<!VIOLATED  NA-STATUS-014  )\b[Ss]ections?{GAP}{NUMBER}"  # section 4.2
    rf"|\b[Ff]act{GAP}sheet"
    r"|\b[Dd]ecisions?/\d{4}(?!-)"  # decisions/0071
    r"|\((?:see )?0[01]\d\d(?:, 0[01]\d\d)*\)"  # (0071)
    rf"|\b(?:[Ii]nterface|[Nn]ative{GAP}network|[Dd]ecisions?)\s*\n\s*(?:(?:#|//|>)\s*)?(?:{NUMBER}|{PAGE})"
)
LINK = re.compile(r"(?<!\\)\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)?\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


@cache
def files(*suffixes: str) -> tuple[tuple[str, str], ...]:
    """The path, relative to the root, and the text of every file outside folders of output."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part in SKIPPED or part.startswith((".", "_")) for part in parts[:-1])
        if hidden or parts[-1].startswith(".") or path.suffix not in suffixes or path.is_dir():
            continue
        found.append(("/".join(parts), path.read_text(encoding="utf-8")))
    return tuple(found)


@cache
def anchors(path: Path) -> set[str]:
    """The targets for links into a Markdown file: its anchors, and those made from headings."""
    text = path.read_text(encoding="utf-8")
    found = set(ANCHOR.findall(text))
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def cited(pattern: re.Pattern[str], one: str) -> Iterator[tuple[str, str]]:
    """Each place where ``pattern`` cites something, with the cited number."""
    for name, text in files(*SUFFIXES):
        if name in GENERATED or name == "spec_tests/house/test_citations.py":
            continue
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            for number in re.findall(one, match[1]):
                yield f"{name}:{line}", number


@pytest.mark.parametrize("page", SECTIONS)
def test_every_cited_section_is_there(page: str) -> None:
    places = list(cited(SECTIONS[page], NUMBER))
    assert len({number for _, number in places}) > 5
    there = anchors(ROOT / page)
    assert [place for place in places if f"section-{place[1]}" not in there] == []


def test_every_cited_rule_is_there() -> None:
    places = list(cited(CITED_RULES, r"\d"))
    assert len(places) > 5
    there = anchors(ROOT / "docs/interface.md")
    assert [place for place in places if f"section-4.2-rule-{place[1]}" not in there] == []


def test_every_cited_decision_is_there() -> None:
    places = list(cited(CITED_DECISIONS, PAGE))
    assert len({number for _, number in places}) > 50
    assert [place for place in places if place[1] not in DECISIONS] == []


def test_citations_have_one_spelling() -> None:
    exempt = (*GENERATED, "docs/native-network.md", "spec_tests/house/test_citations.py")
    others = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match[0]!r}"
        for name, text in files(*SUFFIXES)
        if name not in exempt
        for match in OTHER_SPELLINGS.finditer(text)
    ]
    assert others == [], "CONTRIBUTING.md has the forms"


@pytest.mark.parametrize(
    "wrong",
    [
        "(document, 4.2)", "(document, sections 2.3 and 4.3)", "Section 7.1: x", "fact sheet, 6",
        "decisions/0071", "(0087)", "(see 0087)", "interface\n# 4.2", "decision\n    0071",
    ],
)  # fmt: skip
def test_another_spelling_is_found(wrong: str) -> None:
    assert OTHER_SPELLINGS.search(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(interface 2.3, 4.1 and 6)", ["2.3", "4.1", "6"]),
        ("interface 4.1 to\n# 4.3)", ["4.1", "4.3"]),
        ("interface 8: 5 s", ["8"]),
        ("interface 2.1, 5000 rows, and 64", ["2.1"]),
        ("interface 42", []),
    ],
)
def test_the_numbers_of_a_citation_are_found(text: str, found: list[str]) -> None:
    match = SECTIONS["docs/interface.md"].search(text)
    assert (re.findall(NUMBER, match[1]) if match else []) == found


def test_the_interface_document_is_up_to_date() -> None:
    written = (ROOT / interface_document.FILE).read_text(encoding="utf-8")
    assert written == interface_document.generate(), "run: python -m tools.interface_document"


def test_every_relative_link_leads_somewhere() -> None:
    broken, count = [], 0
    for name, text in files(".md"):
        if name.startswith(TEXTS):
            continue
        page = ROOT / name
        for match in LINK.finditer(FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)):
            target, _, anchor = unquote(match[1]).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            aim = (page.parent / target).resolve() if target else page
            if not aim.exists() or (anchor and anchor not in anchors(aim)):
                broken.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match[1]}")
    assert broken == []
    assert count > 1000
