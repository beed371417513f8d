"""Server-sent events and the websocket, on a real socket (decisions 0166, 0167)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from meshnode.config import build_config
from meshnode.domain.sites import listed_names
from meshnode.edges import http_events
from meshnode.edges.http_events import EventsApi
from meshnode.edges.http_node import node_access
from meshnode.http import transport
from meshnode.http.app import native_app, node_app, openai_app
from meshnode.http.dispatch import Dispatcher
from meshnode.http.native import NativeGate
from meshnode.http.routes import add_routes
from meshnode.http.websocket import Websocket
from meshnode.services.events.feed import MAX_READERS, Audience, EventFeed
from meshnode.services.tokens import TokenStore
from spec_tests.edges.http_server import TOKEN, Client, start_server

pytestmark = pytest.mark.wire
PLAIN = {"Host": "127.0.0.1"}


class Served:
    def __init__(self, feed: EventFeed, address: tuple[str, int], shutdown: trio.Event) -> None:
        self.feed = feed
        self.address = address
        self.shutdown = shutdown

    @asynccontextmanager
    async def websocket(
        self, query: str = "", headers: list[tuple[bytes, bytes]] | None = None
    ) -> AsyncIterator[WebSocketConnection]:
        """A client's websocket. Its stream is closed here, which the library may leave undone."""
        async with await trio.open_tcp_stream(*self.address) as stream, trio.open_nursery() as own:
            yield await wrap_client_stream(
                own, stream, "127.0.0.1", f"/ws{query}", extra_headers=headers
            )
            own.cancel_scope.cancel()

    async def client(self) -> Client:
        return Client(await trio.open_tcp_stream(*self.address))


@asynccontextmanager
async def served(data_dir: Path, **values: Any) -> AsyncIterator[Served]:
    config = build_config({"data_dir": str(data_dir), **values})
    access = node_access(TokenStore(data_dir, TOKEN), config.limits)
    feed = EventFeed("run", room=16)
    feed.snapshot = lambda visitor: {"reads": visitor.reads}
    api = EventsApi(feed=feed, access=access, names=listed_names(config.host_names))
    node = node_app(access, 1 << 20)
    add_routes(node, api, http_events.ROUTES, access)
    app = Dispatcher(
        node=node,
        native=native_app(NativeGate(), 1 << 20),
        openai=openai_app(access, 1 << 20),
        websocket=Websocket(api.open, access.count_address),
    )
    async with trio.open_nursery() as nursery:
        shutdown, _, address = await start_server(nursery, app)
        with trio.fail_after(60):
            yield Served(feed, address, shutdown)
        nursery.cancel_scope.cancel()


async def begun(client: Client, wanted: bytes) -> bytes:
    """What the client was sent, until ``wanted`` is in it."""
    data = b""
    while wanted not in data:
        more = await client.stream.receive_some(65536)
        assert more, data
        data += more
    return data


async def test_events_with_names_and_ids(tmp_path: Path) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        await client.send("GET", "/api/v1/events", headers=PLAIN, token=None)
        head = await begun(client, b'"reads":false')
        assert b"content-type: text/event-stream" in head.lower()
        assert b"retry: 2000\n\n" in head
        assert b'id: run-0\nevent: snapshot\ndata: {"reads":false}\n\n' in head
        node.feed.publish("peer.joined", {}, Audience.READERS)
        node.feed.publish("block", {"height": 1})
        assert b"peer" not in await begun(client, b'id: run-2\nevent: block\ndata: {"height":1}')


async def test_a_token_shows_more_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        async with await node.client() as client:
            await client.send("GET", "/api/v1/events", headers=PLAIN)
            await begun(client, b'"reads":true')
        async with await node.client() as client:
            answer = await client.ask("GET", "/api/v1/events", headers=PLAIN, token="wrong")
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


async def test_going_on_behind_the_last_event(tmp_path: Path) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        for number in range(3):
            node.feed.publish("n", {"n": number})
        headers = {**PLAIN, "Last-Event-ID": "run-1"}
        await client.send("GET", "/api/v1/events", headers=headers, token=None)
        data = await begun(client, b'{"n":2}')
        assert b"snapshot" not in data
        assert b'{"n":1}' in data


