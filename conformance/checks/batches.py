"""Interface 2.3: a pass of several sequences, of which each has its part of the answer."""

from conformance.checks.forms import WIDTHS, encode
from conformance.checks.mixed_ids import turned
from conformance.checks.mixed_passes import BUSY, output_of
from conformance.checks.passes import form_of, hidden_shape, send_forward
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

# Beyond what a small batch has.
FEWEST, MORE = 2, (5, 9, 17)


@requirement("PL-FWD-010", "PL-FWD-014", "PL-FWD-016", "PL-FWD-023")
def pipeline_batch(context: Context) -> None:
    """Send passes of several times as many sequences as the one that is known to be accepted."""
    _judge_batch(context, FEWEST)
    if context.edition >= FOURTH:
        for times in MORE:
            _judge_batch(context, times)
        _judge_rows(context)


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
