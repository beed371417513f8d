"""The node API on a real socket, with a fake engine that a test can stop at any token."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import h11
import trio

from meshnode.config import build_config
from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import (
    Finished,
    FinishReason,
    GenerationRequest,
    ModelCard,
    Timing,
    TokenEvent,
    Usage,
)
from meshnode.domain.metering import InferenceMeter, TrafficMeter
from meshnode.domain.ratelimit import Rate
from meshnode.edges import http_index, http_page
from meshnode.edges.http_index import IndexApi
from meshnode.edges.http_node import ROUTES, NodeApi, NodeFacts, node_access
from meshnode.edges.http_page import PageApi
from meshnode.http.app import node_app
from meshnode.http.errors import NODE_ERRORS, ErrorForm
from meshnode.http.page_files import page_files
from meshnode.http.routes import add_routes
from meshnode.http.server import RATE, serve_http
from meshnode.model.accelerator.device import NO_DEVICE, DeviceMemory
from meshnode.services.health import Health
from meshnode.services.pipeline import Pipeline
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.serving import Serving
from meshnode.supervise import Drain, ServiceBoard

TOKEN = "test-operator-token"
NODE_ID = "ab" * 20
CARD = ModelCard(
    name="fake",
    num_layers=4,
    hidden_dim=8,
    vocab_size=32,
    context_length=512,
    parameters=1000,
    layers=(0, 1, 2, 3),
    layer_bytes=dict.fromkeys(range(4), 3_000_000),
)


@dataclass
class FakeExecutor:
    """Generates ``token-0 token-1 …``. With ``permits`` set, each token uses up one permit."""

    card: ModelCard = CARD
    meter: InferenceMeter = field(default_factory=InferenceMeter)
    permits: trio.Semaphore | None = None
    refuse: Exception | None = None
    fail_after: int | None = None
    failure: Exception = field(default_factory=lambda: RuntimeError("secret internals"))
    text: str = "token-{} "
    gpu_memory: DeviceMemory = NO_DEVICE
    generations: list[FakeGeneration] = field(default_factory=list)
    device: str = "absent"

    async def open(self, request: GenerationRequest) -> FakeGeneration:
        await trio.lowlevel.checkpoint()
        if self.refuse is not None:
            raise self.refuse
        self.meter.admitted(trio.current_time())
        generation = FakeGeneration(self, request)
        self.generations.append(generation)
        return generation

    @property
    def active(self) -> int:
        return sum(not generation.left.is_set() for generation in self.generations)


class FakeGeneration:
    _ids = itertools.count()

    def __init__(self, executor: FakeExecutor, request: GenerationRequest) -> None:
        self.id = f"gen-{next(self._ids)}"
        self.request = request
        self.notes: list[str] = []
        self.model_hash = ""
        self.made = 0
        self.done = False
        self.left = trio.Event()
        self._executor = executor

    async def __aenter__(self) -> FakeGeneration:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left.set()

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt), self.made)

    def __aiter__(self) -> FakeGeneration:
        return self

    async def __anext__(self) -> TokenEvent | Finished:
        if self.done:
            raise StopAsyncIteration
        if self._executor.permits is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._executor.permits.acquire()
        if self.made == self._executor.fail_after:
            raise self._executor.failure
        if self.made == self.request.max_tokens:
            self.done = True
            self._executor.meter.finished(trio.current_time(), 12.5)
            return Finished(FinishReason.LENGTH, self.usage, Timing(0.5, 12.0, 12.5))
        self._executor.meter.token()
        self.made += 1
        return TokenEvent(self._executor.text.format(self.made - 1), self.made - 1)


@dataclass
class Served:
    """A running server and the parts of it that a test may change."""

    address: tuple[str, int]
    executor: FakeExecutor
    settings: Settings
    tokens: TokenStore
    drain: Drain
    board: ServiceBoard
    traffic: TrafficMeter
    shutdown: trio.Event
    ended: trio.Event

    async def connect(self) -> Client:
        return Client(await trio.open_tcp_stream(*self.address))

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """Send one request on a new connection, and return its answer."""
        async with await self.connect() as client:
            return await client.ask(method, path, body, **more)


async def start_node(
    nursery: trio.Nursery,
    data_dir: Path,
    *,
    executor: FakeExecutor | None = None,
    generations: Pipeline | None = None,
    hops: HopRecorder | None = None,
    grace_s: float = 5.0,
    max_connections: int = 900,
    log_requests: bool = False,
    **values: Any,
) -> Served:
    """Serve the node API on a free loopback port; ``values`` are settings with _ for dots."""
    config = build_config({"data_dir": str(data_dir), **values})
    executor = executor or FakeExecutor()
    drain, board, traffic = Drain(), ServiceBoard(), TrafficMeter()
    settings, tokens = Settings(config, NODE_ID), TokenStore(data_dir, TOKEN)
    health = Health(
        drain=drain,
        services=board,
        device=lambda: executor.device,
        peer_count=lambda: 0,
        tracker_url="",
        # Nothing probes the disk here; a clock that stands still keeps the last probe recent.
        now=lambda: 0.0,
    )
    access = node_access(tokens, config.limits)
    app = node_app(access, config.limits.max_body_bytes, log_requests=log_requests)
    fake: Any = executor
    api = NodeApi(
        facts=NodeFacts(NODE_ID, "1.2.3", "MESH", trio.current_time()),
        settings=settings,
        executor=fake,
        health=health,
        traffic=traffic,
        drain=drain,
        serving=Serving(generations or executor, no_ledger),
        hops=hops or HopRecorder(),
    )
    add_routes(app, api, ROUTES, access)
    add_routes(app, IndexApi.of("1.2.3", ROUTES), http_index.ROUTES, access)
    page = PageApi(page_files(), lambda limit: [{"n": limit}])
    add_routes(app, page, http_page.ROUTES, access)
    shutdown, ended, address = await start_server(
        nursery, app, grace_s=grace_s, max_connections=max_connections
    )
    return Served(address, executor, settings, tokens, drain, board, traffic, shutdown, ended)


def no_ledger() -> Any:
    """Raise ``Unavailable``, as on a node without a chain; the operator's requests still work."""
    raise Unavailable("no ledger")


