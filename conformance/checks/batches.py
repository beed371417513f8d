"""Interface 2.3: a pass of several sequences, of which each has its part of the answer."""

from conformance.checks.forms import FORMS, WIDTHS, encode, values_for
from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import BUSY, output_of
from conformance.checks.outputs import are_near, values_of
from conformance.checks.passes import form_of, hidden_shape, send_forward
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

# Beyond what a small batch has.
FEWEST, MORE = 2, (5, 9, 17)
ALONE, AMONG = "PL-FWD-014", "PL-FWD-030"
# In which order three tensors stand in a batch: nothing in it follows upon itself.
ORDER = (0, 1, 2, 0, 2, 1, 0, 1, 2, 1, 0, 2, 0, 1, 2, 0, 2)


@requirement("PL-FWD-010", ALONE, "PL-FWD-016", "PL-FWD-023", AMONG)
def pipeline_batch(context: Context) -> None:
    """Send passes of several times as many sequences as the one that is known to be accepted."""
    _judge_batch(context, FEWEST)
    taken = [FEWEST]
    if context.edition >= FOURTH:
        try:
            for times in MORE:
                _judge_batch(context, times)
                taken.append(times)
        except Skipped:
            # How many go together may have a limit, which says nothing of fewer.
            if context.edition < SIXTH:
                raise
        _judge_rows(context)
    if context.edition >= SIXTH:
        for times in taken:
            _judge_each(context, times)


def _judge_rows(context: Context) -> None:
    """Rule on a batch of two sequences that have different results each by itself.

    A batch may be computed in another order, so only results that are alike to the bit show that
    one sequence has the result of the other.
    """
    batch, *rest = hidden_shape(context)
    tensors = turned(context)
    alone = [output_of(send_forward(context, hidden_states=each)) for each in tensors]
    both = send_forward(context, hidden_states=b"".join(tensors), hidden_shape=[2 * batch, *rest])
    found = output_of(both)
    halves = found[: len(found) // 2], found[len(found) // 2 :]
    if form_of(context) in WIDTHS and found and all(alone) and alone[0] != alone[1]:
        why = "two sequences of a batch have one result, and each by itself another one"
        context.judge("PL-FWD-014", halves[0] != halves[1], why, both)
        # The same two, the second one of which is the first one again.
        twice = send_forward(context, hidden_states=tensors[0] * 2, hidden_shape=[2 * batch, *rest])
        again = output_of(twice)[len(found) // 2 :]
        why = "the second sequence of a batch has the same result, whichever it is"
        context.judge("PL-FWD-014", again != halves[1], why, both, twice)


def three_tensors(context: Context) -> list[bytes]:
    """Return three tensors: one, its reverse, and one with the same values one place further on."""
    shape = hidden_shape(context)
    values = values_for(shape)
    further = FORMS[form_of(context)]([*values[-1:], *values[:-1]], shape)
    return [*turned(context), further]


def _judge_each(context: Context, times: int) -> None:
    """Rule on each sequence of a batch of three tensors, in an order without any repetition.

    One that has the result of another tensor to the bit is not its own; one that is only far from
    its result by itself may depend on what is computed beside it.
    """
    batch, *rest = hidden_shape(context)
    tensors, order = three_tensors(context), ORDER[:times]
    alone = [send_forward(context, hidden_states=each) for each in tensors]
    known = [output_of(reply) for reply in alone]
    together = send_forward(
        context,
        hidden_states=b"".join(tensors[at] for at in order),
        hidden_shape=[times * batch, *rest],
    )
    found = output_of(together)
    part = len(found) // times
    raw = form_of(context) in WIDTHS and {part} == set(map(len, known))
    if not found or not raw or len(set(known)) < len(known):
        return
    rows = [found[at * part :][:part] for at in range(times)]
    for at, row in enumerate(rows):
        others = [rows[i] for i in range(times) if order[i] != order[at]]
        others += [known[i] for i in range(len(known)) if i != order[at]]
        if row in others and row != known[order[at]]:
            why = f"sequence {at + 1} of {times} has the result of another one"
            context.fails(ALONE, why, *alone, together)
            return
    values = [values_of(context, reply) for reply in alone]
    each = values_of(context, together)
    wide = len(each) // times
    far = [
        at + 1 for at in range(times)
        if rows[at] != known[order[at]]
        and not are_near(each[at * wide :][:wide], values[order[at]])
    ]  # fmt: skip
    if each:
        why = f"of {times} sequences those at {brief(far)} have other results than by themselves"
        context.judge(AMONG, not far, why, *alone, together)


def _judge_batch(context: Context, times: int) -> None:
    batch, *rest = hidden_shape(context)
    shape = [times * batch, *rest]
    plain = send_forward(context)
    reply = send_forward(context, hidden_states=encode(form_of(context), shape), hidden_shape=shape)
    answer = reply.message
    if context.edition >= FOURTH and times == FEWEST and plain.ok and reply.code not in BUSY:
        taken = answer is not None and bool(answer.success)
        why = f"a pass of {shape} ends with {reply.code} {brief(reply.details, 80)}"
        context.judge("PL-FWD-016", taken, why, plain, reply)
    if not plain.ok or answer is None or not answer.success:
        raise Skipped(f"a pass of {shape} ends with {reply.code}: how many may go together is open")
    found = list(answer.logits_shape if answer.logits else answer.hidden_shape)
    if len(found) == len(shape):
        why = f"hidden states of {shape} became {found}"
        context.judge("PL-FWD-010", found[0] == shape[0], why, plain, reply)
    alone = plain.message
    if context.edition >= FIFTH and alone is not None:
        why = f"is_final is {alone.is_final} of {batch} sequences, {answer.is_final} of {shape[0]}"
        context.judge("PL-FWD-023", alone.is_final == answer.is_final, why, plain, reply)
