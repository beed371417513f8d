"""TLS, HTTP/2 and proxies on the HTTP port (decisions 0126, 0127 and 0171)."""

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio

from meshnode.domain.forwarded import TrustedProxies
from meshnode.domain.ratelimit import Rate
from meshnode.http import http2, transport
from meshnode.http.server import serve_http
from meshnode.tls import ServerTls
from spec_tests.certificates import Certificate, make_certificate
from spec_tests.edges.http_server import Client, PlainApplication

pytestmark = pytest.mark.wire
LONG_S = 5.0
LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


OPENED: list[trio.SocketStream] = []
"""Connections to close at the end of a test."""


@pytest.fixture(autouse=True)
async def _close_connections() -> AsyncIterator[None]:
    try:
        yield
    finally:
        while OPENED:
            OPENED.pop().socket.close()


async def open_stream(address: tuple[str, int]) -> trio.SocketStream:
    OPENED.append(await trio.open_tcp_stream(*address))
    return OPENED[-1]


class Application:
    """Answers with the client's address, or much if the path says so."""

    def __init__(self) -> None:
        self.left = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = f"{scope['client'][0]} {scope['scheme']} {scope['http_version']}".encode()
        if scope["path"] == "/large":
            body = LARGE
        if scope["path"] == "/wait":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left.set()
            return
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        if scope["http_version"] != "2":
            headers = headers[:1]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


async def serve(
    nursery: trio.Nursery,
    certificate: Certificate | None,
    app: Application | None = None,
    **options: Any,
) -> tuple[str, int]:
    if certificate is not None:
        options["tls"] = ServerTls(certificate.certificate, certificate.key)
    plain = PlainApplication(app or Application())
    start = partial(serve_http, plain, "127.0.0.1", 0, shutdown=trio.Event(), grace_s=1)
    address: tuple[str, int] = await nursery.start(partial(start, **options))
    return address


async def connect(
    address: tuple[str, int], certificate: Certificate, *protocols: str, **changes: Any
) -> trio.SSLStream[trio.SocketStream]:
    context = ssl.create_default_context(cafile=str(certificate.authority))
    context.set_alpn_protocols(list(protocols))
    for name, value in changes.items():
        setattr(context, name, value)
    stream = trio.SSLStream(
        await open_stream(address),
        context,
        server_hostname="localhost",
        https_compatible=True,
    )
    await stream.do_handshake()
    return stream


