"""Interface 2.2: contents that two native resources have, where the target declares the places.

The chain goes on meanwhile, so what comes first in it is read first, and what may have been
replaced in between is read on both sides.
"""

from contextlib import suppress
from decimal import Decimal, InvalidOperation

from conformance.checks.native import document_at, mapped
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

ROUNDS, ROOT, SERVED, NONCE = "NT-RULE-075", "NT-RULE-076", "NT-RULE-077", "NT-RULE-079"
STANDS, LOOKS = "NT-RULE-161", 8
TRIES = 3
EXACT = "NT-RULE-087"
# No loss of a model is exact with so few decimals.
FEW = 4
MANY = 6
# As many digits as the other keys have; nobody has this one.
UNKNOWN = "5"


def _whole(values: list[Json]) -> list[int]:
    """Return the integers, of which some may be texts."""
    texts = [str(value) for value in values if isinstance(value, str) or is_int(value)]
    return [int(text) for text in texts if text.removeprefix("-").isdecimal()]


@requirement(ROUNDS)
def native_rounds(context: Context) -> None:
    """GET the training history, then the network identity, and compare their rounds."""
    listed, document = document_at(context, "/api/training")
    rounds = _whole(mapped(context, "/api/training round", document))
    identity, network = document_at(context, "/api/network")
    current = _whole(mapped(context, "/api/network round", network))
    if not rounds or not current:
        raise Skipped("no update is listed, or the network identity has no round")
    why = f"round {max(rounds)} is accepted, and that of the network is {max(current)}"
    context.judge(ROUNDS, max(current) >= max(rounds), why, listed, identity)


def _judge_moving(context: Context) -> None:
    """Rule on roots that are others in each of some readings, between which nothing is accepted."""
    for _ in range(TRIES):
        listed, history = document_at(context, "/api/training")
        before, model = document_at(context, "/api/model")
        after, again = document_at(context, "/api/model")
        _, later = document_at(context, "/api/training")
        roots = [mapped(context, "/api/model roots", one) for one in (model, again)]
        if history != later or roots[0] == roots[1]:
            return
    why = f"the roots of the model go from {brief(roots[0])} to {brief(roots[1])}"
    context.fails(STANDS, f"{why} while no update is accepted", listed, before, after)


def _judge_standing(context: Context) -> None:
    """Rule on roots that are others now and then, while nothing is accepted."""
    for _ in range(TRIES):
        _, history = document_at(context, "/api/training")
        looks = [document_at(context, "/api/model") for _ in range(LOOKS)]
        _, later = document_at(context, "/api/training")
        roots = {brief(mapped(context, "/api/model roots", model)) for _, model in looks}
        if len(roots) == 1 or history is None or history != later:
            return
    why = f"of {LOOKS} readings the model has the roots {brief(sorted(roots))}"
    context.fails(STANDS, f"{why} while no update is accepted", *(answer for answer, _ in looks))


@requirement(ROOT, SERVED, STANDS)
def native_roots(context: Context) -> None:
    """GET the checkpoint and the inference info between two readings of the model's roots."""
    apart: list[str] = []
    for _ in range(TRIES):
        before, model = document_at(context, "/api/model")
        roots = mapped(context, "/api/model roots", model)
        latest, checkpoint = document_at(context, "/api/model/checkpoint.json")
        offer, inference = document_at(context, "/api/inference")
        after, again = document_at(context, "/api/model")
        if mapped(context, "/api/model roots", again) == roots:
            break
    else:
        _judge_moving(context)
        raise Skipped("the roots of the model change all the time")
    context.holds(STANDS, before, after)
    if context.edition >= SIXTH:
        _judge_standing(context)
    if "/api/model/checkpoint.json root" in context.target.field_map:
        own = mapped(context, "/api/model/checkpoint.json root", checkpoint)
        apart = [str(root) for root in own if root not in roots]
        why = f"the checkpoint has the root {brief(apart)}, the model {brief(roots)}"
        context.judge(ROOT, not apart, why, before, latest, after)
    places = [path for path in context.target.field_map["/api/model roots"] if "serv" in path]
    serving = [value for path in places for value in lookup(model, path)]
    if serving and "/api/inference root" in context.target.field_map:
        offered = mapped(context, "/api/inference root", inference)
        why = f"requests are served with {brief(offered)}, the model's root is {brief(serving)}"
        context.judge(SERVED, offered == serving, why, before, offer, after)


@requirement(EXACT)
def native_losses(context: Context) -> None:
    """GET the training history between two readings of the model, and compare their losses."""
    before, model = document_at(context, "/api/model")
    known = _written(mapped(context, "/api/model losses", model))
    listed, document = document_at(context, "/api/training")
    losses = _written(mapped(context, "/api/training loss", document))
    after, again = document_at(context, "/api/model")
    known &= _written(mapped(context, "/api/model losses", again))
    # A loss of the model need not be that of an update. One that is, but for its digits, shows
    # that these were rounded.
    rounded = {
        (exact, one) for exact in known - losses for one in losses
        if 0 < _digits(one) < _digits(exact) and abs(one - exact) <= 10 ** -_digits(one) / 2
    }  # fmt: skip
    most = max(map(_digits, losses), default=0)
    if not known or not losses:
        raise Skipped("the model or the history has no loss")
    # So many digits are alike by no chance.
    surely = context.edition >= SEVENTH and any(_digits(one) >= MANY for _, one in rounded)
    if known & losses and not surely:
        context.holds(EXACT, before, listed, after)
    elif rounded and (most <= FEW or surely) and most < max(map(_digits, known)):
        pairs = brief([f"{exact}: {one}" for exact, one in sorted(rounded)])
        why = f"losses of updates have {most} decimals at most; the model has {pairs}"
        context.fails(EXACT, why, before, listed, after)


def _written(values: list[Json]) -> set[Decimal]:
    """Return the numbers, of which some may be texts, with the decimals that they have."""
    found = set()
    for value in values:
        with suppress(InvalidOperation):
            number = Decimal(str(value))
            found |= {number} if number.is_finite() else set()
    return found


def _digits(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


@requirement(NONCE)
def native_nonces(context: Context) -> None:
    """GET the account of the declared public key, and one that nobody has; read their nonces."""
    key = context.target.public_key or ""
    for public_key in (key, key[:2] + UNKNOWN * len(key[2:])):
        answer, document = document_at(context, "/api/account", {"public_key": public_key})
        if document is None:
            continue
        below = [one for one in _whole(mapped(context, "/api/account nonce", document)) if one < 0]
        context.judge(NONCE, not below, f"the next nonce is {brief(below)}", answer)
