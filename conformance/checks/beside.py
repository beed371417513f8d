"""Interface 2.1 and 4.1: what several resources of the node API say of one thing.

The document names these things and says little of how they go together, so most of this is advice.
What may change meanwhile is read before and after; only what stands still is compared.
"""

from conformance.checks.node_reads import HEALTH, LAYERS, NETWORK, PEERS, STATUS
from conformance.checks.reading import Resource, fetch
from conformance.checks.training import GLOBAL, VERIFY
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number

HEALTHY, COUNTED, ONCE, SINCE, BELOW = (f"NA-SANE-{number:03d}" for number in range(64, 69))
LOSS, TRAINING, SHARE, WORKING, SHARDS, OWN_LOSS, OFF = (
    f"TR-RULE-{number:03d}" for number in range(31, 38)
)
READ: tuple[Resource, ...] = (HEALTH, NETWORK, PEERS, LAYERS, VERIFY)
MOVING: tuple[Resource, ...] = (STATUS, GLOBAL)
ROLES = ("driver", "worker", "validator")
# Losses may be rounded, or written in another precision.
NEAR, ROUNDED = 0.02, 0.01
# Of more nodes a rounded share does not show how many they are.
FEW_NODES = 20
# Between two readings of the peers, and how many there are.
APART_S, LOOKS = 1.1, 3
Seen = dict[str, tuple[Answer, dict[str, Json]]]


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * max(abs(one), abs(other))


def _number(seen: Seen, resource: Resource, path: str) -> float | None:
    """Return a number of a resource, or None."""
    found = lookup(seen[resource.name][1], path) if resource.name in seen else []
    return float(found[0]) if found and is_number(found[0]) else None


def _read(context: Context, resources: tuple[Resource, ...]) -> Seen:
    found = [(one.name, fetch(context, one)) for one in resources]
    return {name: (answer, shown) for name, (answer, shown) in found if shown is not None}


@requirement(HEALTHY, COUNTED, ONCE, SINCE, BELOW)
def resources_beside(context: Context) -> Pauses:
    """GET the status, the health, the network, the peers and the layers; compare them."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    seen = _read(context, (*READ[:-1], STATUS))
    if HEALTH.name in seen:
        answer, health = seen[HEALTH.name]
        states = _values(health.get("checks"))
        if states and set(map(str, states)) == {"ok"}:
            why = f"healthy is {brief(health.get('healthy'))} with {brief(health.get('checks'))}"
            context.judge(HEALTHY, health.get("healthy") is not False, why, answer)
    if NETWORK.name in seen and STATUS.name in seen:
        _judge_counted(context, seen)
    if PEERS.name in seen and STATUS.name in seen:
        _judge_peers(context, seen)
        yield from _judge_since(context, seen[PEERS.name])


def _values(checks: Json) -> list[Json]:
    return list(checks.values()) if isinstance(checks, dict) else []


def _judge_counted(context: Context, seen: Seen) -> None:
    """Rule on the nodes of the network, of which this is one, and each peer is another."""
    answer, network = seen[NETWORK.name]
    role = seen[STATUS.name][1].get("role")
    alike = _number(seen, NETWORK, f"nodes.{role}s") if role in ROLES else None
    total, peers = _number(seen, NETWORK, "nodes.total"), _number(seen, PEERS, "total")
    wrong = [f"there is no {role}, which this node is"] if alike == 0 else []
    if total is not None and peers is not None and total < peers:
        wrong.append(f"{peers:g} are peers of this one")
    why = f"of the nodes {brief(network.get('nodes'))}: {'; '.join(wrong)}"
    context.judge(COUNTED, not wrong, why, answer, seen[STATUS.name][0])


def _judge_peers(context: Context, seen: Seen) -> None:
    answer, listed = seen[PEERS.name]
    ids = [ident for ident in lookup(listed, "peers[].id") if isinstance(ident, str)]
    if ids:
        own = seen[STATUS.name][1].get("node_id")
        twice = sorted({ident for ident in ids if ids.count(ident) > 1 or ident == own})
        why = f"listed twice, or the node itself: {brief(twice)}"
        context.judge(ONCE, not twice, why, answer)
    total = _number(seen, LAYERS, "total_layers")
    held = [index for index in lookup(listed, "peers[].layers") if isinstance(index, list)]
    if held and total is not None:
        above = [index for each in held for index in each if is_int(index) and index > total]
        why = f"layers {brief(above)} of peers, of {total:g}"
        context.judge(BELOW, not above, why, answer, seen[LAYERS.name][0])


def _since(listed: Json) -> dict[str, Json]:
    """Return since when each peer is connected, by its ID."""
    rows = lookup(listed, "peers")
    entries = rows[0] if rows and isinstance(rows[0], list) else []
    return {str(row.get("id")): row.get("connected_since") for row in entries if _is_object(row)}


def _is_object(row: Json) -> bool:
    return isinstance(row, dict) and "id" in row


def _judge_since(context: Context, first: tuple[Answer, dict[str, Json]]) -> Pauses:
    """Rule on times since when peers are connected that move with each reading, of all peers."""
    seen = [first]
    while len(seen) < LOOKS and _since(seen[0][1]):
        yield APART_S
        answer, listed = fetch(context, PEERS)
        if listed is None:
            return
        seen.append((answer, listed))
    looks = [_since(listed) for _, listed in seen]
    same = [ident for ident in looks[0] if all(ident in look for look in looks)]
    if same and len(looks) == LOOKS:
        moving = [ident for ident in same if len({str(look[ident]) for look in looks}) == LOOKS]
        why = f"connected_since of {brief(moving)} is another time in each of {LOOKS} answers"
        context.judge(SINCE, len(moving) < len(same), why, *(answer for answer, _ in seen))


@requirement(LOSS, TRAINING, SHARE, WORKING, SHARDS, OWN_LOSS, OFF)
def training_beside(context: Context) -> None:
    """GET both verifications between two readings of the status, and compare their figures."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    seen, after = _read(context, (*MOVING, VERIFY, NETWORK)), _read(context, MOVING)
    if GLOBAL.name not in seen or GLOBAL.name not in after:
        raise Skipped("GET /training/global returned no object")
    answer, found = seen[GLOBAL.name]
    shards = [index for index in _list(found.get("data_shards_covered")) if is_int(index)]
    if shards:
        why = f"data_shards_covered is {brief(shards)}"
        context.judge(SHARDS, len(set(shards)) == len(shards), why, answer)
    _judge_nodes(context, seen)
    if found == after[GLOBAL.name][1]:
        _judge_quick(context, seen)
    if STATUS.name in seen and STATUS.name in after:
        _judge_own(context, seen, after)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _judge_nodes(context: Context, seen: Seen) -> None:
    """Rule on how many nodes train, and how many of them have one hash."""
    answer = seen[GLOBAL.name][0]
    many, total = (
        _number(seen, GLOBAL, "total_nodes_training"),
        _number(seen, NETWORK, "nodes.total"),
    )
    rate = _number(seen, GLOBAL, "hash_agreement_rate")
    if many is None:
        return
    if total is not None:
        why = f"total_nodes_training is {many:g}, and nodes.total {total:g}"
        context.judge(TRAINING, many <= total, why, answer, seen[NETWORK.name][0])
    if rate is not None and 1 <= many <= FEW_NODES:
        off = abs(rate * many - round(rate * many))
        why = f"hash_agreement_rate is {rate:g}, of {many:g} nodes"
        context.judge(SHARE, off <= ROUNDED * (many + 1), why, answer)


