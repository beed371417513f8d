"""Interface 2.3, 4.3 and 7.3: the weights of ranges of layers, of which the node holds a part.

As in `weights`, the usual notations are tried. A range counts only where ranges of layers that the
node holds are served and differ, and where the layer that is not here is not found by itself.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, cycle, islice, pairwise
from random import Random

from conformance import messages
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import layers_of
from conformance.checks.weights import TIMEOUT_S, ask_weights, served_notations
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

PARTLY, BOTH, ABSENT = "GR-WEIGHT-005", "GR-WEIGHT-007", "GR-WEIGHT-002"
OWN, CROSSED, STEADY = "GR-WEIGHT-010", "GR-WEIGHT-011", "GR-WEIGHT-012"
EACH = "GR-WEIGHT-013"
# So many requests at the same time, for two layers by turns.
AT_ONCE = 4
# So many layers are compared with each other, and so few are none that tell anything.
MOST_LAYERS, ENOUGH = 8, 4
RANGES, LIST = ("{}-{}", "{}:{}", "{}..{}", "[{}, {}]", "{},{}"), "{},{}"
BEYOND = 3


@requirement(PARTLY, BOTH, ABSENT)
def weights_partial(context: Context) -> None:
    """Call GetWeights for ranges that begin, or end, with a layer that the node does not list."""
    held = layers_of(context).held
    if len(held) < 2:
        raise Skipped("the node lists fewer than two layers")
    first, last = held[0], held[-1]
    found = next(served_notations(context, last), None)
    if found is None:
        raise Skipped("no usual notation of a layer is served")
    draw = Random(context.target.seed)  # noqa: S311 - numbers of layers, no secret
    if context.edition >= FIFTH:
        _judge_both(context, found[0], held)
    if _reads(context, LIST, held):
        absent = last + 2 + draw.randrange(BEYOND)
        for pair in ((first, absent), (absent, first)):
            _judge_range(context, found[0], absent, LIST, pair)
    for form in RANGES:
        if not _reads(context, form, held):
            continue
        # The end may be meant without itself.
        ends = [(last + 1, first, last + 2 + draw.randrange(BEYOND))]
        if first > 0:
            below = draw.randrange(first)
            ends.append((below, below, draw.choice(held[1:])))
        for absent, begin, end in ends:
            _judge_range(context, found[0], absent, form, (begin, end))
        if context.edition >= SIXTH:
            _judge_nothing(context, found[0], form, last + 2 + BEYOND)
            _judge_whole(context, form, held)
        return
    raise Skipped("no usual notation of a range is served")


def _judge_both(context: Context, notation: str, held: Sequence[int]) -> None:
    """Rule on the weights of two layers, which are not those of one of them."""
    for form in RANGES:
        # From one layer to the next one, or the two that a list names.
        pairs = pairwise(held) if form != LIST else [(held[0], held[-1])]
        ends = next((pair for pair in pairs if form == LIST or pair[1] == pair[0] + 1), None)
        if ends is None:
            continue
        alone = [ask_weights(context, notation, at) for at in ends]
        # Where the end may be meant without itself, a range from a layer to itself has nothing.
        itself, both = _ask_range(context, form, ends[0], ends[0]), _ask_range(context, form, *ends)
        served = both.ok and both.body and all(one.ok for one in alone)
        if served and itself.body == alone[0].body != alone[1].body:
            why = f"{form.format(*ends)!r} brings the same weights as one of these layers"
            context.judge(BOTH, both.body not in [one.body for one in alone], why, *alone, both)


def _reads(context: Context, form: str, held: Sequence[int]) -> bool:
    """Whether the node reads this form: with another beginning it gives something else."""
    whole, part = (_ask_range(context, form, at, held[-1]) for at in held[:2])
    return bool(whole.ok and whole.body and (not part.ok or part.body != whole.body))


def _ask_range(context: Context, form: str, begin: int, end: int) -> Reply:
    request = messages.make("WeightRequest", shard_range=form.format(begin, end))
    return context.grpc.call("GetWeights", request, timeout_s=TIMEOUT_S)


def _judge_range(
    context: Context, notation: str, absent: int, form: str, ends: tuple[int, int]
) -> None:
    alone, reply = ask_weights(context, notation, absent), _ask_range(context, form, *ends)
    again = ask_weights(context, notation, absent)
    if alone.code == again.code == "NOT_FOUND":
        why = f"layer {absent} is not found, but weights of {form.format(*ends)!r} are served"
        context.judge(PARTLY, not (reply.ok and reply.body), why, alone, reply)


def _judge_nothing(context: Context, notation: str, form: str, begin: int) -> None:
    """Rule on a range of layers none of which is here."""
    alone = [ask_weights(context, notation, at) for at in (begin, begin + 1)]
    reply = _ask_range(context, form, begin, begin + 1)
    again = ask_weights(context, notation, begin)
    if {one.code for one in (*alone, again)} == {"NOT_FOUND"} and reply.ok:
        why = f"neither layer of {form.format(begin, begin + 1)!r} is found, and the range ends"
        context.fails(ABSENT, f"{why} with OK, {len(reply.body)} bytes", *alone, reply)


def _judge_whole(context: Context, form: str, held: Sequence[int]) -> None:
    """Rule on a range of all layers, which are more than those of the range without the last."""
    if len(held) < 3 or held[-1] - held[0] != len(held) - 1:
        return
    whole, part = (_ask_range(context, form, held[0], at) for at in (held[-1], held[-2]))
    if whole.ok and part.ok and part.body:
        why = f"{form.format(held[0], held[-1])!r} brings the same weights as a range of fewer"
        context.judge(BOTH, whole.body != part.body, why, part, whole)


@requirement(OWN, CROSSED, STEADY, EACH)
def weights_own(context: Context) -> None:
    """Call GetWeights for two layers, twice each by turns, and for both at the same time."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    held = layers_of(context).held
    if len(held) < 2:
        raise Skipped("the node lists fewer than two layers")
    layers = held[0], held[-1]
    found = next(served_notations(context, layers[0]), None)
    if found is None:
        raise Skipped("no usual notation of a layer is served")
    compared = Comparison(context)
    for _ in range(TRIES):
        _note_own(context, compared, found[0], layers)
        if compared.clean:
            break
    compared.conclude()
    if context.edition >= SEVENTH:
        _judge_each(context, found[0], held[:MOST_LAYERS])