async def test_a_client_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        for _ in range(MAX_READERS + 3):
            async with await node.client() as client:
                await client.send("GET", "/api/v1/events", headers=PLAIN, token=None)
                await begun(client, b"snapshot")
            while node.feed.readers:
                node.feed.publish("n", {})
                await trio.lowlevel.checkpoint()


async def test_a_reader_that_takes_nothing_is_left_and_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "STALL_S", 0.05)
    async with served(tmp_path) as node, await node.client() as slow, await node.client() as quick:
        await slow.send("GET", "/api/v1/events", headers=PLAIN, token=None)
        await quick.send("GET", "/api/v1/events", headers=PLAIN, token=None)
        await begun(quick, b"snapshot")
        number = 0
        with trio.fail_after(30):
            while node.feed.readers > 1 or number < 20:
                number += 1
                node.feed.publish("n", {"n": number, "filler": "x" * 200_000})
                await begun(quick, b'"n":%d,' % number)
        assert node.feed.readers == 1


async def test_the_websocket_sends_the_same(tmp_path: Path) -> None:
    token = [(b"authorization", f"Bearer {TOKEN}".encode())]
    async with (
        served(tmp_path) as node,
        node.websocket(headers=token) as socket,
    ):
        first = json.loads(await socket.get_message())
        assert first == {"id": "run-0", "event": "snapshot", "data": {"reads": True}}
        node.feed.publish("peer.joined", {"id": "é"}, Audience.READERS)
        assert json.loads(await socket.get_message()) == {
            "id": "run-1",
            "event": "peer.joined",
            "data": {"id": "é"},
        }
        await socket.ping()
        node.feed.close()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1001


async def test_a_websocket_goes_on_behind_an_event(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        node.feed.publish("a", {})
        node.feed.publish("b", {})
        async with node.websocket("?after=run-1") as socket:
            assert json.loads(await socket.get_message())["event"] == "b"


async def test_a_websocket_takes_no_data(tmp_path: Path) -> None:
    async with served(tmp_path) as node:
        async with node.websocket() as socket:
            await socket.send_message("x" * 100)
            await socket.get_message()
            with pytest.raises(ConnectionClosed) as closed:
                await socket.get_message()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1003
        while node.feed.readers:
            await trio.lowlevel.checkpoint()


async def test_pages_of_this_node_and_of_names_that_are_listed(tmp_path: Path) -> None:
    async with served(tmp_path, host_names="watch.example") as node:
        for origin in (b"http://127.0.0.1", b"https://watch.example"):
            async with node.websocket(headers=[(b"origin", origin)]) as socket:
                await socket.get_message()


HANDSHAKE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_who_gets_no_websocket(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        answer = await client.ask("GET", "/ws", headers={**HANDSHAKE, **headers}, token=None)
        assert answer.status == status
        assert answer.code in ("UNAUTHORIZED", "FORBIDDEN")
        assert node.feed.readers == 0


@pytest.mark.parametrize(
    ("path", "changes", "status"),
    [
        ("/ws", {"Upgrade": ""}, 426),
        ("/ws", {"Sec-WebSocket-Version": "8"}, 426),
        ("/ws", {"Sec-WebSocket-Key": "short"}, 426),
        ("/ws", {"Connection": "close"}, 426),
        ("/wsx", {}, 404),
        ("/api/v1/ws", {}, 404),
    ],
)
async def test_what_is_no_handshake(
    tmp_path: Path, path: str, changes: dict[str, str], status: int
) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        answer = await client.ask("GET", path, headers={**HANDSHAKE, **changes}, token=None)
        assert answer.status == status
        assert "error" in answer.json


async def test_compression_is_not_negotiated(tmp_path: Path) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        offer = {**HANDSHAKE, "Sec-WebSocket-Extensions": "permessage-deflate"}
        await client.send("GET", "/ws", headers=offer, token=None)
        head = await begun(client, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        assert b"extensions" not in head.lower()


async def test_a_stop_ends_streams_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as node, await node.client() as client:
        await client.send("GET", "/api/v1/events", headers=PLAIN, token=None)
        await begun(client, b"snapshot")
        node.feed.close()
        assert await begun(client, b"0\r\n\r\n")
