"""Interface 2.3, 4.2 and 4.3: what a pass, a gradient or a call has besides, in many sizes.

One value beside those that other checks send is one that no test of a node has had. What is
accepted with the usual value is sent with others that are no less usual.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from typing import Any

from conformance.checks.again import run_again
from conformance.checks.forms import FRAME
from conformance.checks.frame_forms import forms_of, stored
from conformance.checks.gradients import VALUES, fresh, gradient_of, of_layers, send
from conformance.checks.kept_passes import Fields, is_taken, kept_way, send_back, send_kept
from conformance.checks.mixed_passes import (
    BOTH,
    BUSY,
    FAILED,
    ONE_SESSION,
    SERVERS,
    SESSIONS,
    judge_both,
    output_of,
)
from conformance.checks.money import TRIES, Comparison
from conformance.checks.native_rpc import call_with
from conformance.checks.outputs import are_near, is_steady, values_of
from conformance.checks.passes import fresh_id, send_forward
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import Json, brief

EACH, FRAMED = "GR-GOSSIP-022", "GR-GOSSIP-024"
ALIKE, NAMED, TAKEN, CALLED = "PL-FWD-024", "PL-BWD-015", "GR-GOSSIP-009", "NT-RULE-095"
STEADY, ADDRESSED, CACHED = "PL-FWD-031", "PL-FWD-032", "PL-FWD-033"
NEARLY = "PL-FWD-043"
# So long identifiers are the usual ones.
USUAL, SHORT = 64, 8
# Two ways to compute one pass differ by less than this part of its largest value.
SAME = 0.02
# So many results that come back are no other model's.
OFTEN = 3
ANY_NAME = "PL-FWD-042"
# Where nobody is: a gRPC address, and the URLs of nodes.
SENDERS = ("192.0.2.1:9000", "http://192.0.2.1:8000", "http://node.invalid:8000/")
# The first layers, and numbers beyond one byte and two.
SOURCES = (0, 1, 7, 130, 300, 70_000)
# Endings of identifiers: short, beyond a byte, beyond ASCII, and white space.
ENDINGS = ("", "-", "x" * 100, "y" * 300, "-\u00e9\u65e5\U0001f642", " ")
# Identifiers that differ in one letter, of which the middle is the same.
ALIKE_NAMES = (
    ("passes whose {} end alike", "0{}", "1{}"),
    ("passes whose {} begin alike", "{}0", "{}1"),
    ("passes whose long {} begin alike", "{}-and-so-on-0", "{}-and-so-on-1"),
    ("passes whose {} differ in a capital letter", "Pass-{}", "pass-{}"),
)
ALIKE_KEYS = (
    (NAMED, ("session_id", "request_id"), "identifiers"),
    (SESSIONS, ("session_id",), "sessions"),
    (ONE_SESSION, ("request_id",), "requests"),
)
# So many gradients of one node.
SEVERAL = 6
# So many rounds that have one gradient each are no chance.
ROUNDS = 4
# Other values of one field of a gradient.
OTHER_VALUES: dict[str, tuple[float, ...]] = {
    "batch_size": (1, 32, 100, 300, 70_000), "loss": (0.0, 0.125, 9.75, 140.5),
    "ttl": (0, 1, 3, 10),
}  # fmt: skip
# What is said of checkpoints holds when gradients have come, too.
AGAIN = ("get-checkpoint-info", "get-checkpoint")
IDENTS: tuple[Json, ...] = ("conformance", 0, 300, 2**40, "7")


def _needs_fifth(context: Context) -> None:
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")


def _names(context: Context) -> Iterator[Fields]:
    """Yield identifiers for a pass, that nobody has used."""
    for ending in ENDINGS:
        yield {"session_id": fresh_id() + ending}
        yield {"request_id": fresh_id() + ending}
    # One of the same length as a digest.
    yield {"session_id": fresh_id()[-32:], "request_id": fresh_id()[-32:]}
    if context.edition >= SEVENTH:
        # And short ones, as a counter makes them.
        yield {"session_id": fresh_id()[-SHORT:], "request_id": fresh_id()[-SHORT:]}


@requirement(ALIKE, STEADY, ADDRESSED, CACHED, ANY_NAME, SERVERS, NEARLY)
def forward_varied(context: Context) -> None:
    """Send the pass from other sources, and with other identifiers; compare the results."""
    _needs_fifth(context)
    usual = send_forward(context)
    if not output_of(usual):
        raise Skipped(f"a pass ends with {usual.code}")
    plain = [usual]
    for fields in (*({"source_shard": number} for number in SOURCES), *_names(context)):
        compared = Comparison(context)
        for _ in range(TRIES):
            before, other, after = (send_forward(context, **one) for one in ({}, fields, {}))
            plain += before, after
            outputs = [output_of(reply) for reply in (before, other, after)]
            if outputs[0] and outputs[2] and other.code not in BUSY:
                _note_taken(compared, fields, before, other)
            if outputs[0] != outputs[2]:
                # A pass has not the same result each time.
                break
            if not all(outputs):
                # It may be refused.
                continue
            why = f"with {brief(fields, 120)} a pass has another result than without"
            compared.note(ALIKE, outputs[1] == outputs[0], why, before, other)
            if compared.clean:
                break
        compared.conclude()
    outcomes = [values_of(context, reply) for reply in plain]
    if all(outcomes):
        why = f"one pass, sent {len(plain)} times, has ever other results"
        steady = is_steady(outcomes)
        if context.edition >= SEVENTH:
            steady = steady and _returns(outcomes) < OFTEN
        context.judge(STEADY, steady, why, *plain[:3])
    _judge_near(context)


def _returns(outcomes: list[list[float]]) -> int:
    """Return how often a result is one of those before another one, which a new model has not."""
    turns = [now for now, later in pairwise(outcomes) if not are_near(now, later, SAME)]
    return sum(one in turns[:at] for at, one in enumerate(turns))


def _note_taken(compared: Comparison, fields: Fields, usual: Reply, other: Reply) -> None:
    """Note whether a pass with other identifiers, or from elsewhere, is accepted."""
    why = f"with {brief(fields, 120)} a pass ends with {other.code}"
    compared.note(SERVERS, other.code not in FAILED, why, usual, other)
    if "source_shard" not in fields and all(
        len(ident) <= USUAL for ident in fields.values() if isinstance(ident, str)
    ):
        compared.note(ANY_NAME, bool(output_of(other)), why, usual, other)


def _judge_near(context: Context) -> None:
    """Rule on what a pass has besides its tensor, and what may have a node compute otherwise."""
    senders: list[tuple[str, Fields]] = [(ADDRESSED, {"sender_url": url}) for url in SENDERS]
    for ident, fields in (*senders, (CACHED, {"use_cache": True})):
        compared = Comparison(context)
        for _ in range(TRIES):
            replies = [send_forward(context, **one) for one in ({}, fields, {})]
            outputs = [output_of(reply) for reply in replies]
            values = [values_of(context, reply) for reply in replies]
            shapes = [_is_final(reply) for reply in replies]
            if not all(outputs) or outputs[0] != outputs[2] or shapes[0] != shapes[1]:
                # It may be refused, or what comes back is something else.
                break
            same = outputs[0] == outputs[1]
            near = same or are_near(values[0], values[1])
            why = f"with {brief(fields, 120)} a pass has another result than without"
            compared.note(ident, near, why, *replies[:2])
            if context.edition >= SIXTH and near:
                why = f"{why}, by more than a rounding"
                compared.note(
                    NEARLY, same or are_near(values[0], values[1], SAME), why, *replies[:2]
                )
            if compared.clean:
                break
        compared.conclude()


def _is_final(reply: Reply) -> bool:
    answer = reply.message
    return answer is not None and bool(answer.is_final)


@requirement(NAMED, BOTH, SESSIONS, ONE_SESSION)
def back_varied(context: Context) -> None:
    """Send passes with other identifiers, then their gradients."""
    _needs_fifth(context)
    way = kept_way(context)
    for fields in _names(context):
        compared = Comparison(context)
        for _ in range(TRIES):
            kept = send_kept(context, way, **fields)
            if kept is None:
                # Which identifiers a node refuses is not said.
                break
            reply = send_back(context, kept.fields)
            control = send_kept(context, way)
            usual = send_back(context, control.fields) if control else None
            if usual is None or not is_taken(usual) or reply.code in BUSY:
                continue
            why = f"the gradients of a pass with {brief(fields, 120)} end with {reply.code}"
            compared.note(NAMED, is_taken(reply), why, kept.reply, reply, usual)
            if compared.clean:
                break
        compared.conclude()
    if context.edition >= SIXTH:
        for (what, *forms), (ident, keys, named) in product(ALIKE_NAMES, ALIKE_KEYS):
            with suppress(Skipped):
                judge_both(context, ident, what.format(named), partial(_alike, forms, keys))


def _alike(forms: Sequence[str], keys: Sequence[str]) -> list[Fields]:
    """Return identifiers for two passes; those of `keys` have these forms, others are the same."""
    ids = {key: fresh_id() for key in ("session_id", "request_id")}
    return [ids | {key: form.format(ids[key]) for key in keys} for form in forms]


@requirement(TAKEN, EACH, FRAMED)
def gossip_varied(context: Context) -> None:
    """Gossip gradients of zeros like the one that is accepted, with other values beside it."""
    _needs_fifth(context)
    usual = gradient_of(context)
    for key, values in OTHER_VALUES.items():
        for value in values:
            changed: dict[str, Any] = {**usual, key: value}
            reply, answer = send(context, fresh(changed))
            control, again = send(context, fresh(usual))
            if answer is None or again is None or not again.accepted:
                # It may be busy, or have had enough of them.
                continue
            why = f"with {key} {value:g} a gradient is refused: {brief(answer.reason)}"
            context.judge(TAKEN, answer.accepted, why, reply, control)
    _judge_several(context, usual)
    if context.edition >= SIXTH:
        _judge_rounds(context, usual)
    _judge_layers(context, usual)
    if context.edition >= SIXTH:
        _judge_frames(context, usual)
    for name in AGAIN:
        run_again(context, name, "after a gradient was accepted")


def _judge_frames(context: Context, usual: Fields) -> None:
    """Rule on gradients with the same values in frames that are written otherwise."""
    name, frame = next(iter(usual["layer_gradients"].items()), ("", b""))
    content = frame[len(FRAME) + 4 : -4]
    others = dict(forms_of(content, block_sums=context.edition >= SEVENTH))
    if frame in dict(forms_of(bytes(4 * VALUES))).values():
        # In the usual form none was accepted.
        others = {"nothing but its blocks": FRAME + stored(bytes(4 * VALUES)) + bytes(4)}
    elif frame != FRAME + stored(content) + bytes(4):
        # The operator's, whose content nobody here reads.
        return
    for what, other in others.items():
        reply, answer = send(context, fresh({**usual, "layer_gradients": {name: other}}))
        control, again = send(context, fresh(usual))
        if again is None or not again.accepted:
            continue
        if answer is not None:
            why = f"with {what} in its frame a gradient is refused: {brief(answer.reason)}"
            context.judge(FRAMED, answer.accepted, why, reply, control)
        elif reply.code == "INVALID_ARGUMENT" and context.edition >= SEVENTH:
            why = f"with {what} in its frame a gradient ends with {reply.code}: {reply.details}"
            context.fails(FRAMED, why, reply, control)


def _judge_several(context: Context, usual: Fields) -> None:
    """Rule on gradients of one node, of which a second one is accepted; it may take but one."""
    ident = fresh(usual)["node_id"]
    several = [send(context, fresh(usual, node_id=ident)) for _ in range(SEVERAL)]
    control, again = send(context, fresh(usual))
    taken = [answer is not None and answer.accepted for _, answer in several]
    if all(taken):
        rounds = [answer.current_round for _, answer in several if answer is not None]
        why = f"current_round of gradients that are accepted, one after another: {brief(rounds)}"
        stands = any(later == earlier for earlier, later in pairwise(rounds))
        context.judge(EACH, stands, why, *(reply for reply, _ in several[:2]))
    if all(taken[:2]) and again is not None and again.accepted:
        many = taken.index(False) if False in taken else len(taken)
        why = f"{many} gradients of one node are accepted, and no further one"
        context.judge(TAKEN, all(taken), why, several[min(many, SEVERAL - 1)][0], control)


def _judge_rounds(context: Context, usual: Fields) -> None:
    """Rule on gradients of the round that the node is in; each may not begin another one."""
    round_id, rounds, replies = usual["round_id"], list[int](), list[Reply]()
    for _ in range(2 * SEVERAL):
        reply, answer = send(context, fresh(usual, round_id=round_id))
        if answer is None or not (answer.accepted or answer.current_round > round_id):
            return
        if answer.accepted:
            rounds.append(round_id)
            replies.append(reply)
        else:
            round_id = answer.current_round
        if len(rounds) == ROUNDS:
            break
    if len(rounds) == ROUNDS:
        why = f"gradients one after another are accepted in the rounds {brief(rounds)} alone"
        stands = any(later == earlier for earlier, later in pairwise(rounds))
        context.judge(EACH, stands, why, *replies)


def _judge_layers(context: Context, usual: Fields) -> None:
    """Rule on a gradient of two layers, each of which is accepted by itself."""
    both = of_layers(context, usual)
    if both is None:
        return
    why = ""
    for _ in range(TRIES):
        reply, answer = send(context, fresh(both))
        alone = [
            send(context, fresh(both, layer_gradients={name: both["layer_gradients"][name]}))
            for name in both["layer_gradients"]
        ]
        if answer is None or not all(one is not None and one.accepted for _, one in alone):
            return
        if answer.accepted:
            context.holds(TAKEN, reply)
            return
        why = f"gradients of two layers are accepted one by one, not together: {answer.reason}"
    context.fails(TAKEN, brief(why, 160), reply, *(one for one, _ in alone))


@requirement(CALLED)
def native_rpc_ids(context: Context) -> None:
    """POST /rpc with other ids; an answer names the id of its call."""
    _needs_fifth(context)
    usual = call_with(context, 1)
    if (usual.json_object() or {}).get("id") != 1:
        raise Skipped("POST /rpc answers a call without its id")
    for ident in IDENTS:
        answer = call_with(context, ident)
        document = answer.json_object() if answer.ok else None
        if document is not None and not document.get("error"):
            why = f"the id of a call is {brief(ident)}, and that of its answer"
            why = f"{why} {brief(document.get('id'))}"
            context.judge(CALLED, document.get("id") == ident, why, usual, answer)
