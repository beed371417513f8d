"""Connections to peers, kept while they are used (document, section 8: a client pool).

Terms: a *link* is what the pool knows of one address: a connection that is being made, one that can
be used, or one that only waits for its last calls.

=========  ============================================  =======================================
link       event                                         next
=========  ============================================  =======================================
(none)     :meth:`ChannelPool.stub`                      opening
opening    the peer speaks HTTP/2                        open
opening    nobody answers for CONNECT_S                  (none); who waits gets UNAVAILABLE
open       the peer leaves, or says that it will         (none), once its calls have ended
open       no call for IDLE_S                            (none)
open       :meth:`ChannelPool.distrust`                  (none), once its calls have ended
=========  ============================================  =======================================

Invariants: one link an address can be used; at most MOST_LINKS exist, and where they are full the
longest idle gives way; the connections live in the pool's own nursery, so that a caller who is
cancelled harms nobody who uses the same one, and none outlives the pool.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub

if TYPE_CHECKING:
    from meshnode.domain.metering import TrafficMeter
    from meshnode.rpc.limits import RpcLimits

log = logging.getLogger(__name__)

CONNECT_S = 2.0
IDLE_S = 60.0
"""Longer than the pause between two heartbeats; a stranger that was pinged once is let go."""
MOST_LINKS = 512
"""Each peer of a full book, and as many addresses that are tried. A link is a socket and 100 kB."""

Address = tuple[str, int]


class _Link:
    """One connection. ``settled`` is set when it is known whether it can be used."""

    def __init__(self, address: Address, now: float) -> None:
        self.address = address
        self.settled = trio.Event()
        self.channel: Channel | None = None
        self.failure = f"cannot connect to {address[0]}:{address[1]}"
        self.used_at = now
        self.scope = trio.CancelScope()

    @property
    def usable(self) -> bool:
        return not self.settled.is_set() or (self.channel is not None and self.channel.usable)

    @property
    def idle(self) -> bool:
        return self.channel is not None and not self.channel.calls


class ChannelPool:
    """Handle of the service."""

    def __init__(
        self,
        to_open: trio.MemorySendChannel[_Link],
        traffic: TrafficMeter,
        limits: RpcLimits | None,
    ) -> None:
        """Made by :func:`serve_pool`, which starts ``keep`` for each link in ``to_open``."""
        self._to_open = to_open
        self._traffic = traffic
        self._limits = limits
        self._links: dict[Address, _Link] = {}
        self._all: set[_Link] = set()
        self._closed = False

    def __len__(self) -> int:
        """How many connections there are, those being opened and closed included."""
        return len(self._all)

    async def stub(self, host: str, grpc_port: int) -> NodeServiceStub:
        """The operations of the node at an address, connected.

        Waits for a connection at most CONNECT_S, and as long as the caller may. Raises CallFailed:
        UNAVAILABLE when nobody answers, RESOURCE_EXHAUSTED when too many connections are in use.
        """
        address = (host, grpc_port)
        link = self._links.get(address)
        if link is None or not link.usable:
            link = self._open(address)
        link.used_at = trio.current_time()
        await link.settled.wait()
        if link.channel is None or not link.channel.usable:
            raise CallFailed(Code.UNAVAILABLE, link.failure)
        return NodeServiceStub(link.channel)

    def distrust(self, host: str, grpc_port: int) -> None:
        """A call there got no answer in time: the next one gets a connection of its own.

        One that went through a cut keeps waiting long after a new one would work. One that is just
        being made is new: the call was another one's.
        """
        link = self._links.get((host, grpc_port))
        if link is not None and link.settled.is_set():
            self._forget(link)

    def close(self) -> None:
        """Connect nobody any more; those who wait are told."""
        self._closed = True
        for link in list(self._all):
            self._end(link)

    def _open(self, address: Address) -> _Link:
        if self._closed:
            raise CallFailed(Code.UNAVAILABLE, "the node is stopping")
        if len(self._all) >= MOST_LINKS:
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
        """Hold one connection, from its making to its end."""
        link.scope.deadline = trio.current_time() + CONNECT_S
        try:
            with link.scope:
                await self._hold(link)
        except CallFailed as error:
            link.failure = error.message
        except Exception:
            # The guard of the client side: a peer that finds a fault ends its own connection.
            log.exception("connection to %s:%d failed", *link.address)
        finally:
            self._end(link)

    async def _hold(self, link: _Link) -> None:
        host, port = link.address
        async with open_channel(host, port, traffic=self._traffic, limits=self._limits) as channel:
            link.scope.deadline = float("inf")
            link.channel = channel
            # Whoever waits for it has had no time yet to call.
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
    task_status: trio.TaskStatus[ChannelPool] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep connections to peers until cancelled; starts with the :class:`ChannelPool`.

    When it ends, calls in flight end with UNAVAILABLE.
    """
    async with trio.open_nursery() as nursery:
        # There are never more links than that, so sending never has to wait.
        to_open, opened = trio.open_memory_channel[_Link](MOST_LINKS)
        pool = ChannelPool(to_open, traffic, limits)
        task_status.started(pool)
        try:
            async for link in opened:
                nursery.start_soon(pool.keep, link)
        finally:
            # Links may wait that nobody has begun to make.
            pool.close()
