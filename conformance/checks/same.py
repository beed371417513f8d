"""Interface 2.1, 2.3 and 4.1: what two resources say of the same thing.

All of them are read, one after another. Values that do not fit together are read again, and count
only if they are the same then: what has changed between two readings is of two times. After a pause
there is another try, since a node may count some of them from time to time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isclose
from typing import Any

from conformance import messages
from conformance.checks.node_reads import CONFIG, HEALTH, LAYERS, NETWORK, PEERS, PROOFS, STATUS
from conformance.checks.reading import fetch
from conformance.checks.training import GLOBAL, VERIFY
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Shown, Skipped
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number, last_place

TRIES, BETWEEN_S = 3, 1.1
INFO, GOSSIP, PASS = "GetCheckpointInfo", "GossipGradient", "PipelineForward"
RESOURCES = (STATUS, NETWORK, PEERS, LAYERS, CONFIG, HEALTH, PROOFS, GLOBAL, VERIFY)
# A gradient of no model is refused, and the refusal names the round of the receiver.
CALLS = {
    INFO: messages.make("GetCheckpointInfoRequest"),
    GOSSIP: messages.make("GossipGradientRequest", node_id="conformance", model_hash="0" * 64),
}
ROLES = ("driver", "worker", "validator")
# How far a figure may be from the one that it is rounded from, for a reader.
ROUNDED = 0.06
# And how far two may be that are smoothed, or of two moments.
EXACTLY = 0.01
# All is well where more than this share of the exchanges succeeds.
ENOUGH = 0.5
# Of more nodes a rounded share does not show how many they are.
FEW_NODES, LAST_DIGIT = 20, 0.01
Documents = Mapping[str, dict[str, Json]]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Relation:
    """Values of several resources, each ``resource path``, and whether they fit together."""

    ident: str
    paths: tuple[str, ...]
    fits: Callable[..., bool]
    since: int = SIXTH

    def values(self, documents: Documents) -> Values | None:
        """Return what the documents have at the paths, None if something is missing."""
        found = []
        for each in self.paths:
            name, path = each.split()
            values = lookup(documents.get(name), path)
            if not values:
                return None
            found.append(values if "[]" in path else values[0])
        return tuple(found)

    def shown(self, shown: Mapping[str, Shown]) -> list[Shown]:
        """Return what shows the values, once for each resource."""
        names = dict.fromkeys(path.split()[0] for path in self.paths)
        return [shown[name] for name in names if name in shown]


def _equal(one: Json, other: Json) -> bool:
    return one == other or not (is_number(one) and is_number(other))


def _same(one: Json, other: Json) -> bool:
    """Whether two values are alike, in whatever order a list has its entries."""
    lists = isinstance(one, list) and isinstance(other, list)
    return sorted(map(brief, one)) == sorted(map(brief, other)) if lists else one == other


def _near(one: Json, other: Json) -> bool:
    numbers = is_number(one) and is_number(other)
    return not numbers or isclose(one, other, rel_tol=ROUNDED, abs_tol=ROUNDED)


def _is_rounded(one: Json, other: Json) -> bool:
    """Whether two figures are one, of which each is shown with the digits that it has."""
    if not (is_number(one) and is_number(other)):
        return True
    coarse = max(last_place(one), last_place(other))
    return isclose(one, other, rel_tol=EXACTLY, abs_tol=0.51 * coarse)


def _counts_all(total: Json, listed: Json) -> bool:
    """Whether the nodes of the network are at least the peers and the node itself."""
    return not (is_int(total) and is_int(listed)) or total > listed


def _counts_roles(nodes: Json, own: Json, roles: Iterable[Json]) -> bool:
    """Whether there are as many nodes of each role as the peers and the node itself are."""
    if not isinstance(nodes, dict):
        return True
    seen = [own, *roles]
    counts = {role: nodes.get(f"{role}s") for role in ROLES}
    return all(not is_int(count) or seen.count(role) <= count for role, count in counts.items())


def _in_model(total: Json, layers: Iterable[Json]) -> bool:
    """Whether the indices are those of layers; the document does not say if the first is 0 or 1."""
    held = [index for one in layers for index in (one if isinstance(one, list) else [one])]
    return not is_int(total) or not total or all(index <= total for index in held if is_int(index))


def _others(own: Json, idents: list[Json]) -> bool:
    return own not in idents and len(set(map(brief, idents))) == len(idents)


def _is_well(healthy: Json, checks: Json) -> bool:
    words = list(checks.values()) if isinstance(checks, dict) else []
    return healthy is not False or not words or any(word != "ok" for word in words)


def _trains(training: Json, enabled: Json) -> bool:
    return training is not True or enabled is not False


def _is_share(rate: Json, nodes: Json) -> bool:
    """Whether a rounded rate is one of a whole number of these nodes, if they are few."""
    if not is_number(rate) or not is_int(nodes) or not 1 <= nodes <= FEW_NODES:
        return True
    return abs(rate * nodes - round(rate * nodes)) <= LAST_DIGIT * (nodes + 1)


def _once(listed: Json) -> bool:
    return not isinstance(listed, list) or len(set(map(brief, listed))) == len(listed)


def _reached(done: Json, told: Json) -> bool:
    """Whether a round is not behind what is known of it; 0 may say that none is told."""
    return not (is_int(done) and is_int(told) and told) or done <= told


def _works(said: Json, verified: Json, converging: Json, *rest: Json) -> bool:
    """Whether a network of which all goes well is said to work, and to work only if it does."""
    agreed, synced, trend = rest
    numbers = is_number(agreed) and is_number(synced)
    well = verified is converging is True and trend == "improving"
    well = well and numbers and agreed == 1 and synced > ENOUGH
    ill = verified is converging is False
    return (said is not False or not well) and (said is not True or not ill)


# What a second account reads, too.
OF_SECOND = {f"second-{resource.name}": resource for resource in (PEERS, LAYERS, CONFIG)}
NODE = (
    Relation("NA-SAME-001", ("network training.epoch", "status training.epoch"), _equal),
    Relation("NA-SAME-002", ("network nodes.total", "peers total"), _counts_all),
    Relation("NA-SAME-003", ("network nodes", "status role", "peers peers[].role"), _counts_roles),
    Relation("NA-SAME-004", ("layers total_layers", "peers peers[].layers"), _in_model),
    Relation("NA-SAME-005", ("status node_id", "peers peers[].id"), _others),
    Relation("NA-SAME-006", ("health healthy", "health checks"), _is_well),
    Relation("NA-SAME-010", ("peers peers[].id", "second-peers peers[].id"), _same),
    Relation("NA-SAME-010", ("peers total", "second-peers total"), _same),
    Relation("NA-SAME-010", ("layers layers[].index", "second-layers layers[].index"), _same),
    Relation("NA-SAME-010", ("config training", "second-config training"), _same),
    Relation("NA-SAME-009", ("layers total_layers", "proofs proofs[].layer"), _in_model),
)
WELL = ("is_converging", "hash_agreement_rate", "sync_success_rate", "loss_trend")
TRAINING = (
    Relation(
        "TR-SAME-006",
        (
            "training-verify is_working",
            "training-global training_verified",
            *(f"training-global {name}" for name in WELL),
        ),
        _works,
    ),
    Relation(
        "TR-SAME-004",
        ("training-verify metrics.global_loss", "training-global global_avg_loss"),
        _near,
    ),
    Relation(
        "TR-SAME-004",
        ("training-verify metrics.global_loss", "training-global global_avg_loss"),
        _is_rounded,
        since=SEVENTH,
    ),
    Relation(
        "TR-SAME-005", ("training-global local.is_training", "status training.enabled"), _trains
    ),
    Relation("TR-SAME-007", ("training-global local.current_loss", "status training.loss"), _near),
    Relation(
        "TR-SAME-007",
        ("training-global local.current_loss", "status training.loss"),
        _is_rounded,
        since=SEVENTH,
    ),
    Relation(
        "TR-SAME-008",
        ("training-global hash_agreement_rate", "training-global total_nodes_training"),
        _is_share,
    ),
    Relation("TR-SAME-009", ("training-global data_shards_covered",), _once),
)
OVER_GRPC = (
    Relation("GR-GOSSIP-020", (f"{INFO} version", f"{GOSSIP} current_round"), _reached),
    Relation("GR-SAME-003", ("network architecture.hidden_dim", f"{PASS} hidden"), _equal),
)


@dataclass
class Look:
    """What was read at one time, by the names of the resources, with what shows it."""

    documents: dict[str, dict[str, Json]]
    shown: dict[str, Shown]


def _look(context: Context, relations: Iterable[Relation]) -> Look:
    """Read what these relations are about."""
    look = Look({}, {})
    names = {path.split()[0] for relation in relations for path in relation.paths}
    for resource in RESOURCES:
        if resource.name in names:
            answer, document = fetch(context, resource)
            if document is not None:
                look.documents[resource.name], look.shown[resource.name] = document, answer
    for name, resource in OF_SECOND.items() if context.target.second_token else ():
        if name in names:
            answer = context.api("GET", resource.path, credential=context.target.second)
            document = answer.json_object() if answer.ok else None
            if document is not None:
                look.documents[name], look.shown[name] = document, answer
    shape = context.target.pipeline.get("hidden_shape")
    if PASS in names and isinstance(shape, list) and shape:
        look.documents[PASS] = {"hidden": shape[-1]}
    for operation, request in CALLS.items():
        message = None
        if operation in names:
            reply = context.grpc.call(operation, request)
            message = reply.message
        if message is not None and not getattr(message, "accepted", False):
            fields = [item.name for item in message.DESCRIPTOR.fields]
            look.documents[operation] = {name: getattr(message, name) for name in fields}
            look.shown[operation] = reply
    return look


def _compare(context: Context, relations: Iterable[Relation]) -> Pauses:
    """Rule on each of these relations whose values are shown."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    left = [relation for relation in relations if context.edition >= relation.since]
    for at in range(TRIES):
        look = _look(context, left)
        odd = list[Relation]()
        for relation in left:
            values = relation.values(look.documents)
            if values is not None and relation.fits(*values):
                context.holds(relation.ident, *relation.shown(look.shown))
            elif values is not None:
                odd.append(relation)
        again = _look(context, odd) if odd else look
        left = [one for one in odd if one.values(again.documents) == one.values(look.documents)]
        if not left:
            break
        if at < TRIES - 1:
            yield BETWEEN_S
    else:
        for relation in left:
            values = relation.values(look.documents) or ()
            pairs = zip(relation.paths, values, strict=True)
            why = "; ".join(f"{path.replace(' ', ': ')} is {brief(value)}" for path, value in pairs)
            context.fails(relation.ident, why, *relation.shown(again.shown))
    if not context.ruled_on() & {relation.ident for relation in relations}:
        raise Skipped("no two of these resources show the same thing")


@requirement(*(relation.ident for relation in NODE))
def said_of_node(context: Context) -> Pauses:
    """GET the resources of the node API that say the same, and compare them with one another."""
    yield from _compare(context, NODE)


@requirement(*(relation.ident for relation in TRAINING))
def said_of_training(context: Context) -> Pauses:
    """GET the training verification and what else shows training, and compare them."""
    yield from _compare(context, TRAINING)


@requirement(*(relation.ident for relation in OVER_GRPC))
def said_over_grpc(context: Context) -> Pauses:
    """Compare checkpoints and refusals of gradients with what is read over HTTP."""
    yield from _compare(context, OVER_GRPC)
