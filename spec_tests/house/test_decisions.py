"""The index of decisions lists every page once by its title, and all pages share one form."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
PARTS = ("**Question.**", "**Decision.**", "**Consequences.**")
MAX_WORDS = 700
"""A decision fits on one printed page."""


def title_of(page: Path) -> str:
    """The text of the page's heading, without the ``#`` and the number."""
    return page.read_text().splitlines()[0].removeprefix(f"# {page.name[:4]} ")


def test_the_index_lists_each_page_once_by_its_title() -> None:
    index = (DECISIONS / "README.md").read_text()
    listed = re.findall(r"^- \[(\d{4})\]\(([^)]+)\) (.+)$", index, re.MULTILINE)
    expected = [(page.name[:4], page.name, title_of(page)) for page in PAGES]
    assert sorted(listed) == expected


def test_numbers_are_given_once() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(set(numbers)) == len(numbers)


def test_pages_have_one_form() -> None:
    offenders = [
        page.name
        for page in PAGES
        if not page.read_text().startswith(f"# {page.name[:4]} ")
        or any(page.read_text().count(part) != 1 for part in PARTS)
    ]
    assert offenders == []


def test_a_decision_fits_on_a_page() -> None:
    assert [page.name for page in PAGES if len(page.read_text().split()) > MAX_WORDS] == []
