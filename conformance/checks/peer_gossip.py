"""Interface 2.3 and 4.3: gradients that go on to other nodes, and where a node takes its own."""

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

from conformance import messages
from conformance.checks import gradients
from conformance.checks.peering import Scene, need_work, shown, watched
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH
from conformance.findings import Skipped
from conformance.grpcwire import GrpcClient
from conformance.httpwire import Unanswered
from conformance.peer import requests
from conformance.peer.peer import Peer
from conformance.peer.watch import NEIGHBOUR, PEER, Call
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.target import GRPC_PORT_OFFSET

LOWERED, NOT_BACK = "CL-GOSSIP-001", "CL-GOSSIP-002"
GOSSIP = "GossipGradient"
ANSWERED, KEPT = "CL-URL-001", "CL-GOSSIP-003"
# What names a gradient; and what is its own as well, should its names be changed on the way.
NAMING, TIMED = ("node_id", "round_id", "signature"), ("timestamp",)


@requirement(LOWERED, NOT_BACK, KEPT, *requests.PROVES)
def peer_gossip(context: Context) -> None:
    """Gossip a gradient, and see to whom the node passes it on, and with which ttl."""
    peer = context.peer
    with watched(context) as scene:
        peer.came()
        if not peer.setup.told:
            _introduce(context)
        for sent in _gradients(context):
            reply = context.grpc.call(GOSSIP, sent, timeout_s=60)
            answer: Any = messages.parse("GossipGradientResponse", reply.body) if reply.ok else None
            if answer is None or not answer.accepted:
                why = reply.code if answer is None else brief(answer.reason)
                raise Skipped(f"the gradient was not accepted: {why}")
            passed = _passed(context, scene, sent)
            unread = [
                call for call in scene.calls if call.operation == GOSSIP and call.message is None
            ]
            if unread and context.edition >= FIFTH:
                why = "what is passed on cannot be read as a gradient"
                context.fails(KEPT, why, *shown(unread[:1]))
            if not passed and sent.ttl:
                raise Skipped("the node did not pass the gradient on")
            for call in passed:
                ttl: int = getattr(call.message, "ttl")  # noqa: B009 - the type is not known
                lower = 0 <= ttl < sent.ttl
                why = f"ttl {ttl} after {sent.ttl}"
                if context.edition >= FOURTH and sent.ttl > 1 and not ttl and (odd := _odd(call)):
                    # It is elsewhere.
                    lower, why = False, f"{why}, and the fields {brief(odd)}, which are not named"
                context.judge(LOWERED, lower, why, *shown([call]))
                if context.edition >= FIFTH:
                    changed = _changed(sent, call)
                    why = f"it is passed on with another {' and '.join(changed)}"
                    context.judge(KEPT, not changed, why, *shown([call]))
                back = call.post == PEER and peer.ident.hex() == sent.node_id
                context.judge(NOT_BACK, not back, "it came back to its sender", *shown([call]))
        if context.edition >= FOURTH and context.target.gradient is None:
            _judge_own(context, scene)


def _changed(sent: Any, call: Call) -> list[str]:
    """Return the fields of a gradient that are others where it is passed on, but for its ttl."""
    message = call.message
    names = [field.name for field in sent.DESCRIPTOR.fields if field.name != "ttl"]
    return [name for name in names if getattr(sent, name) != getattr(message, name)]


def _odd(call: Call) -> list[int]:
    """Return the numbers of the fields of a gradient that no gradient has."""
    known = messages.MESSAGES["GossipGradientRequest"].DESCRIPTOR.fields_by_number
    try:
        found = messages.wire_fields(call.body)
    except messages.BadMessage:
        return []
    return sorted({field.number for field in found} - set(known))


def _judge_own(context: Context, scene: Scene) -> None:
    """Rule on a gradient that the peer itself has made, if the node accepts it."""
    peer = context.peer
    fields = gradients.fresh(gradients.gradient_of(context), ttl=gradients.TTL)
    sent: Any = messages.make("GossipGradientRequest", **{**fields, "node_id": peer.ident.hex()})
    reply = context.grpc.call(GOSSIP, sent, timeout_s=60)
    answer = reply.message
    if answer is not None and answer.accepted:
        back = [call for call in _passed(context, scene, sent) if call.post == PEER]
        context.judge(NOT_BACK, not back, "it came back to its sender", reply, *shown(back))


