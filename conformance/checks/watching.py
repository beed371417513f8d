"""Interface 2.1 and 4.1: resources that are read several times in a row, which say one thing.

Two processes behind one address, a page whose order is drawn anew, or a clock that stands still
show themselves only to somebody who looks more than twice.
"""

import time
from datetime import UTC
from itertools import pairwise

from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.checks.history import rows_of
from conformance.checks.node_reads import CONFIG, METRICS, PROOFS, STATUS, TRANSACTIONS
from conformance.checks.node_sanity import STANDS_STILL_S, UPTIME_SLACK_S
from conformance.checks.reading import fetch, resource_ids
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import Pauses, requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int, is_number
from conformance.times import parse_timestamp

TIMES, PAGE, TRIES = 6, 8, 3
# The least time between the first reading of the uptime and the last.
APART_S = 5.0
# The first edition in which the second account reads what the first one has changed.
OTHERS_SINCE = 4
# Histories that are longer are not walked.
MOST = 1000
# So many rewards are not all of proofs that the node has forgotten.
ENOUGH = 3
# No longer is an order kept that is drawn by the clock.
DRAWN_S = 0.7
# Between two readings of the proofs.
BETWEEN_S = 0.15
# Bodies of generations that are refused.
REFUSED: tuple[dict[str, Json], ...] = (
    {"prompt": "Hello", "max_tokens": 0}, {"max_tokens": 1},
    {"prompt": "Hello", "max_tokens": 1, "temperature": 2.5},
)  # fmt: skip
# Longer than the smallest step of a time that is written in seconds.
LATER_S = 2.1


def _metrics(context: Context) -> tuple[Answer, dict[str, Json]]:
    answer, document = fetch(context, METRICS)
    if document is None:
        raise Skipped(f"GET /metrics returned no metrics, status {answer.status}")
    return answer, document


