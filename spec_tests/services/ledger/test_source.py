"""Following over real connections, and what a hostile server can do to its clients."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.domain.metering import TrafficMeter
from meshnode.edges.grpc_chain import ChainServicer
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.pool import serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.ledger import Ledger, follower, load_or_fetch_genesis, serve_ledger
from meshnode.services.ledger.fetch import AnswerTooLarge, fetch
from meshnode.services.ledger.source import TrackerSource
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.edges.native_gateway import start_gateway
from spec_tests.services.ledger.ledgers import (
    KEY,
    account,
    eventually,
    running_ledger,
    send,
    sign,
    transfer,
    until,
)

pytestmark = pytest.mark.wire


@asynccontextmanager
async def chain_stub(ledger: Ledger) -> AsyncIterator[tuple[int, NodeServiceStub]]:
    """Serve a ledger's gRPC operations; yield the port and a client."""
    async with trio.open_nursery() as nursery:
        services = node_services([ChainServicer(lambda: ledger)], Drain())
        serve = partial(serve_grpc, services, "127.0.0.1", 0, traffic=TrafficMeter())
        _, port = await nursery.start(serve)
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            yield port, NodeServiceStub(channel)
        nursery.cancel_scope.cancel()


async def test_following_over_http_and_grpc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower.run_follower, "__defaults__", (0.02,))
    for name in ("producer", "follower"):
        await trio.Path(tmp_path / name).mkdir()
    async with trio.open_nursery() as nursery:
        gateway = await start_gateway(nursery, tmp_path / "producer", with_index=False)
        pool = await nursery.start(serve_pool, TrafficMeter())
        # Nothing listens on port 9, the first of the two trackers: after a failed try the source
        # uses the other one.
        url = f"http://127.0.0.1:{gateway.address[1]}"
        source = TrackerSource(f"http://127.0.0.1:9,{url}", pool, "ab" * 20)
        genesis = await load_or_fetch_genesis(tmp_path / "follower", source)
        assert genesis == gateway.ledger.genesis_bytes
        async with chain_stub(gateway.ledger) as (port, _):
            source._grpc = [("127.0.0.1", port)] * 2
            serve = partial(serve_ledger, tmp_path / "follower", genesis, FakeModel(), None, source)
            follows = await nursery.start(serve)
            await until(follows, gateway.ledger.height)
            await eventually(lambda: not follows.catching_up)
            height = await send(follows, amount=12)
            assert follows.readiness().ready
            assert await account(follows, BOB) == await account(gateway.ledger, BOB)
            # A stake is submitted by its own operation, GossipStake.
            stake = sign(follows, ALICE, "stake", 1, amount=2_000_000, duration_days=30)
            result = await follows.submit(stake)
            assert result.code == 0, result.log
            with trio.fail_after(120):
                later, _ = await follows.wait_transaction(result.hash)
            assert later > height
            blocks = await gateway.ledger.blocks(None, 50)
            assert await follows.blocks(blocks[0].height + 1, 50) == blocks
        with pytest.raises(Unavailable, match="does not take transactions"):
            await follows.submit(await transfer(follows))
        nursery.cancel_scope.cancel()


# GossipTransaction and GossipStake.


