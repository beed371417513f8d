"""Interface 2.3, 4.3 and 7.3: the weights of layers, by whatever notation of a range a node reads.

The document does not show how a shard_range names its layers. Usual notations of a layer that the
node lists are tried. Only where one of them gives other weights for another layer, and is
therefore read, is it at fault that an absent layer is served.
"""

from collections.abc import Iterator
from typing import Any

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.answers import (
    DOCUMENTED_CODES,
    OF_AUTHENTICATION,
    UNKNOWN,
    judge_message,
    judge_operation,
)
from conformance.checks.numbers import judge_necessary
from conformance.checks.passes import BUSY, FAR, FOUND_SINCE, Layers, layers_of
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH, SEVENTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement

# Notations of a layer, with the number after it.
NOTATIONS = (
    "{at}", "{at}-{at}", "{at}:{after}", "{at}-{after}", "[{at}]", "layer_{at}", "{at},",
    "layers.{at}", "{at}..{at}", "[{at}, {after}]",
)  # fmt: skip
TIMEOUT_S = 60
# The first edition that asks for a range which names no layer.
NO_LAYER_SINCE = 4
# So many times weights are asked for once more.
AGAIN = 3
NO_LAYER = "no layer at all"
# Numbers under which a reader might look for the range.
OTHER_NUMBERS = (2, 3, 4, 5)
# Behind the last layer of the model, and not behind its parts alone.
BEHIND = 90


def _named(notation: str, layer: int) -> str:
    return notation.format(at=layer, after=layer + 1)


def ask_weights(context: Context, notation: str, layer: int) -> Reply:
    """Ask for the weights of a layer in a notation."""
    request = messages.make("WeightRequest", shard_range=_named(notation, layer))
    return context.grpc.call("GetWeights", request, timeout_s=TIMEOUT_S)


def _first_layer(context: Context) -> int:
    """Return a layer that the node lists, or 0."""
    if context.edition < FOUND_SINCE:
        return 0
    return min(layers_of(context).held, default=0)


@requirement(
    "GR-OP-003", "GR-SILENT-005", "GR-WEIGHT-001", "GR-NUM-001",
    *fields_of_message("WeightResponse"),
)  # fmt: skip
def get_weights(context: Context) -> None:
    """Call GetWeights with usual notations of a layer; the document specifies none."""
    layer = _first_layer(context)
    for notation in NOTATIONS:
        reply = ask_weights(context, notation, layer)
        named = _named(notation, layer)
        shown = f"{named!r} ends with {reply.code}, {len(reply.body)} bytes"
        context.observe("GR-SILENT-005", shown, reply)
        if not judge_operation(context, "GR-OP-003", reply):
            if reply.code == UNKNOWN:
                return
            continue
        answer = judge_message(context, "WeightResponse", reply)
        if answer is not None:
            data = bool(answer.weights_data)
            context.judge("GR-WEIGHT-001", data, f"{named!r}: weights_data is empty", reply)
            judge_necessary(context, "WeightResponse", {"weights_data": data}, reply.body, reply)
            if context.edition >= SEVENTH:
                _judge_again(context, notation, layer)
        return


def _judge_again(context: Context, notation: str, layer: int) -> None:
    """Rule on the weights of a layer that were there before, a few times more."""
    for turn in range(AGAIN):
        reply = ask_weights(context, notation, layer)
        answer: Any = reply.message
        if answer is not None:
            why = f"the weights are asked for {turn + 2} times, and weights_data is empty"
            context.judge("GR-WEIGHT-001", bool(answer.weights_data), why, reply)


@requirement("GR-WEIGHT-002", "GR-WEIGHT-006", "GR-CODE-001", "GR-CODE-015")
def weights_absent(context: Context) -> None:
    """Call GetWeights for two listed layers, some that are not listed, and what is no layer."""
    layers = layers_of(context)
    if not layers.held:
        raise Skipped("the node lists no layers")
    first, last = min(layers.held), max(layers.held)
    found = next(served_notations(context, first), None)
    if found is None:
        raise Skipped("no usual notation of a layer is served")
    notation, reply = found
    if context.edition >= NO_LAYER_SINCE:
        _judge_no_layer(context, reply)
    other = ask_weights(context, notation, last) if last != first else reply
    # Two layers of a model differ; where they do not, the notation may mean anything.
    is_read = other.ok and other.body != reply.body
    for layer in _absent(layers):
        answer = ask_weights(context, notation, layer)
        if answer.code in BUSY:
            held, again = (
                ask_weights(context, notation, first),
                ask_weights(context, notation, layer),
            )
            if is_read and held.ok and again.code == answer.code:
                # The peer is neither offline nor overloaded: it serves what it holds.
                why = f"layer {layer} ends twice with {again.code}, layer {first} is served"
                context.fails("GR-WEIGHT-002", why, answer, held, again)
            continue
        if answer.code == "NOT_FOUND":
            context.holds("GR-WEIGHT-002", reply, answer)
        elif is_read and (
            _is_wrong(answer, layers, layer)
            or (context.edition >= SEVENTH and answer.ok and not _has_weights(answer))
        ):
            why = f"layer {layer} ends with {answer.code}, {len(answer.body)} bytes"
            context.fails("GR-WEIGHT-002", why, reply, other, answer)


