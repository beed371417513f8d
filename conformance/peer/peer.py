"""The peer as a whole: its posts, its conduct, and what the tested node is made to do.

A *stimulus* makes the tested node use its peers: an inference request, if the run may spend.
Without one the peer waits for what the node does by itself. `Time` is the run's clock, and how the
peer waits on it; tests replace it by one that moves only when the toy has done what was due.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from conformance.findings import Shown
from conformance.peer.answers import (
    OWN,
    UNIMPLEMENTED,
    Answer,
    Behind,
    Conduct,
    Refusal,
    Table,
    alone,
    info,
    node_id,
)
from conformance.peer.post import Post
from conformance.peer.tap import Link, Tap
from conformance.peer.watch import BYSTANDER, DHT, NEIGHBOUR, PEER, Call, Watch
from conformance.target import GRPC_PORT_OFFSET

# By how much a node may be wrong about where gRPC is, as seen from the HTTP port.
BESIDE, TRIES = (1, 10, 100, 999, 1001, 10_000), 10


class Time:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def wait(self, noticed: threading.Condition, done: Callable[[], bool], within_s: float) -> bool:
        """Wait until `done`, which is asked again whenever something is noticed."""
        ends = self.now() + within_s
        with noticed:
            while not done():
                left = ends - self.now()
                if left <= 0:
                    return False
                # What `done` asks may depend on time alone.
                noticed.wait(min(left, 1.0))
        return True


@dataclass(frozen=True)
class Patience:
    """How long the peer waits for the tested node, in seconds."""

    # For the node to come, and for it to do anything that nobody has asked it for.
    first_s: float = 60.0
    # After a failure, for what the node does about it in the background.
    settle_s: float = 4.0
    # For the node to use the peer again, after it has seen it fail.
    recover_s: float = 90.0
    # For a connection to be idle for so long that a ping is due.
    idle_s: float = 120.0


@dataclass(frozen=True)
class Outcome:
    """What a stimulus came to: the HTTP status of the node's own answer, and what shows it."""

    status: int
    shown: tuple[Shown, ...] = ()


Stimulus = Callable[[], Outcome | None]


@dataclass
class Setup:
    """How a peer is made. `behind` is the URL and the gRPC address of a node behind it."""

    host: str = "127.0.0.1"
    port: int = 0
    behind: tuple[str, str] | None = None
    patience: Patience = field(default_factory=Patience)
    time: Time = field(default_factory=Time)
    large_bytes: int = 99 * 1024 * 1024
    # The ID to have in the DHT; else that of the node behind, or one of its own.
    ident: bytes = b""
    # What the peer has as a checkpoint, if no node is behind it.
    checkpoint: bytes = b""
    # Whether no other node holds what this one does, so that an answer needs it.
    sole: bool = False
    # Whether the tested node is told of the peer by its operator, and not only by what it is sent.
    told: bool = True