async def test_gossip_gives_both_identifiers(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger, chain_stub(ledger) as (_, stub):
        raw = await transfer(ledger)
        request = pb.GossipTransactionRequest(transaction=raw, sender_id="someone", ttl=3)
        answer = await stub.GossipTransaction(request)
        assert answer.accepted
        height, result = await ledger.wait_transaction(answer.transaction_hash)
        assert height >= 1
        assert (result.hash, result.id) == (answer.transaction_hash, answer.application_id)
        again = await stub.GossipTransaction(request)
        assert (again.accepted, again.reason) == (False, "Wrong account nonce")
        assert again.transaction_hash == answer.transaction_hash


async def test_the_same_gossip_twice_is_one_transaction(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger, chain_stub(ledger) as (_, stub):
        raws = [await transfer(ledger, ahead=n) for n in range(5)]
        accepted = []

        async def gossip(raw: bytes) -> None:
            answer = await stub.GossipTransaction(pb.GossipTransactionRequest(transaction=raw))
            accepted.append(answer.accepted)

        for raw in raws:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(gossip, raw)
        await eventually(lambda: ledger.waiting == 0)
        assert (await account(ledger, ALICE))["nonce"] == 5
        assert accepted.count(True) >= 5


async def test_gossip_of_stakes_takes_nothing_else(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger, chain_stub(ledger) as (_, stub):
        raw = sign(ledger, ALICE, "stake", 0, amount=2_000_000, duration_days=30)
        assert (await stub.GossipStake(pb.GossipStakeRequest(transaction=raw))).accepted
        for wrong in (await transfer(ledger), b"{}", b"[]", b"\xff", b'{"body":{"kind":[]}}'):
            with pytest.raises(CallFailed) as caught:
                await stub.GossipStake(pb.GossipStakeRequest(transaction=wrong))
            assert caught.value.code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"transaction": bytes(20_000)},
        {"transaction": b"x", "ttl": -1},
        {"transaction": b"x", "sender_id": "x" * 200},
    ],
)
async def test_gossip_is_bounded(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with running_ledger(tmp_path) as ledger, chain_stub(ledger) as (_, stub):
        with pytest.raises(CallFailed) as caught:
            await stub.GossipTransaction(pb.GossipTransactionRequest(**fields))
        assert caught.value.code == Code.INVALID_ARGUMENT


async def test_malformed_gossip_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with running_ledger(tmp_path) as ledger, chain_stub(ledger) as (_, stub):
        for raw, reason in ((b"x", "Malformed JSON"), (b"{}", "Invalid signed envelope")):
            answer = await stub.GossipTransaction(pb.GossipTransactionRequest(transaction=raw))
            assert (answer.accepted, answer.reason) == (False, reason)
        assert ledger.waiting == 0


# Hostile servers.


@asynccontextmanager
async def raw_server(*answer: bytes, endless: bytes = b"") -> AsyncIterator[str]:
    """Run a server that gives every client the same answer; yield its URL."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await stream.receive_some(65_536)
            for piece in answer:
                await stream.send_all(piece)
            while endless:
                await stream.send_all(endless)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        listen = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        listeners = await nursery.start(listen)
        with trio.fail_after(120):
            yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


HEAD = b"HTTP/1.1 200 OK\r\n"


async def test_an_answer_is_read_whole() -> None:
    async with raw_server(HEAD + b"Content-Length: 5\r\n\r\n", b"he", b"llo") as url:
        assert await fetch(url, "/x", most_bytes=5) == (200, b"hello")
    async with raw_server(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n") as url:
        assert await fetch(url, "/x", body=b"{}", most_bytes=5) == (200, b"hi")
    async with raw_server(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n") as url:
        assert await fetch(url, "/x", most_bytes=5) == (404, b"")


@pytest.mark.parametrize(
    "server",
    [
        {"answer": (HEAD + b"Content-Length: 99999999\r\n\r\n",), "endless": bytes(4096)},
        {"answer": (HEAD + b"\r\n",), "endless": bytes(4096)},
        {
            "answer": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n",),
            "endless": b"400\r\n" + bytes(1024) + b"\r\n",
        },
    ],
    ids=["said", "unsaid", "chunked"],
)
async def test_giant_answers_are_left(server: dict[str, Any]) -> None:
    async with raw_server(*server["answer"], endless=server["endless"]) as url:
        with pytest.raises(AnswerTooLarge):
            await fetch(url, "/x", most_bytes=100_000)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-hello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    ],
    ids=["nothing", "not HTTP", "cut off", "negative", "headers"],
)
async def test_malformed_answers_are_unavailable(answer: bytes) -> None:
    async with raw_server(answer) as url:
        with pytest.raises(Unavailable):
            await fetch(url, "/x", most_bytes=1000)


async def test_endless_headers_are_left() -> None:
    async with raw_server(HEAD, endless=b"X: y\r\n") as url:
        with pytest.raises(Unavailable):
            await fetch(url, "/x", most_bytes=1000)


async def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="no connection"):
        await fetch("http://127.0.0.1:9", "/x", most_bytes=10)


def write_certificate(folder: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 to one file, and return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_https_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            await stream.receive_some(65_536)
            await stream.send_all(HEAD + b"Content-Length: 5\r\n\r\nhello")
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        listen = partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1")
        listeners = await nursery.start(listen)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        with trio.fail_after(120):
            with pytest.raises(Unavailable):
                await fetch(f"https://127.0.0.1:{port}", "/x", most_bytes=10)
            monkeypatch.setenv("SSL_CERT_FILE", str(path))
            answer = await fetch(f"https://127.0.0.1:{port}", "/x", most_bytes=10)
            assert answer == (200, b"hello")
        nursery.cancel_scope.cancel()


async def test_a_server_that_says_later() -> None:
    longest = 10**9 - 1
    cases = ((b"7", 7), (b"soon", 2), (b"", 2), (b"9" * 400, longest), (b"9" * 5000, longest))
    for value, seconds in cases:
        header = b"Retry-After: " + value + b"\r\n" if value else b""
        head = b"HTTP/1.1 429 Later\r\nContent-Length: 0\r\n"
        async with raw_server(head + header + b"\r\n") as url:
            with pytest.raises(RateLimited) as caught:
                await fetch(url, "/x", most_bytes=10)
            assert caught.value.retry_after == seconds


async def test_a_cancelled_fetch_leaves_nothing() -> None:
    asked, ended = trio.Event(), trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(HEAD)
        asked.set()
        # A reset ends the connection too.
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(65_536):
                pass
        ended.set()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with trio.fail_after(120):
            async with trio.open_nursery() as fetching:
                fetching.start_soon(partial(fetch, url, "/x", most_bytes=10))
                await asked.wait()
                assert not ended.is_set()
                fetching.cancel_scope.cancel()
            await ended.wait()
        assert ended.is_set()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"result":1}', b"\xff", b"[" * 100_000])
async def test_an_answer_that_makes_no_sense_is_a_lie_and_no_crash(
    tmp_path: Path, content: bytes
) -> None:
    async with running_ledger(tmp_path / "producer") as producer:
        genesis = producer.genesis_bytes
    answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content
    async with raw_server(answer) as url, trio.open_nursery() as nursery:
        pool = await nursery.start(serve_pool, TrafficMeter())
        source = TrackerSource(url, pool, "ab" * 20)
        options = {"document": genesis}
        async with running_ledger(tmp_path / "follower", None, source, **options) as follows:
            await eventually(lambda: follows.refusing)
            assert "Malformed block bytes" in follows.trouble
        nursery.cancel_scope.cancel()
    assert KEY.seed.hex() not in follows.trouble
