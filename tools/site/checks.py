"""What must hold for the pages of a built site: links, anchors, and no request elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src"}
"""Elements that a browser loads without being asked, besides ``link`` elements."""
LOADING_LINKS = {"stylesheet", "icon", "shortcut icon", "preload", "preconnect", "dns-prefetch"}
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    """What one page names: its anchors, its links, and what a browser loads with it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The parser has a state of its own."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record one element."""
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])
        if tag == "link" and given.get("rel") in LOADING_LINKS:
            self.loaded.append(given.get("href", ""))


def read(path: Path) -> Page:
    """Parse one page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def faults(root: Path) -> list[str]:
    """Everything that is wrong with the site in ``root``, as lines for a person."""
    pages = {path.resolve(): read(path) for path in sorted(root.rglob("*.html"))}
    found = [fault for path, page in pages.items() for fault in _of(path, page, pages, root)]
    for sheet in sorted(root.rglob("*.css")):
        named = IN_STYLE.findall(sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.relative_to(root)}: loads {target}" for target in named]
    return found


def _of(path: Path, page: Page, pages: dict[Path, Page], root: Path) -> Iterator[str]:
    name = path.relative_to(root.resolve())
    for target in page.loaded:
        if ELSEWHERE.match(target):
            yield f"{name}: loads {target}"
    for link in page.links:
        if re.match(r"[a-z]+:", link) or ELSEWHERE.match(link):
            continue
        where, _, anchor = link.partition("#")
        aim = (path.parent / unquote(where.partition("?")[0])).resolve() if where else path
        if not aim.exists():
            yield f"{name}: no page {link}"
        elif anchor and aim in pages and unquote(anchor) not in pages[aim].ids:
            yield f"{name}: no anchor {link}"