@requirement("NA-SANE-026", "NA-SANE-060", "NA-SANE-061")
def metrics_watched(context: Context) -> None:
    """POST /inference, and GET the metrics several times: neither figure nor time goes back."""
    # A number of requests that is zero does not show of which process it is.
    context.infer({"prompt": "Hello", "max_tokens": 1})
    looks = []
    for at in range(TIMES):
        looks.append(_metrics(context))
        if context.edition >= OTHERS_SINCE:
            # What is refused takes nothing back.
            context.infer(REFUSED[at % len(REFUSED)])
    answers = [answer for answer, _ in looks]
    totals = [found for _, look in looks for found in lookup(look, "inference.requests_total")]
    stamps = [look.get("timestamp") for _, look in looks]
    moments = [parse_timestamp(stamp) for stamp in stamps if isinstance(stamp, str)]
    times = [
        (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        for found in moments
        if found
    ]
    for what, values in (("requests_total", totals), ("timestamp", times)):
        if len(values) == TIMES and all(isinstance(value, int | float) for value in values):
            shown = totals if what == "requests_total" else stamps
            held = values == sorted(values)
            context.judge("NA-SANE-026", held, f"{what} {brief(shown, 160)}", *answers)


@requirement("NA-SANE-027", "NA-SANE-069")
def metrics_moving(context: Context) -> Pauses:
    """GET the metrics before and after a generation, some seconds apart."""
    first_answer, first = _metrics(context)
    asked = context.infer({"prompt": "Hello", "max_tokens": 1})
    if not asked.ok:
        raise Skipped(f"POST /inference was answered with status {asked.status}")
    yield LATER_S
    second_answer, second = _metrics(context)
    totals = [lookup(look, "inference.requests_total") for look in (first, second)]
    stamps = [look.get("timestamp") for look in (first, second)]
    if not all(totals) or totals[0] == totals[1] or not all(isinstance(s, str) for s in stamps):
        raise Skipped("the metrics are those of before")
    rate = lookup(second, "inference.requests_per_minute")
    if context.edition >= SIXTH and rate and is_number(rate[0]):
        why = f"requests_per_minute is {rate[0]}, requests_total went {brief(totals)}"
        context.judge("NA-SANE-069", rate[0] > 0, why, first_answer, asked, second_answer)
    why = f"timestamp is still {brief(stamps[0])}, requests_total went {brief(totals)}"
    shown = (first_answer, asked, second_answer)
    context.judge("NA-SANE-027", stamps[0] != stamps[1], why, *shown)


@requirement("NA-PATCH-113")
def config_watched(context: Context) -> None:
    """PATCH one key, and GET the configuration several times."""
    original = read_config(context)
    near = {path: values[0] for path, values in changeable(original).items()}
    current = flat(original)
    near = {path: value for path, value in near.items() if current.get(path) != value}
    if not near:
        raise Skipped("the configuration has none of the keys that the suite would change")
    try:
        for path, value in near.items():
            changed = patch(context, nested({path: value}))
            result = changed.json_object() or {}
            if not changed.ok or result.get("restart_required") is not False:
                continue
            if result.get("success") is not True:
                continue
            shown = [flat(read_config(context)).get(path) for _ in range(TIMES)]
            if context.edition >= OTHERS_SINCE:
                shown += _read_by_other(context, path)
            why = f"{path} was set to {brief(value)}, then it is {brief(shown)}"
            context.judge("NA-PATCH-113", all(one == value for one in shown), why, changed)
            break
    finally:
        restore(context, original)


def _read_by_other(context: Context, path: str) -> list[Json]:
    """Return a value of the configuration as the second account reads it, if it may."""
    answer = context.api("GET", CONFIG.path, credential=context.target.second)
    document = answer.json_object() if answer.ok else None
    return lookup(document, path) if document is not None else []


@requirement("NA-QUERY-013")
def history_watched(context: Context) -> Pauses:
    """GET a page of the history several times; its entries keep their order."""
    query: dict[str, object] = {"limit": PAGE, "offset": 0}
    answers = []
    for at in range(TIMES):
        if at == TIMES // 2 and context.edition >= FIFTH:
            # An order may be drawn anew with the time.
            yield DRAWN_S
        account = context.target.valid
        answers.append(context.api("GET", TRANSACTIONS.path, credential=account, query=query))
    documents = [answer.json_object() if answer.ok else None for answer in answers]
    pages = [[str(row.get("id")) for row in rows_of(document)] for document in documents]
    totals = [document.get("total") for document in documents if document]
    if len(totals) < TIMES or not pages[0] or not is_int(totals[0]) or len(set(totals)) > 1:
        raise Skipped("the history is growing, or there is none")
    turned = any(set(one) == set(pages[0]) and one != pages[0] for one in pages)
    back = any(
        ident not in page and any(ident in later for later in pages[at + 1 :])
        for at, page in enumerate(pages)
        for ident in pages[0]
    )
    why = f"one page of {totals[0]} entries, in turn: {brief(pages[:3], 160)}"
    context.judge("NA-QUERY-013", not (turned or back), why, *answers)


@requirement("NA-QUERY-015")
def proofs_watched(context: Context) -> Pauses:
    """GET the proofs several times; where they are the same ones, they keep their order."""
    answers = list[Answer]()
    for _ in range(TIMES):
        answers.append(context.api("GET", PROOFS.path, credential=context.target.valid))
        yield BETWEEN_S
    documents = [answer.json_object() if answer.ok else None for answer in answers]
    lists = [document.get("proofs") if document else None for document in documents]
    pages = [[brief(row, 1000) for row in one] for one in lists if isinstance(one, list)]
    if len(pages) < TIMES or len(pages[0]) < 2:
        raise Skipped("there are fewer than two proofs")
    same = [page for page in pages if sorted(page) == sorted(pages[0])]
    if len(same) < TIMES and context.edition >= SIXTH:
        _judge_common(context, pages, answers)
    if len(same) < TIMES:
        raise Skipped("the list is growing")
    why = f"the first of the same {len(pages[0])} proofs, in turn: {[page[0] for page in pages]}"
    context.judge("NA-QUERY-015", all(page == pages[0] for page in pages), why, *answers)


def _judge_common(context: Context, pages: list[list[str]], answers: list[Answer]) -> None:
    """Rule on the order of the proofs that are on two pages of a list that grows."""
    for (one, other), shown in zip(pairwise(pages), pairwise(answers), strict=True):
        both = set(one) & set(other)
        orders = [[row for row in page if row in both] for page in (one, other)]
        if len(both) > 1 and len(both) == len(orders[0]) == len(orders[1]):
            why = f"the {len(both)} proofs of two pages in a row have another order in each"
            context.judge("NA-QUERY-015", orders[0] == orders[1], why, *shown)


# A long page, and short ones that make it up.
LONG, SHORT = 20, 4


@requirement("NA-QUERY-014")
def history_walked(context: Context) -> None:
    """GET a long page of the history, and short ones that follow one another."""
    before = _page(context, LONG, 0)
    total = (before.json_object() or {}).get("total")
    whole = rows_of(before.json_object())
    if not is_int(total) or len(whole) < min(total, LONG):
        # The largest limit is not specified.
        raise Skipped(f"a page of {LONG} has {len(whole)} entries of {brief(total)}")
    pages = [_page(context, SHORT, offset) for offset in range(0, len(whole), SHORT)]
    after = _page(context, LONG, 0)
    if rows_of(after.json_object()) != whole:
        raise Skipped("the history is growing")
    walked = [row for page in pages for row in rows_of(page.json_object())]
    names = [[str(row.get("id")) for row in rows] for rows in (whole, walked[: len(whole)])]
    at = next((at for at, pair in enumerate(zip(*names, strict=False)) if pair[0] != pair[1]), None)
    held = names[0] == names[1]
    why = f"{len(names[1])} entries in pages of {SHORT}, {len(whole)} in one; entry {at} differs"
    context.judge("NA-QUERY-014", held, why, before, *pages, after)


def _page(context: Context, limit: int, offset: int) -> Answer:
    query: dict[str, object] = {"limit": limit, "offset": offset}
    return context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)


