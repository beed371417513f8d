"""Interface 2.3: passes with training_labels, and the losses that come back."""

import math

from conformance.checks.forms import encode
from conformance.checks.kept_passes import Fields
from conformance.checks.mixed_passes import BUSY
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import form_of, hidden_shape, pipeline_of, send_forward
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

OWN, DEPENDS, BATCH = "PL-FWD-039", "PL-FWD-040", "PL-FWD-041"
# Small tokens, which any vocabulary has.
TOKENS = (1, 1, 2, 2)
BYTES = (8, 4)


@requirement(OWN, DEPENDS, BATCH)
def trained_losses(context: Context) -> None:
    """Send passes with labels, each twice, and one of two sequences."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    known = pipeline_of(context)
    if not known.get("training"):
        raise Skipped("pipeline.training is not declared")
    shape = hidden_shape(context)
    count = shape[0] * shape[1]
    wide = next((one for one in BYTES if _loss(_send(context, {}, count, 1, one))), None)
    if wide is None:
        raise Skipped("no pass with labels returns a loss")
    compared = Comparison(context)
    for _ in range(TRIES):
        replies = [_send(context, {}, count, token, wide) for token in TOKENS]
        losses = [_loss(reply) for reply in replies]
        if not all(losses):
            raise Skipped("a pass with labels returns no loss any more")
        why = f"the losses of labels of {brief(list(TOKENS))} are {brief(losses)}"
        compared.note(OWN, not losses[1] == losses[2] != losses[3], why, *replies)
        compared.note(DEPENDS, len(set(losses)) > 1, why, *replies)
        if compared.clean:
            break
    compared.conclude()
    if known.get("last"):
        double = [2 * shape[0], *shape[1:]]
        fields = {"hidden_states": encode(form_of(context), double), "hidden_shape": double}
        reply = _send(context, fields, 2 * count, 1, wide)
        answer = reply.message
        if answer is not None and answer.success and reply.code not in BUSY:
            good = math.isfinite(answer.loss) and answer.loss > 0
            context.judge(BATCH, good, f"loss is {answer.loss}", reply)


def _send(context: Context, fields: Fields, count: int, token: int, wide: int) -> Reply:
    """Send a pass whose labels are this token everywhere, of so many bytes."""
    given = token.to_bytes(wide, "little") * count
    return send_forward(context, training_labels=given, **fields)


def _loss(reply: Reply) -> float:
    answer = reply.message
    return float(answer.loss) if answer is not None and answer.success else 0.0
