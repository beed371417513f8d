"""Plausibility of the resources of interface 2.1, the two ports, and the pages of two lists.

Values that may change between requests are compared by sampling two endpoints as A, B, A: the
comparison counts only if both samples of A are the same.
"""

import time
from datetime import datetime
from itertools import product

from conformance.checks.clock import judge_now
from conformance.checks.node_reads import (
    CONFIG,
    LAYERS,
    METRICS,
    NETWORK,
    PEERS,
    PROOFS,
    STATUS,
    TRANSACTIONS,
)
from conformance.checks.reading import ABSENT, Resource, fetch
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.steady import READINGS
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number
from conformance.target import GRPC_PORT_OFFSET
from conformance.times import parse_timestamp

# The server failed; a 503 says that it cannot serve anybody now.
FAILED = (500, 502, 504)
# How long to wait between two readings of the uptime, and how far apart they may then be.
UPTIME_S, UPTIME_SLACK_S = 1.1, 2.0
# More entries than a page of many nodes has; a node may refuse so high a limit.
MANY = 25
# How long to wait once more where the uptime has grown by more than the time; since this edition,
# which also asks for so many entries.
LONGER_S, LONGER_SINCE = 5.0, 4
# How often the time of the metrics is read once more, at early and later parts of a second.
STAMPS, STAMPS_APART_S = 24, 0.045
# Longer than a node keeps an answer, for an uptime that stands still.
STANDS_STILL_S = 20.0
# How often the peers are compared where two routes count them differently.
PEERS_TRIES = 3
# No process runs for so long, but the calendar of its clock does.
DECADES_S = 40 * 365 * 86400


def _must_read(context: Context, resource: Resource) -> tuple[Answer, dict[str, Json]]:
    answer, document = fetch(context, resource)
    if document is None:
        raise Skipped(f"GET {resource.path} returned no resource, status {answer.status}")
    return answer, document


@requirement(
    "NA-SANE-001", "NA-SANE-002", "NA-SANE-016", "NA-SANE-023", "NA-SANE-028", "NA-SANE-044",
    "NA-SANE-062",
)  # fmt: skip
def status_sane(context: Context) -> Pauses:
    """GET the node status twice, a second apart, and remember when it was."""
    began = time.monotonic()
    first_answer, first = _must_read(context, STATUS)
    yield UPTIME_S
    second_answer, second = _must_read(context, STATUS)
    before, after = first.get("uptime_seconds"), second.get("uptime_seconds")
    if is_int(before) and is_int(after):
        context.service.ran = began, int(before)
        more_s = after - before - (time.monotonic() - began)
        if context.edition >= LONGER_SINCE and more_s > 0.5:
            # The first answer came from a cache, or the node counts too fast.
            yield LONGER_S
            second_answer, second = _must_read(context, STATUS)
            found = second.get("uptime_seconds")
            after = found if is_int(found) else after
        context.judge(
            "NA-SANE-001",
            after >= before,
            f"uptime_seconds went from {before} to {after}",
            first_answer,
            second_answer,
        )
        passed_s = time.monotonic() - began
        context.judge(
            "NA-SANE-016",
            after - before <= passed_s + UPTIME_SLACK_S,
            f"uptime_seconds went from {before} to {after} in {passed_s:.1f} s",
            first_answer,
            second_answer,
        )
        context.judge("NA-SANE-044", after < DECADES_S, f"uptime_seconds is {after}", second_answer)
        yield from _judge_running(context, began, before, second_answer, after)
    ids = (first.get("node_id"), second.get("node_id"))
    if all(isinstance(ident, str) for ident in ids):
        context.judge(
            "NA-SANE-002", ids[0] == ids[1], f"node_id {brief(ids)}", first_answer, second_answer
        )


def _judge_running(
    context: Context, began: float, before: float, answer: Answer, after: float
) -> Pauses:
    """Rule on whether the uptime counts seconds; a node may answer from a cache for a while."""
    while after == before and time.monotonic() < began + STANDS_STILL_S:
        yield UPTIME_S
        answer, document = _must_read(context, STATUS)
        found = document.get("uptime_seconds")
        after = found if is_int(found) else after
    why = f"uptime_seconds is {before} for {time.monotonic() - began:.0f} s"
    context.judge("NA-SANE-023", after != before, why, answer)