@requirement("NA-SANE-028")
def status_later(context: Context) -> None:
    """GET the node status once more, long after the first time: the uptime has grown as much."""
    if context.service.ran is None:
        # The node has been restarted since it was read, or nothing has read it.
        now_s, found = time.monotonic(), (fetch(context, STATUS)[1] or {}).get("uptime_seconds")
        if not is_int(found):
            raise Skipped("GET /status returned no uptime")
        context.service.ran = now_s, int(found)
    began, first = context.service.ran
    time.sleep(max(0.0, began + APART_S - time.monotonic()))
    gives_up = time.monotonic() + STANDS_STILL_S
    while True:
        passed_s = time.monotonic() - began
        answer, status = fetch(context, STATUS)
        found = (status or {}).get("uptime_seconds")
        if not is_int(found):
            raise Skipped(f"GET /status returned no uptime, status {answer.status}")
        held = found - first >= passed_s - UPTIME_SLACK_S
        # A node may answer from a cache for a while.
        if held or time.monotonic() > gives_up:
            break
        time.sleep(LATER_S / 2)
    why = f"uptime_seconds was {first}, and is {found:g} after {passed_s:.0f} s"
    context.judge("NA-SANE-028", held, why, answer)


@requirement("NA-QUERY-017", *resource_ids("transactions"))
def history_later(context: Context) -> None:
    """GET the history page by page after what the run has spent, up to its end and behind it."""
    for _ in range(TRIES):
        first = _page(context, LONG, 0).json_object() or {}
        total, shown, found = first.get("total"), list[Answer](), list[str]()
        if not is_int(total) or total > MOST:
            raise Skipped(f"the history has {brief(total)} entries")
        for offset in range(0, int(total) + LONG, LONG):
            shown.append(_page(context, LONG, offset))
            found += [str(row.get("id")) for row in rows_of(shown[-1].json_object())]
        if (_page(context, LONG, 0).json_object() or {}) == first:
            break
    else:
        raise Skipped("the history is growing")
    if len(rows_of(first)) < min(total, LONG):
        # The largest limit is not specified.
        raise Skipped(f"a page of {LONG} has {len(rows_of(first))} entries of {total:g}")
    why = f"total is {total:g}, and pages of {LONG} have {len(found)} entries, with the one behind"
    context.judge("NA-QUERY-017", len(found) == total, why, *shown)


@requirement("NA-SANE-029")
def rewards_named(context: Context) -> None:
    """GET the proofs and the history, and look for the proofs of the rewards."""
    answer, document = fetch(context, PROOFS)
    made = lookup(document, "stats.total_submitted")
    many = int(made[0]) if made and is_int(made[0]) else 0
    if not 0 < many <= MOST:
        raise Skipped(f"there are {many} proofs")
    query: dict[str, object] = {"limit": many}
    answer = context.api("GET", PROOFS.path, credential=context.target.valid, query=query)
    proofs = {str(ident) for ident in lookup(answer.json_object(), "proofs[].id")}
    listed = _page(context, LONG, 0)
    named = lookup(listed.json_object(), "transactions[type=reward].details.proof_id")
    if len(proofs) < many or len(named) < ENOUGH:
        raise Skipped(f"{len(proofs)} of {many} proofs are listed, and {len(named)} rewards")
    why = f"of {len(named)} rewards none names one of {many} proofs: {brief(named[:3])}"
    context.judge("NA-SANE-029", not proofs.isdisjoint(map(str, named)), why, answer, listed)
