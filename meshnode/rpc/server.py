"""The gRPC server: its listener, connections and dispatch of calls (interface 4.3, 7.3 and 8).

Terms: a connection is *known* once its peer has sent HTTP/2 settings. The server *closes* when its
``shutdown`` event is set: it accepts nothing more, sends the peers a GOAWAY, lets calls in flight
end within ``grace_s``, and returns.

Invariants: no connection outlives ``serve_grpc``; a peer's bytes can end no connection but its own;
connections, calls and bytes in flight are bounded by the limits.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterable, Mapping

import h2.events
import trio
from h2.exceptions import ProtocolError

from meshnode.accepting import AddressRate, accept_connections, open_listeners
from meshnode.domain.connections import ConnectionTable
from meshnode.domain.frames import AddressFrames
from meshnode.domain.held_bytes import HeldBytes
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.ratelimit import LeakyBucket, Rate
from meshnode.newcomers import Newcomer
from meshnode.rpc._header_memory import parsed_once
from meshnode.rpc._purerpc import status
from meshnode.rpc.caller import Caller
from meshnode.rpc.calls import ServerCall
from meshnode.rpc.connection import ENHANCE_YOUR_CALM, NO_ERROR, Connection
from meshnode.rpc.errors import CallRefused, Code
from meshnode.rpc.headers import BadHead, RequestHead, parse_request
from meshnode.rpc.limits import RpcLimits
from meshnode.rpc.peer_log import PeerLog
from meshnode.rpc.refusal import HttpRefusal
from meshnode.rpc.streams import MessageStream
from meshnode.rpc.stubs import Operation, Service
from meshnode.rpc.transport import Transport, endpoint
from meshnode.tls import ServerTls
from meshnode.turns import Turns

log = logging.getLogger(__name__)

Answering = ServerCall | HttpRefusal
"""A call in flight."""
REFUSED_STREAM = 7
SAY_AGAIN_S = 60.0
LINGER_S = 1.0
"""Time for a peer to read the last bytes before its socket is closed."""


class Server:
    """The state that all connections of a server share."""

    def __init__(
        self,
        services: Iterable[Service],
        limits: RpcLimits,
        traffic: TrafficMeter,
        turns: Turns,
        tls: ServerTls | None = None,
    ) -> None:
        """Make the state for ``services``, whose names must be distinct."""
        self.turns = turns
        self._tls = tls
        self.limits = limits
        self.traffic = traffic
        self.held: HeldBytes[Answering] = HeldBytes(limits.bytes_in_flight, limits.bytes_of_one)
        self.frames = AddressFrames(limits.control_burst, limits.control_per_s)
        self.peer_log = PeerLog(log)
        self.closing = False
        self._said_at = -SAY_AGAIN_S
        self.connections: ConnectionTable[Newcomer | ServerConnection] = ConnectionTable(
            limits.connections, lambda ip: limits.of_one(limits.connections, ip)
        )
        self.calls: ConnectionTable[Answering] = ConnectionTable(
            limits.calls, lambda ip: limits.of_one(limits.calls, ip)
        )
        self._operations: Mapping[tuple[str, str], Operation] = {
            (service.name, name): operation
            for service in services
            for name, operation in service.operations.items()
        }

    def operation(self, head: RequestHead) -> Operation | None:
        """The operation that a request names."""
        return self._operations.get((head.service, head.method))

    def close(self) -> None:
        """Accept no further call."""
        self.closing = True
        for connection in self.connections:
            connection.drain()

    async def serve_stream(self, stream: trio.SocketStream) -> None:
        """Serve one accepted connection until it ends."""
        async with stream:
            if self.closing:
                # The server closed just after accepting this connection.
                return
            try:
                ip, _ = endpoint(stream.socket.getpeername())
            except OSError:
                # The peer has left already.
                return
            turns = self.turns.of(ip)
            turns.enter()
            newcomer = Newcomer(stream.socket, ip, turns)
            admitted, replaced = self.connections.admit(newcomer)
            if replaced is not None:
                # Peers with idle connections must not keep out peers that make calls.
                replaced.evict()
            if not admitted:
                self._say_refused()
                return
            try:
                if await newcomer.speaks(self.limits.handshake_s):
                    await self._serve(stream, newcomer)
            finally:
                self.connections.discard(newcomer)

    async def _serve(self, stream: trio.SocketStream, newcomer: Newcomer) -> None:
        sock = socket.socket(fileno=stream.socket.detach())
        tls, stall_s = self._tls.grpc if self._tls else None, self.limits.stall_s
        try:
            transport = Transport(sock, self.traffic, stall_s=stall_s, tls=tls, server_side=True)
        except OSError:
            # The peer has disconnected already, and some systems then refuse to set options.
            sock.close()
            return
        connection = ServerConnection(transport, self, newcomer)
        self.connections.exchange(newcomer, connection)
        try:
            await connection.run()
        except Exception:
            # Catch everything here, so that a peer that triggers a defect ends only its connection.
            log.exception("connection failed")
        finally:
            self.connections.discard(connection)
            transport.close()

    def _say_refused(self) -> None:
        """Log a refusal at most once a minute, so that strangers cannot fill the log."""
        now = trio.current_time()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            log.warning("refusing connections: %d have calls", len(self.connections))

    def admit(self, call: Answering) -> bool:
        """Whether ``call`` may begin. An idle call may have to give way to it."""
        admitted, replaced = self.calls.admit(call)
        if replaced is not None:
            replaced.drop()
        return admitted

    def hold(self, call: Answering, size: int) -> bool:
        """Count ``size`` more bytes for ``call``. Idle calls may have to give way to it."""
        held, replaced = self.held.take(call, size, trio.current_time())
        for each in replaced:
            each.drop()
        return held


class ServerConnection(Connection):
    """The server's side of a connection."""

    def __init__(self, transport: Transport, server: Server, newcomer: Newcomer) -> None:
        """Nothing is read before :meth:`run`."""
        super().__init__(
            transport,
            server.limits,
            client_side=False,
            frames=server.frames.meter(transport.peer[0]),
            peer_log=server.peer_log,
            turns=newcomer.turns,
        )
        self._server = server
        self._calls: dict[int, Answering] = {}
        self._resets = LeakyBucket(server.limits.resets_burst, server.limits.resets_per_s)
        self._peer = Caller(*transport.peer, here=transport.here)
        self._nursery: trio.Nursery | None = None
        self._reading = trio.CancelScope()
        """Cancelling it ends the connection; its deadline is that of the handshake."""
        self._quiet_since = trio.current_time()
        """Time at which its last call ended, or at which it was accepted."""
        self._handlers[h2.events.RequestReceived] = self._request_received

    async def run(self) -> None:
        """Serve until the peer disconnects, then cancel its calls."""
        self._reading.deadline = trio.current_time() + self.limits.handshake_s
        async with trio.open_nursery() as nursery:
            # The nursery stays inside this object: event handlers start the calls in it.
            self._nursery = nursery
            with self._reading:
                try:
                    await self.transport.shake_hands()
                except OSError:
                    return
                nursery.start_soon(self.transport.run_writer)
                await self.read()
            self.flush()
            if self._server.closing:
                await self._linger()
            nursery.cancel_scope.cancel()
        if self.violated:
            # So that the peer can read why.
            await self._linger()

    def drain(self) -> None:
        """Let the calls in flight end, and accept no more."""
        self.say_goodbye()
        for call in list(self._calls.values()):
            call.stop()
        self._end_when_idle()

    @property
    def ip(self) -> str:
        """The peer's address."""
        return self._peer.ip

    @property
    def idle(self) -> bool:
        """Whether no call is in flight, or all of them are idle."""
        return all(call.idle for call in self._calls.values())

    @property
    def idle_since(self) -> float:
        """When it became idle."""
        times = [call.idle_since for call in self._calls.values()]
        return max([self._quiet_since, *times])

    def evict(self) -> None:
        """End, because another connection takes its place."""
        self.end()

    def end(self, error_code: int = NO_ERROR) -> None:
        """Send a GOAWAY and stop reading."""
        self.say_goodbye(error_code)
        self._reading.cancel()

    def forget(self, stream_id: int) -> None:
        """Forget a call that is over."""
        super().forget(stream_id)
        call = self._calls.pop(stream_id, None)
        if call is not None:
            self._server.calls.discard(call)
        self._quiet_since = trio.current_time()
        self._end_when_idle()

    def hold(self, stream_id: int, size: int) -> bool:
        """Count ``size`` more bytes as held; False if there is no room for them."""
        return self._server.hold(self._calls[stream_id], size)

    def release(self, stream_id: int, size: int) -> None:
        """Count ``size`` bytes as held no longer."""
        self._server.held.give(self._calls[stream_id], size)

    def _end_when_idle(self) -> None:
        if self._server.closing and not self._calls:
            self._reading.cancel()

    async def _linger(self) -> None:
        """Read on for a moment before closing.

        Closing a socket that has unread bytes would discard what the peer has not read yet.
        """
        with trio.move_on_after(LINGER_S):
            await self.transport.wait_room(0)
            await self.transport.drain()

    # -- events -----------------------------------------------------------------------------------

    def _settings_changed(self, event: h2.events.RemoteSettingsChanged) -> None:
        super()._settings_changed(event)
        self._reading.deadline = float("inf")

    @property
    def _full(self) -> bool:
        """Whether the peer has as many calls as advertised.

        Up to as many again that it has abandoned do not count, although their tasks may not have
        ended: a peer whose deadlines pass begins other calls at the same moment.
        """
        most = self.limits.calls_per_connection
        if len(self._calls) < most:
            return False
        live = sum(not call.stream.was_reset for call in self._calls.values())
        return live >= most or len(self._calls) >= 2 * most

    def _request_received(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        if self._server.closing or self._full:
            self.reset(stream_id, REFUSED_STREAM)
            self._count_abandoned()
            return
        head = parsed_once(event.headers, parse_request)
        if isinstance(head, BadHead):
            if head.http_status == 200:
                self._refuse(stream_id, head.code, head.message)
                return
            stream = MessageStream(self, stream_id, "identity", CallRefused)
            self._begin(stream, HttpRefusal(self, stream, head, self.ip))
            return
        operation = self._server.operation(head)
        stream = MessageStream(self, stream_id, head.encoding, CallRefused)
        if operation is not None:
            stream.operation = operation.name
            stream.expect(head.encoding, operation.request_type)
        peer = self._peer
        caller = Caller(peer.ip, peer.port, head.metadata, peer.here)
        self._begin(stream, ServerCall(self, stream, operation, head.timeout_s, caller))

    def _begin(self, stream: MessageStream, call: Answering) -> None:
        if not self._server.admit(call):
            self._refuse(stream.id, Code.RESOURCE_EXHAUSTED, "too many calls")
            return
        self.streams[stream.id] = stream
        self._calls[stream.id] = call
        self._server.traffic.rpc_calls += 1
        if self._nursery is not None:
            self._nursery.start_soon(call.run)

    def _refuse(self, stream_id: int, code: Code, message: str) -> None:
        try:
            self.grpc.respond_status(stream_id, status(code, message))
        except ProtocolError:
            return
        self.message_passed()
        self.reset(stream_id, NO_ERROR)

    def _stream_reset(self, event: h2.events.StreamReset) -> None:
        super()._stream_reset(event)
        call = self._calls.get(event.stream_id)
        if call is not None:
            call.cancel()
            self._server.calls.discard(call)
        self._count_abandoned()

    def _count_abandoned(self) -> None:
        """Count a call that was abandoned or refused; end the connection if they come too fast."""
        if self._resets.overflows(trio.current_time()) and not self._reading.cancel_called:
            self.complain(logging.WARNING, "abandons calls too fast")
            self.end(ENHANCE_YOUR_CALM)


async def serve_grpc(
    services: Iterable[Service],
    host: str,
    port: int,
    *,
    traffic: TrafficMeter,
    limits: RpcLimits | None = None,
    turns: Turns | None = None,
    tls: ServerTls | None = None,
    shutdown: trio.Event | None = None,
    grace_s: float = 10.0,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve gRPC on ``host:port`` (interface 4.3) until cancelled, or until closed by ``shutdown``.

    With ``tls`` every connection begins with a handshake. Port 0 picks a free port;
    ``task_status.started`` reports the actual address. Raises StartupError when it cannot listen
    there. When this is cancelled, calls in flight are cancelled and their callers see UNAVAILABLE.
    ``turns`` are those of the node's clients on all ports.
    """
    server = Server(services, limits or RpcLimits(), traffic, turns or Turns(), tls)
    listeners = await open_listeners(host, port)
    async with trio.open_nursery() as nursery:
        accepting = await nursery.start(_accept, server, listeners)
        address = listeners[0].getsockname()
        task_status.started((address[0], address[1]))
        if shutdown is None:
            await trio.sleep_forever()
        else:
            await shutdown.wait()
        accepting.cancel()
        server.close()
        nursery.cancel_scope.deadline = trio.current_time() + grace_s


async def _accept(
    server: Server,
    listeners: list[socket.socket],
    *,
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:
    """Accept connections until the reported scope is cancelled; serve each until it ends."""
    limits = server.limits
    rate = AddressRate(Rate(limits.connects_per_s, limits.connects_burst))
    async with trio.open_nursery() as connections:
        with trio.CancelScope() as scope, contextlib.ExitStack() as open_listeners:
            for listener in listeners:
                open_listeners.enter_context(listener)
            task_status.started(scope)
            await accept_connections(listeners, server.serve_stream, rate, handlers=connections)
