"""Interface 2.3, 4.3 and 7.3: passes that stand beside others, and numbers that are no layer's.

Which of several passes a node keeps, and for how long, is open: a pass counts as forgotten only if
one to which nothing else happens is accepted just then.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from conformance.checks.forms import encode
from conformance.checks.kept_passes import (
    Fields,
    is_taken,
    kept_way,
    metadata_of,
    send_back,
    send_kept,
)
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import (
    FAR,
    form_of,
    fresh_id,
    pipeline_of,
    send_forward,
)
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

DIFFERENT, NEGATIVE = "PL-FWD-011", "PL-FWD-012"
STRANGE, OWN, SESSIONS = "PL-BWD-006", "PL-BWD-007", "PL-BWD-010"
ONE_SESSION, BOTH, NOBODYS = "PL-BWD-011", "PL-BWD-012", "PL-BWD-013"
# Statuses of a request that is wrong, or of a layer that is not here.
REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND")
# Statuses of a node that has failed.
FAILED, SERVERS = ("INTERNAL", "UNKNOWN"), "GR-CODE-015"
# The node cannot serve the call now.
BUSY = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED")
# Numbers below 0 that are always tried; -1 alone may mean that no layer is named.
NO_LAYER, NEAREST = -1, (-1, -2, -3)
DRAWN, FARTHEST = 3, -40

# -- what happens beside a pass -------------------------------------------------------------------


@dataclass(frozen=True)
class Interlude:
    """Something that is refused between a pass and its gradients."""

    name: str
    ident: str
    send: Callable[[Fields], Reply]


@requirement(STRANGE, OWN, SERVERS)
def back_after_refusal(context: Context) -> None:
    """Send a pass, then something drawn that is refused, then the gradients of the pass."""
    way = kept_way(context)
    draw = Random(context.target.seed)  # noqa: S311 - sizes, no secret
    for interlude in _interludes(context, draw):
        compared = Comparison(context)
        for _ in range(TRIES):
            if not _judge_interlude(context, compared, way, interlude) or compared.clean:
                break
        compared.conclude()


def _judge_interlude(
    context: Context, compared: Comparison, way: Fields, interlude: Interlude
) -> bool:
    """Send the three; return whether the try counts."""
    kept = send_kept(context, way)
    if kept is None:
        return False
    refused = interlude.send(kept.fields)
    if refused.code in FAILED:
        why = f"{interlude.name} ends with {refused.code} {refused.details}"
        compared.note(SERVERS, False, why, refused)
        return True
    answer = refused.message
    if refused.code not in REFUSED and (answer is None or answer.success):
        return False
    back = send_back(context, kept.fields)
    if is_taken(back):
        compared.note(interlude.ident, True, "", kept.reply, refused, back)
        return True
    control = send_kept(context, way)
    if back.code in BUSY or control is None or not is_taken(send_back(context, control.fields)):
        return False
    found = back.message
    ended = f"{back.code} {back.details}" if found is None else found.error_message
    why = f"after {interlude.name}, which is refused, the gradients of a pass are not accepted"
    compared.note(interlude.ident, False, f"{why}: {brief(ended, 120)}", kept.reply, refused, back)
    return True


def _interludes(context: Context, draw: Random) -> Iterator[Interlude]:
    """Yield what is about other passes, and then what is about the same one."""
    absent = pipeline_of(context).get("absent_shard", FAR)

    def strange(fields: Fields) -> Fields:
        return {**fields, "session_id": fresh_id(), "request_id": fresh_id()}

    def changed(name: str, change: Callable[[Fields], Fields]) -> Iterator[Interlude]:
        yield Interlude(f"{name} of a pass that nobody has made", STRANGE, lambda fields: send_back(
            context, strange({**fields, **change(fields)})))  # fmt: skip
        yield Interlude(name, OWN, lambda fields: send_back(context, {**fields, **change(fields)}))

    axis, more, less = draw.randrange(3), draw.randrange(1, 4), draw.randrange(1, 8)

    def reshaped(fields: Fields) -> Fields:
        shape = [size + (more if at == axis else 0) for at, size in enumerate(fields["grad_shape"])]
        return {"grad_shape": shape, "grad_output": encode(form_of(context), shape)}

    yield from changed("a gradient of another shape", reshaped)
    yield from changed(
        "a gradient without its end", lambda fields: {"grad_output": fields["grad_output"][:-less]}
    )
    yield from changed("no gradient", lambda fields: {"grad_output": b"", "grad_shape": []})
    yield from changed("a gradient for an absent shard", lambda fields: {"target_shard": absent})
    yield Interlude("a gradient of another request in the session", OWN, lambda fields: send_back(
        context, {**fields, "request_id": fresh_id()}))  # fmt: skip
    yield Interlude("a pass that is no tensor", STRANGE, lambda fields: send_forward(
        context, metadata_of(context), hidden_states=b"no tensor"))  # fmt: skip
    yield Interlude("a pass to an absent shard", STRANGE, lambda fields: send_forward(
        context, metadata_of(context), target_shard=absent))  # fmt: skip


@requirement(NOBODYS)
def back_unknown(context: Context) -> None:
    """Send the gradients of a pass, then the same ones for a pass that nobody has made."""
    kept = send_kept(context, kept_way(context))
    if kept is None or not is_taken(send_back(context, kept.fields)):
        raise Skipped("the gradients of a pass are not accepted")
    odd = send_back(context, {**kept.fields, "session_id": fresh_id(), "request_id": fresh_id()})
    why = "the gradients of a pass that nobody has made are accepted"
    context.judge(NOBODYS, not is_taken(odd), why, odd)


@requirement(SESSIONS, BOTH)
def back_sessions(context: Context) -> None:
    """Send passes of two sessions with one request_id, then the gradients of both."""

    def named() -> list[Fields]:
        request = fresh_id()
        return [{"request_id": request, "session_id": fresh_id()} for _ in range(2)]

    judge_both(context, SESSIONS, "passes of two sessions with one request_id", named)


@requirement(ONE_SESSION, BOTH)
def back_in_session(context: Context) -> None:
    """Send two passes of one session, then the gradients of both."""

    def named() -> list[Fields]:
        session = fresh_id()
        return [{"request_id": fresh_id(), "session_id": session} for _ in range(2)]

    judge_both(context, ONE_SESSION, "two passes of one session", named)


def judge_both(context: Context, ident: str, what: str, named: Callable[[], list[Fields]]) -> None:
    """Rule on two passes with such IDs, where the gradients of two with their own are accepted."""
    way = kept_way(context)
    compared = Comparison(context)
    for _ in range(TRIES):
        control = _take_both(context, way, [{}, {}])
        own = sum(is_taken(reply) for reply in control)
        if own and not any(reply.code in BUSY for reply in control):
            why = f"of two passes the gradients of {own} are accepted"
            compared.note(BOTH, own == len(control), why, *control)
        if not control or own < len(control):
            if not compared.clean:
                continue
            raise Skipped("of two passes with IDs of their own both gradients are not accepted")
        backs = _take_both(context, way, named())
        if not backs or any(reply.code in BUSY for reply in backs):
            raise Skipped(f"one of {what} is refused, or the node is busy")
        taken = sum(is_taken(reply) for reply in backs)
        why = f"of {what} the gradients of {taken} are accepted"
        compared.note(ident, taken == len(backs), why, *backs)
        if compared.clean:
            break
    compared.conclude()


def _take_both(context: Context, way: Fields, named: list[Fields]) -> list[Reply]:
    """Send a pass with each pair of IDs, then their gradients; nothing if a pass is refused."""
    kept = [send_kept(context, way, **ids) for ids in named]
    return [send_back(context, one.fields) for one in kept if one] if all(kept) else []


# -- numbers below 0 ------------------------------------------------------------------------------


@requirement(DIFFERENT, NEGATIVE, SERVERS)
def forward_negative(context: Context) -> None:
    """Send passes to drawn layers below 0, where an absent one is refused."""
    absent = pipeline_of(context).get("absent_shard", FAR)
    draw = Random(context.target.seed)  # noqa: S311 - numbers of layers, no secret
    numbers = [*NEAREST, *draw.sample(range(FARTHEST, NEAREST[-1]), DRAWN)]
    compared = Comparison(context)
    for _ in range(TRIES):
        control, far = send_forward(context), send_forward(context, target_shard=absent)
        if not output_of(control) or output_of(far) or far.code in BUSY:
            raise Skipped(f"shard {absent} ends with {far.code}: the node may read no number")
        replies = {at: send_forward(context, target_shard=at) for at in numbers}
        again = {at: send_forward(context, target_shard=at) for at in numbers}
        _note_negative(compared, replies, again)
        if context.edition >= SEVENTH:
            failed = {at: reply for at, reply in replies.items() if reply.code in FAILED}
            why = f"passes to the layers {brief(sorted(failed))} end with a failure of the server"
            compared.note(SERVERS, not failed, why, *(list(failed.values()) or replies.values()))
        if compared.clean:
            break
    compared.conclude()


def _note_negative(
    compared: Comparison, replies: dict[int, Reply], again: dict[int, Reply]
) -> None:
    if any(reply.code in BUSY for reply in replies.values()):
        return
    served = {at: out for at, reply in replies.items() if (out := output_of(reply))}
    shown = [replies[at] for at in served] or list(replies.values())
    why = f"passes to the layers {brief(sorted(served))} are computed"
    compared.note(NEGATIVE, not served, why, *shown[:3])
    # What is computed alike each time, but not alike for all of them, depends on the number.
    same = {at: out for at, out in served.items() if out == output_of(again[at])}
    lacking = [at for at, reply in replies.items() if reply.code == "NOT_FOUND"]
    read = len(set(same.values())) > 1 or (lacking and set(served) - {NO_LAYER})
    others = f", and {brief(sorted(lacking))} are not found" if lacking else ""
    why += f", with {len(set(served.values()))} different results{others}"
    compared.note(DIFFERENT, not read, why, *shown[:3])


def output_of(reply: Reply) -> bytes:
    """Return what a pass has computed; nothing if it was refused."""
    answer = reply.message
    if answer is None or not answer.success:
        return b""
    return bytes(answer.logits or answer.hidden_states)
