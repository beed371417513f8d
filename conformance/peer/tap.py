"""Between the tested node and the peer's servers: reads the frames of HTTP/2 as they pass.

gRPC's libraries hide pings, resets and the closing of connections, and these are what interface 8
asks of clients. A *mark* is a frame that passed, or several of data in a row; times are those of
the run's clock. Nothing is changed on the way, except that the answers to pings can be withheld.

Invariant: a mark is recorded before its frame is passed on, so whoever has the answer to a frame
knows that the frame is recorded.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, PING, WINDOW_UPDATE = 0, 1, 3, 6, 8
ACK = END_STREAM = 0x1
_HEAD = 9
_CHUNK = 64 * 1024


@dataclass
class Mark:
    """One frame, or several of data in a row, of which `at` is the time of the last."""

    at: float
    from_caller: bool
    kind: int
    flags: int
    stream: int
    size: int


@dataclass
class Link:
    """One connection of a caller. `marks` is in the order in which the frames passed."""

    caller: tuple[str, int]
    opened_at: float
    closed_at: float | None = None
    by_caller: bool = False
    http2: bool = False
    marks: list[Mark] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)

    def note(self, mark: Mark) -> None:
        """Record a frame, and which calls are in flight."""
        last = self.marks[-1] if self.marks else None
        if mark.kind == HEADERS and mark.from_caller:
            self.streams.add(mark.stream)
        ends = mark.kind == RST_STREAM or (
            not mark.from_caller and mark.kind in (DATA, HEADERS) and mark.flags & END_STREAM
        )
        if ends:
            self.streams.discard(mark.stream)
        alike = last and (last.kind, last.from_caller, last.stream, last.flags)
        if last and mark.kind in (DATA, WINDOW_UPDATE) and alike == (
            mark.kind, mark.from_caller, mark.stream, mark.flags,
        ):  # fmt: skip
            last.at, last.size = mark.at, last.size + mark.size
        else:
            self.marks.append(mark)


class Tap:
    """Listens at an address, and passes every connection on to another one."""

    def __init__(
        self,
        host: str,
        port: int,
        upstream: Callable[["Link"], tuple[str, int] | None],
        clock: Callable[[], float],
        noticed: threading.Condition,
    ) -> None:
        """`noticed` is notified of every mark. `upstream` may have nothing to pass on to."""
        self.links: list[Link] = []
        self.holds_acks = False
        self._upstream = upstream
        self._clock = clock
        self._noticed = noticed
        self._by_port: dict[int, Link] = {}
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._listener = socket.create_server((host, port))
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        """Accept connections."""
        self._spawn(self._accept)

    def stop(self) -> None:
        """Close everything, and wait for the threads."""
        self._stopped = True
        # Closing alone would not wake a thread that waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._noticed:
            left = list(self._open)
        for sock in left:
            _hang_up(sock)
        for thread in list(self._threads):
            thread.join()

    def of(self, peer: str) -> Link | None:
        """Return the connection of a call by the address that the server has for its caller."""
        return self._by_port.get(int(peer.rpartition(":")[2] or 0))

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                caller, address = self._listener.accept()
            except OSError:
                return
            link = Link((address[0], address[1]), self._clock())
            with self._noticed:
                self.links.append(link)
                self._open.add(caller)
                self._noticed.notify_all()
            self._spawn(self._serve, caller, link)

    def _serve(self, caller: socket.socket, link: Link) -> None:
        by_caller = True
        server = None
        try:
            first = _exactly(caller, len(PREFACE), short=True)
            link.http2 = first == PREFACE
            address = self._upstream(link)
            server = socket.create_connection(address, timeout=10) if address and first else None
            if server is None:
                return
            server.settimeout(None)
            # Frames go on one by one; without this they would wait for acknowledgements, and calls
            # that follow one another at once would look like calls with a pause.
            for side in (caller, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._noticed:
                self._open.add(server)
                self._by_port[server.getsockname()[1]] = link
                self._noticed.notify_all()
            server.sendall(first)
            back = threading.Thread(
                target=self._pass_on, args=(server, caller, link, False), daemon=True
            )
            back.start()
            by_caller = self._pass_on(caller, server, link, True)
            back.join()
        except OSError:
            pass
        finally:
            with self._noticed:
                if link.closed_at is None:
                    link.closed_at, link.by_caller = self._clock(), by_caller
                self._open -= {caller, *([server] if server else [])}
                self._noticed.notify_all()
            for sock in (caller, server):
                if sock:
                    sock.close()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, link: Link, from_caller: bool
    ) -> bool:
        """Pass on until one side hangs up; return whether that was the caller."""
        by_caller = from_caller
        with suppress(OSError):
            while data := self._next(source, link, from_caller):
                # Whoever no longer takes anything has hung up.
                by_caller = not from_caller
                sink.sendall(data)
                by_caller = from_caller
        with self._noticed:
            if link.closed_at is None:
                link.closed_at, link.by_caller = self._clock(), by_caller
            self._noticed.notify_all()
        _hang_up(sink)
        _hang_up(source)
        return link.by_caller

    def _next(self, source: socket.socket, link: Link, from_caller: bool) -> bytes:
        """Return the bytes of the next frame that is passed on; empty at the end."""
        if not link.http2:
            return source.recv(_CHUNK)
        while True:
            head = _exactly(source, _HEAD)
            if not head:
                return b""
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            payload = _exactly(source, size)
            if len(payload) < size:
                return b""
            stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
            with self._noticed:
                link.note(Mark(self._clock(), from_caller, kind, flags, stream, size))
                self._noticed.notify_all()
            withheld = kind == PING and flags & ACK and not from_caller and self.holds_acks
            if not withheld:
                return head + payload


def _exactly(source: socket.socket, size: int, *, short: bool = False) -> bytes:
    """Read this many bytes, or none at the end; `short`: what there is, if it is no HTTP/2."""
    parts = b""
    while len(parts) < size:
        data = source.recv(size - len(parts))
        if not data:
            return parts if short else b""
        parts += data
        if short and not PREFACE.startswith(parts):
            return parts
    return parts


def _hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