def _introduce(context: Context) -> None:
    """Ping the node as a node that it has not known, so that it knows the peer from then on.

    On a connection of its own: who sends a gradient on the same one may be taken for its sender.
    """
    peer, request = context.peer, "DHTPingRequest"
    me = messages.make("DHTNodeInfo", node_id=peer.ident, ip=peer.setup.host,
                       port=peer.posts[PEER].port)  # fmt: skip
    journal, address = peer.watch.journal, context.target.grpc
    if context.edition < FIFTH or journal is None or not address:
        context.grpc.call("DHTPing", messages.make(request, sender=me))
        return
    client = GrpcClient(address, journal, timeout_s=context.target.timeout_s)
    client.check = "peer-gossip"
    with suppress(Unanswered), closing(client):
        client.call("DHTPing", messages.make(request, sender=me))


def _gradients(context: Context) -> Iterator[Any]:
    """Yield the declared gradient, or such as the node accepts: one that goes on, one that ends."""
    declared = context.target.gradient
    if declared is not None:
        yield messages.parse("GossipGradientRequest", declared.content)
        return
    if context.edition < FOURTH:
        raise Skipped("the target declares no gradient")
    made = gradients.gradient_of(context)
    for ttl in (gradients.TTL, 0):
        fields = gradients.fresh(made, ttl=ttl)
        yield messages.make("GossipGradientRequest", **fields)


def _passed(context: Context, scene: Scene, sent: Any) -> list[Call]:
    """Wait for what the node passes on, and return it; one call is enough from a stranger."""
    peer, named = context.peer, [NAMING, *([TIMED] if context.edition >= FIFTH else [])]
    peer.wait(
        lambda: not peer.setup.told and any(_is_of(call, sent, named) for call in scene.calls),
        peer.patience.settle_s,
    )
    return [call for call in scene.calls if _is_of(call, sent, named)]


def _is_of(call: Call, sent: Any, named: list[tuple[str, ...]]) -> bool:
    """Return whether a call passes a gradient on: one of these sets of fields is the same."""
    message = call.message if call.operation == GOSSIP else None
    if call.post not in (PEER, NEIGHBOUR) or message is None:
        return False
    return any(
        all(getattr(message, name) == getattr(sent, name) for name in names) for names in named
    )


@requirement(ANSWERED, *requests.PROVES)
def peer_sender_url(context: Context) -> None:
    """Send gradients of no pass to each sender_url that the node has given."""
    with watched(context):
        peer = context.peer
        if not _senders(peer):
            need_work(context)
        given = _senders(peer)
        if not given:
            raise Skipped("no request of the node has a sender_url")
        for url, call in list(given.items())[:3]:
            _judge_sender(context, url, call)


def _senders(peer: Peer) -> dict[str, Call]:
    return {
        call.message.sender_url: call
        for call in peer.watch.calls
        if call.operation == "PipelineForward" and call.message and call.message.sender_url
    }


def _judge_sender(context: Context, url: str, call: Call) -> None:
    journal = context.peer.watch.journal
    host, _, digits = url.rpartition("//")[2].rstrip("/").rpartition(":")
    if journal is None or not host or not digits.isdigit():
        context.fails(ANSWERED, f"sender_url {brief(url)} is not host:port", *shown([call]))
        return
    asked = messages.make("PipelineBackwardRequest", session_id="none", request_id="none")
    # The document does not say whether it is the HTTP port or that of gRPC.
    for port in (int(digits), int(digits) + GRPC_PORT_OFFSET):
        client = GrpcClient(f"{host}:{port}", journal, timeout_s=context.target.timeout_s)
        client.check = "peer-sender-url"
        try:
            reply = client.call("PipelineBackward", asked)
        except Unanswered:
            continue
        finally:
            client.close()
        if reply.code != "UNIMPLEMENTED":
            context.holds(ANSWERED, reply, *shown([call]))
            return
    context.fails(ANSWERED, f"nobody takes PipelineBackward at {brief(url)}", *shown([call]))
