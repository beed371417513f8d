"""Interface 2.3, 4.3 and 7.3: the weights of ranges of layers, of which the node holds a part.

As in `weights`, the usual notations are tried. A range counts only where ranges of layers that the
node holds are served and differ, and where the layer that is not here is not found by itself.
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from conformance import messages
from conformance.checks.passes import layers_of
from conformance.checks.weights import TIMEOUT_S, ask_weights, served_notations
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement

PARTLY, BOTH = "GR-WEIGHT-005", "GR-WEIGHT-007"
RANGES, LIST = ("{}-{}", "{}:{}", "{}..{}", "[{}, {}]", "{},{}"), "{},{}"
BEYOND = 3


@requirement(PARTLY, BOTH)
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
