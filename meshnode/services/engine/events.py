"""The engine's websocket: it says that there is a block. What the block is, is asked by its height.

An event that is lost costs nothing: whoever listens asks for all heights that are missing, at each
event and at each new connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import trio
from trio_websocket import ConnectionClosed, HandshakeError, wrap_client_stream

from meshnode.domain.errors import Unavailable
from meshnode.services.engine.rpc import connect

NEW_HEADER = "tm.event='NewBlockHeader'"
"""The event with the least in it; ``NewBlock`` would carry every transaction a second time."""
CONNECT_S = 5.0


async def watch_blocks(path: Path, notice: Callable[[], None]) -> None:
    """Call ``notice`` once at the start and then after each new block. Never returns.

    ``path`` is the engine's socket. Raises Unavailable when there is no connection any more.
    """
    failure = ""
    async with trio.open_nursery() as nursery:
        try:
            with trio.fail_after(CONNECT_S):
                stream = await connect(path)
                socket = await wrap_client_stream(nursery, stream, "engine", "/websocket")
                await socket.send_message(_subscription())
            while True:
                # The first message says that the subscription is in force.
                await socket.get_message()
                notice()
        except ConnectionClosed:
            failure = "the consensus engine has closed its websocket"
        except (OSError, HandshakeError, trio.TooSlowError, trio.BrokenResourceError) as error:
            failure = f"the consensus engine does not answer ({type(error).__name__})"
        nursery.cancel_scope.cancel()
    raise Unavailable(failure)


def _subscription() -> str:
    params = {"query": NEW_HEADER}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "subscribe", "params": params})
