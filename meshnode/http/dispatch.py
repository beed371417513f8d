"""One ASGI application for the HTTP port, made of the two APIs' own (interface 4.1 and 4.2).

A path belongs to the *native API* when it is one of the pages below, in one of the folders below,
or under ``/api`` and not one of the node API's there. The paths under ``/v1`` are those of OpenAI's
interface (decision 0160). Every other path is the node API's. The owner
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
    from meshnode.http.exchange import ApiApp, PromptRoute
    from meshnode.http.websocket import Websocket

PAGES = frozenset({"healthz", "rpc", "join"})
"""Native paths of one segment."""
OLD_PAGES = frozenset({"signup", "login", "register", "dashboard", "download", "token"})
"""Native paths of one segment, with or without a slash behind it."""
FOLDERS = frozenset({"network", "artifacts", "work", "reference", "native-preview"})
"""Everything inside these folders is native."""

TRAINING = (["training", "global"], ["training", "status"], ["training", "verify"])
"""Routes of the node API below ``/api`` that have no version."""
OPENAI_FOLDER = "/v1/"


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Sends each request to the application that owns its path."""

    node: ApiApp
    native: ApiApp
    openai: ApiApp
    websocket: Websocket | None = None
    """Without one, a handshake is refused."""

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Serve one request."""
        # There is no lifespan (see the server), and the transport lets one websocket through.
        if scope["type"] == "websocket":
            if self.websocket is None:
                await send({"type": "websocket.close", "code": 1000, "reason": None})
                return
            await self.websocket(scope, receive, send)
            return
        await self._owner(str(scope.get("path", "")))(scope, receive, send)

    def prompt_route(self, method: str, path: str) -> PromptRoute | None:
        """The prompt route with this method and path, if there is one."""
        return self._owner(path).prompt_route(method, path)

    def errors_for(self, target: str) -> ErrorForm:
        """The form of an error about a request with this target."""
        return self._owner(target).errors

    def _owner(self, target: str) -> ApiApp:
        path = origin_path(target)
        if path is None:
            return self.node
        if path.startswith(OPENAI_FOLDER):
            return self.openai
        return self.native if belongs_to_native(path) else self.node


def belongs_to_native(path: str) -> bool:
    """Whether ``path`` belongs to the native API, even if it has no such route."""
    first, *rest = path.removeprefix("/").split("/")
    if first == "api":
        # The node API owns ``/api/v1`` and three routes of training without a version.
        named = bool(rest) and rest[0] not in ("", "v1")
        return named and rest[:2] not in TRAINING
    if first in FOLDERS:
        return bool(rest) or first == "native-preview"
    return (first in PAGES and not rest) or (first in OLD_PAGES and rest in ([], [""]))
