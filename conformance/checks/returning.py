"""Interface 2.3, 4.3, 7.3 and 8: the gradient that goes back to where a pass came from.

The suite is the previous node of the pipeline: it sends the gradient of a pass of its own, and sees
what comes to it.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from conformance import messages
from conformance.checks import passes
from conformance.checks.bringing_back import (
    BACK_REQUEST,
    Returned,
    bring_back,
    is_back,
    send_and_return,
    send_from,
    try_gradients,
)
from conformance.checks.forms import WIDTHS, encode
from conformance.checks.passes import SOURCE
from conformance.checks.peering import shown, watched
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.frames import is_framed
from conformance.peer import requests
from conformance.peer.answers import Answer, Refusal
from conformance.peer.watch import Call
from conformance.registry import requirement
from conformance.strictjson import brief

ONWARDS, ONCE, FILLED = "PL-BWD-002", "PL-BWD-004", "PL-BWD-005"
CHANGED, PORT = "PL-BWD-014", "PL-BWD-016"
ABSENT, OFFLINE = "CL-CODE-007", "CL-CODE-008"
WRONG, CROWDED = "PL-BWD-024", "PL-BWD-025"
AS_SENT, NARROWER = "PL-BWD-027", "PL-BWD-028"
# What is answered to the gradients of further passes beside the one that is not found.
BESIDE = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "INTERNAL")
DEADLINE, PAUSE, GROWS = "CL-CALL-004", "CL-CALL-003", "CL-CALL-005"
WIDEST = 8
# As many as are no multiple of a width of numbers.
POSITIONS = 5
# So many passes behind a first one.
NEXT = 2
# For a gradient that comes a second time.
AGAIN_WITHIN_S = 1.5
# The recommended deadline is 5 s; far more or less is another one.
DEADLINES_S = (1.0, 30.0)
# The recommended pause ends at 2 s; so much more is another one, and so little is none.
LONGEST_S, SHORTEST_S = 2.75, 0.02
# The first recommended pause is a tenth of a second, and the second one is longer.
TOGETHER_S = 0.1
# Attempts, their pauses, and one pause that is too long.
ATTEMPTS_S, LATE_S = 5.0, 6.0


@requirement(ONWARDS, ONCE, FILLED, CHANGED, DEADLINE, PORT, AS_SENT, NARROWER, *requests.PROVES)
def peer_backward(context: Context) -> None:
    """Send a pass with the peer's own sender_url, then its gradients, which have to come back."""
    peer = context.peer
    with watched(context):
        peer.came()
        # Another check may have found that nothing comes back, on which only this one rules.
        taken = bring_back(context, afresh=True)
        calls = taken.calls
        if context.edition >= FIFTH and (calls or context.service.at_http):
            why = "gradients for an http URL came to its own port, which is that of HTTP"
            context.judge(PORT, not context.service.at_http, why, taken.reply)
        named = [call for call in calls if call.message is not None and _ids(call) == taken.ids]
        wrong = "" if named else f"; {len(calls)} with other IDs came" if calls else ""
        why = f"no PipelineBackward of this pass came to sender_url{wrong}"
        context.judge(ONWARDS, bool(named), why, taken.reply, *shown(calls))
        if not named or context.edition < FOURTH:
            return
        peer.wait(lambda: len(taken.calls) > 1, AGAIN_WITHIN_S)
        same = [call for call in taken.calls if _ids(call) == taken.ids]
        why = f"the gradients of one pass came {len(same)} times"
        context.judge(ONCE, len(same) == 1, why, taken.reply, *shown(same))
        _judge_size(context, named[0], passes.hidden_shape(context))
        _judge_changed(context, named[0], taken)
        if context.edition >= FIFTH:
            _judge_target(context, named[0])
        if context.edition >= SEVENTH:
            _judge_next(context, taken)
        deadline_s = named[0].deadline_s
        if deadline_s is not None:
            low, high = DEADLINES_S
            why = f"the gradients came with {deadline_s:.1f} s"
            context.judge(DEADLINE, low <= deadline_s <= high, why, *shown(named[:1]))
        _judge_longer(context, named[0])