@requirement("NA-SANE-012", "NA-SANE-013", "GEN-019")
def metrics_sane(context: Context) -> Pauses:
    """GET the metrics twice, and some more times within a second."""
    first_answer, first = _must_read(context, METRICS)
    second_answer, second = _must_read(context, METRICS)
    totals = [lookup(look, "inference.requests_total") for look in (first, second)]
    slowest = lookup(second, "inference.p99_latency_ms")
    if all(found and is_int(found[0]) for found in totals) and slowest and is_number(slowest[0]):
        context.judge(
            "NA-SANE-012",
            totals[1][0] >= totals[0][0] and slowest[0] >= 0,
            f"requests_total {brief(totals)}, p99_latency_ms {brief(slowest)}",
            first_answer,
            second_answer,
        )
    stamps = [look.get("timestamp") for look in (first, second)]
    moments = [parse_timestamp(stamp) for stamp in stamps if isinstance(stamp, str)]
    if len(moments) == 2 and moments[0] and moments[1]:
        if (moments[0].tzinfo is None) != (moments[1].tzinfo is None):
            raise Skipped("one timestamp has a time zone and the other has none")
        context.judge(
            "NA-SANE-013",
            moments[1] >= moments[0],
            f"timestamps {brief(stamps)}",
            first_answer,
            second_answer,
        )
        if moments[1] > moments[0]:
            # A time that moves is that of the answer; one that stands still is that of a cache.
            judge_now(context, "timestamp", stamps[1], second_answer)
        if context.edition >= FOURTH:
            yield from _stamps_rise(context)


def _stamps_rise(context: Context) -> Pauses:
    """Read the time of the metrics at all parts of a second, as it may be written in each."""
    latest: datetime | None = None
    for _ in range(STAMPS):
        answer, document = fetch(context, METRICS)
        stamp = document.get("timestamp") if document else None
        moment = parse_timestamp(stamp) if isinstance(stamp, str) else None
        if moment is None or (latest and (moment.tzinfo is None) != (latest.tzinfo is None)):
            return
        if latest is not None:
            why = f"timestamp {brief(stamp)} after {latest.isoformat()}"
            context.judge("NA-SANE-013", moment >= latest, why, answer)
            if context.edition >= SIXTH and moment > latest:
                # Two readings may be of one second, and these are not all of them.
                judge_now(context, "timestamp", stamp, answer)
        latest = moment
        yield STAMPS_APART_S


@requirement("NA-SANE-003", "NA-SANE-017")
def config_sane(context: Context) -> None:
    """Compare the status with the configuration, sampled A, B, A."""
    before, status = _must_read(context, STATUS)
    answer, config = _must_read(context, CONFIG)
    _, again = _must_read(context, STATUS)
    looks = [lookup(look, "training.enabled") for look in (status, again, config)]
    if looks[0] == looks[1] and all(found and isinstance(found[0], bool) for found in looks):
        context.judge(
            "NA-SANE-017", looks[0] == looks[2], f"training.enabled {brief(looks)}", before, answer
        )
    if isinstance(status.get("node_id"), str) and isinstance(config.get("node_id"), str):
        context.judge(
            "NA-SANE-003",
            status["node_id"] == config["node_id"],
            f"{brief(status['node_id'])} and {brief(config['node_id'])}",
            before,
            answer,
        )


@requirement("NA-SANE-050", "NA-SAME-008")
def peers_sane(context: Context) -> Pauses:
    """Compare the list of peers with what the status counts, sampled A, B, A."""
    if context.edition >= SIXTH:
        # Each reading of a run is compared with those before.
        for _ in range(READINGS):
            _must_read(context, NETWORK)
            _must_read(context, PEERS)
            yield UPTIME_S
    for _ in range(PEERS_TRIES):
        _, before = _must_read(context, STATUS)
        answer, listed = _must_read(context, PEERS)
        after_answer, after = _must_read(context, STATUS)
        count, total = after.get("peer_count"), listed.get("total")
        if not is_int(count) or not is_int(total):
            return
        if count == total or count != before.get("peer_count"):
            break
        # A node may count them from time to time.
        yield UPTIME_S
    if count == before.get("peer_count"):
        why = f"the total of the peers is {total}, and peer_count in the status is {count}"
        context.judge("NA-SANE-050", count == total, why, answer, after_answer)


@requirement("GEN-001")
def grpc_port(context: Context) -> None:
    """Compare the two ports that the configuration names."""
    answer, config = _must_read(context, CONFIG)
    port, grpc_port = config.get("port"), config.get("grpc_port")
    if is_int(port) and is_int(grpc_port):
        context.judge(
            "GEN-001",
            grpc_port == port + GRPC_PORT_OFFSET,
            f"port is {port} and grpc_port is {grpc_port}",
            answer,
        )


