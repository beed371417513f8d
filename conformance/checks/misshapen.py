"""Interface 2.3 and 7.3: tensors that do not go with their shape, or with the model."""

from collections.abc import Iterator

from conformance.checks.forms import WIDTHS
from conformance.checks.kept_passes import Fields
from conformance.checks.mixed_passes import output_of
from conformance.checks.passes import form_of, hidden_shape, named_size, send_forward, tensor_of
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement

BAD, SERVERS = "GR-CODE-021", "GR-CODE-015"
FAILED = ("INTERNAL", "UNKNOWN")


def _odd(context: Context) -> Iterator[tuple[str, Fields]]:
    """Yield what is odd about a tensor, and the fields that make it so."""
    (rows, length, width), tensor = hidden_shape(context), tensor_of(context)
    yield "values and one more", {"hidden_states": tensor + tensor[: WIDTHS[form_of(context)]]}
    yield "values and half a one", {"hidden_states": tensor + b"\0"}
    yield "no values", {"hidden_states": b""}
    yield "a position more than there is", {"hidden_shape": [rows, length + 1, width]}
    if length > 1:
        yield "a position fewer than there is", {"hidden_shape": [rows, length - 1, width]}
    if named_size(context) == width:
        yield "one position with all values", {"hidden_shape": [rows, 1, length * width]}


def _unlike(context: Context) -> Iterator[tuple[str, list[int]]]:
    """Yield shapes of another kind, some of which a node may read."""
    rows, length, width = hidden_shape(context)
    yield "two dimensions", [rows * length, width]
    yield "four dimensions", [rows, length, 1, width]
    yield "one dimension", [rows * length * width]
    yield "no dimension", []
    yield "a dimension of 0", [0, length, width]
    yield "a dimension below 0", [rows, -1, width]


@requirement(BAD, SERVERS)
def pipeline_misshapen(context: Context) -> None:
    """Send passes with more values than fit, with fewer, and with those of another size."""
    if context.edition < SIXTH or form_of(context) not in WIDTHS:
        raise Skipped("later editions ask for it, of a tensor that is nothing but values")
    plain = send_forward(context)
    if not output_of(plain):
        raise Skipped(f"a pass ends with {plain.code}")
    for name, fields in _odd(context):
        reply = send_forward(context, **fields)
        why = f"a pass with {name} ends with {reply.code}"
        context.judge(BAD, not output_of(reply), f"{why}, and is computed with", plain, reply)
        context.judge(SERVERS, reply.code not in FAILED, f"{why}: {reply.details}", plain, reply)
    for name, shape in _unlike(context):
        reply = send_forward(context, hidden_shape=shape)
        why = f"a pass whose shape has {name} ends with {reply.code}: {reply.details}"
        context.judge(SERVERS, reply.code not in FAILED, why, plain, reply)