def _judge_next(context: Context, first: Returned) -> None:
    """Rule on the gradients of passes like the first one, of which the names have capitals."""
    urls, peer = context.service.sender_urls or (), context.peer
    with suppress(Skipped):
        several = [
            send_and_return(context, url, request_id=passes.fresh_id().upper())
            for url in urls
            for _ in range(NEXT)
        ]
        ids = {one.ids for one in several}
        peer.wait(lambda: ids <= set(map(_ids, first.calls)), peer.patience.settle_s)
        came = not ids.isdisjoint(map(_ids, first.calls))
        why = "the gradients of a first pass came to sender_url, and those of the next ones not"
        context.judge(
            ONWARDS, came or not several, why, first.reply, *(one.reply for one in several)
        )


def _judge_longer(context: Context, first: Call) -> None:
    """Rule on the size of a gradient of more positions; a pass of so many may be refused.

    Its values are as wide as those of the first one.
    """
    rows, length, width = passes.hidden_shape(context)
    shapes = [[rows, POSITIONS, width], [rows + 1, length, width]]
    for shape in shapes if context.edition >= FIFTH else shapes[:1]:
        with suppress(Skipped):
            _judge_shape(context, shape, _width(first) if context.edition >= FIFTH else None)


def _width(call: Call) -> int | None:
    """Return how many bytes a value of a gradient has, if they are all alike."""
    message = call.message
    values = math.prod(message.grad_shape) if message is not None else 0
    size = len(message.grad_output) if message is not None else 0
    return size // values if values > 0 and size % values == 0 else None


def _judge_shape(context: Context, shape: list[int], width: int | None) -> None:
    tensor, peer = encode(passes.form_of(context), shape), context.peer
    urls = context.service.sender_urls
    if urls:
        taken = send_and_return(context, urls[0], hidden_states=tensor, hidden_shape=shape)
        # What is late of an earlier pass has the shape of that one.
        if peer.wait(lambda: taken.ids in map(_ids, taken.calls), peer.patience.settle_s):
            own = next(call for call in taken.calls if _ids(call) == taken.ids)
            _judge_size(context, own, shape, width)


def _ids(call: Call) -> tuple[str, str]:
    message = call.message
    return ("", "") if message is None else (message.session_id, message.request_id)


def _judge_changed(context: Context, call: Call, taken: Returned) -> None:
    """Rule on whether a gradient that goes back is one of the layers, or that which was sent."""
    message = call.message
    if message is not None and message.grad_output:
        sent = encode(passes.form_of(context), taken.shape)
        why = f"the gradients came back as they were sent, {len(sent)} bytes"
        context.judge(CHANGED, message.grad_output != sent, why, taken.reply, *shown([call]))


def _judge_target(context: Context, call: Call) -> None:
    """Rule on a target_shard that is missing, if another number has the source_shard of the pass.

    A node need not send them back to that one, and may add fields of its own.
    """
    known = {rule.field: rule.number for _, rule in requests.RULES[BACK_REQUEST]}
    wire = messages.wire_fields(call.body)
    strange = [
        field.number for field in wire
        if field.number not in known.values() and field.value == SOURCE % 2**64
    ]  # fmt: skip
    missing = known["target_shard"] not in {field.number for field in wire}
    if strange and missing:
        why = f"target_shard is missing; field {strange[0]} has the source_shard of the pass"
        context.fails(requests.WHOLE[BACK_REQUEST], why, *shown([call]))


def _judge_size(context: Context, call: Call, shape: list[int], width: int | None = None) -> None:
    message = call.message
    raw = passes.form_of(context) in WIDTHS
    if message is None or not raw or is_framed(message.grad_output):
        # Bytes of another form say nothing of their shape.
        return
    values, size = math.prod(message.grad_shape), len(message.grad_output)
    # Gradients may have wider numbers than what they are the gradients of.
    widths = (width,) if width is not None else (*WIDTHS.values(), WIDEST)
    held = any(size == each * values for each in widths if values > 0)
    own = math.prod(shape)
    if context.edition >= FOURTH and size == own * WIDTHS[passes.form_of(context)]:
        # They are as many as the hidden states that they belong to, in the same form.
        held = values == own
    why = f"{size} bytes of grad_output for {brief(list(message.grad_shape))}"
    why = f"{why}, of a pass with hidden states of {brief(shape)}"
    context.judge(FILLED, held, why, *shown([call]))
    if context.edition >= SIXTH and held and values == own:
        context.judge(AS_SENT, list(message.grad_shape) == shape, why, *shown([call]))
    if held and (values == own or context.edition >= SEVENTH) and context.edition >= SIXTH:
        whole = size >= own * WIDTHS[passes.form_of(context)]
        context.judge(NARROWER, whole, why, *shown([call]))


