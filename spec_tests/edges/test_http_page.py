"""The page for browsers: who gets it, its headers, and what its files lack (decision 0165)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from meshnode.http.page_files import PAGE, page_files
from spec_tests.edges.http_server import TOKEN, start_node

FILES = page_files()
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
SOURCES = {name: file.body.decode() for name, file in FILES.items()}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (BROWSER, "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/json, text/html;q=0.9", "application/json"),
        ("text/html;q=0", "application/json"),
        ("text/*", "application/json"),
        ("nonsense", "application/json"),
    ],
)
async def test_the_root_is_a_page_for_browsers_alone(
    nursery: trio.Nursery, tmp_path: Path, accept: str, kind: str
) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("GET", "/", headers={"Accept": accept}, token=None)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert answer.headers["vary"] == "Accept"
    assert (kind == "application/json") == ("content-security-policy" not in answer.headers)


async def test_the_page_is_kept_to_itself_and_not_sent_twice(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("GET", "/", headers={"Accept": BROWSER}, token=None)
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    for source in ("script-src", "style-src", "img-src", "connect-src"):
        assert policy[source] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    headers = {"Accept": BROWSER, "If-None-Match": answer.headers["etag"]}
    again = await node.ask("GET", "/", headers=headers, token=None)
    assert (again.status, again.body) == (304, b"")


async def test_every_file_is_served_and_no_other(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    for name, file in FILES.items():
        answer = await node.ask("GET", f"/page/{name}", token=None)
        assert (answer.status, answer.body) == (200, file.body)
        assert answer.headers["content-type"] == file.media_type
        assert "content-security-policy" in answer.headers
    for name in ("nothing.js", "..%2f__init__.py", "../../config.py", ""):
        assert (await node.ask("GET", f"/page/{name}", token=None)).status == 404


async def test_the_log_is_the_operators(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    assert (await node.ask("GET", "/api/v1/log?limit=5", token=TOKEN)).json["records"] == [{"n": 5}]
    assert (await node.ask("GET", "/api/v1/log", token=None)).status == 401
    assert (await node.ask("GET", "/api/v1/log?limit=0")).status == 400


def test_the_page_loads_what_is_there() -> None:
    page = SOURCES[PAGE]
    for name in re.findall(r'(?:src|href)="/page/([^"]+)"', page):
        assert name in FILES
    for source in SOURCES.values():
        for name in re.findall(r'from "\./([^"]+)"', source):
            assert name in FILES


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = SOURCES[PAGE]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
    for name, source in SOURCES.items():
        urls = [url for url in re.findall(r"https?://[^\s\"'`)]+", source) if "w3.org" not in url]
        assert not urls, name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in source, name
        assert not re.search(r"@import|url\(|\bimport\(", source), name


def test_files_are_short() -> None:
    assert {name for name, source in SOURCES.items() if source.count("\n") > 400} == set()
