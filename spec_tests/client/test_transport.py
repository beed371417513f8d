"""One exchange ends whatever the server does, and reports whether a request may have been sent."""

import datetime as dt
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from meshnode.client.answers import read_account, read_block, read_network, read_quote
from meshnode.client.errors import (
    ClientError,
    GatewayMisbehaves,
    GatewayRefuses,
    GatewayUnavailable,
    Misused,
    NotReached,
    TooManyRequests,
)
from meshnode.client.gateway import Gateway, Patience
from meshnode.client.transport import MAX_ANSWER, _failures_of, check_url, exchange
from spec_tests.ports import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server for one connection: it reads the request and calls ``serve``. Yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                serve(connection)
            except OSError:
                return  # the client has hung up, as it should

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join(10)
        listener.close()
        assert not thread.is_alive()


def sends(*parts: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return serve


def test_an_answer() -> None:
    with server(sends(OK)) as url:
        answer = exchange(url + "/x", None, 60)
    assert (answer.status, answer.body) == (200, b"{}")


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200 OK\r\nX: ", OK[:-2], b""])
def test_dripping_bytes_do_not_prolong_an_exchange(drip: bytes) -> None:
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(drip)
        while not over.wait(0.01):
            connection.sendall(b"" if drip == OK[:-2] else b"x")

    with server(serve) as url:
        started = time.monotonic()
        try:
            with pytest.raises(GatewayUnavailable):
                exchange(url, b"{}", 0.3)
            assert time.monotonic() - started < 60
        finally:
            over.set()


def test_an_announced_giant_is_not_read() -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    with server(sends(head)) as url, pytest.raises(GatewayMisbehaves):
        exchange(url, None, 60)


def test_an_endless_answer_is_cut() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(MAX_ANSWER // 65536 + 100):
            connection.sendall(bytes(65536))

    with server(serve) as url, pytest.raises(GatewayMisbehaves):
        exchange(url, None, 180)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,
    ],
)
def test_broken_answers_leave_the_outcome_open(answer: bytes) -> None:
    with server(sends(answer)) as url, pytest.raises(GatewayUnavailable) as caught:
        exchange(url, b"{}", 60)
    assert not isinstance(caught.value, NotReached)


def test_nobody_there_means_that_nothing_was_sent() -> None:
    with pytest.raises(NotReached):
        exchange(f"http://127.0.0.1:{free_port()}", b"{}", 60)


def test_of_several_addresses_the_last_says_why() -> None:
    refused = ConnectionRefusedError(111, "refused")
    attempts = ExceptionGroup("all attempts failed", [OSError("first"), refused])
    with (
        pytest.raises(NotReached, match=r"cannot reach here: refused$"),
        _failures_of("http://here"),
    ):
        raise httpx2.ConnectError("all attempts failed") from attempts


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (503, b'{"error":"Native full node unavailable"}', GatewayUnavailable),
        (502, b"<html>", GatewayUnavailable),
        (429, b"", TooManyRequests),
        (400, b'{"error":"Invalid public key"}', GatewayRefuses),
        (404, b"no", GatewayRefuses),
        (302, b"", GatewayMisbehaves),
        (200, b"<html>", GatewayMisbehaves),
        (200, b'{"a":1,"a":2}', GatewayMisbehaves),
        (200, b"[" * 100_000, GatewayMisbehaves),
        (200, b'"\\' * 1_000_000, GatewayMisbehaves),
        (200, b"[]", GatewayMisbehaves),
        (200, b"{}", GatewayMisbehaves),
    ],
)
def test_statuses_and_bodies(status: int, body: bytes, failure: type[ClientError]) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nRetry-After: 7\r\n\r\n"
    with server(sends(head.encode() + body)) as url:
        gateway = Gateway(url, url, None, Patience(5, 5))
        with pytest.raises(failure) as caught:
            gateway.network()
    if isinstance(caught.value, TooManyRequests):
        assert caught.value.seconds == 7


def test_a_gateways_words_do_not_steer_the_terminal() -> None:
    body = b'{"error":"\\u001b[2Jpay to \\u202eme"}'
    head = f"HTTP/1.1 400 X\r\nContent-Length: {len(body)}\r\n\r\n"
    with server(sends(head.encode() + body)) as url, pytest.raises(GatewayRefuses) as caught:
        Gateway(url, url).network()
    assert str(caught.value).isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.dictionaries(st.sampled_from(["height", "nonce", "chain_id", "params"]), JSON))
def test_any_json_is_read_or_refused(value: Any, more: Any) -> None:
    for candidate in (value, more):
        for read in (read_network, read_quote, read_block, lambda v: read_account(v, "02")):
            with pytest.raises(GatewayMisbehaves):
                read(candidate)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "x:8000",
        "http://",
        "http://user:word@host",
        "http://host/?q",
        "http://host/#f",
        "http://host:99999",
        "http://ho st",
        "http://host\n.evil",
        "http://hést",
        "http://[::1",
    ],
)
def test_what_is_no_gateway(url: str) -> None:
    with pytest.raises(Misused):
        check_url(url)


def test_what_is_one() -> None:
    for url in ("http://127.0.0.1:8000", "https://host/native-preview", "http://[::1]:80"):
        assert check_url(url + "/") == url
        # The form in which a node shows its URL.
        assert check_url(url + "/api/v1") == check_url(url + "/api/v1/") == url


@pytest.fixture
def certificate(tmp_path: Path) -> Any:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "tls.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_https_checks_the_certificate(
    certificate: Any, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = listener.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(OK)
        except OSError:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    url = f"https://localhost:{listener.getsockname()[1]}"
    try:
        if trusted:
            assert exchange(url, None, 60).body == b"{}"
        else:
            with pytest.raises(NotReached, match="self-signed"):
                exchange(url, b"{}", 60)
    finally:
        thread.join(5)
        listener.close()


def test_a_handshake_that_never_ends_is_cut() -> None:
    over = threading.Event()

    def wait(_: object) -> None:
        over.wait(10)

    with server(wait) as url:
        # The request is sent after the handshake, which did not end. So nothing of it was sent.
        with pytest.raises(NotReached):
            exchange(url.replace("http:", "https:"), b"{}", 3)
        over.set()


def test_a_redirect_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/"
        head = f"HTTP/1.1 307 X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        with server(sends(head.encode())) as url:
            assert exchange(url, b"{}", 60).status == 307
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_a_small_answer_does_not_become_a_large_one() -> None:
    packed = gzip.compress(bytes(MAX_ANSWER + 1))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    with server(sends(head.encode() + packed)) as url:
        assert exchange(url, None, 60).body == packed


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with server(sends(OK)) as url:
        assert exchange(url, None, 60).status == 200
