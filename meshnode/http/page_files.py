"""The page for browsers: its files, and the headers that keep it to itself (decision 0165).

The files lie in ``meshnode/http/pages`` as they are served: HTML, styles and ES modules, written by
hand, without a build step. They are read once, when the node starts.

Invariants: the page asks no other server for anything, and a browser would not let it; nothing in
it is made of text from outside as markup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from quart import request
from quart_trio.wrappers import TrioResponse as Response

PAGE = "index.html"
SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks each time and is told 304, so that page and node are of one version.
    "Cache-Control": "no-cache",
}
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, as it is sent."""

    body: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, PageFile]:
    """All files of the page by their names."""
    return dict(_read())


def _read() -> Iterator[tuple[str, PageFile]]:
    for entry in sorted(resources.files("meshnode.http").joinpath("pages").iterdir(), key=str):
        ending = "." + entry.name.rpartition(".")[2]
        if ending in TYPES:
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            yield entry.name, PageFile(body, TYPES[ending], etag)


def page_response(file: PageFile) -> Response:
    """A file, or 304 for a browser that has it already."""
    known = file.etag in request.headers.get("If-None-Match", "")
    response = Response(b"" if known else file.body, 304 if known else 200)
    response.content_type = file.media_type
    response.headers.update({**HEADERS, "ETag": file.etag})
    return response


def wants_page() -> bool:
    """Whether the current request comes from a browser's address bar.

    It names ``text/html`` and prefers it to JSON. Programs that accept anything get JSON.
    """
    accepted = request.accept_mimetypes
    named = any(kind.lower() == "text/html" for kind, _ in accepted)
    return named and accepted.quality("text/html") > accepted.quality("application/json")
