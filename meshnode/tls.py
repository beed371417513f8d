"""TLS for both ports, and for connections to peers (decision 0171).

A socket stays a socket: OpenSSL works on it without blocking, and trio waits for it. So whoever
counts, bounds and closes plain connections does the same with these.

Invariants: nothing below TLS 1.2 and no cipher without forward secrecy is spoken; a file that
cannot be used leaves the certificate in force as it is.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import trio

from meshnode.domain.errors import StartupError

HTTP_PROTOCOLS = ("h2", "http/1.1")
GRPC_PROTOCOLS = ("h2",)
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2 that RFC 9113 allows for HTTP/2. Those of TLS 1.3 are all good."""
HANDSHAKE_S = 10.0
"""Deadline of a handshake."""

Result = TypeVar("Result")


class ServerTls:
    """The certificate of this node, which can be exchanged while it runs."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both files. Raises StartupError if they cannot be used."""
        self._certificate = certificate
        self._key = key
        self.http, self.grpc = self._read()
        """Contexts of the two ports, for connections that are accepted from now on."""

    def reload(self) -> None:
        """Read both files again. Raises StartupError, and changes nothing, if that fails."""
        self.http, self.grpc = self._read()

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        try:
            mode = stat.S_IMODE(self._key.stat().st_mode)
        except OSError as error:
            raise StartupError(f"cannot read {self._key}: {error.strerror}") from None
        if mode & 0o077:
            raise StartupError(f"others may read {self._key} (mode {mode:04o}): chmod 600 it")
        return self._context(HTTP_PROTOCOLS), self._context(GRPC_PROTOCOLS)

    def _context(self, protocols: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _restrict(context, protocols)
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise StartupError(
                f"{self._certificate} and {self._key} are no certificate and its key without a"
                f" passphrase, both in PEM ({error.reason or 'unreadable'})"
            ) from None
        except OSError as error:
            raise StartupError(f"cannot read {self._certificate}: {error.strerror}") from None
        return context


def peer_context(authorities: Path) -> ssl.SSLContext:
    """The context for calls to peers whose certificates these authorities have signed.

    Names in certificates are not compared: peers are known by addresses that change. Raises
    StartupError if the file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    _restrict(context, GRPC_PROTOCOLS)
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "it has no certificate in PEM"
        raise StartupError(f"cannot use {authorities}: {reason}") from None
    return context


def _restrict(context: ssl.SSLContext, protocols: tuple[str, ...]) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(protocols))


def wrap(
    sock: socket.socket, context: ssl.SSLContext, *, server_side: bool, name: str | None = None
) -> ssl.SSLSocket:
    """Take over a connected socket, which will not block. The handshake is still to be done."""
    sock.setblocking(False)
    return context.wrap_socket(
        sock, server_side=server_side, do_handshake_on_connect=False, server_hostname=name
    )


async def handshake(sock: ssl.SSLSocket) -> None:
    """Shake hands; the caller sets the deadline. Raises OSError if the other side does not."""
    await _until_done(sock, sock.do_handshake)


def say_goodbye(sock: ssl.SSLSocket) -> None:
    """Tell the other side, if the kernel takes it, that nothing more will be sent."""
    with contextlib.suppress(OSError, ValueError):
        sock.unwrap()


async def _until_done(sock: ssl.SSLSocket, step: Callable[[], Result]) -> Result:
    while True:
        try:
            result = step()
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(sock)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return result


class TlsSocket:
    """The methods of a trio socket that a connection of the HTTP port uses, over TLS.

    A send that was cancelled may have taken place in part, and nothing may be sent after it.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Take over a wrapped socket."""
        self._sock = sock
        self.family = sock.family

    async def handshake(self) -> None:
        """See :func:`handshake`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await handshake(self._sock)

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides have agreed on, if the client has named any."""
        return self._sock.selected_alpn_protocol()

    async def recv(self, size: int) -> bytes:
        """The next bytes; nothing at the end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await _until_done(self._sock, lambda: self._sock.recv(size))

    async def send(self, data: memoryview) -> int:
        """Send some bytes, and return how many."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await _until_done(self._sock, lambda: self._sock.send(data))

    def shutdown(self, how: int) -> None:
        """End the sending side."""
        say_goodbye(self._sock)
        # SSLSocket's own method would read what still comes in as if it were not encrypted.
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Release the socket; whoever waits for it is woken."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    def fileno(self) -> int:
        """The descriptor; negative once it is closed."""
        return self._sock.fileno()

    def getpeername(self) -> Any:
        """The client's address."""
        return self._sock.getpeername()

    def getsockname(self) -> Any:
        """This node's address."""
        return self._sock.getsockname()
