"""What the engine's light client asks during state sync, passed on to gateways (decision 0221).

The engine begins from a block that the operator trusts, and checks everything that it is told from
there on. It asks two servers or more, so that one that shows another chain is found. Each gets a
socket in the engine's folder, behind which this node asks a gateway's public ``/rpc``. So a gateway
needs no method that it does not have anyway, and may be behind TLS.

====================  ============================================================================
method                answered by
====================  ============================================================================
commit, validators    the gateway
consensus_params      the genesis, which no gateway can change
others                nobody
====================  ============================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import h11
import trio

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.services.abci.server import bind_private
from meshnode.services.engine.home import light_socket
from meshnode.services.ledger.fetch import fetch

log = logging.getLogger(__name__)

MAX_QUESTION = 64 * 1024
MAX_ANSWER = 8 * 1024 * 1024
"""A page of 100 validators, or a commit of 10,000, is less."""
MAX_CONNECTIONS = 16
ANSWER_S = 8.0
"""The engine waits for 10 s."""
PASSED_ON = frozenset({"commit", "validators"})
CHUNK = 65_536


class Answering(Protocol):
    """Answers questions of JSON-RPC."""

    async def answer(self, body: bytes) -> dict[str, Any]:
        """The answer to a request's body."""


class LightServer:
    """Answers for one gateway."""

    def __init__(self, url: str, genesis: bytes, authorities: str = "") -> None:
        """``url`` is the gateway's; ``genesis`` the chain's document."""
        self._url = url
        self._params = json.loads(genesis)["consensus_params"]
        self._authorities = authorities

    async def answer(self, body: bytes) -> dict[str, Any]:
        """The JSON-RPC answer to a question."""
        identifier = None
        try:
            question = json.loads(body)
            identifier, method = question.get("id"), question.get("method")
            params = question.get("params") or {}
            if method in PASSED_ON:
                return await self._ask(identifier, body)
            if method == "consensus_params":
                height = str(params.get("height", "0"))
                result = {"block_height": height, "consensus_params": self._params}
                return {"jsonrpc": "2.0", "id": identifier, "result": result}
        except (ValueError, AttributeError):
            return _failure(identifier, "not a question of JSON-RPC")
        except Unavailable as failure:
            log.warning("engine: %s does not answer its light client: %s", self._url, failure)
            return _failure(identifier, str(failure))
        return _failure(identifier, f"{method} is not asked here")

    async def _ask(self, identifier: Any, body: bytes) -> dict[str, Any]:
        with trio.move_on_after(ANSWER_S):
            while True:
                try:
                    status, content = await fetch(
                        self._url,
                        "/rpc",
                        body=body,
                        most_bytes=MAX_ANSWER,
                        authorities=self._authorities,
                    )
                except RateLimited as told:
                    await trio.sleep(told.retry_after)
                    continue
                answer = json.loads(content)
                if status == 200 and isinstance(answer, dict) and "result" in answer:
                    return answer
                return _failure(identifier, _reason(answer))
        raise Unavailable("the answer takes too long")


def _reason(answer: Any) -> str:
    """What a gateway says that it cannot do, in the engine's own words if it has them."""
    said = answer.get("error", "") if isinstance(answer, dict) else ""
    with suppress(ValueError, AttributeError):
        return str(json.loads(said)["data"])
    return str(said)


def _failure(identifier: Any, data: str) -> dict[str, Any]:
    error = {"code": -32603, "message": "Internal error", "data": data}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


async def serve_light(
    servers: Sequence[LightServer],
    home: Path,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer the engine's light client on a socket for each server, until cancelled."""
    async with trio.open_nursery() as nursery:
        for index, server in enumerate(servers):
            socket = bind_private(home / light_socket(index))
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket))
            limit = trio.CapacityLimiter(MAX_CONNECTIONS)
            serve = partial(serve_questions, server, limit)
            nursery.start_soon(trio.serve_listeners, serve, [listener])
        task_status.started()


async def serve_questions(
    server: Answering, limit: trio.CapacityLimiter, stream: trio.abc.Stream
) -> None:
    """Answer every request of one connection until its end."""
    async with stream, limit:
        with suppress(trio.BrokenResourceError, OSError, h11.ProtocolError):
            connection = h11.Connection(h11.SERVER)
            while True:
                body = await _question(connection, stream)
                if body is None:
                    return
                content = json.dumps(await server.answer(body)).encode()
                headers = [
                    ("Content-Type", "application/json"),
                    ("Content-Length", str(len(content))),
                ]
                out = connection.send(h11.Response(status_code=200, headers=headers)) or b""
                out += connection.send(h11.Data(data=content)) or b""
                await stream.send_all(out + (connection.send(h11.EndOfMessage()) or b""))
                connection.start_next_cycle()


async def _question(connection: h11.Connection, stream: trio.abc.Stream) -> bytes | None:
    """The body of the next request; None at the end of the connection."""
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(CHUNK)))
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_QUESTION:
                return None
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            return None
