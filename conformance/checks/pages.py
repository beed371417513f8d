"""Interface 4.1: the pages of the history and of the proofs, against the whole.

The largest limit that a target accepts is not specified, so only short pages are compared. Lists
may grow between two requests: a comparison counts only if the longer page is the same before and
after the short one, and is repeated otherwise.
"""

from dataclasses import dataclass
from itertools import pairwise

from conformance.checks.history import rows_of
from conformance.checks.node_reads import PROOFS, TRANSACTIONS
from conformance.checks.reading import Resource
from conformance.context import Context
from conformance.editions import FOURTH, SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int

# As long as the whole of what is compared; every node with pages has some of this length.
WHOLE = 8
TRIES, TOO_MANY = 3, 429
# Offsets of more than one byte, two and four, which begin again where they are cut.
FAR = (65_536, 2**32)
# Limits that a list of some dozens of proofs reaches at one of them.
RISING = (15, 20, 25, 30, 40, 50)
# The first edition that compares the totals of the first page and the last, pages with one that is
# cut short, and proofs with those that come without a limit.
LATER_SINCE = 4
PAGES = ((1, 0), (2, 0), (2, 1), (1, 3), (3, 2))


@dataclass(frozen=True)
class Page:
    """One page, and the answer that has it."""

    answer: Answer
    document: dict[str, Json]
    entries: list[Json]


def _page(context: Context, resource: Resource, key: str, **query: object) -> Page | None:
    credential = context.target.valid
    answer = context.api("GET", resource.path, credential=credential, query=query)
    document = answer.json_object() if answer.ok else None
    entries = document.get(key) if document else None
    if document is None or not isinstance(entries, list):
        return None
    return Page(answer, document, entries)


def _compare(
    context: Context, ident: str, resource: Resource, key: str, limit: int, offset: int | None
) -> Page | None:
    """Rule on whether one page is that part of a longer one; return it if it could be judged."""
    query: dict[str, object] = {"limit": limit} if offset is None else {
        "limit": limit, "offset": offset}  # fmt: skip
    whole: dict[str, object] = {"limit": WHOLE} if offset is None else {
        "limit": WHOLE, "offset": 0}  # fmt: skip
    start = offset or 0
    for _ in range(TRIES):
        before = _page(context, resource, key, **whole)
        page = _page(context, resource, key, **query)
        after = _page(context, resource, key, **whole)
        if before is None or page is None or after is None:
            return None
        if before.entries != after.entries:
            continue
        total = before.document.get("total")
        # The largest limit is not specified, and may be below the length of this page; what the
        # page has is judged all the same.
        enough = WHOLE if context.edition < LATER_SINCE else start + limit
        if is_int(total) and len(before.entries) < min(total, enough):
            return None
        expected = before.entries[start : start + limit]
        context.judge(
            ident,
            page.entries == expected,
            f"limit={limit} offset={start} has {brief(page.entries)}, not {brief(expected)}",
            before.answer,
            page.answer,
        )
        return page
    return None


_IDS = ("NA-QUERY-008", "NA-QUERY-009", "NA-QUERY-010", "NA-QUERY-011", "NA-QUERY-012")


@requirement("NA-QUERY-021", "NA-QUERY-008", "NA-QUERY-033")
def pages_behind(context: Context) -> None:
    """GET a page of the transaction list that begins behind the end of the list."""
    first = _page(context, TRANSACTIONS, "transactions", limit=1, offset=0)
    total = first.document.get("total") if first else None
    if first is None or not is_int(total):
        raise Skipped("there is no page with a total")
    token, query = context.target.valid, {"limit": 1, "offset": int(total) + WHOLE}
    answer = context.api("GET", TRANSACTIONS.path, credential=token, query={**query})
    if answer.status != TOO_MANY:
        why = f"offset {query['offset']} of {total} ends with status {answer.status}"
        context.judge("NA-QUERY-021", answer.status < 400, why, first.answer, answer)
    if context.edition >= SIXTH:
        _judge_far_behind(context, first, answer)


def _judge_far_behind(context: Context, first: Page, answer: Answer) -> None:
    """Rule on pages behind the end of the list, which have no entry."""
    shown = [answer]
    for offset in (offset for offset in FAR if offset > first.document["total"]):
        query: dict[str, object] = {"limit": 1, "offset": offset}
        page = context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)
        shown.append(page)
    for page in (page for page in shown if page.ok):
        rows, start = rows_of(page.json_object()), page.exchange.request["url"].rpartition("=")[2]
        why = f"offset {start} of {first.document['total']} has {brief(rows)}"
        context.judge("NA-QUERY-008", not rows, why, first.answer, page)