def _refuse(
    context: Context, code: str, done: Callable[[list[Call]], bool], within_s: float
) -> list[Call]:
    """Refuse gradients that come back; return the calls, once they are `done` or time is over."""
    peer = context.peer

    def conduct(call: Call) -> Answer | None:
        return Refusal(code) if is_back(call) else None

    with peer.answering(conduct):
        taken = bring_back(context)
        if not taken.calls:
            raise Skipped("no gradient came back that could be refused")

        def own() -> list[Call]:
            # Those of a pass before may come again, too.
            of_this = _of(taken.calls, taken.ids) if context.edition >= SIXTH else []
            return of_this or taken.calls

        peer.wait(lambda: done(own()), within_s)
        return own()


@requirement(ABSENT, WRONG, CROWDED, *requests.PROVES)
def back_not_found(context: Context) -> None:
    """Answer NOT_FOUND to gradients that come back, and other statuses to those of other passes."""
    codes: dict[tuple[str, str], str] = {}

    def conduct(call: Call) -> Answer | None:
        return Refusal(codes.get(_ids(call), "NOT_FOUND")) if is_back(call) else None

    with watched(context), context.peer.answering(conduct):
        taken = bring_back(context)
        if not taken.calls:
            raise Skipped("no gradient came back that could be refused")
        if context.edition >= SIXTH:
            _refuse_beside(context, codes)
        context.peer.wait(lambda: len(_of(taken.calls, taken.ids)) > 1, AGAIN_WITHIN_S)
        calls = taken.calls if context.edition < SIXTH else _of(taken.calls, taken.ids)
        why = f"the gradients came {len(calls)} times to a peer that answers NOT_FOUND"
        context.judge(ABSENT, len(calls) == 1, why, *shown(calls))
        for ids, code in codes.items():
            _judge_refused(context, code, _of(taken.calls, ids))


def _refuse_beside(context: Context, codes: dict[tuple[str, str], str]) -> None:
    """Send a pass and its gradients for each of the other statuses; note their IDs in `codes`."""
    urls = context.service.sender_urls or ()
    for code in BESIDE if urls else ():
        with suppress(Skipped):
            named, passed = send_from(context, urls[0])
            codes[named["session_id"], named["request_id"]] = code
            try_gradients(context, named, passed, passes.gradient_shape(context, passed))


def _of(calls: list[Call], ids: tuple[str, str]) -> list[Call]:
    return [call for call in calls if _ids(call) == ids]


def _judge_refused(context: Context, code: str, calls: list[Call]) -> None:
    """Rule on gradients that have come to a peer that answers with this status."""
    requests.judge_attempts(context, calls)
    if code == "INVALID_ARGUMENT" and calls:
        same = [call for call in calls if call.body == calls[0].body]
        why = f"the same gradients came {len(same)} times to a peer that answers {code}"
        context.judge(WRONG, len(same) == 1, why, *shown(same))
    if code == "RESOURCE_EXHAUSTED" and len(calls) >= requests.MAX_ATTEMPTS:
        pauses_s = [later.at - earlier.answered_at for earlier, later in pairwise(calls)]
        why = f"{len(calls)} attempts, with {max(pauses_s):.2f} s between them at most"
        context.judge(CROWDED, max(pauses_s) >= SHORTEST_S, why, *shown(calls))


@requirement(OFFLINE, PAUSE, GROWS, *requests.PROVES)
def back_unavailable(context: Context) -> None:
    """Answer UNAVAILABLE to gradients that come back: how often they come, with which pauses."""
    with watched(context):
        most = requests.MAX_ATTEMPTS
        within_s = LATE_S if context.edition >= FIFTH else ATTEMPTS_S
        calls = _refuse(context, "UNAVAILABLE", lambda found: len(found) > most, within_s)
        requests.judge_attempts(context, calls)
        pauses_s = [later.at - earlier.answered_at for earlier, later in pairwise(calls)]
        waited = ", ".join(f"{pause_s:.2f}" for pause_s in pauses_s)
        why = f"{len(calls)} attempts, with pauses of {waited} s"
        if len(calls) >= most:
            held = max(pauses_s) >= SHORTEST_S
            context.judge(OFFLINE, held, why, *shown(calls))
        if len(pauses_s) > 1:
            context.judge(GROWS, sum(pauses_s) >= TOGETHER_S, why, *shown(calls))
        if pauses_s:
            context.judge(PAUSE, max(pauses_s) <= LONGEST_S, why, *shown(calls))
