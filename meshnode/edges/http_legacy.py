"""What is left of older editions (interface 4.2 rule 8 and interface 9; decision 0081).

==========================================  ================================================
registration, login and credit interfaces   410, whatever the method, and where to go instead
sign-up, login and token pages              302 to ``/join``
``/reference/v03/api/…``                    files of an older chain's export; read only
==========================================  ================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from quart import request

from meshnode.domain.errors import Unavailable
from meshnode.http.join_page import join_page
from meshnode.http.native import (
    NotAllowed,
    NotThere,
    Parameters,
    bytes_response,
    document_response,
    native_response,
    variable,
)
from meshnode.http.page_files import HEADERS
from meshnode.http.routes import Reply, Route, TextParameter

if TYPE_CHECKING:
    from meshnode.http.app import Response

GONE = "Accounts and API keys are gone; see /join for keys that you hold yourself"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
GONE_NAMES = "login, register, signup, token, users, waitlist, chat, admin, wallet"
OLD_PAGES = ("signup", "login", "register", "dashboard", "download", "token")

MOVED = (Reply(302, "See /join.", headers=("Location",)),)
PAGE = (Reply(200, "The page.", {"text/html": str}),)

MAX_VIEW_BYTES = 8 << 20
"""As much as a client of the existing network reads of one answer."""

_SEGMENT = re.compile(r"[A-Za-z0-9_-]{1,128}(?:\.json)?")
_KEYED = {
    "account": TextParameter("public_key"),
    "inference/request": TextParameter("id"),
}
"""Views of a single object, and the query parameter that names the object."""


@dataclass(frozen=True, slots=True)
class LegacyApi:
    """The handlers. ``reference`` is a directory with an older chain's export, or None."""

    chain_id: str
    genesis_sha256: str
    version: str
    reference: Path | None = None

    async def gone(self) -> Response:
        """410, and what to use instead."""
        return native_response({"error": GONE}, 410)

    async def redirect(self) -> Response:
        """302 to the page that replaced this one."""
        return bytes_response(b"", 302, {"Location": "/join", "Cache-Control": "no-store"})

    async def get_join(self) -> Response:
        """The page for people who followed an old link."""
        page = join_page(self.chain_id, self.genesis_sha256, self.version, request.host_url[:-1])
        headers = {
            **HEADERS,
            "Content-Type": "text/html; charset=utf-8",
        }
        return bytes_response(page, 200, headers)

    async def get_reference(self) -> Response:
        """One view of the export: ``<path>.json``, or ``<path>/<key>.json`` for keyed views."""
        parts = variable("view").split("/")
        keyed_by = _KEYED.get("/".join(parts))
        if keyed_by is not None:
            parts.append(Parameters().required(keyed_by))
        # Every part must be a plain name, so that no request reads a file outside of the export.
        if self.reference is None or not all(_SEGMENT.fullmatch(part) for part in parts):
            raise NotThere("no such view of the reference chain is kept here")
        parts[-1] = parts[-1].removesuffix(".json") + ".json"
        return document_response(await _read(self.reference.joinpath("api", *parts)))

    async def refuse(self) -> Response:
        """Refuse a write, since the older chain takes no more transactions."""
        raise NotAllowed("the reference chain can only be read")


async def _read(path: Path) -> bytes:
    try:
        async with await trio.open_file(path, "rb") as file:
            data: bytes = await file.read(MAX_VIEW_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NotThere("no such view of the reference chain is kept here") from None
    except OSError:
        raise Unavailable("the reference chain's export cannot be read") from None
    if len(data) > MAX_VIEW_BYTES:
        raise Unavailable("this view of the reference chain is too large")
    return data


ROUTES = (
    *(
        Route(
            method,
            path,
            LegacyApi.gone,
            "Accounts and API keys of older editions",
            (),
            errors=(410,),
        )
        for method in METHODS
        for start in ("/api/auth", f"/api/<any({GONE_NAMES}):name>")
        for path in (start, start + "/", start + "/<path:rest>")
    ),
    *(
        Route("GET", f"/{name}{slash}", LegacyApi.redirect, "A page of older editions", MOVED)
        for name in OLD_PAGES
        for slash in ("", "/")
    ),
    Route("GET", "/join", LegacyApi.get_join, "How to take part, as a page", PAGE),
    Route(
        "GET",
        "/reference/v03/api/<path:view>",
        LegacyApi.get_reference,
        "A view of an older chain, if its export is kept here",
        dict,
        query=tuple(_KEYED.values()),
        errors=(404,),
    ),
    *(
        Route(
            method,
            "/reference/v03/api/<path:view>",
            LegacyApi.refuse,
            "Refused: the older chain can only be read",
            (),
            errors=(403,),
        )
        for method in METHODS
        if method != "GET"
    ),
)
