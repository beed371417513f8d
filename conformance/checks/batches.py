"""Interface 2.3: a pass of several sequences, of which each has its part of the answer."""

from conformance.checks.forms import encode
from conformance.checks.passes import form_of, hidden_shape, send_forward
from conformance.context import Context
from conformance.editions import DRAFT
from conformance.findings import Skipped
from conformance.registry import requirement

# Beyond what a small batch has.
MORE = (5, 9, 17)


@requirement("PL-FWD-010")
def pipeline_batch(context: Context) -> None:
    """Send passes of several times as many sequences as the one that is known to be accepted."""
    _judge_batch(context, 2)
    if context.edition >= DRAFT:
        for times in MORE:
            _judge_batch(context, times)


def _judge_batch(context: Context, times: int) -> None:
    batch, *rest = hidden_shape(context)
    shape = [times * batch, *rest]
    plain = send_forward(context)
    reply = send_forward(context, hidden_states=encode(form_of(context), shape), hidden_shape=shape)
    answer = reply.message
    if not plain.ok or answer is None or not answer.success:
        raise Skipped(f"a pass of {shape} ends with {reply.code}: how many may go together is open")
    found = list(answer.logits_shape if answer.logits else answer.hidden_shape)
    if len(found) == len(shape):
        why = f"hidden states of {shape} became {found}"
        context.judge("PL-FWD-010", found[0] == shape[0], why, plain, reply)
