"""Interface 4.3, 5 and 7: the documented refusal on each route, however else the request is wrong.

Nothing here spends anything at a node that guards its routes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

from conformance import messages
from conformance.catalogue import Effect
from conformance.checks.answers import (
    DOCUMENTED_CODES,
    OF_AUTHENTICATION,
    UNKNOWN,
    is_named,
)
from conformance.checks.auth import INVENTED
from conformance.checks.dht import SENDER
from conformance.checks.kept_passes import metadata_of, way_back
from conformance.checks.node_reads import AUTH_READS, CONFIG
from conformance.checks.passes import (
    BUSY,
    forward_request,
    fresh_id,
    gradient_shape,
    layers_of,
    send_backward,
    send_forward,
)
from conformance.checks.reading import ABSENT
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH
from conformance.findings import Skipped
from conformance.grpcwire import NO_MESSAGE, Metadata, Reply
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer, Unanswered
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int

STREAM: dict[str, Json] = {"prompt": "Hello", "max_tokens": 1, "stream": True}
# Statuses of a peer that is not there, has no room, or took too long.
# So often what may be chance is asked.
# What a number of four, eight or sixteen bits leaves out.
WRAPS = (16, 256, 65536)
EACH_LAYER = "GR-CODE-022"
# So many of the layers of a node are sent a pass.
MOST_LAYERS = 8
TURNS = 3
ELSEWHERE = (*BUSY, "DEADLINE_EXCEEDED")
# What says that the server failed, or has no such operation.
FAILURES = ("INTERNAL", "UNKNOWN", "UNIMPLEMENTED")
# The first edition in which a gradient is sent to a layer that is absent.
GRADIENT_SINCE = 4
# The first edition in which bytes that are no message are sent to more than one operation.
PINGED_SINCE = 4
# The first edition in which the declared token is tried without its last letter, with another one,
# in quotes and in a list, and many requests are sent with it at the same time, and on each route.
CUT_SINCE = 4
# The first edition in which the answers to a pass are counted.
PASSED_SINCE = 4
POSTED = ("/inference", "/wallet/send", "/wallet/stake", "/wallet/unstake")
TIMES, MORE_TIMES, AT_ONCE = 12, 30, 4


@requirement("NA-AUTH-020")
def guards_stream(context: Context) -> None:
    """POST /inference for a stream without a token, and with an invented one."""
    for credential in (ANONYMOUS, INVENTED):
        answer = context.infer(STREAM, credential=credential)
        if answer.ok or (400 <= answer.status < 500 and answer.status not in ABSENT):
            why = f"a stream is served to {credential.shown or 'a request without a token'}"
            context.judge("NA-AUTH-020", not answer.ok, why, answer)


@requirement("NA-AUTH-022")
def guards_steady(context: Context) -> None:
    """GET the Auth routes many times with the declared token, and several at once."""

    def ask(_: int) -> Answer:
        return context.api("GET", CONFIG.path, credential=context.target.valid)

    later = context.edition >= CUT_SINCE
    answers = [ask(at) for at in range(MORE_TIMES if later else TIMES)]
    if not any(answer.ok for answer in answers):
        raise Skipped(f"the declared token is answered with {answers[0].status}")
    steady = _judge_steady(context, answers)
    if later:
        for resource in AUTH_READS:
            if resource is not CONFIG:
                token = context.target.valid
                read = [context.api("GET", resource.path, credential=token) for _ in range(TIMES)]
                _judge_steady(context, read)
    if later and steady:
        _judge_at_once(context, ask)


def _judge_steady(context: Context, answers: list[Answer]) -> bool:
    """Rule on the same request many times; return whether the token was good to the last."""
    served = [at for at, answer in enumerate(answers) if answer.ok]
    if not served:
        return False
    # A token that expires meanwhile is refused from then on.
    between = [at for at, one in enumerate(answers) if one.status == 401 and at < served[-1]]
    shown = ", ".join(str(at + 1) for at in between)
    why = f"of {len(answers)} requests number {shown} got 401"
    context.judge("NA-AUTH-022", not between, why, *answers)
    return not between and answers[-1].ok


def _judge_at_once(context: Context, ask: Callable[[int], Answer]) -> None:
    """Ask several times at the same moment, then once more: the token is still good."""
    for _ in range(2):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(ask, range(4 * AT_ONCE)))
        refused = [answer for answer in answers if answer.status == 401]
        last = ask(0)
        if not refused or not last.ok:
            break
    else:
        why = f"of {len(answers)} requests, {AT_ONCE} at a time, {len(refused)} got 401"
        context.fails("NA-AUTH-022", why, *refused[:2], last)


@requirement("NA-AUTH-023", "NA-AUTH-025")
def guards_first(context: Context) -> None:
    """POST and PATCH bodies that no route can take, with an invented token."""
    bodies: list[tuple[str, str, Json]] = [("POST", path, {}) for path in POSTED]
    for method, path, body in (*bodies, ("PATCH", CONFIG.path, [])):
        answer = context.api(method, path, credential=INVENTED, json_body=body)
        if answer.status in ABSENT or answer.status >= 500:
            continue
        why = f"{method} {path} with an invalid token and {brief(body)}: status {answer.status}"
        context.judge("NA-AUTH-023", answer.status == 401, why, answer)
    if context.edition >= CUT_SINCE:
        answer = context.api("POST", "/inference", credential=INVENTED, content=b"{")
        if answer.status not in ABSENT and answer.status < 500:
            why = f"POST /inference with an invalid token and no JSON: status {answer.status}"
            context.judge("NA-AUTH-025", answer.status == 401, why, answer)


@requirement("GR-CODE-001", "GR-CODE-004", "GR-CODE-012", "GR-CODE-013")
def backward_absent(context: Context) -> None:
    """Send a pass forward, then one backward to a layer that the node does not hold, and again."""
    known = context.target.pipeline
    shard = known.get("absent_shard")
    if shard is None:
        raise Skipped("[target.pipeline] declares no absent_shard")
    session, ident = fresh_id(), fresh_id()
    metadata = metadata_of(context)
    ahead = send_forward(context, metadata, session_id=session, request_id=ident)
    if not ahead.ok:
        raise Skipped(f"the forward pass ends with {ahead.code}")
    request = messages.make(
        "PipelineBackwardRequest", session_id=session, request_id=ident, target_shard=shard
    )
    back = context.grpc.call("PipelineBackward", request)
    if context.edition >= GRADIENT_SINCE and back.code not in (UNKNOWN, *OF_AUTHENTICATION):
        why = f"a backward pass to shard {shard} ends with {back.code}"
        context.judge("GR-CODE-001", back.code in DOCUMENTED_CODES, why, ahead, back)
    if back.code in ELSEWHERE:
        _judge_elsewhere(context, request, back)
        return
    answer = back.message
    if answer is None and back.ok:
        return
    # Interface 7.3 has both: the status for a layer, and success false for a failure.
    done = answer is not None and bool(answer.success)
    why = f"a backward pass to shard {shard}, without any gradient, ends with success"
    context.judge("GR-CODE-012", not done, why, ahead, back)
    if context.edition >= GRADIENT_SINCE and "backward_metadata" in known:
        _judge_gradients(context, metadata, known["shard"], shard)


def _judge_gradients(context: Context, metadata: Metadata, own: int, absent: int) -> None:
    """Send gradients backward, to the layer that the pass went to and to the one that is absent.

    A node may call the latter a bad request: the pass that it belongs to went elsewhere.
    """
    ends = {own: list[_End](), absent: list[_End]()}
    # What shape they have, and what a pass needs that is kept.
    way = way_back(context) if context.edition >= FOURTH else {}
    kept = way if context.edition >= SEVENTH else {}
    for _ in range(2):
        for shard, found in ends.items():
            ids = {"session_id": fresh_id(), "request_id": fresh_id()}
            ahead = send_forward(context, metadata, **ids, **kept)
            answer = ahead.message
            shape = [] if answer is None else gradient_shape(context, answer)
            if not shape:
                return
            found.append(_End(ahead, send_backward(context, shape, shard, **ids)))
    if not all(end.served for end in ends[own]):
        return
    shown = [reply for end in ends[absent] for reply in (end.ahead, end.back)]
    served = any(end.served for end in ends[absent])
    why = f"a gradient for shard {absent}, which is not here, is taken"
    context.judge("GR-CODE-012", not served, why, *shown)
    codes = [end.back.code for end in ends[absent]]
    why = f"a gradient for shard {absent} ends twice with {codes[0]}"
    if codes == ["NOT_FOUND", "NOT_FOUND"]:
        context.holds("GR-CODE-004", *shown)
    elif all(code in FAILURES for code in codes):
        context.fails("GR-CODE-004", why, *shown)


@dataclass(frozen=True)
class _End:
    """A pass forward, and how the one backward ended."""

    ahead: Reply
    back: Reply

    @property
    def served(self) -> bool:
        """Whether the gradient was taken."""
        answer = self.back.message
        return answer is not None and bool(answer.success)


def _judge_elsewhere(context: Context, request: Any, back: Reply) -> None:
    """Rule on a status that says that the peer is not there, if it serves what it holds."""
    turns = [back]
    for _ in range(2):
        turns += [send_forward(context), context.grpc.call("PipelineBackward", request)]
    served = all(reply.ok for reply in turns[1::2])
    if served and all(reply.code in ELSEWHERE for reply in turns[0::2]):
        why = f"thrice {back.code} for shard {request.target_shard}, between passes that are served"
        context.fails("GR-CODE-013", why, *turns)


@requirement("GR-OP-022")
def stream_both_ways(context: Context) -> None:
    """Send two empty messages to StreamInference, and one where it does not take two."""
    if not is_named(context):
        raise Skipped("the service has another name, which GR-NAME-001 reports")
    two = context.grpc.call_stream("StreamInference", b"", b"")
    if two.code != UNKNOWN:
        if two.ok or context.edition < FIFTH or not _takes_one(context):
            context.holds("GR-OP-022", two)
        return
    why = f"two messages end with {two.code}: {two.details}"
    try:
        one = context.grpc.call_stream("StreamInference", b"")
    except Unanswered as silent:
        # It waits, so that there is such an operation.
        if context.edition < FOURTH or not silent.why.startswith("timeout"):
            raise
        context.fails("GR-OP-022", f"one message is waited with, and {why}", two, silent)
        return
    if one.code == UNKNOWN:
        raise Skipped("StreamInference is not implemented")
    context.fails("GR-OP-022", f"one message ends with {one.code}, {why}", one, two)


def _takes_one(context: Context) -> bool:
    """Rule on a second message that ends what one alone does not; return whether that was so."""
    turns: list[Reply] = []
    for _ in range(TURNS):
        turns.append(context.grpc.call_stream("StreamInference", b""))
        turns.append(context.grpc.call_stream("StreamInference", b"", b""))
    served, refused = turns[0::2], turns[1::2]
    if not all(reply.ok for reply in served) or any(reply.ok for reply in refused):
        return False
    if any(reply.code in BUSY for reply in refused):
        return False
    why = f"one message is served, and two end with {refused[0].code}: {refused[0].details}"
    context.fails("GR-OP-022", f"{TURNS} times {why}", *turns[:2])
    return True


def _judge_each(context: Context, named: tuple[int, ...], held: Reply) -> None:
    """Rule on passes to other layers that the node lists, of which some are found."""
    sample = sorted({named[len(named) * part // MOST_LAYERS] for part in range(MOST_LAYERS)})
    ends = {layer: send_forward(context, target_shard=layer) for layer in sample}
    lost = [layer for layer, reply in ends.items() if reply.code == "NOT_FOUND"]
    # A shard may have another number than its layers.
    if 2 * len(lost) < len(ends):
        lost = [
            layer for layer in lost if send_forward(context, target_shard=layer).code == "NOT_FOUND"
        ]
        why = f"the node lists the layers {brief(list(named))}, and has not found {brief(lost)}"
        context.judge(EACH_LAYER, not lost, why, held, *(ends[layer] for layer in lost[:2]))


@requirement("GR-CODE-013", "GR-CODE-014", "PL-FWD-022", EACH_LAYER)
def forward_absent(context: Context) -> None:
    """Send passes forward to a layer that the node holds and to one that it does not, in turn."""
    shard = context.target.pipeline.get("absent_shard")
    if shard is None:
        raise Skipped("[target.pipeline] declares no absent_shard")
    turns: list[Reply] = []
    for _ in range(2):
        turns += [send_forward(context), send_forward(context, target_shard=shard)]
    held, absent = turns[0::2], turns[1::2]
    own, named = context.target.pipeline.get("shard"), layers_of(context).held
    if own in named:
        missing = all(reply.code == "NOT_FOUND" for reply in held)
        why = f"shard {own}, which the node lists among its layers, ends with NOT_FOUND"
        context.judge("GR-CODE-014", not missing, why, *held)
    if not all(reply.ok for reply in held):
        raise Skipped(f"the forward pass ends with {held[-1].code}")
    if context.edition >= SEVENTH and own in named:
        _judge_each(context, named, held[0])
    # The peer is neither offline nor overloaded: it serves what it holds.
    wrong = all(reply.code in BUSY for reply in absent)
    why = f"twice {absent[-1].code} for shard {shard}, between passes that are served"
    context.judge("GR-CODE-013", not wrong, why, *turns)
    total = layers_of(context).total
    for more in WRAPS if context.edition >= FIFTH and is_int(own) and total else ():
        # No model has so many layers more than it says, but a number that is cut may be the own.
        number = int(own or 0) + more
        reply = send_forward(context, target_shard=number)
        answer: Any = reply.message
        if total and number > 2 * total:
            why = f"shard {number} of a model of {total} layers is served"
            served = answer is not None and answer.success
            context.judge("PL-FWD-022", not served, why, reply)
            if context.edition >= SEVENTH and reply.code in BUSY:
                _judge_beyond(context, number, reply)


def _judge_beyond(context: Context, number: int, first: Reply) -> None:
    """Rule on a shard that no model has, and that is said to be on a peer that is not there."""
    turns = [first]
    for _ in range(2):
        turns += [send_forward(context), send_forward(context, target_shard=number)]
    if all(reply.ok for reply in turns[1::2]):
        wrong = all(reply.code in BUSY for reply in turns[0::2])
        why = f"thrice {first.code} for shard {number}, between passes that are served"
        context.judge("GR-CODE-013", not wrong, why, *turns)


@requirement("GR-OP-023")
def unary_answers(context: Context) -> None:
    """Call operations that answer once, and count their answers."""
    first = layers_of(context).held
    requests = {
        "DHTPing": messages.make("DHTPingRequest", sender=SENDER),
        "GetCheckpointInfo": messages.make("GetCheckpointInfoRequest"),
        "GetWeights": messages.make("WeightRequest", shard_range=str(min(first, default=0))),
        "GetCheckpoint": messages.make("GetCheckpointRequest"),
        "DHTFindNode": messages.make("DHTFindNodeRequest", sender=SENDER, target_id=SENDER.node_id),
        "DHTFindValue": messages.make("DHTFindValueRequest", sender=SENDER, key=SENDER.node_id),
        # Their messages are not shown; an empty one can be read as any.
        "GetShardInfo": messages.make("GetCheckpointInfoRequest"),
        "GetSwarmStatus": messages.make("GetCheckpointInfoRequest"),
    }
    if context.edition >= PASSED_SINCE and context.target.allows(Effect.INTRUSIVE):
        requests["GossipGradient"] = messages.make("GossipGradientRequest", model_hash="0" * 64)
        with suppress(Skipped):
            requests["PipelineForward"] = forward_request(context)
    for operation, request in requests.items():
        reply = context.grpc.call_answers(operation, request)
        if reply.ok:
            why = f"{operation} answers with {reply.more + 1} messages or more"
            context.judge("GR-OP-023", reply.more == 0, why, reply)
        elif reply.details == NO_MESSAGE:
            context.fails("GR-OP-023", f"{operation}: {NO_MESSAGE}", reply)


@requirement("GR-CODE-002", "GR-CODE-003")
def grpc_garbage(context: Context) -> None:
    """Send bytes that are not a message, then a valid call on the same connection."""
    operations = ["DHTFindNode"]
    if context.edition >= PINGED_SINCE:
        operations += ["DHTPing", "GetCheckpointInfo", "GetWeights"]
    bodies = (b"\x0a\xff", b"\xff\xff\xff", b"\x0a\x05ab")
    cut = list[Unanswered]()
    for operation, body in product(operations, bodies):
        try:
            reply = context.grpc.call(operation, body)
        except Unanswered as lost:
            if context.edition < PINGED_SINCE:
                raise
            cut.append(lost)
            continue
        if reply.code != UNKNOWN:
            context.judge(
                "GR-CODE-002", reply.code == "INVALID_ARGUMENT", f"status {reply.code}", reply
            )
        good = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        context.judge("GR-CODE-003", good.code != "UNAVAILABLE", f"then {good.code}", reply, good)
    if len(cut) > 1:
        good = context.grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        why = f"of {len(operations) * len(bodies)} such messages {len(cut)} end the connection"
        if good.ok:
            context.fails("GR-CODE-003", why, *cut, good)
