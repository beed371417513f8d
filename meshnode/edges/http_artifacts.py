"""``/artifacts/sha256/<hex>``: bytes by their hash (interface 4.2; decision 0080).

The address determines the bytes, so an answer may be cached for ever, and the hash is its ETag. A
client may ask for one range, which resumes a download; it checks the whole against the hash.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio
from quart import request

from meshnode.domain.errors import Unavailable
from meshnode.http.exchange import hold
from meshnode.http.fields import Digest
from meshnode.http.native import NotThere, bytes_response, variable
from meshnode.http.routes import Reply, Route

if TYPE_CHECKING:
    from meshnode.http.app import Response
    from meshnode.services.artifacts import Artifact, Artifacts

CHUNK_BYTES = 256 * 1024
"""How much is read at a time: enough for the disk, small beside a connection's other buffers."""
BYTES_TYPE = "application/octet-stream"
FOREVER = "public, max-age=31536000, immutable"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


@dataclass(frozen=True, slots=True)
class ArtifactsApi:
    """The handler of the route."""

    artifacts: Artifacts

    async def get_artifact(self) -> Response:
        """The whole artifact (200), one range (206), or 304 if the client's copy is current."""
        name = variable("sha256")
        # Other text is not a hash, and must not reach the file system.
        artifact = self.artifacts.find(name) if _SHA256.fullmatch(name) else None
        if artifact is None:
            raise NotThere("this node has no such artifact")
        tag = f'"{artifact.sha256}"'
        headers = {"ETag": tag, "Cache-Control": FOREVER, "Accept-Ranges": "bytes"}
        if tag in _tags("If-None-Match") or "*" in _tags("If-None-Match"):
            return bytes_response(b"", 304, headers)
        asked = asked_range(request.headers.get("Range", ""), artifact.size)
        # The client's part has another ETag, so it needs the whole instead of a range to append.
        if "If-Range" in request.headers and tag not in _tags("If-Range"):
            asked = None
        if asked is not None and not asked:
            headers["Content-Range"] = f"bytes */{artifact.size}"
            return bytes_response(b"", 416, headers)
        status, span = (206, asked) if asked else (200, range(artifact.size))
        if status == 206:
            headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{artifact.size}"
        headers["Content-Length"] = str(len(span))
        body = b"" if request.method == "HEAD" else await _bytes(artifact, span)
        return bytes_response(body, status, headers)


def asked_range(header: str, size: int) -> range | None:
    """The bytes that a Range header asks for: None for the whole, empty if they do not exist."""
    # Several ranges, other units and malformed headers may be ignored (RFC 9110).
    match = _RANGE.fullmatch(header.replace(" ", ""))
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        return range(max(0, size - int(suffix)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(int(last) + 1, size) if last else size)


async def _bytes(artifact: Artifact, span: range) -> bytes | AsyncIterator[bytes]:
    if artifact.data is not None:
        return artifact.data[span.start : span.stop]
    if artifact.path is None or not span:
        return b""
    try:
        file = await hold(await trio.open_file(artifact.path, "rb"))
        await file.seek(span.start)
    except OSError:
        raise Unavailable("the artifact cannot be read") from None
    return _FileBytes(file, len(span))


class _Readable(Protocol):
    async def read(self, size: int) -> bytes: ...


class _FileBytes(AsyncIterator[bytes]):
    """The next ``left`` bytes of an open file, in chunks. The exchange closes the file."""

    def __init__(self, file: _Readable, left: int) -> None:
        self._file = file
        self._left = left

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        chunk = await self._file.read(min(CHUNK_BYTES, self._left))
        if not chunk:
            # Fewer bytes than announced: the connection is cut, so that the client notices.
            raise Unavailable("the artifact ends early")
        self._left -= len(chunk)
        return chunk


def _tags(name: str) -> set[str]:
    text = request.headers.get(name, "")
    return {part.strip().removeprefix("W/") for part in text.split(",")}


ROUTES = (
    Route(
        "GET",
        "/artifacts/sha256/<sha256>",
        ArtifactsApi.get_artifact,
        "Bytes by their SHA-256, or a range of them",
        (
            Reply(200, "All bytes.", {BYTES_TYPE: bytes}, ("ETag",)),
            Reply(206, "A range of the bytes.", {BYTES_TYPE: bytes}, ("ETag", "Content-Range")),
            Reply(304, "The client has these bytes already.", headers=("ETag",)),
            Reply(416, "The range holds no bytes.", headers=("Content-Range",)),
        ),
        variables={"sha256": Digest},
        errors=(404,),
    ),
)