@requirement("NA-SANE-005", "NA-SANE-006", "NA-SANE-019", "NA-SANE-021", "NA-SANE-025")
def layers_sane(context: Context) -> None:
    """Compare the layer list with the layers of the status, sampled A, B, A."""
    _, before = _must_read(context, STATUS)
    answer, listed = _must_read(context, LAYERS)
    after_answer, after = _must_read(context, STATUS)
    held, count = before.get("layers"), listed.get("my_layer_count")
    if isinstance(held, list) and held == after.get("layers") and is_int(count):
        context.judge(
            "NA-SANE-005",
            count == len(held),
            f"my_layer_count is {count}, but the status lists {brief(held)}",
            answer,
            after_answer,
        )
    indices = [index for index in lookup(listed, "layers[].index") if is_int(index)]
    if isinstance(held, list) and held == after.get("layers") and indices:
        lacking = [index for index in held if index not in indices]
        why = f"the status has {brief(held)}, the list has {brief(indices)}"
        context.judge("NA-SANE-025", not lacking, why, answer, after_answer)
    total = listed.get("total_layers")
    entries = listed.get("layers")
    if isinstance(entries, list) and is_int(count) and is_int(total):
        # The document does not say whether the list has this node's layers or all of them.
        why = f"{len(entries)} layers are listed, {count} are this node's, {total} are all"
        context.judge("NA-SANE-019", len(entries) in (count, total), why, answer)
    network_answer, network = fetch(context, NETWORK)
    deep = lookup(network, "architecture.layers")
    if deep and is_int(deep[0]) and is_int(total):
        why = f"architecture.layers is {deep[0]}, total_layers is {total}"
        context.judge("NA-SANE-021", deep[0] == total, why, network_answer, answer)
    if indices and is_int(total):
        context.judge(
            "NA-SANE-006",
            # The document does not say whether the first index is 0 or 1.
            len(set(indices)) == len(indices) <= total
            and all(0 <= index <= total for index in indices),
            f"indices {brief(indices)} of {total}",
            answer,
        )


@requirement(
    "NA-QUERY-001",
    "NA-QUERY-002",
    "NA-QUERY-003",
    "NA-QUERY-004",
    "NA-QUERY-005",
    "NA-QUERY-016",
)
def query_limits(context: Context) -> None:
    """Request short pages of transactions and proofs, and pages whose limit is no number."""
    pages = ((1, 0), (2, 1), (5, 0), (MANY, 0))
    for limit, offset in pages if context.edition >= LONGER_SINCE else pages[:-1]:
        answer, document = _judge_page(
            context, TRANSACTIONS.path, {"limit": limit, "offset": offset},
            taken="NA-QUERY-001", short="NA-QUERY-002",
        )  # fmt: skip
        shown = document.get("offset") if document else None
        if is_int(shown):
            context.judge("NA-QUERY-003", shown == offset, f"offset {shown} for {offset}", answer)
    limits = (1, 5, MANY) if context.edition >= LONGER_SINCE else (1, 5)
    for limit in limits:
        _judge_page(
            context, PROOFS.path, {"limit": limit}, taken="NA-QUERY-004", short="NA-QUERY-005"
        )
    for path, word in product(("/wallet/transactions", "/proofs"), ("many", "-1", "")):
        query: dict[str, object] = {"limit": word}
        answer = context.api("GET", path, credential=context.target.valid, query=query)
        why = f"GET {path}?limit={word}: status {answer.status}"
        context.judge("NA-QUERY-016", answer.status not in FAILED, why, answer)


def _judge_page(
    context: Context, path: str, query: dict[str, object], *, taken: str, short: str
) -> tuple[Answer, dict[str, Json] | None]:
    """Rule on a page whose query has a limit; return the answer, and the object in it or None."""
    answer = context.api("GET", path, credential=context.target.valid, query=query)
    limit, key = int(str(query["limit"])), path.rpartition("/")[2]
    document = answer.json_object() if answer.ok else None
    if document is None:
        # Whether the route exists is a requirement of its own.
        if answer.status in (400, 422) and limit < MANY:
            context.fails(taken, f"status {answer.status} to limit={limit}", answer)
        elif answer.status in ABSENT and context.edition >= LONGER_SINCE:
            plain = context.api("GET", path, credential=context.target.valid)
            why = f"GET {path} is found without a query, and with one its status is {answer.status}"
            if plain.ok:
                context.fails(taken, why, plain, answer)
        return answer, None
    context.holds(taken, answer)
    entries = document.get(key)
    if isinstance(entries, list):
        context.judge(
            short, len(entries) <= limit, f"{len(entries)} entries for limit={limit}", answer
        )
    return answer, document
