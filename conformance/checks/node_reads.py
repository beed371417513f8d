"""Interface 2.1 and 4.1: the readable resources of the node API, field by field."""

import re
from datetime import date

from conformance.checks.clock import judge_past
from conformance.checks.reading import Resource, add_shape_check, fetch
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.httpwire import Answer
from conformance.passive.growing import judge_gradients
from conformance.shapes import judge_shape, lookup
from conformance.strictjson import Json, brief, is_int, is_number
from conformance.times import date_fault

_HOST_PORT = re.compile(r".+:\d{1,5}\Z", re.ASCII)
# The first edition for which a URL is no address.
NO_URL_SINCE = 4
_NOT_A_HOST = re.compile(r"[/@\s]")

STATUS = Resource("status", "/status", "NA-ROUTE-001", auth=False)
METRICS = Resource("metrics", "/metrics", "NA-ROUTE-002", auth=False)
# An unhealthy node may answer with an error status too; the document does not say which.
HEALTH = Resource("health", "/health", "NA-ROUTE-003", auth=False, mark="healthy")
BALANCE = Resource("balance", "/wallet/balance", "NA-ROUTE-005", auth=True)
TRANSACTIONS = Resource("transactions", "/wallet/transactions", "NA-ROUTE-007", auth=True)
PEERS = Resource("peers", "/peers", "NA-ROUTE-010", auth=True)
LAYERS = Resource("layers", "/layers", "NA-ROUTE-011", auth=True)
NETWORK = Resource("network", "/network", "NA-ROUTE-012", auth=False)
CONFIG = Resource("config", "/config", "NA-ROUTE-013", auth=True)
PROOFS = Resource("proofs", "/proofs", "NA-ROUTE-015", auth=True)

# How many entries to read from the end of the history, and on a page longer than the default.
OLDEST, LONG_PAGE = 5, 100
# The first edition that reads all proofs.
WHOLE_SINCE = 4
# The routes marked Auth that a GET reads.
AUTH_READS = (BALANCE, TRANSACTIONS, PEERS, LAYERS, CONFIG, PROOFS)


def _status(context: Context, status: dict[str, Json], answer: Answer) -> None:
    context.holds("GEN-013", answer)
    context.observe("GEN-005", f"role {brief(status.get('role'))}", answer)
    context.observe("NA-SANE-010", f"status {brief(status.get('status'))}", answer)
    if isinstance(status.get("version"), str):
        context.judge("GEN-014", bool(status["version"]), "the version is empty", answer)
    layers = status.get("layers")
    if isinstance(layers, list) and all(is_int(index) for index in layers):
        context.judge(
            "GEN-007", len(set(layers)) == len(layers), f"layers is {brief(layers)}", answer
        )


def _health(context: Context, health: dict[str, Json], answer: Answer) -> None:
    context.observe(
        "NA-SANE-011", f"status {answer.status}, checks {brief(health.get('checks'))}", answer
    )
    if health.get("healthy") is True:
        why = f"healthy is true, with status {answer.status}"
        context.judge("NA-SAME-011", answer.ok, why, answer)


def _metrics(context: Context, metrics: dict[str, Json], answer: Answer) -> None:
    judge_gradients(context, metrics, answer)


def _network(context: Context, network: dict[str, Json], answer: Answer) -> None:
    found = [
        lookup(network, f"nodes.{name}") for name in ("drivers", "workers", "validators", "total")
    ]
    if all(len(one) == 1 and is_int(one[0]) for one in found):
        *roles, total = (int(one[0]) for one in found)
        why = f"nodes.total is {total}, and by their roles there are {sum(roles)}"
        context.judge("NA-SANE-045", sum(roles) <= total, why, answer)


def _balance(context: Context, balance: dict[str, Json], answer: Answer) -> None:
    parts = [
        lookup(balance, f"balances.{name}") for name in ("available", "staked", "pending", "total")
    ]
    if all(len(found) == 1 and is_number(found[0]) for found in parts):
        available, staked, pending, total = (found[0] for found in parts)
        equal = abs(available + staked + pending - total) <= 1e-6 * max(1.0, abs(total))
        context.observe("NA-SANE-009", "it is the sum" if equal else "it is not the sum", answer)
    staking = balance.get("staking")
    if isinstance(staking, dict) and is_number(staking.get("amount")) and staking["amount"] > 0:
        judge_term(context, "NA-WALLET-009", staking, answer)