def _judge_quick(context: Context, seen: Seen) -> None:
    """Rule on the quick verification beside the global one, which stands still."""
    if VERIFY.name not in seen:
        return
    (answer, found), (quick_answer, quick) = seen[GLOBAL.name], seen[VERIFY.name]
    told = _number(seen, VERIFY, "metrics.global_loss")
    losses = [_number(seen, GLOBAL, f"global_{name}_loss") for name in ("min", "avg")]
    if told is not None and losses[0] is not None and losses[1] is not None:
        near = any(_near(told, loss) for loss in losses if loss is not None)
        held = near or losses[0] <= told <= losses[1]
        why = f"global_loss is {told:g}; the least is {losses[0]:g}, the average {losses[1]:g}"
        context.judge(LOSS, held, why, quick_answer, answer)
    keys = ("training_verified", "is_converging")
    if all(found.get(key) is True for key in keys) and found.get("hash_agreement_rate") == 1:
        why = f"is_working is {brief(quick.get('is_working'))}, and all is well"
        context.judge(WORKING, quick.get("is_working") is not False, why, quick_answer, answer)


def _judge_own(context: Context, seen: Seen, after: Seen) -> None:
    """Rule on what the node says of its own training, where it has not changed meanwhile."""
    answers = seen[GLOBAL.name][0], seen[STATUS.name][0]
    losses = [
        (_number(one, STATUS, "training.loss"), _number(one, GLOBAL, "local.current_loss"))
        for one in (seen, after)
    ]
    (shown, local), again = losses[0], losses[1]
    if losses[0] == again and shown is not None and local is not None:
        why = f"current_loss is {local:g}, and the loss of the status {shown:g}"
        context.judge(OWN_LOSS, _near(shown, local), why, *answers)
    off = [lookup(one[STATUS.name][1], "training.enabled") for one in (seen, after)]
    busy = [lookup(one[GLOBAL.name][1], "local.is_training") for one in (seen, after)]
    if off == [[False], [False]]:
        why = "is_training is true, and training.enabled false"
        context.judge(OFF, [True] not in busy, why, *answers)
