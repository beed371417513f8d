"""Interface 2.3 and 4.3: sessions beside one another, and passes of other lengths.

What a session keeps is open, and so is whether it keeps anything. But it is its own: the tensors of
another one have no say in it.
"""

from conformance import messages
from conformance.checks.batches import three_tensors
from conformance.checks.forms import FORMS, WIDTHS, encode, values_for
from conformance.checks.mixed_passes import BUSY, output_of
from conformance.checks.money import TRIES, Comparison
from conformance.checks.outputs import ROUNDED, are_near, values_of
from conformance.checks.passes import form_of, fresh_id, hidden_shape, send_forward
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement

APART, GOES_ON = "PL-FWD-034", "PL-FWD-035"
TAKEN, OWN_RESULT = "PL-FWD-036", "PL-FWD-014"
# By such a part of the largest value the results of one computation may differ.
EXACTLY = 0.001
# Fewer than most passes have, and more, none of them a power of two.
LENGTHS, LONGER = (1, 3, 5, 9, 17), (33, 67)


def _end(context: Context, session: str) -> None:
    """End a session in the way of the reference node; other targets ignore the message."""
    closing = messages.make("PipelineForwardRequest", session_id=session)
    context.grpc.call("PipelineForward", closing)


@requirement(APART, GOES_ON)
def sessions_apart(context: Context) -> None:
    """Send the passes of a session, alone and with those of another session between them."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    compared = Comparison(context)
    for _ in range(TRIES):
        _note_apart(context, compared)
        if compared.clean:
            break
    compared.conclude()


def _note_apart(context: Context, compared: Comparison) -> None:
    tensors = three_tensors(context)
    plain = [send_forward(context, hidden_states=tensors[1]) for _ in range(2)]
    # The second passes of sessions alike, with nothing or with other tensors between their passes.
    between = ((), (), (tensors[1],) * 2, (tensors[2],) * 2)
    replies = [_second_of(context, tensors, others) for others in between]
    if not all(map(output_of, replies[:2])):
        raise Skipped(f"the second pass of a session ends with {replies[0].code}")

    def same(one: Reply, other: Reply, part: float = ROUNDED) -> bool:
        first, second = (values_of(context, reply) for reply in (one, other))
        return output_of(one) == output_of(other) or (bool(first) and are_near(first, second, part))

    if not same(plain[0], plain[1]) or not all(map(output_of, replies)):
        # It may be refused for another session, or no pass is the same twice.
        return
    first, again, *beside = replies
    why = "the second pass of a session depends on the tensors of another session"
    # A session that is evicted begins anew.
    lost = any(same(one, known) for one in beside for known in (first, *plain))
    held = not same(first, again) or same(beside[0], beside[1]) or lost
    compared.note(APART, held, why, *plain, *replies)
    why = "the second pass of a session has not the same result each time"
    why = f"{why}, beside another session" if same(first, again) else why
    # A node that computes a pass to the bit computes each so, but for a little.
    part = EXACTLY if output_of(plain[0]) == output_of(plain[1]) else ROUNDED
    compared.note(GOES_ON, all(same(first, one, part) for one in replies), why, *plain, *replies)


def _second_of(context: Context, tensors: list[bytes], others: tuple[bytes, ...]) -> Reply:
    """Send two passes of a session, and between them one for each of the others, of another."""
    session, other = fresh_id(), fresh_id()
    send_forward(context, hidden_states=tensors[0], session_id=session, use_cache=True)
    for each in others:
        send_forward(context, hidden_states=each, session_id=other, use_cache=True)
    reply = send_forward(context, hidden_states=tensors[1], session_id=session, use_cache=True)
    for ended in (session, other)[: 2 if others else 1]:
        _end(context, ended)
    return reply


@requirement(TAKEN, OWN_RESULT)
def pipeline_lengths(context: Context) -> None:
    """Send passes of other numbers of positions; what they are answered with, each answer shows."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    rows, usual, width = hidden_shape(context)
    plain = send_forward(context)
    if not output_of(plain):
        raise Skipped(f"a pass ends with {plain.code}")
    for length in LENGTHS + (LONGER if context.edition >= SEVENTH else ()):
        shape = [rows, length, width]
        if length == usual:
            continue
        tensor = encode(form_of(context), shape)
        reply = send_forward(context, hidden_states=tensor, hidden_shape=shape)
        if reply.code not in BUSY:
            why = f"a pass of {shape} ends with {reply.code}"
            context.judge(TAKEN, bool(output_of(reply)), why, plain, reply)
        if output_of(reply):
            _judge_positions(context, shape, reply)


def _judge_positions(context: Context, shape: list[int], reply: Reply) -> None:
    """Rule on tensors that differ in one position: the last, or any if a result has one of each."""
    answer = reply.message
    found = [] if answer is None else list(answer.logits_shape or answer.hidden_shape)
    if form_of(context) not in WIDTHS:
        return
    values, width = values_for(shape), shape[-1]
    places = [shape[1] - 1] if found[:2] != shape[:2] else [0, shape[1] // 2, shape[1] - 1]
    for at in dict.fromkeys(places):
        changed = [-v if at * width <= i < (at + 1) * width else v for i, v in enumerate(values)]
        tensor = FORMS[form_of(context)](changed, shape)
        other = send_forward(context, hidden_states=tensor, hidden_shape=shape)
        if output_of(other):
            why = f"tensors of {shape} that differ in position {at} have one result to the bit"
            context.judge(OWN_RESULT, output_of(other) != output_of(reply), why, reply, other)
