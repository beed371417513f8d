"""Connections to peers, kept while they are used (interface 8: a client pool).

Terms: a *link* is the pool's connection to one address: one that is being opened, one that can be
used, or one that only waits for its last calls.

=========  ============================================  =======================================
link       event                                         next
=========  ============================================  =======================================
(none)     :meth:`ChannelPool.stub`                      opening
opening    the peer speaks HTTP/2                        open
opening    nobody answers for CONNECT_S                  (none); its waiters get UNAVAILABLE
open       the peer disconnects or sends a GOAWAY        (none), once its calls have ended
open       no call for IDLE_S                            (none)
open       :meth:`ChannelPool.distrust`                  (none), once its calls have ended
=========  ============================================  =======================================

Invariants: each address has at most one usable link; at most ``max_links`` links exist, and when
the limit is reached, the longest idle one is closed for a new one. The connections live in the
pool's own nursery, so cancelling one caller does not harm others on the same connection, and no
connection outlives the pool.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

import trio

from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.peer_log import PeerLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshnode.domain.metering import TrafficMeter
    from meshnode.rpc.limits import RpcLimits

log = logging.getLogger(__name__)

CONNECT_S = 2.0
IDLE_S = 60.0
"""Longer than the pause between two heartbeats, so that links to known peers stay open. A link to a
stranger that was pinged once is soon closed."""
MAX_LINKS = 512
"""One for each peer of a full roster, and as many for addresses being tried. A link takes a socket
and 100 kB."""

Address = tuple[str, int]


class _Link:
    """One connection. ``settled`` is set once connecting has succeeded or failed."""

    def __init__(self, address: Address, now: float) -> None:
        self.address = address
        self.settled = trio.Event()
        self.channel: Channel | None = None
        self.stub: NodeServiceStub | None = None
        """The operations over the channel; one object, since a pass calls one each millisecond."""
        self.failure = f"cannot connect to {address[0]}:{address[1]}"
        self.used_at = now
        self.scope = trio.CancelScope()

    def __repr__(self) -> str:
        """Address and state."""
        state = "opening"
        if self.settled.is_set():
            state = "open" if self.usable else "closing"
        return f"<link {self.address[0]}:{self.address[1]} {state}>"

    @property
    def usable(self) -> bool:
        return not self.settled.is_set() or (self.channel is not None and self.channel.usable)

    @property
    def idle(self) -> bool:
        return self.channel is not None and not self.channel.calls


class ChannelPool:
    """The handle of the connection pool."""

    def __init__(
        self,
        to_open: trio.MemorySendChannel[_Link],
        traffic: TrafficMeter,
        limits: RpcLimits | None,
        max_links: int,
        tls: ssl.SSLContext | None,
        source: Callable[[str], str | None],
    ) -> None:
        """:func:`serve_pool` makes it, and starts ``keep`` for each link in ``to_open``."""
        self._to_open = to_open
        self._traffic = traffic
        self._limits = limits
        self._max_links = max_links
        self._tls = tls
        self._source = source
        self._peer_log = PeerLog(log)
        self._links: dict[Address, _Link] = {}
        self._all: set[_Link] = set()
        self._closed = False

    def __len__(self) -> int:
        """The number of connections, including those being opened or closed."""
        return len(self._all)

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """A connected stub for the node at an address, which other callers use, too.

        Waits for a connection at most CONNECT_S, within the caller's deadline. Raises CallFailed:
        UNAVAILABLE when nobody answers, RESOURCE_EXHAUSTED when too many connections are in use.
        """
        address = (host, grpc_port)
        link = self._links.get(address)
        if link is None or not link.usable:
            link = self._open(address)
        link.used_at = trio.current_time()
        await link.settled.wait()
        if link.stub is None or not link.usable:
            raise CallFailed(Code.UNAVAILABLE, link.failure)
        return link.stub

    def distrust(self, host: str, grpc_port: int) -> None:
        """Drop a connection on which a call got no answer in time; the next call opens another.

        After a network failure, an old connection can hang long after a new one would work. A
        connection that is still being opened is kept, since the call used an earlier one.
        """
        link = self._links.get((host, grpc_port))
        if link is not None and link.settled.is_set():
            self._forget(link)

    def close(self) -> None:
        """Open no more connections, and wake all who wait for one."""
        self._closed = True
        for link in list(self._all):
            self._end(link)

    def _open(self, address: Address) -> _Link:
        if self._closed:
            raise CallFailed(Code.UNAVAILABLE, "the node is stopping")
        if len(self._all) >= self._max_links:
            self._make_room()
        link = _Link(address, trio.current_time())
        self._links[address] = link
        self._all.add(link)
        self._to_open.send_nowait(link)
        return link

    def _make_room(self) -> None:
        idle = [link for link in self._all if link.idle and not link.scope.cancel_called]
        if not idle:
            raise CallFailed(Code.RESOURCE_EXHAUSTED, "too many connections in use")
        longest = min(idle, key=lambda link: link.used_at)
        self._forget(longest)
        self._all.discard(longest)
        longest.scope.cancel()

    async def keep(self, link: _Link) -> None:
        """Open one connection and hold it until it ends."""
        link.scope.deadline = trio.current_time() + CONNECT_S
        try:
            with link.scope:
                await self._hold(link)
        except CallFailed as error:
            link.failure = error.message
        except Exception:
            # Catch everything here, so that a peer that triggers a defect ends only its connection.
            log.exception("connection to %s:%d failed", *link.address)
        finally:
            self._end(link)

    async def _hold(self, link: _Link) -> None:
        host, port = link.address
        async with open_channel(
            host,
            port,
            traffic=self._traffic,
            limits=self._limits,
            peer_log=self._peer_log,
            tls=self._tls,
            source=self._source(host),
        ) as channel:
            link.scope.deadline = float("inf")
            link.channel, link.stub = channel, NodeServiceStub(channel)
            # The idle time starts now, since the waiters have had no chance to call yet.
            link.used_at = trio.current_time()
            link.failure = "connection lost"
            link.settled.set()
            ended = False
            while not ended and not self._may_close(link, channel):
                with trio.move_on_after(IDLE_S / 4):
                    await channel.wait_ended()
                    ended = True

    def _may_close(self, link: _Link, channel: Channel) -> bool:
        if channel.calls:
            link.used_at = trio.current_time()
            return False
        in_use = self._links.get(link.address) is link
        return not in_use or trio.current_time() - link.used_at >= IDLE_S

    def _end(self, link: _Link) -> None:
        link.settled.set()
        self._forget(link)
        self._all.discard(link)

    def _forget(self, link: _Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]


async def serve_pool(
    traffic: TrafficMeter,
    *,
    limits: RpcLimits | None = None,
    max_links: int = MAX_LINKS,
    tls: ssl.SSLContext | None = None,
    source: Callable[[str], str | None] = lambda host: None,
    task_status: trio.TaskStatus[ChannelPool] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep connections to peers until cancelled; starts with the :class:`ChannelPool`.

    With ``tls``, peers are called over TLS only. ``source`` says from which own address a host is
    called; None leaves it to the operating system. When it ends, calls in flight end with
    UNAVAILABLE.
    """
    async with trio.open_nursery() as nursery:
        # There are never more links than the channel holds, so sending never has to wait.
        to_open, opened = trio.open_memory_channel[_Link](max_links)
        pool = ChannelPool(to_open, traffic, limits, max_links, tls, source)
        task_status.started(pool)
        try:
            async for link in opened:
                nursery.start_soon(pool.keep, link)
        finally:
            # Some links may still be queued, with tasks waiting for them.
            pool.close()
