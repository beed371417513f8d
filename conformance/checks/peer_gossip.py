"""Interface 2.3 and 4.3: gradients that go on, and gradients that go back."""

import uuid
from typing import Any

from conformance import messages
from conformance.checks import passes
from conformance.checks.peering import AGAIN_S, Scene, need_work, settle, shown, watched
from conformance.context import Context
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
REFUSED = ("INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND")
ONWARDS, ANSWERED = "PL-BWD-002", "CL-URL-001"


@requirement(LOWERED, NOT_BACK, *requests.PROVES)
def peer_gossip(context: Context) -> None:
    """Gossip the declared gradient, and see to whom the node passes it on, and with which ttl."""
    gradient = context.target.gradient
    if gradient is None:
        raise Skipped("the target declares no gradient")
    sent = messages.parse("GossipGradientRequest", gradient.content)
    with watched(context) as scene:
        context.peer.came()
        reply = context.grpc.call("GossipGradient", gradient, timeout_s=60)
        answer: Any = messages.parse("GossipGradientResponse", reply.body) if reply.ok else None
        if answer is None or not answer.accepted:
            why = reply.code if answer is None else brief(answer.reason)
            raise Skipped(f"the declared gradient was not accepted: {why}")
        settle(context)
        passed = [call for call in scene.calls if _is_of(call, sent)]
        if not passed:
            raise Skipped("the node did not pass the gradient on")
        for call in passed:
            ttl: int = getattr(call.message, "ttl")  # noqa: B009 - the type is not known
            lower = 0 <= ttl < sent.ttl
            context.judge(LOWERED, lower, f"ttl {ttl} after {sent.ttl}", *shown([call]))
            back = call.post == PEER and context.peer.ident.hex() == sent.node_id
            context.judge(NOT_BACK, not back, "it came back to its sender", *shown([call]))


def _is_of(call: Call, sent: Any) -> bool:
    message = call.message if call.operation == "GossipGradient" else None
    return call.post in (PEER, NEIGHBOUR) and message is not None and (
        (message.node_id, message.round_id, message.signature)
        == (sent.node_id, sent.round_id, sent.signature)
    )  # fmt: skip


@requirement(ONWARDS, *requests.PROVES)
def peer_backward(context: Context) -> None:
    """Send a pass with the peer's own sender_url, then its gradients, which have to come back."""
    declared = context.target.pipeline
    metadata = tuple(declared.get("backward_metadata", {}).items())
    peer = context.peer
    sender = f"{peer.setup.host}:{peer.posts[PEER].port + GRPC_PORT_OFFSET}"
    ids = {"session_id": f"conformance-{uuid.uuid4().hex}", "request_id": uuid.uuid4().hex}
    with watched(context) as scene:
        peer.came()
        ends = peer.time.now() + peer.patience.recover_s
        while True:
            reply = passes.send_forward(context, metadata, sender_url=sender, **ids)
            passed = messages.parse("PipelineForwardResponse", reply.body) if reply.ok else None
            # A node may take such a pass only from those that it has known for a while.
            refused = reply.code in REFUSED or (passed is not None and not passed.success)
            if not refused or peer.time.now() >= ends:
                break
            peer.wait(lambda: False, AGAIN_S)
        if passed is None or not passed.success or not passed.hidden_states:
            why = (
                f"{reply.code} {reply.details}"
                if passed is None
                else (passed.error_message or "no hidden states")
            )
            raise Skipped(f"the pass whose gradients would go back was not made: {why}")
        back = messages.make(
            "PipelineBackwardRequest",
            **ids,
            grad_output=passed.hidden_states,
            grad_shape=list(passed.hidden_shape),
            target_shard=declared["shard"],
        )
        timeout_s = context.target.inference_timeout_s
        reply = context.grpc.call("PipelineBackward", back, timeout_s=timeout_s, metadata=metadata)
        done = messages.parse("PipelineBackwardResponse", reply.body) if reply.ok else None
        if done is None or not done.success:
            why = reply.code if done is None else done.error_message
            raise Skipped(f"the gradients were refused: {why}")
        peer.wait(lambda: bool(_back(scene)), peer.patience.settle_s)
        came = _back(scene)
        same = any(
            (call.message.session_id, call.message.request_id) == tuple(ids.values())
            for call in came
            if call.message is not None
        )
        context.judge(ONWARDS, same, "no PipelineBackward came to sender_url", reply, *shown(came))


def _back(scene: Scene) -> list[Call]:
    return [call for call in scene.calls if call.operation == "PipelineBackward"]


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
