"""Interface 2.3 and 4.3: gradients that go on to other nodes, and where a node takes its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

from conformance import messages
from conformance.checks import gradients
from conformance.checks.peering import Scene, need_work, shown, watched
from conformance.checks.returning import SHORTEST_S
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import GrpcClient
from conformance.httpwire import Unanswered
from conformance.peer import requests
from conformance.peer.answers import Answer, Refusal
from conformance.peer.peer import Peer
from conformance.peer.watch import NEIGHBOUR, PEER, Call
from conformance.registry import requirement
from conformance.strictjson import brief
from conformance.target import GRPC_PORT_OFFSET

LOWERED, NOT_BACK = "CL-GOSSIP-001", "CL-GOSSIP-002"
GOSSIP, PORT = "GossipGradient", "CL-PORT-002"
ANSWERED, KEPT = "CL-URL-001", "CL-GOSSIP-003"
GOES_ON, BY_ONE, USED, ONCE = (f"CL-GOSSIP-{number:03d}" for number in (10, 11, 12, 13))
# More than a message of the usual ttl may be forwarded. Ours takes 8 at most.
FAR_TTL = 6
# What a client does about what a peer answers: it corrects the request, or it waits.
BAD_REQUEST, BUSY = "INVALID_ARGUMENT", ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
NOT_AGAIN, PAUSES = "CL-CALL-010", "CL-CALL-011"
# From so many attempts on, pauses are looked for between them.
ATTEMPTS = 3
# So many times as long as the first gradient took, others are waited for, and at least so long.
HURRY, SHORTLY_S = 5, 1.0
# What no node can verify; one that verifies signatures refuses the gradient.
SIGNED = "5c" * 64
# What names a gradient; and what is its own as well, should its names be changed on the way.
NAMING, TIMED = ("node_id", "round_id", "signature"), ("timestamp",)


@requirement(
    LOWERED, NOT_BACK, KEPT, GOES_ON, BY_ONE, USED, ONCE, NOT_AGAIN, PAUSES, PORT,
    *requests.PROVES,
)  # fmt: skip
def peer_gossip(context: Context) -> None:
    """Gossip a gradient, and see to whom the node passes it on, and with which ttl."""
    peer = context.peer
    with watched(context) as scene:
        peer.came()
        if not peer.setup.told:
            _introduce(context)
        declared = context.target.gradient is not None
        if declared or context.edition < SIXTH:
            for sent in _gradients(context):
                _judge_sent(context, scene, sent)
        if not declared and context.edition == FOURTH:
            _judge_own(context, scene)
        if context.edition >= SIXTH:
            # A node that takes what is signed need not take what is not.
            with suppress(*([Skipped] if declared else [])):
                _judge_made(context, scene)


def _judge_sent(context: Context, scene: Scene, sent: Any) -> list[Call]:
    """Send a gradient, and rule on what the node passes on; return these calls.

    Raises `Skipped` if the node does not accept it, or does not pass it on although it may.
    """
    reply = context.grpc.call(GOSSIP, sent, timeout_s=60)
    answer: Any = messages.parse("GossipGradientResponse", reply.body) if reply.ok else None
    if answer is None or not answer.accepted:
        why = reply.code if answer is None else brief(answer.reason)
        raise Skipped(f"the gradient was not accepted: {why}")
    passed = _passed(context, scene, sent)
    unread = [call for call in scene.calls if call.operation == GOSSIP and call.message is None]
    if unread and context.edition >= FIFTH:
        why = "what is passed on cannot be read as a gradient"
        context.fails(KEPT, why, *shown(unread[:1]))
    if not passed and sent.ttl:
        posts = [context.peer.posts[name] for name in (PEER, NEIGHBOUR)]
        wrong = any(link.http2 for post in posts for link in post.http.links)
        if wrong and context.peer.setup.told and context.edition >= SEVENTH:
            context.fails(PORT, "it came to no gRPC port, and gRPC to that of HTTP", reply)
        raise Skipped("the node did not pass the gradient on")
    if passed and context.edition >= SEVENTH:
        context.holds(PORT, reply, *shown(passed[:1]))
    for call in passed:
        _judge_passed(context, sent, call)
    return passed


def _judge_passed(context: Context, sent: Any, call: Call) -> None:
    """Rule on a gradient that is passed on: its ttl, what else it has, and to whom it goes."""
    ttl: int = getattr(call.message, "ttl")  # noqa: B009 - the type is not known
    lower = 0 <= ttl < sent.ttl
    why = f"ttl {ttl} after {sent.ttl}"
    if context.edition >= FOURTH and sent.ttl > 1 and not ttl and (odd := _odd(call)):
        # It is elsewhere.
        lower, why = False, f"{why}, and the fields {brief(odd)}, which are not named"
    context.judge(LOWERED, lower, why, *shown([call]))
    if context.edition >= SIXTH:
        changed = _changed(sent, call)
        why = f"it is passed on with another {' and '.join(changed)}"
        context.judge(KEPT, not changed, why, *shown([call]))
    back = call.post == PEER and context.peer.ident.hex() == sent.node_id
    context.judge(NOT_BACK, not back, "it came back to its sender", *shown([call]))


def _judge_made(context: Context, scene: Scene) -> None:
    """Send gradients such as the node accepts, and some that are to go no further."""
    peer, made = context.peer, gradients.gradient_of(context)
    both = gradients.of_layers(context, made)
    if both is not None:
        # A map with more than one entry, if the node takes it.
        _, answer = gradients.send(context, gradients.fresh(both))
        made = both if answer is not None and answer.accepted else made

    def make(ttl: int, **changes: Any) -> Any:
        return messages.make(
            "GossipGradientRequest", **gradients.fresh(made, **{"ttl": ttl, **changes})
        )

    first, began = make(gradients.TTL), peer.time.now()
    passed = _judge_sent(context, scene, first)
    least_s = HURRY * (min(call.at for call in passed) - began)
    far, last = make(FAR_TTL), make(1)
    others = {
        "far": far, "last": last, "ended": make(0), "below": make(-1),
        "own": make(gradients.TTL, node_id=peer.ident.hex()),
        "signed": make(gradients.TTL, signature=SIGNED),
    }  # fmt: skip
    refused = make(gradients.TTL, model_hash="0" * 64)
    failed = {code: make(gradients.TTL) for code in (BAD_REQUEST, *BUSY)}

    def conduct(call: Call) -> Answer | None:
        for code, sent in failed.items():
            if _is_of(call, sent, [NAMING, TIMED]):
                return Refusal(code)
        return None

    with peer.answering(conduct):
        taken = {name: _is_taken(context, sent) for name, sent in others.items()}
        refused_here = _is_taken(context, refused) is False
        again = _is_taken(context, first) is not None
        for sent in failed.values():
            _is_taken(context, sent)
        peer.wait(lambda: False, min(max(least_s, SHORTLY_S), peer.patience.settle_s))
    for name, sent in others.items():
        for call in _calls_of(scene, sent) if taken[name] else ():
            _judge_passed(context, sent, call)
    _judge_far(context, scene, far, last, goes=bool(taken["far"]), ends=bool(taken["last"]))
    if refused_here:
        went = _calls_of(scene, refused)
        context.judge(USED, not went, "it was refused, and is passed on", *shown(went[:1]))
    times = Counter(call.post for call in _calls_of(scene, first))
    if times[PEER] == 1:
        # Otherwise it knows the peer under two names.
        _judge_failed(context, scene, failed)
    why = f"it went {max(times.values())} times to one node" if times else "it went nowhere"
    why = f"{why}, after it had come {'twice' if again else 'once'}"
    context.judge(ONCE, max(times.values(), default=0) < 2, why, *shown(passed[:2]))


def _judge_failed(context: Context, scene: Scene, failed: dict[str, Any]) -> None:
    """Rule on gradients that the peer has failed: whether and when they come again."""
    for code, sent in failed.items():
        calls = [call for call in _calls_of(scene, sent) if call.post == PEER and call.code]
        if not calls:
            continue
        why = f"after {code} it comes {len(calls)} times"
        if code == BAD_REQUEST:
            context.judge(NOT_AGAIN, len(calls) < 2, why, *shown(calls[:2]))
            continue
        held = len(calls) <= requests.MAX_ATTEMPTS
        context.judge(requests.ATTEMPTS, held, why, *shown(calls[:4]))
        pauses = [later.at - call.answered_at for call, later in pairwise(calls)]
        hurried = len(calls) >= ATTEMPTS and max(pauses) < SHORTEST_S
        why = f"{why}, with no pause that is longer than {max(pauses, default=0):.3f} s"
        context.judge(PAUSES, not hurried, why, *shown(calls[:3]))


def _judge_far(
    context: Context, scene: Scene, far: Any, last: Any, *, goes: bool, ends: bool
) -> None:
    """Rule on how much lower the ttl of a gradient gets, and on one that may go on once."""
    for call in _calls_of(scene, far) if goes else ():
        ttl: int = getattr(call.message, "ttl")  # noqa: B009 - the type is not known
        if 0 <= ttl < FAR_TTL:
            why = f"ttl {ttl} after {FAR_TTL}"
            context.judge(BY_ONE, ttl == FAR_TTL - 1, why, *shown([call]))
    if ends and (passed := _calls_of(scene, far)):
        went = bool(_calls_of(scene, last))
        why = f"one with ttl {FAR_TTL} is passed on, one with ttl 1 is not"
        context.judge(GOES_ON, went, why, *shown(passed[:1]))


def _is_taken(context: Context, sent: Any) -> bool | None:
    """Send a gradient; return whether it is accepted, None if the answer does not say it."""
    answer = context.grpc.call(GOSSIP, sent, timeout_s=60).message
    return bool(answer.accepted) if answer is not None else None


def _calls_of(scene: Scene, sent: Any) -> list[Call]:
    """Return the calls so far that pass a gradient on."""
    return [call for call in scene.calls if _is_of(call, sent, [NAMING, TIMED])]


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
