"""Relaying hidden states to the next holder of a route (interface 4.3; decisions 0018, 0035).

Terms: a *route* lists the hops that are left, the receiver first. A hop runs its layers and calls
the next hop; the answer comes back along the calls, or straight to the driver (decision 0219).

Invariants: a node calls an address of a route only if it is a peer's; a hop gives the next one less
time than it has itself, so that the hop that hangs is the one missing in the answer; ``hops`` of an
answer are those that computed, so ``route[len(hops)]`` is the one that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import ComputationFailed, InvalidRequest, LayerNotHeld
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.rpc.metadata import CONVOY
from meshnode.services.shards.decoding import (
    DECODE_FROM,
    FLIGHT,
    MODEL,
    ORIGIN,
    RESERVE,
    WANTED,
)
from meshnode.services.shards.holder import Holder
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall, SessionBehind
from meshnode.services.shards.short_cut import Deliveries
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.peers import PeerBook
    from meshnode.services.stub_pool import StubPool

SHARE_OF_TIME = 0.9
"""The part of its own time that a hop gives the next one; the rest is for the answer."""
MAX_CALL_S = 60.0
"""Time for a call whose caller set no deadline."""
MAX_HOPS = 256


def time_for_next_hop() -> float:
    """Seconds that this hop gives the next one: a share of its own, 0.0 if its deadline passed."""
    left = trio.current_effective_deadline() - trio.current_time()
    return max(0.0, min(left, MAX_CALL_S)) * SHARE_OF_TIME


@dataclass(frozen=True, slots=True)
class NextHop:
    """The hop after this one."""

    host: str
    grpc_port: int


class ShardRelay:
    """Runs this node's hop of a route, and calls the next hop for the rest."""

    def __init__(
        self,
        *,
        node_id: str,
        holder: Holder,
        held: tuple[int, ...],
        num_layers: int,
        pool: StubPool,
        peers: PeerBook,
        carried: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """``node_id`` is this node's; ``held`` are its layers of the model's ``num_layers``.

        ``carried`` gives the metadata by which the next hop's span becomes part of the call's
        trace.
        """
        self._carried = carried
        self._node_id = node_id
        self._holder = holder
        self._held = held
        self._num_layers = num_layers
        self._pool = pool
        self._peers = peers
        self._deliveries = Deliveries(pool, peers)

    async def forward(
        self, message: pb.SwarmForwardRequest, call: ForwardCall
    ) -> pb.SwarmForwardResponse:
        """Answer with the logits of the last hop, or with what failed and where.

        ``call`` is the message as ``decode_swarm_forward`` gives it, without its layers. Raises
        what ``Holder.forward`` raises for the first hop, and CallRefused (PERMISSION_DENIED) when
        the next one is not a peer of this node.
        """
        if call.closes:
            # Closed here even if the rest of the route is invalid or out of reach.
            self._holder.close(call.owner, call.session_id)
        layers, following = self._validated(message.route)
        call = replace(call, layers=layers)
        answer = pb.SwarmForwardResponse(request_id=call.request_id)
        try:
            computed = await self._holder.forward(call)
        except (SessionBehind, ComputationFailed) as error:
            answer.error_message = str(error)
            return answer
        report = pb.SwarmHopReport(
            node_id=self._node_id,
            first_layer=layers.start,
            last_layer=layers.stop - 1,
            queue_ms=computed.queue_ms,
            compute_ms=computed.compute_ms,
        )
        if following is None:
            answer.success = True
            answer.hops.append(report)
            answer.logits = computed.data
            answer.logits_shape.extend(computed.shape)
            answer.logit_ids = computed.ids
            return await self._answered(message, answer)
        onward = _onward(message, computed, report, closes=call.closes)
        metadata = _metadata(call)
        if self._carried is not None:
            metadata.update(self._carried())
        most_bytes = self._holder.most_bytes(computed.shape)
        begun = trio.current_time()
        # Free the memory of the message while the other hops compute.
        del call, computed
        try:
            rest = await self._call(following, onward, metadata, most_bytes)
        except CallFailed as error:
            answer.error_message = f"{error.code.name}: {error.message}"
            answer.hops.append(report)
            return answer
        elapsed_ms = (trio.current_time() - begun) * 1e3
        theirs_ms = sum(hop.queue_ms + hop.compute_ms + hop.network_ms for hop in rest.hops)
        report.network_ms = max(0.0, elapsed_ms - theirs_ms)
        answer.success = rest.success
        answer.error_message = rest.error_message
        answer.logits = rest.logits
        answer.logit_ids = rest.logit_ids
        answer.delivered = rest.delivered
        answer.logits_shape.extend(rest.logits_shape)
        answer.hops.extend([report, *rest.hops[:MAX_HOPS]])
        return answer

    async def _answered(
        self, message: pb.SwarmForwardRequest, answer: pb.SwarmForwardResponse
    ) -> pb.SwarmForwardResponse:
        """The last holder's answer, without its logits if the driver has taken them already."""
        before = message.reports[:MAX_HOPS]
        if not message.answer_to or not before:
            # The caller is the driver, or wants no short cut.
            return answer
        whole = pb.SwarmForwardResponse()
        whole.CopyFrom(answer)
        del whole.hops[:]
        whole.hops.extend([*before, *answer.hops])
        if await self._deliveries.deliver(message.answer_to, message, whole):
            answer.delivered = True
            for field in ("logits", "logits_shape", "logit_ids"):
                answer.ClearField(field)
        return answer

    async def _call(
        self,
        to: NextHop,
        message: pb.SwarmForwardRequest,
        metadata: dict[str, str],
        most_bytes: int,
    ) -> pb.SwarmForwardResponse:
        with trio.move_on_after(time_for_next_hop()):
            try:
                stub = await self._pool.stub(to.host, to.grpc_port)
                # A flight is given only if all holders of a path know it.
                return await stub.SwarmForward(
                    message, metadata=metadata, most_bytes=most_bytes, line=FLIGHT in metadata
                )
            except CallFailed as error:
                if error.code is Code.DEADLINE_EXCEEDED:
                    self._pool.distrust(to.host, to.grpc_port)
                raise
        self._pool.distrust(to.host, to.grpc_port)
        raise CallFailed(Code.DEADLINE_EXCEEDED, "no answer in time")

    def _validated(self, route: Sequence[pb.SwarmHop]) -> tuple[range, NextHop | None]:
        """This node's layers and the next hop. Raises for an invalid route before any computing."""
        if not 1 <= len(route) <= MAX_HOPS:
            raise InvalidRequest("route", f"must have 1 to {MAX_HOPS} hops")
        mine, *others = route
        if mine.node_id and mine.node_id != self._node_id:
            raise LayerNotHeld("the route names another node, at this node's address")
        if any(hop.last_layer < hop.first_layer for hop in route):
            raise InvalidRequest("route", "must have layers in every hop")
        for hop, after in zip(route, others, strict=False):
            if after.first_layer != hop.last_layer + 1:
                raise InvalidRequest("route", "must not skip or repeat a layer")
        if route[-1].last_layer != self._num_layers - 1:
            raise InvalidRequest("route", "must lead to the last layer")
        layers = range(mine.first_layer, mine.last_layer + 1)
        if layers[0] not in self._held or layers[-1] not in self._held:
            raise LayerNotHeld(f"layers {layers[0]} to {layers[-1]} are not all held here")
        if not others:
            return layers, None
        host, colon, port = others[0].address.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5):
            raise InvalidRequest("route", "must have host:port as addresses")
        following = NextHop(host.strip("[]"), int(port))
        if not self._peers.knows(following.host, following.grpc_port):
            raise CallRefused(Code.PERMISSION_DENIED, "the next hop is not a peer of this node")
        return layers, following


def _onward(
    message: pb.SwarmForwardRequest,
    computed: ForwardAnswer,
    report: pb.SwarmHopReport,
    *,
    closes: bool,
) -> pb.SwarmForwardRequest:
    """The message for the next hop. It has no states if it closes the session."""
    return pb.SwarmForwardRequest(
        session_id=message.session_id,
        request_id=message.request_id,
        hidden_states=b"" if closes else computed.data,
        hidden_shape=() if closes else computed.shape,
        attention_mask=message.attention_mask,
        position_ids=message.position_ids,
        use_cache=message.use_cache,
        route=message.route[1:],
        answer_to=message.answer_to,
        reports=[*message.reports[:MAX_HOPS], report] if message.answer_to else (),
    )


def _metadata(call: ForwardCall) -> dict[str, str]:
    """The metadata of the call to the next hop."""
    given = {RESERVE: call.reserve, DECODE_FROM: call.decode_from, ORIGIN: call.owner}
    given[MODEL] = call.model_hash or None
    sent = {key: str(value) for key, value in given.items() if value is not None}
    ahead = {WANTED: call.wanted, FLIGHT: call.flight, CONVOY: call.convoy}
    return sent | {key: value for key, value in ahead.items() if value}
