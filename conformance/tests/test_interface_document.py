"""The interface document: complete, true to the catalogue, and where a report's links lead."""

import json
import re
from pathlib import Path

import pytest

from conformance.catalogue import load
from conformance.interface import document, page
from conformance.judging.toy.serving import Serving
from conformance.report import html
from conformance.tests.command import run

ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the document, for a test to change."""
    found = document._texts()
    monkeypatch.setattr(document, "_texts", lambda: found)
    return found


def render() -> str:
    return document.render(lambda _, shown: shown)


def replace(texts: list[str], old: str, new: str) -> None:
    at = next(index for index, text in enumerate(texts) if old in text)
    texts[at] = texts[at].replace(old, new, 1)


def test_each_requirement_has_one_anchor() -> None:
    anchors = ANCHOR.findall(render())
    assert sorted(ident for ident in anchors if ident in load()) == sorted(load())
    assert len(set(anchors)) == len(anchors)


def test_a_check_leads_to_the_file_that_it_is_in() -> None:
    linked = set[str]()

    def link(file: str, shown: str) -> str:
        linked.add(file)
        return shown

    document.render(link)
    linked = {file for file in linked if file.endswith(".py")}
    assert len(linked) > 60
    assert {name for name in linked if not name.startswith(("checks/", "passive/"))} == set()


def test_each_section_of_the_catalogue_is_there() -> None:
    sections = {item.section for item in load().values()}
    assert {f"section-{section}" for section in sections} < set(ANCHOR.findall(render()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{fields peers}}", "", "not in any text: .*NA-PEERS-005"),
        ("{{fields peers}}", "{{fields peers}}\n\n{{fields peers}}", "two places for NA-PEERS-005"),
        ("{{fields metrics}}", "{{fields meters}}", "nothing of fields meters"),
        ("{{message WeightRequest}}", "{{massage WeightRequest}}", "nothing of massage"),
        ("- shard_range:", "- shard_rang:", "unknown .'shard_rang'"),
        ("[GR-OP-001]", "[GR-OP-999]", "unknown requirement GR-OP-999"),
    ],
)
def test_a_text_that_contradicts_the_catalogue_is_refused(
    old: str, new: str, message: str, texts: list[str]
) -> None:
    replace(texts, old, new)
    with pytest.raises(document.TextError, match=message):
        render()


def test_the_page_needs_nothing_else() -> None:
    shown = page.render()
    targets = re.findall(r'href="([^"]+)"', shown)
    anchors = set(ANCHOR.findall(shown))
    assert targets
    assert [target for target in targets if target.removeprefix("#") not in anchors] == []
    assert "src=" not in shown
    assert "http-equiv" not in shown


def test_the_page_escapes_what_it_shows() -> None:
    shown = page.render()
    assert "&lt;TOKEN_CODE&gt;" in shown
    assert "<TOKEN_CODE>" not in shown
    # A sign in a requirement's text, which the Markdown holds as an entity.
    assert "GET /api/block/&lt;height&gt; returns one committed block." in shown
    # No mark of the Markdown is left over.
    assert re.findall(r"\*\*|\]\(|\{\{|^#|^\|", re.sub(r"(?s)<style>.*?</style>", "", shown)) == []


@pytest.mark.usefixtures("elsewhere")
def test_every_verdict_links_to_its_requirement(toy: Serving, tmp_path: Path) -> None:
    assert run(toy, "--out", str(tmp_path)) == 0
    anchors = set(ANCHOR.findall((tmp_path / page.FILE).read_text()))
    built = json.loads((tmp_path / "report.json").read_text())
    for item in built["requirements"]:
        file, _, anchor = item["link"].partition("#")
        assert (tmp_path / file).exists()
        assert anchor == item["id"]
        assert anchor in anchors
    shown = (tmp_path / "report.html").read_text()
    assert set(re.findall(r'href="interface.html#([^"]+)"', shown)) == set(load())


@pytest.mark.usefixtures("elsewhere")
def test_a_report_without_links_is_still_read(toy: Serving, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert run(toy, "--out", str(tmp_path)) == 0
    built = json.loads((tmp_path / "report.json").read_text())
    for item in built["requirements"]:
        del item["link"]
    schema = Path(html.__file__).parent.parent / "schemas" / "report.schema.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(built)
    shown = html.render(built)
    assert "§2.1" in shown
    assert "interface.html" not in shown
