"""One ASGI application for the HTTP port, made of the two APIs' own (interface 4.1 and 4.2).

A path belongs to the *native API* when it is one of the pages below, in one of the folders below,
or under ``/api`` and not one of the node API's there. Every other path is the node API's. The owner
of a path also words its errors: those of unknown paths, and those of requests that are refused
before an application sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.http.exchange import origin_path

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

    from meshnode.http.errors import ErrorForm
    from meshnode.http.exchange import ApiApp

PAGES = frozenset({"healthz", "rpc", "join"})
"""Native paths of one segment."""
OLD_PAGES = frozenset({"signup", "login", "register", "dashboard", "download", "token"})
"""Native paths of one segment, with or without a slash behind it."""
FOLDERS = frozenset({"network", "artifacts", "work", "reference", "native-preview"})
"""Everything inside these folders is native."""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sends each request to the application that owns its path."""

    node: ApiApp
    native: ApiApp

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Serve one request."""
        # There is no lifespan (see the server), and no websocket gets past the transport.
        await self._owner(str(scope.get("path", "")))(scope, receive, send)

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target."""
        return self._owner(target).errors

    def _owner(self, target: str) -> ApiApp:
        path = origin_path(target)
        return self.native if path is not None and belongs_to_native(path) else self.node


def belongs_to_native(path: str) -> bool:
    """Whether ``path`` belongs to the native API, even if it has no such route."""
    first, *rest = path.removeprefix("/").split("/")
    if first == "api":
        # The node API owns ``/api/v1`` and two routes of training without a version.
        named = bool(rest) and rest[0] not in ("", "v1")
        return named and rest[:2] not in (["training", "global"], ["training", "verify"])
    if first in FOLDERS:
        return bool(rest) or first == "native-preview"
    return (first in PAGES and not rest) or (first in OLD_PAGES and rest in ([], [""]))