def judge_term(
    context: Context, ident: str, staking: dict[str, Json], answer: Answer, slack_days: int = 1
) -> None:
    """Rule on the dates of what is staked: they are as far apart as it is locked."""
    start, unlock, days = (
        day(staking.get("start_date")), day(staking.get("unlock_date")),
        staking.get("duration_days"),
    )  # fmt: skip
    if start and unlock and is_int(days):
        apart = (unlock - start).days
        why = f"{start} and {days} days give {unlock}"
        context.judge(ident, abs(apart - days) <= slack_days, why, answer)


def day(value: Json) -> date | None:
    """Return a date, or None if it is none."""
    fits = isinstance(value, str) and date_fault(value) is None
    return date.fromisoformat(value) if fits else None


def _transactions(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    _kinds(context, "NA-SEEN-001", listed, "transactions[].type", answer)
    judge_past(context, "timestamps", lookup(listed, "transactions[].timestamp"), answer)
    judge_sends(context, listed, answer)
    _judge_older(context, listed)
    entries, total = listed.get("transactions"), listed.get("total")
    if isinstance(entries, list) and is_int(total):
        context.judge(
            "NA-QUERY-006",
            total >= len(entries),
            f"total is {total} with {len(entries)} entries",
            answer,
        )


def _judge_older(context: Context, listed: dict[str, Json]) -> None:
    """Rule on kinds of entries that only a longer page shows, if the target returns one."""
    entries, total = listed.get("transactions"), listed.get("total")
    if not (isinstance(entries, list) and is_int(total) and total > len(entries)):
        return
    query: dict[str, object] = {"limit": min(int(total), LONG_PAGE)}
    credential = context.target.valid
    answer = context.api("GET", TRANSACTIONS.path, credential=credential, query=query)
    longer = answer.json_object() if answer.ok else None
    if longer is not None:
        judge_shape(context, TRANSACTIONS.name, longer, answer)


def judge_sends(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    """Rule on the amounts of sends to other accounts; the other sends are incoming."""
    balance_answer, balance = fetch(context, BALANCE)
    own = balance.get("address") if balance else None
    if not isinstance(own, str):
        return
    out, total = _outgoing(listed, own), listed.get("total")
    if not out and is_int(total) and total > OLDEST:
        # The suite's own transfers may have filled the page; the oldest entries are others.
        query: dict[str, object] = {"limit": OLDEST, "offset": int(total) - OLDEST}
        credential = context.target.valid
        answer = context.api("GET", TRANSACTIONS.path, credential=credential, query=query)
        out = _outgoing(answer.json_object() if answer.ok else None, own)
    if out:
        positive = [amount for amount in out if amount > 0]
        why = f"amounts {brief(positive)}"
        context.judge("NA-QUERY-007", not positive, why, answer, balance_answer)


def _outgoing(listed: Json, own: str) -> list[float]:
    """Return the amounts of sends to others.

    A target may list what it received as a send, too; the document does not say.
    """
    entries = listed.get("transactions") if isinstance(listed, dict) else None
    return [
        float(entry["amount"])
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("type") == "send"
        if isinstance(entry.get("to"), str) and entry["to"] != own
        if is_number(entry.get("amount"))
    ]


def _peers(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    peers, total = listed.get("peers"), listed.get("total")
    judge_past(context, "connected_since", lookup(listed, "peers[].connected_since"), answer)
    if isinstance(peers, list) and is_int(total):
        context.judge(
            "NA-SANE-007",
            total == len(peers),
            f"total is {total}, but {len(peers)} are listed",
            answer,
        )
    held = [item for item in lookup(listed, "peers[].layers") if isinstance(item, list)]
    twice = [item for item in held if len({brief(index) for index in item}) < len(item)]
    if held:
        context.judge("GEN-007", not twice, f"layers {brief(twice)}", answer)
    late = [item for item in lookup(listed, "peers[].latency_ms") if is_number(item)]
    if late and context.edition >= FOURTH:
        why = f"of the latencies {brief(late)} one is below 0"
        context.judge("NA-SANE-047", min(late) >= 0, why, answer)
    addresses = [item for item in lookup(listed, "peers[].address") if isinstance(item, str)]
    if addresses:
        wrong = [address for address in addresses if not _HOST_PORT.match(address)]
        if context.edition >= NO_URL_SINCE:
            wrong += [address for address in addresses if _NOT_A_HOST.search(address)]
        context.judge("NA-SANE-008", not wrong, f"addresses {brief(wrong)}", answer)


def _kinds(context: Context, ident: str, listed: Json, path: str, answer: Answer) -> None:
    found = sorted({str(value) for value in lookup(listed, path)})
    context.observe(ident, f"{path}: {', '.join(found) or 'none'}", answer)


def _layers(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    _kinds(context, "ST-006", listed, "layers[].status", answer)
    _kinds(context, "NA-SEEN-002", listed, "layers[].type", answer)


def _proofs(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    _kinds(context, "NA-SEEN-003", listed, "proofs[].type", answer)
    if context.edition >= WHOLE_SINCE:
        listed, answer = _all_proofs(context, listed, answer)
    entries, made = listed.get("proofs"), lookup(listed, "stats.total_submitted")
    good = lookup(listed, "stats.total_verified")
    if isinstance(entries, list) and made and good and made[0] == len(entries):
        # The page has all of them.
        verified = sum(lookup({"p": entry}, "p.verified") == [True] for entry in entries)
        why = f"{verified} of {len(entries)} are verified, total_verified is {good[0]}"
        context.judge("NA-SANE-018", verified == good[0], why, answer)
        _judge_rewards(context, listed, answer)
    judge_past(context, "timestamps", lookup(listed, "proofs[].timestamp"), answer)


def _all_proofs(
    context: Context, listed: dict[str, Json], answer: Answer
) -> tuple[dict[str, Json], Answer]:
    """Return a page that has as many proofs as there are, if the target returns one."""
    entries, made = listed.get("proofs"), lookup(listed, "stats.total_submitted")
    many = int(made[0]) if made and is_int(made[0]) else 0
    if isinstance(entries, list) and len(entries) < many <= LONG_PAGE:
        credential = context.target.valid
        longer = context.api("GET", PROOFS.path, credential=credential, query={"limit": many})
        document = longer.json_object() if longer.ok else None
        if document is not None:
            return document, longer
    return listed, answer


def _judge_rewards(context: Context, listed: dict[str, Json], answer: Answer) -> None:
    """Rule on the sum of the rewards of all proofs; some of them may be paid later, or never."""
    rewards = [value for value in lookup(listed, "proofs[].reward") if is_number(value)]
    total = lookup(listed, "stats.total_reward")
    if total and is_number(total[0]) and len(rewards) == len(listed["proofs"]):
        most = sum(rewards)
        why = f"total_reward is {total[0]}, the rewards of all proofs are {most:g}"
        held = total[0] <= most + 1e-6 * max(1.0, abs(most))
        context.judge("NA-SANE-024", held, why, answer)


add_shape_check(STATUS, "GEN-005", "GEN-007", "GEN-013", "GEN-014", "NA-SANE-010", extra=_status)
add_shape_check(METRICS, "NA-SANE-048", extra=_metrics)
add_shape_check(HEALTH, "NA-SANE-011", "NA-SAME-011", extra=_health)
add_shape_check(NETWORK, "NA-SANE-045", extra=_network)
add_shape_check(BALANCE, "NA-SANE-009", "NA-WALLET-009", extra=_balance)
add_shape_check(
    TRANSACTIONS, "NA-QUERY-006", "NA-QUERY-007", "NA-SEEN-001", "GEN-019", extra=_transactions
)
add_shape_check(
    PEERS, "NA-SANE-007", "NA-SANE-008", "NA-SANE-047", "GEN-007", "GEN-019", extra=_peers
)
add_shape_check(LAYERS, "ST-006", "NA-SEEN-002", extra=_layers)
add_shape_check(CONFIG)
add_shape_check(PROOFS, "NA-SEEN-003", "GEN-019", "NA-SANE-018", "NA-SANE-024", extra=_proofs)