class Peer:
    """Three posts, of which the tested node is told the first. A context manager."""

    def __init__(self, setup: Setup) -> None:
        """Take the ports. Raises `OSError` if they are taken, `RpcError` if nobody is behind."""
        self.setup = setup
        self.time = setup.time
        self.patience = setup.patience
        self.watch = Watch(self.time.now)
        self._conduct: Conduct | None = None
        # The IDs that nodes have given in the DHT, by their hosts and ports.
        self.known: dict[tuple[str, int], bytes] = {}
        self._judged: set[int] = set()
        # What makes the node use its peers, instead of an inference request over HTTP.
        self.stimulus: Stimulus | None = None
        # Whether it uses the peer's layers; None while nobody has tried.
        self.used: bool | None = None
        self._behind = Behind(setup.behind[1]) if setup.behind else None
        own = setup.ident or node_id("peer")
        ident = own if self._behind is None else self._behind.node_id(10)
        self.posts: dict[str, Post] = {}
        # What listens where a node may think that the peer's gRPC port is, by how far that is off.
        self.beside: dict[int, Tap] = {}
        try:
            self._take_ports()
        except OSError:
            self._stop()
            raise
        infos = {
            name: info(ident if name == PEER else node_id(name), setup.host, post.port)
            for name, post in self.posts.items()
        }
        self._tables = {
            name: Table(infos[name], [infos[n] for n in infos if n != name]) for name in infos
        }

    def _take_ports(self) -> None:
        http = urlsplit(self.setup.behind[0]) if self.setup.behind else None
        to = (http.hostname or "", http.port or 80) if http else None
        for left in reversed(range(1 if self.setup.port else TRIES)):
            self.posts[PEER] = self._post(PEER, self.setup.port, to)
            self._listen_beside()
            if len(self.beside) == len(BESIDE) or not self.setup.told or not left:
                break
            # Something else of this machine is where a node may be wrong.
            self._stop_listening()
        for name in (NEIGHBOUR, BYSTANDER):
            self.posts[name] = self._post(name, 0, None)

    def _listen_beside(self) -> None:
        for offset in BESIDE if self.setup.told else ():
            with suppress(OSError, OverflowError):
                port = self.posts[PEER].port + offset
                self.beside[offset] = Tap(
                    self.setup.host, port, lambda link: None, self.time.now, self.watch.noticed
                )

    def _stop_listening(self) -> None:
        for one in (self.beside, self.posts):
            while one:
                one.popitem()[1].stop()

    def _post(self, name: str, port: int, http: tuple[str, int] | None) -> Post:
        def answer(call: Call) -> Answer:
            return self._answer(call)

        for _ in range(1 if port else 20):
            try:
                return Post(
                    name, self.setup.host, port, self.watch, answer, http,
                    everywhere=name == BYSTANDER,
                )  # fmt: skip
            except OSError:
                if port:
                    raise
        raise OSError("no two free ports, 1000 apart")

    def __enter__(self) -> "Peer":
        """Serve."""
        for post in self.posts.values():
            post.start()
        for tap in self.beside.values():
            tap.start()
        return self

    def __exit__(self, *error_info: object) -> None:
        """Stop serving."""
        self._stop()

    def _stop(self) -> None:
        self._stop_listening()
        if self._behind is not None:
            self._behind.close()

    @property
    def url(self) -> str:
        """The address that the tested node is told."""
        return f"http://{self.setup.host}:{self.posts[PEER].port}"

    @property
    def ident(self) -> bytes:
        """The peer's ID in the DHT."""
        return bytes(self._tables[PEER].me.node_id)

    @property
    def sender_urls(self) -> tuple[str, ...]:
        """The usual forms of the address at which the peer takes gradients that go back."""
        port = self.posts[PEER].port
        host = self.setup.host
        return f"http://{host}:{port}", f"{host}:{port + GRPC_PORT_OFFSET}", f"{host}:{port}"

    @property
    def links(self) -> list[Link]:
        """The connections to the gRPC port of the first post."""
        return list(self.posts[PEER].rpc.links)

    # -- conduct --------------------------------------------------------------------------------

    def _answer(self, call: Call) -> Answer:
        conduct = self._conduct
        if conduct is not None and call.post == PEER:
            answer = conduct(call)
            if answer is not None:
                return answer
        return self.usual(call)

    def usual(self, call: Call) -> Answer:
        """Answer as a node that is sound."""
        if call.post == BYSTANDER:
            return Refusal("UNIMPLEMENTED", "nobody has told you to ask here")
        if call.operation in DHT:
            return self._tables[call.post].answer(call)
        if call.operation in OWN:
            return UNIMPLEMENTED
        if self._behind is None or call.post != PEER:
            return alone(call, self.setup.checkpoint)
        return self._behind.ask(call)

    @contextmanager
    def answering(self, conduct: Conduct) -> Iterator[None]:
        """Answer in another way: `conduct` returns None for what is answered as usual."""
        self._conduct = conduct
        try:
            yield
        finally:
            self._conduct = None

    @contextmanager
    def silent_pings(self) -> Iterator[None]:
        """Withhold the answers to pings."""
        tap = self.posts[PEER].rpc
        tap.holds_acks = True
        try:
            yield
        finally:
            tap.holds_acks = False

    # -- waiting --------------------------------------------------------------------------------

    def wait(self, done: Callable[[], bool], within_s: float) -> bool:
        """Wait for something that the tested node does; return whether it did."""
        return self.time.wait(self.watch.noticed, done, within_s)

    def came(self) -> bool:
        """Return whether the tested node has called the peer, waiting for it if need be."""
        if not self.setup.told:
            return bool(self.watch.calls)
        return self.wait(lambda: bool(self.watch.calls), self.patience.first_s)

    def answered(self) -> list[Call]:
        """Return the calls that have been answered since the last time that anybody asked."""
        found = [call for call in self.watch.calls if call.code and id(call) not in self._judged]
        self._judged |= {id(call) for call in found}
        return found