@dataclass
class PlainApplication:
    """Wraps a bare ASGI function in the interface that the server expects of an application."""

    serve: Callable[..., Awaitable[None]]

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        return self.serve(scope, receive, send)

    def errors_for(self, target: str) -> ErrorForm:
        return NODE_ERRORS

    def prompt_route(self, method: str, path: str) -> None:
        return None


async def start_server(
    nursery: trio.Nursery,
    app: Any,
    *,
    grace_s: float = 5.0,
    max_connections: int = 900,
    rate: Rate = RATE,
) -> tuple[trio.Event, trio.Event, tuple[str, int]]:
    """Serve any ASGI application; return the events of shutdown and end, and the address."""
    shutdown, ended = trio.Event(), trio.Event()

    async def serve(*, task_status: trio.TaskStatus[tuple[str, int]]) -> None:
        await serve_http(
            app,
            "127.0.0.1",
            0,
            shutdown=shutdown,
            grace_s=grace_s,
            max_connections=max_connections,
            rate=rate,
            task_status=task_status,
        )
        ended.set()

    address = await nursery.start(partial(serve))
    return shutdown, ended, address


@dataclass
class Answer:
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code, after checking that the body has exactly the documented form."""
        assert self.headers["content-type"] == "application/json"
        assert len(self.headers["x-request-id"]) == 16
        assert set(self.json) == {"error"}
        assert {"code", "message"} <= set(self.json["error"]) <= {"code", "message", "details"}
        return str(self.json["error"]["code"])

    @property
    def details(self) -> Any:
        return self.json["error"].get("details")

    @property
    def events(self) -> list[Any]:
        return [json.loads(event) for event in sse_data(self.body)]


def sse_data(body: bytes) -> list[bytes]:
    """The data of each server-sent event, after checking the framing."""
    assert body.endswith(b"\n\n")
    events = body.removesuffix(b"\n\n").split(b"\n\n")
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    return [event.removeprefix(b"data: ") for event in events]


class Client:
    """One client connection that uses h11."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """Send a request and read its response; the connection stays open."""
        await self.send(method, path, body, **more)
        return await self.answer()

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> None:
        """Send a request. A body that is not bytes is sent as JSON."""
        sent = {"Host": "node"}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        if body is not None and "Transfer-Encoding" not in sent:
            sent.setdefault("Content-Length", str(len(body)))
        data = self._http.send(
            h11.Request(
                method=method,
                target=path,
                headers=[(name, value) for name, value in sent.items() if value],
            )
        )
        if body:
            data += self._http.send(h11.Data(data=body))
        await self.stream.send_all(data + self._http.send(h11.EndOfMessage()))

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read status and headers."""
        response = await self._event()
        assert isinstance(response, h11.Response), response
        return response.status_code, {
            name.decode(): value.decode() for name, value in response.headers
        }

    async def chunk(self) -> bytes:
        """Read the next part of the body; empty at its end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def answer(self) -> Answer:
        """Read a whole response, and prepare for the next one if the connection can be reused."""
        with trio.fail_after(120):
            status, headers = await self.head()
            body = bytearray()
            while chunk := await self.chunk():
                body += chunk
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return Answer(status, headers, bytes(body))

    async def at_end(self) -> bool:
        """Wait until the server closes its side or sends a byte; return whether it closed."""
        with trio.fail_after(120):
            return await self.stream.receive_some(1) == b""

    async def _event(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA and not isinstance(event, h11.InformationalResponse):
                return event
            if event is h11.NEED_DATA:
                self._http.receive_data(await self.stream.receive_some(65536))


async def wait_until(condition: Any, within_s: float = 120.0) -> None:
    """Poll until ``condition()`` is true."""
    with trio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - no event announces the change
            await trio.sleep(0.005)
