"""Interface 4.1: pages of the history with drawn limits and offsets, with one of them or with both.

The largest limit is not shown, so that a page may be shorter than its limit, or refused, where no
page so long has been seen; and one behind the end may be refused, too. A page counts only if the
whole was the same before it and after it. Of a long history the newest entries are the whole, and
what a page has beyond them is not looked at.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.checks.history import rows_of
from conformance.checks.money import TRIES
from conformance.checks.node_reads import PROOFS, TRANSACTIONS
from conformance.context import Context
from conformance.editions import FIFTH, FOURTH
from conformance.findings import Skipped
from conformance.httprequest import Credential
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int, is_number

# Entries of one page of the whole, and the most that is read of a history.
PAGE, MOST = 10, 120
DRAWS = 6
REFUSED = (400, 404, 422)
Query = dict[str, object]


Page = tuple[Answer, list[str], int]


def _page(context: Context, account: Credential, query: Query) -> Page:
    """Read a page: its answer, the ids on it, and its total."""
    return _read(context.api("GET", TRANSACTIONS.path, credential=account, query=query or None))


def _read(answer: Answer) -> Page:
    document = answer.json_object() if answer.ok else None
    total = (document or {}).get("total")
    if document is None or not is_int(total):
        raise Skipped(f"GET /wallet/transactions was answered with status {answer.status}")
    return answer, [str(row.get("id")) for row in rows_of(document)], int(total)


@dataclass(frozen=True)
class History:
    """The ids of the newest entries, which may be all, and how many there are."""

    ids: list[str]
    total: int


def _whole(context: Context, account: Credential) -> History:
    """Read all pages, or the first; raise `Skipped` if they are not as long as they should be."""
    found, total = list[str](), 1
    while len(found) < min(total, MOST):
        _, rows, total = _page(context, account, {"limit": PAGE, "offset": len(found)})
        if len(rows) < min(PAGE, total - len(found)):
            raise Skipped(f"a page of {PAGE} has {len(rows)} entries of {total}")
        found += rows
    return History(found, total)


def _drawn(context: Context, account: Credential, query: Query, total: int) -> Page | None:
    """Read a drawn page; None if it is refused, which violates the rule within the list."""
    answer = context.api("GET", TRANSACTIONS.path, credential=account, query=query)
    if answer.status not in REFUSED:
        return _read(answer)
    start, limit = (int(str(query.get(key, 0))) for key in ("offset", "limit"))
    if start < total and limit <= PAGE:
        context.fails("NA-QUERY-018", f"the page of {query} is refused: {answer.status}", answer)
    return None


def _draws(context: Context, total: int) -> Iterator[Query]:
    source = random.Random(context.target.seed)  # noqa: S311
    for at in range(DRAWS):
        # At the ends, between them and, where there is a limit too, behind them.
        offset, limit = (
            source.choice(ends) for ends in (
                (1, total // 2, total - 1, *(total, total + 1) * bool(at % 3)),
                (1, 2, 3, 7, PAGE, total, total + 1),
            )
        )  # fmt: skip
        query: Query = {"limit": max(limit, 1), "offset": max(offset, 0)}
        # One in three has no limit, and one in three no offset.
        if at % 3 < 2:
            query.pop(("limit", "offset")[at % 3])
        yield query


def _fault(query: Query, whole: History, rows: list[str], total: int) -> str | None:
    start, limit = int(str(query.get("offset", 0))), query.get("limit")
    expected = whole.ids[start : start + len(rows)]
    most = min(whole.total - start, int(str(limit))) if limit is not None else None
    if total != whole.total:
        return f"total is {total} of {whole.total} entries"
    if rows != expected and (len(whole.ids) == total or rows[: len(expected)] != expected):
        at = next(at for at, row in enumerate(rows) if expected[at : at + 1] != [row])
        return f"entry {at} is {brief(rows[at])}, not {brief(expected[at : at + 1])}"
    if most is not None and len(rows) > max(most, 0):
        return f"it has {len(rows)} entries"
    # So many entries have been seen on a page, so that they fit on one.
    least = min(most, PAGE) if most is not None else min(whole.total - start, 1)
    return f"it has {len(rows)} entries of {whole.total}" if len(rows) < least else None


@requirement("NA-QUERY-010", "NA-QUERY-018", "NA-QUERY-020")
def mixed_pages(context: Context) -> None:
    """GET pages of the history with drawn limits and offsets, and compare each with the whole."""
    _judge_none(context)
    if context.edition >= FIFTH:
        _judge_default(context)
    for account in dict.fromkeys((context.target.valid, context.target.second)):
        turned = 0
        for _ in range(TRIES):
            whole = _whole(context, account)
            drawn = [
                (query, page)
                for query in _draws(context, len(whole.ids))
                if (page := _drawn(context, account, query, whole.total)) is not None
            ]
            after = _whole(context, account)
            if after == whole:
                _judge(context, whole, drawn)
                break
            turned += sorted(after.ids) == sorted(whole.ids)
        else:
            if turned < TRIES:
                raise Skipped("the history is growing")
            why = f"the same {len(whole.ids)} entries change places from one reading to the next"
            context.fails("NA-QUERY-018", why, *(page[0] for _, page in drawn))


@requirement("NA-QUERY-019", "NA-PROOFS-002", "NA-PROOFS-023", "NA-PROOFS-036")
def mixed_proofs(context: Context) -> None:
    """GET proofs with long and short limits by turns: a long page is as long as it was before."""
    source = random.Random(context.target.seed)  # noqa: S311
    # Whichever check has asked for it.
    most = context.service.heard.memory.proofs.get(context.target.valid, 0)
    _, many = _proofs(context, MOST)
    usual = _proofs(context, None)
    # Of pages without any proof what the answers hold is judged.
    for account, query in ((context.target.valid, {"limit": 0}), (context.target.second, {})):
        context.api("GET", PROOFS.path, credential=account, query={**query} or None)
    # A limit that is just the number of all of them, and one that is above it.
    whole = many if many > 0 else PAGE
    most = max(most, many)
    limits = [PAGE, *source.sample((1, 2, 3, 7), 3), whole, PAGE, 1, whole + 1, whole, PAGE]
    short: list[tuple[int, int, Answer]] = []
    for limit in limits * TRIES:
        answer, length = _proofs(context, limit)
        if length < 0:
            raise Skipped(f"GET /proofs was answered with status {answer.status}")
        most = max(most, length)
        if length < min(limit, most):
            short.append((limit, length, answer))
    if context.edition >= FOURTH:
        _judge_unlimited(context, *usual)
    if context.edition >= FIFTH:
        _judge_statistics(context)
    if len(short) >= TRIES:
        limit, length, answer = short[-1]
        why = f"limit={limit} has {length} proofs, where a page of {most} has been read before"
        context.fails("NA-QUERY-019", why, *(answer for _, _, answer in short[-TRIES:]))
    elif not short and most:
        context.holds("NA-QUERY-019", answer)


def _proofs(context: Context, limit: int | None) -> tuple[Answer, int]:
    """GET a page of proofs; return its length, -1 if there is none."""
    query: Query | None = None if limit is None else {"limit": limit}
    answer = context.api("GET", PROOFS.path, credential=context.target.valid, query=query)
    listed = (answer.json_object() or {}).get("proofs") if answer.ok else None
    return answer, len(listed) if isinstance(listed, list) else -1


def _judge_unlimited(context: Context, before: Answer, length: int) -> None:
    """Rule on a page without a limit behind one with a limit, which is not that of both."""
    lengths = list[int]()
    for _ in range(TRIES):
        limited, _ = _proofs(context, 1)
        after, there = _proofs(context, None)
        lengths.append(there)
    why = f"a page without a limit has {length} proofs, and then, after limit=1, {lengths}"
    if length > 1:
        held = set(lengths) != {1}
        context.judge("NA-QUERY-019", held, why, before, limited, after)


def _judge_statistics(context: Context) -> None:
    """Rule on the statistics beside a page of one proof, and beside one of many."""
    found: list[tuple[Answer, Json, Answer, Json]] = []
    for _ in range(TRIES):
        (one, few), (many, more) = _proofs(context, 1), _proofs(context, PAGE)
        stats = [(answer.json_object() or {}).get("stats") for answer in (one, many)]
        if few >= more or stats[0] == stats[1]:
            break
        found.append((one, stats[0], many, stats[1]))
    if few < more:
        shown = found[-1] if found else (one, None, many, None)
        why = f"with limit=1 the stats are {brief(shown[1])}, with {PAGE} {brief(shown[3])}"
        context.judge("NA-PROOFS-023", len(found) < TRIES, why, shown[0], shown[2])


def _judge_default(context: Context) -> None:
    """Rule on a page without a limit, behind one with a limit: that is not kept for it."""
    lengths, shown = list[tuple[int, int]](), list[Answer]()
    for _ in range(TRIES):
        _page(context, context.target.valid, {"limit": PAGE})
        before = _page(context, context.target.valid, {})
        _page(context, context.target.valid, {"limit": 1})
        after = _page(context, context.target.valid, {})
        lengths.append((len(before[1]), len(after[1])))
        shown = [before[0], after[0]]
    kept = all(many > 1 and few == 1 for many, few in lengths)
    why = f"without a limit, behind limit={PAGE} and behind limit=1, there are {lengths} entries"
    if lengths[-1][0] > 1:
        context.judge("NA-QUERY-018", not kept, why, *shown)


def _judge_none(context: Context) -> None:
    """Rule on a page of no entries, which may be refused."""
    query: Query = {"limit": 0, "offset": 0}
    answer = context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)
    rows = rows_of(answer.json_object() if answer.ok else None)
    why = f"limit=0 has {len(rows)} entries"
    if answer.ok or answer.status in REFUSED:
        context.judge("NA-QUERY-020", not rows, why, answer)


def _judge(context: Context, whole: History, drawn: list[tuple[Query, Page]]) -> None:
    """Rule on drawn pages of the account whose history this is."""
    wrong = list[tuple[str, Answer]]()
    for query, (answer, rows, total) in drawn:
        fault = _fault(query, whole, rows, total)
        if fault is not None:
            wrong.append((f"in the page of {query} {fault}", answer))
        limit, told = query.get("limit"), (answer.json_object() or {}).get("limit")
        if context.edition >= FIFTH and is_int(limit) and limit <= PAGE and is_number(told):
            why = f"limit is {told} on the page of {query}, of {len(whole.ids)} entries"
            context.judge("NA-QUERY-010", told == limit, why, answer)
    if wrong:
        context.fails("NA-QUERY-018", wrong[0][0], *(answer for _, answer in wrong))
    elif whole.ids and drawn:
        context.holds("NA-QUERY-018", *(page[0] for _, page in drawn))