@requirement(*_IDS)
def pages_whole(context: Context) -> None:
    """Compare short pages of transactions and proofs with longer ones."""
    for limit, offset in PAGES:
        page = _compare(context, "NA-QUERY-008", TRANSACTIONS, "transactions", limit, offset)
        if page is not None and is_int(page.document.get("limit")):
            shown = page.document["limit"]
            context.judge("NA-QUERY-010", shown == limit, f"{shown} for {limit}", page.answer)
    for limit in (1, 2):
        _compare(context, "NA-QUERY-009", PROOFS, "proofs", limit, None)
    if context.edition >= LATER_SINCE:
        _judge_beginning(context)
        _judge_rising(context)
    _judge_total(context)
    _judge_default(context)


def _judge_beginning(context: Context) -> None:
    """Read proofs without a limit, which may be all of them: a page begins as these do."""
    for _ in range(TRIES):
        before = _page(context, PROOFS, "proofs")
        page = _page(context, PROOFS, "proofs", limit=WHOLE)
        after = _page(context, PROOFS, "proofs")
        if before is None or page is None or after is None:
            return
        shared = min(len(before.entries), len(page.entries))
        if before.entries == after.entries and shared:
            held = page.entries[:shared] == before.entries[:shared]
            why = f"limit={WHOLE} begins with {brief(page.entries)}, no limit with"
            why = f"{why} {brief(before.entries)}"
            context.judge("NA-QUERY-009", held, why, before.answer, page.answer)
            return


def _judge_rising(context: Context) -> None:
    """Read more and more proofs: a page with a larger limit is not shorter than one before it."""
    others = list[int]()
    for _ in range(TRIES):
        pages = [_page(context, PROOFS, "proofs", limit=limit) for limit in (*RISING, RISING[0])]
        found = [page for page in pages if page is not None]
        if len(found) <= len(RISING):
            return
        lengths = [len(page.entries) for page in found[:-1]]
        if context.edition >= FOURTH and found[0].entries == found[-1].entries:
            # Nothing has come meanwhile, so that they begin alike.
            pairs = zip(RISING[1:], pairwise(found[:-1]), strict=True)
            others = [at for at, (less, more) in pairs if not _begins(more.entries, less.entries)]
        if lengths == sorted(lengths) and not others:
            context.holds("NA-QUERY-009", *(page.answer for page in found))
            return
    why = f"limits of {brief(RISING)} have so many proofs: {lengths}"
    if others:
        why = f"{why}; those of limit {brief(others)} do not begin as the shorter ones before do"
    context.fails("NA-QUERY-009", why, *(page.answer for page in found))


def _begins(entries: list[Json], shorter: list[Json]) -> bool:
    """Whether a page begins as a shorter one does, as far as both go."""
    shared = min(len(entries), len(shorter))
    return entries[:shared] == shorter[:shared]


def _judge_total(context: Context) -> None:
    """Look at the last entry that the total promises, and behind it."""
    for _ in range(TRIES):
        first = _page(context, TRANSACTIONS, "transactions", limit=1, offset=0)
        total = first.document.get("total") if first else None
        if first is None or not is_int(total):
            return
        last = _page(context, TRANSACTIONS, "transactions", limit=1, offset=max(int(total) - 1, 0))
        behind = _page(context, TRANSACTIONS, "transactions", limit=1, offset=int(total))
        longer = _page(context, TRANSACTIONS, "transactions", limit=3, offset=0)
        again = _page(context, TRANSACTIONS, "transactions", limit=1, offset=0)
        if last is None or behind is None or longer is None or again is None:
            return
        if again.document.get("total") == total and again.entries == first.entries:
            held = len(last.entries) == min(int(total), 1) and not behind.entries
            shown = f"total is {total}; {len(last.entries)} entries at the last of them, then"
            why = f"{shown} {len(behind.entries)}"
            context.judge("NA-QUERY-011", held, why, first.answer, last.answer, behind.answer)
            other = longer.document.get("total")
            why = f"total is {total} in a page of one entry, {brief(other)} in a page of three"
            context.judge("NA-QUERY-011", other == total, why, first.answer, longer.answer)
            if context.edition >= LATER_SINCE and last.entries:
                other = last.document.get("total")
                why = f"total is {total} in the first page, {brief(other)} in the last"
                context.judge("NA-QUERY-011", other == total, why, first.answer, last.answer)
            return


def _judge_default(context: Context) -> None:
    """Read without offset: the page begins at the first entry."""
    for _ in range(TRIES):
        before = _page(context, TRANSACTIONS, "transactions", limit=1, offset=0)
        plain = _page(context, TRANSACTIONS, "transactions", limit=1)
        after = _page(context, TRANSACTIONS, "transactions", limit=1, offset=0)
        if before is None or plain is None or after is None:
            return
        if before.entries == after.entries:
            why = f"{brief(plain.entries)} without offset, {brief(before.entries)} at 0"
            held = plain.entries == before.entries
            context.judge("NA-QUERY-012", held, why, before.answer, plain.answer)
            return
