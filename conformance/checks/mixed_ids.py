"""Interface 2.3 and 4.3: the IDs of passes, whose length and characters are drawn, and results.

A node may refuse an ID that it does not like. What it accepts, it names as it is.
"""

from random import Random
from typing import Any

from conformance.checks.forms import FORMS, values_for
from conformance.checks.mixed_passes import output_of
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import form_of, fresh_id, hidden_shape, send_forward
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.strictjson import brief

NAMED, OWN_RESULT = "PL-FWD-013", "PL-FWD-014"
LETTERS = "aAzZ09 -_./:%\u00e9\u00df\u65e5\U0001f642"
LENGTHS = (1, 40, 130, 1500)


@requirement(NAMED, OWN_RESULT)
def forward_ids(context: Context) -> None:
    """Send passes with drawn request_ids, then two tensors by turns."""
    draw = Random(context.target.seed)  # noqa: S311 - names, no secret
    # They begin with what nobody has used; one has white space at its ends.
    idents = [fresh_id() + "".join(draw.choices(LETTERS, k=length)) for length in LENGTHS]
    for ident in (*idents, f" {fresh_id()} "):
        reply = send_forward(context, request_id=ident)
        answer = reply.message
        if answer is not None and answer.success:
            why = f"for {brief(ident, 120)} of {len(ident)} characters it is"
            why += f" {brief(answer.request_id, 120)} of {len(answer.request_id)}"
            context.judge(NAMED, answer.request_id == ident, why, reply)
    _judge_session(context, draw)
    notes = [_note_turns, _note_sessions, _note_ends]
    for note in [*notes, _note_within] if context.edition >= FOURTH else notes:
        compared = Comparison(context)
        for _ in range(TRIES):
            note(context, compared)
            if compared.clean:
                break
        compared.conclude()


def turned(context: Context) -> list[bytes]:
    """Return a tensor and its reverse."""
    shape = hidden_shape(context)
    values = values_for(shape)
    found = [FORMS[form_of(context)](each, shape) for each in (values, values[::-1])]
    if found[0] == found[1]:
        raise Skipped("the tensor is too small to be turned round")
    return found


def _judge_session(context: Context, draw: Random) -> None:
    """Rule on the request_ids of passes of one session; the later ones may be refused."""
    session = fresh_id()
    for length in draw.sample(LENGTHS, 2):
        ident = fresh_id() + "".join(draw.choices(LETTERS[:8], k=length))
        reply = send_forward(context, session_id=session, request_id=ident)
        answer = reply.message
        if answer is not None and answer.success:
            why = f"for {brief(ident, 120)}, in a session with others, it is"
            why = f"{why} {brief(answer.request_id, 120)}"
            context.judge(NAMED, answer.request_id == ident, why, reply)


def _note_sessions(context: Context, compared: Comparison) -> None:
    """Note whether a pass gets the result of another session that has the same request_id."""
    ident = fresh_id()
    named: list[dict[str, Any]] = [
        {"session_id": fresh_id(), "request_id": ident} for _ in range(2)
    ]
    why = "a pass has the result of the pass of another session with the same request_id"
    _note_named(context, compared, named, why)


def _note_within(context: Context, compared: Comparison) -> None:
    """Note whether a pass gets the result of the pass before it in its session."""
    session = fresh_id()
    named: list[dict[str, Any]] = [
        {"session_id": session, "request_id": fresh_id()} for _ in range(2)
    ]
    why = "a pass has the result of the pass before it in its session"
    _note_named(context, compared, named, why)


def _note_named(
    context: Context, compared: Comparison, named: list[dict[str, Any]], why: str
) -> None:
    """Note whether the second of two passes of other tensors has the result of the first."""
    tensors = turned(context)
    known = [send_forward(context, hidden_states=each) for each in tensors]
    passes = [
        send_forward(context, hidden_states=each, **ids)
        for each, ids in zip(tensors, named, strict=True)
    ]
    outputs = [output_of(reply) for reply in (*known, *passes)]
    # A node may refuse such a pass.
    if all(outputs):
        late = outputs[3] == outputs[0] != outputs[1]
        compared.note(OWN_RESULT, not late, why, *known, *passes)


def _note_ends(context: Context, compared: Comparison) -> None:
    """Note whether a pass gets the result of one whose tensor begins in the same way."""
    shape = hidden_shape(context)
    values = values_for(shape)
    # The last position is another one.
    last = len(values) - shape[-1]
    other = [-v if at >= last and at % 2 else v for at, v in enumerate(values)]
    tensors = [FORMS[form_of(context)](each, shape) for each in (values, other)]
    if tensors[0] == tensors[1] or last == 0:
        raise Skipped("the tensor is too small for two that begin alike")
    replies = [send_forward(context, hidden_states=each) for each in tensors]
    outputs = [output_of(reply) for reply in replies]
    if not all(outputs):
        raise Skipped("a pass is refused")
    why = "tensors that differ in their last position have the same result to the bit"
    compared.note(OWN_RESULT, outputs[0] != outputs[1], why, *replies)


def _note_turns(context: Context, compared: Comparison) -> None:
    """Note whether the first pass of one tensor gets what the last pass of another one got."""
    tensors = turned(context)
    replies = [send_forward(context, hidden_states=tensors[at]) for at in (0, 0, 1, 1)]
    outputs = [output_of(reply) for reply in replies]
    if not all(outputs):
        raise Skipped("a pass of the same tensor, or of the reverse of it, is refused")
    # One that computes the same for both tensors each time reads no tensor, or sees no difference.
    late = outputs[2] == outputs[1] != outputs[3]
    why = "the first pass of a second tensor has the result of the first one, the next one has not"
    compared.note(OWN_RESULT, not late, why, *replies[1:])