class Http2Client:
    """A client of one connection; it opens no more windows than it is told."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream], window: int = 1 << 20) -> None:
        self.stream = stream
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.events: list[Any] = []

    async def request(self, path: str, headers: Iterable[tuple[str, str]] = ()) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        head = [(":method", "GET"), (":path", path), (":scheme", "https"), (":authority", "node")]
        self.h2.send_headers(stream_id, [*head, *headers], end_stream=True)
        await self.flush()
        return stream_id

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def until(self, kind: type[Any]) -> Any:
        """Read to the next event of this kind."""
        with trio.fail_after(LONG_S):
            while True:
                for event in self.events:
                    if isinstance(event, kind):
                        self.events = self.events[self.events.index(event) + 1 :]
                        return event
                data = await self.stream.receive_some()
                assert data, "the connection has ended"
                self.events = self.h2.receive_data(bytes(data))

    async def body(self) -> bytes:
        """The body of the next answer, with windows opened as it comes."""
        body = b""
        while True:
            event = await self.until((h2.events.DataReceived, h2.events.StreamEnded))  # type: ignore[arg-type]
            if isinstance(event, h2.events.StreamEnded):
                return body
            body += event.data
            size = event.flow_controlled_length
            self.h2.acknowledge_received_data(size, event.stream_id)
            await self.flush()


async def test_http_1_over_tls(nursery: trio.Nursery, certificate: Certificate) -> None:
    address = await serve(nursery, certificate)
    stream: Any = await connect(address, certificate)
    async with Client(stream) as client:
        for _ in range(2):
            answer = await client.ask("GET", "/")
            assert answer.body == b"127.0.0.1 https 1.1"
        assert (await client.ask("GET", "/large")).body == LARGE
    nursery.cancel_scope.cancel()


async def test_http_2_where_both_sides_agree(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    address = await serve(nursery, certificate)
    stream = await connect(address, certificate, "h2", "http/1.1")
    assert stream.selected_alpn_protocol() == "h2"
    client = Http2Client(stream)
    await client.request("/")
    response = await client.until(h2.events.ResponseReceived)
    assert (":status", "200") in [(str(name), str(value)) for name, value in response.headers]
    assert await client.body() == b"127.0.0.1 https 2"
    await client.request("/large")
    assert await client.body() == LARGE
    nursery.cancel_scope.cancel()


async def test_a_reset_stream_ends_its_application_and_no_other(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    app = Application()
    client = Http2Client(await connect(await serve(nursery, certificate, app), certificate, "h2"))
    waiting = await client.request("/wait")
    client.h2.reset_stream(waiting)
    await client.request("/")
    assert await client.body() == b"127.0.0.1 https 2"
    with trio.fail_after(LONG_S):
        await app.left.wait()
    nursery.cancel_scope.cancel()


async def test_a_stream_without_a_window_is_reset(
    nursery: trio.Nursery, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "STALL_S", 0.05)
    client = Http2Client(await connect(await serve(nursery, certificate), certificate, "h2"), 0)
    stalled = await client.request("/large")
    assert (await client.until(h2.events.StreamReset)).stream_id == stalled
    nursery.cancel_scope.cancel()


async def test_a_flood_of_pings_ends_the_connection(
    nursery: trio.Nursery, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONTROL", (100.0, 1.0))
    client = Http2Client(await connect(await serve(nursery, certificate), certificate, "h2"))
    for _ in range(1000):
        client.h2.ping(b"12345678")
    await client.flush()
    assert (await client.until(h2.events.ConnectionTerminated)).error_code == 11
    nursery.cancel_scope.cancel()


async def test_streams_beyond_the_pool_are_refused(
    nursery: trio.Nursery, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "EXTRA_STREAMS", 1)
    client = Http2Client(await connect(await serve(nursery, certificate), certificate, "h2"))
    _, second, third = [await client.request("/wait") for _ in range(3)]
    refused = await client.until(h2.events.StreamReset)
    assert (refused.stream_id, refused.error_code) == (third, 7)
    client.h2.reset_stream(second)
    await client.request("/")
    assert await client.body() == b"127.0.0.1 https 2"
    nursery.cancel_scope.cancel()


async def test_a_client_that_is_too_fast_is_told_to_calm_down(
    nursery: trio.Nursery, certificate: Certificate
) -> None:
    options: dict[str, Any] = {"rate": Rate(1e-9, 2), "proxies": TrustedProxies("127.0.0.1")}
    client = Http2Client(
        await connect(await serve(nursery, certificate, **options), certificate, "h2")
    )
    fast = [("x-forwarded-for", "198.51.100.1")]
    for _ in range(2):
        await client.request("/", fast)
        assert await client.body() == b"198.51.100.1 https 2"
    await client.request("/", fast)
    assert (await client.until(h2.events.ConnectionTerminated)).error_code == 11
    nursery.cancel_scope.cancel()


async def test_only_named_proxies_are_believed(nursery: trio.Nursery) -> None:
    headers = {"X-Forwarded-For": "198.51.100.1"}
    for proxies, client_ip in (("", b"127.0.0.1"), ("127.0.0.1", b"198.51.100.1")):
        address = await serve(nursery, None, proxies=TrustedProxies(proxies))
        async with Client(await open_stream(address)) as client:
            answer = await client.ask("GET", "/", headers=headers)
            assert answer.body == client_ip + b" http 1.1"
            # The next request of the connection may be another client's.
            answer = await client.ask("GET", "/")
            assert answer.body.startswith(b"127.0.0.1")
    nursery.cancel_scope.cancel()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_a_downgrade_is_refused(nursery: trio.Nursery, certificate: Certificate) -> None:
    address = await serve(nursery, certificate)
    with trio.fail_after(LONG_S), pytest.raises(trio.BrokenResourceError):
        await connect(
            address,
            certificate,
            minimum_version=ssl.TLSVersion.TLSv1,
            maximum_version=ssl.TLSVersion.TLSv1_1,
        )
    nursery.cancel_scope.cancel()


async def test_a_handshake_that_hangs_gives_up_its_place(
    nursery: trio.Nursery, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await serve(nursery, certificate, max_connections=1)
    with trio.fail_after(LONG_S):
        # It is idle until it has shaken hands, so a newcomer takes its place at once.
        hanging = await open_stream(address)
        await hanging.send_all(b"\x16\x03\x01")
        stream: Any = await connect(address, certificate)
        async with Client(stream) as client:
            assert (await client.ask("GET", "/")).status == 200
        assert await hanging.receive_some() == b""
        monkeypatch.setattr(transport, "HANDSHAKE_S", 0.05)
        late = await open_stream(address)
        assert await late.receive_some() == b""
    nursery.cancel_scope.cancel()


async def test_a_client_without_tls_is_hung_up_on(
    nursery: trio.Nursery, certificate: Certificate, tmp_path: Path
) -> None:
    address = await serve(nursery, certificate)
    with trio.fail_after(LONG_S):
        stream = await open_stream(address)
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
    nursery.cancel_scope.cancel()