def _judge_each(context: Context, notation: str, layers: Sequence[int]) -> None:
    """Rule on a layer that has the weights of another one, where most have their own."""
    replies = {layer: ask_weights(context, notation, layer) for layer in layers}
    bodies = {layer: reply.body for layer, reply in replies.items() if reply.ok and reply.body}
    alike = [pair for pair in combinations(bodies, 2) if bodies[pair[0]] == bodies[pair[1]]]
    if len(bodies) >= ENOUGH:
        why = f"of the layers {brief(list(bodies))} {brief(alike)} have the same weights"
        shown = [replies[layer] for layer in (alike[0] if alike else layers[:2])]
        # Those of several layers may be meant to be the same.
        context.judge(EACH, len(alike) != 1, why, *shown)


def _note_own(
    context: Context, compared: Comparison, notation: str, layers: tuple[int, int]
) -> None:
    first, last = layers
    turns = [ask_weights(context, notation, at) for at in (first, first, last, last)]
    bodies = [reply.body for reply in turns]
    if not all(reply.ok for reply in turns):
        raise Skipped(f"the weights of layer {last} end with {turns[-1].code}")
    late = bodies[1] == bodies[2] != bodies[3]
    why = f"the first weights of layer {last} are those of layer {first}, the next ones are not"
    compared.note(OWN, not late, why, *turns)
    why = f"the weights of layers {first} and {last}, asked for twice each, are ever others"
    compared.note(STEADY, len(set(bodies)) < len(bodies), why, *turns)
    if bodies[0] != bodies[1] or bodies[2] != bodies[3] or bodies[0] == bodies[2]:
        return
    asked, wrong = list(islice(cycle(layers), AT_ONCE)), list[Reply]()
    for many in (0, AT_ONCE):
        # A node may serve the calls of one connection one after another.
        with context.grpc.spread(many), ThreadPoolExecutor(AT_ONCE) as pool:
            replies = list(pool.map(lambda at: ask_weights(context, notation, at), asked))
        wrong += [
            reply for at, reply in zip(asked, replies, strict=True)
            if reply.body == (bodies[2] if at == first else bodies[0])
        ]  # fmt: skip
    why = "of requests at the same time one is answered with the weights of another one"
    compared.note(CROSSED, not wrong, why, turns[0], turns[-1], *wrong[:2])
