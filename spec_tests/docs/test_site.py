"""The checks of a built site, and that the generated pages are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshnode.config import SETTINGS
from tools.reference.__main__ import ROOT, generate
from tools.reference.configuration import meanings
from tools.reference.grpc import comments
from tools.site.checks import faults

GOOD = '<h1 id="top">x</h1><a href="b.html#there">b</a><script src="c.js"></script>'


def site(folder: Path, text: str) -> list[str]:
    (folder / "a.html").write_text(text)
    (folder / "b.html").write_text('<p id="there"></p><a href="https://example.org/">x</a>')
    (folder / "s.css").write_text("a { background: url(data:image/png;base64,aa) }")
    return faults(folder)


def test_a_site_whose_links_lead_somewhere_has_no_fault(tmp_path: Path) -> None:
    assert site(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="c.html">c</a>', "a.html: no page c.html"),
        ('<a href="b.html#here">b</a>', "a.html: no anchor b.html#here"),
        ('<a href="#here">b</a>', "a.html: no anchor #here"),
        ('<script src="https://example.org/x.js"></script>', "a.html: loads https://example.org"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "a.html: loads //example.org"),
    ],
)
def test_what_leads_nowhere_or_elsewhere_is_found(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = site(tmp_path, text)
    assert found.startswith(fault)


def test_a_style_that_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "s.css").write_text("@import 'https://example.org/font.css';")
    assert faults(tmp_path) == ["s.css: loads https://example.org/font.css"]


def test_the_reference_is_that_of_the_code() -> None:
    stale = [
        str(path)
        for path, text in generate().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python -m tools.reference"


def test_every_setting_has_words() -> None:
    assert {setting.key for setting in SETTINGS} <= set(meanings())


def test_comments_of_messages_are_found() -> None:
    above, beside = comments()
    assert "defaults" in above["InferenceRequest"] or "default" in above["InferenceRequest"]
    assert beside["InferenceRequest", "seed"] == "makes sampling repeatable"
