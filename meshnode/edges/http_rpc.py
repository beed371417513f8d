"""``/rpc`` over HTTP: one permitted call for each POST (interface 4.2 rules 1 to 3).

The order of checks: whose page sends it (decision 0131), size, JSON, envelope, method, parameters
(all in the tables of ``services.gateway.rpc_table``), the rate limit of what is asked, then the
call. A refusal has the body ``{"error": text}``, and is a 403 or 415 for the first check, a 429 for
the rate limit, and otherwise a 400; there are no JSON-RPC error objects, as on the public network.
A refused call counts towards the rate limit too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio
from werkzeug.exceptions import UnsupportedMediaType

from meshnode.domain.chain.canonical import parse
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import ForeignSite, InvalidRequest
from meshnode.http.asked import Asked, current_asked
from meshnode.http.native import (
    NativeGate,
    client_address,
    large_response,
    native_response,
    read_body,
)
from meshnode.http.native_bodies import RpcRequest, RpcResult
from meshnode.http.routes import Plain, Route
from meshnode.http.site_guard import SiteGuard
from meshnode.services.gateway.rpc_table import REQUEST_LIMITS, parse_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from meshnode.domain.chain.canonical import Json
    from meshnode.http.app import Response
    from meshnode.services.gateway.rpc_calls import RpcCalls

CALL_S = 90.0
"""Deadline of a call, as on the public network."""

FOLLOWING = frozenset({"status", "block", "commit", "validators"})
"""Methods that a following node calls thousands of times while it catches up."""


@dataclass(frozen=True, slots=True)
class RpcApi:
    """The handler. ``gate`` is the application's: its limits are shared with the other routes."""

    calls: RpcCalls
    gate: NativeGate
    guard: SiteGuard = field(default_factory=SiteGuard)

    async def post_rpc(self) -> Response:
        """One call; answers ``{"jsonrpc", "id", "result"}``."""
        return await self._answer(current_asked(), partial(read_body, "RPC", REQUEST_LIMITS))

    async def post_plain(self, asked: Asked, body: bytes) -> Response:
        """The same for a plain request."""

        async def read() -> Json:
            return parse(body, REQUEST_LIMITS)

        return await self._answer(asked, read)

    async def _answer(self, asked: Asked, read: Callable[[], Awaitable[Json]]) -> Response:
        try:
            self.guard.check(asked, forwarded=client_address(asked)[1])
            call = parse_call(await read())
        except (ForeignSite, UnsupportedMediaType, InvalidRequest, Rejected):
            self.gate.count(asked)
            raise
        self.gate.count(asked, following=call.method in FOLLOWING)
        with trio.fail_after(CALL_S):
            result = await self.calls.run(call)
        answer = {"jsonrpc": "2.0", "id": call.id, "result": result}
        return await large_response(answer) if call.method == "block" else native_response(answer)


ROUTES = (
    Route(
        "POST",
        "/rpc",
        RpcApi.post_rpc,
        "One JSON-RPC call to the chain",
        RpcResult,
        body=RpcRequest,
        example={"jsonrpc": "2.0", "id": 1, "method": "status"},
        errors=(403,),
        plain=Plain(RpcApi.post_plain, b'"broadcast_tx_sync"'),
    ),
)