@requirement("GR-WEIGHT-003", "GR-WEIGHT-004")
def weights_number(context: Context) -> None:
    """Call GetWeights for two layers at the documented number, or else at others."""
    held = layers_of(context).held
    if len(held) < 2:
        raise Skipped("the node lists fewer than two layers")
    for notation in NOTATIONS:
        replies = [ask_weights(context, notation, layer) for layer in (held[0], held[-1])]
        if all(reply.ok and reply.body for reply in replies):
            break
    else:
        if context.edition >= FOURTH:
            for notation in NOTATIONS:
                _judge_numbers(context, notation, held, *replies)
        raise Skipped("no usual notation of a layer is served")
    if replies[0].body != replies[1].body:
        context.holds("GR-WEIGHT-003", *replies)
        context.holds("GR-WEIGHT-004", *replies)
        return
    absent = ask_weights(context, notation, FAR)
    if not absent.ok and absent.code not in BUSY:
        why = (
            f"layers {held[0]} and {held[-1]} have the same weights; {FAR} ends with {absent.code}"
        )
        context.fails("GR-WEIGHT-004", why, *replies, absent)
        return
    _judge_numbers(context, notation, held, *replies)


def _judge_numbers(context: Context, notation: str, held: tuple[int, ...], *shown: Reply) -> None:
    """Look for a number at which two layers have different weights, as they have not at 1."""
    for number in OTHER_NUMBERS:
        others: list[Reply] = []
        # The first one once more: weights that are never the same depend on nothing.
        for layer in (held[0], held[-1], held[0]):
            text = _named(notation, layer).encode()
            content = bytes([number << 3 | messages.LENGTH, len(text)]) + text
            others.append(context.grpc.call("GetWeights", content, timeout_s=TIMEOUT_S))
            if not others[-1].ok:
                break
        bodies = [reply.body for reply in others]
        if others[-1].ok and bodies[0] == bodies[-1] != bodies[1]:
            why = f"the weights depend on a range in field {number}, and not on that in field 1"
            context.fails("GR-WEIGHT-003", why, *shown, *others)
            return


def _judge_no_layer(context: Context, served: Reply) -> None:
    request = messages.make("WeightRequest", shard_range=NO_LAYER)
    reply = context.grpc.call("GetWeights", request, timeout_s=TIMEOUT_S)
    if reply.code not in OF_AUTHENTICATION:
        why = f"{NO_LAYER!r} ends with {reply.code}: {reply.details}"
        context.judge("GR-CODE-001", reply.code in DOCUMENTED_CODES, why, served, reply)
        context.judge("GR-CODE-015", reply.code != "INTERNAL", why, served, reply)
        if context.edition >= FIFTH:
            why = f"{NO_LAYER!r} brings {len(reply.body)} bytes"
            context.judge("GR-WEIGHT-006", not (reply.ok and reply.body), why, served, reply)


def served_notations(context: Context, layer: int) -> Iterator[tuple[str, Reply]]:
    """Yield the notations in which the weights of a layer are served, with the answers."""
    for notation in NOTATIONS:
        reply = ask_weights(context, notation, layer)
        if reply.ok and reply.body:
            yield notation, reply


def _absent(layers: Layers) -> Iterator[int]:
    """Yield numbers of layers that the node does not list, the last of them in no model."""
    if layers.total is not None and layers.from_zero is not None:
        first = 0 if layers.from_zero else 1
        lacking = set(range(first, first + layers.total)) - set(layers.held)
        yield from sorted(lacking)[:1]
    # A number of few digits, which a node may take for one of its own or for nothing.
    yield max(layers.total or 0, *layers.held) + BEHIND
    yield FAR


def _has_weights(reply: Reply) -> bool:
    answer: Any = reply.message
    return answer is not None and bool(answer.weights_data)


def _is_wrong(answer: Reply, layers: Layers, layer: int) -> bool:
    """Return whether an answer for an absent layer can be no right one."""
    # A node may have the weights of layers that it does not serve, and call a number that no
    # model has a bad request.
    return answer.code != ("OK" if layer < (layers.total or FAR) else "INVALID_ARGUMENT")
