"""Interface 2.1 and 4.1: long pages of the history and the proofs, beside short ones.

They are read when the run has spent what it spends, so that there are many entries.
"""

import time
from itertools import pairwise

from conformance.checks.clock import moment
from conformance.checks.history import rows_of
from conformance.checks.node_reads import PROOFS, TRANSACTIONS
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.passive.history import HISTORY_IDS, PROOF_IDS
from conformance.registry import requirement
from conformance.strictjson import brief, is_int

TRIES = 3
# Limits that are usual as the highest one, and numbers beyond a byte.
LARGE = (5, 20, 30, 50, 64, 99, 100, 101, 128, 200, 255, 256, 500, 1000, 65_537, 2**32 + 1)
# What many nodes still give on one page, and pages that are no part of it.
LONGEST, PIECE = 100, 7
# A history that is longer is not read to its end; and how late a transfer may come.
MOST, LATE_S, MADE = 2000, 1.0, "NA-WALLET-044"
Query = dict[str, object]


@requirement("NA-QUERY-014", "NA-QUERY-022", "NA-QUERY-023", "NA-QUERY-024",
             "NA-QUERY-025", MADE, *HISTORY_IDS, *PROOF_IDS)  # fmt: skip
def pages_large(context: Context) -> None:
    """GET pages of the history and of the proofs with higher and higher limits."""
    if context.edition < FIFTH:
        raise Skipped("later editions ask for it")
    _judge_usual(context)
    _judge_walk(context)
    _judge_all(context)
    for resource in (TRANSACTIONS, PROOFS):
        fewer = list[tuple[str, tuple[Answer, Answer]]]()
        for _ in range(TRIES):
            found = _shorter(context, resource.path)
            if found is None:
                break
            fewer.append(found)
        if len(fewer) == TRIES:
            context.fails("NA-QUERY-022", fewer[-1][0], *fewer[-1][1])
        else:
            context.holds("NA-QUERY-022")


def _shorter(context: Context, path: str) -> tuple[str, tuple[Answer, Answer]] | None:
    """Return what shows that a page is shorter than one with a lower limit, if there is one."""
    most, before = 0, None
    for limit in LARGE:
        query: Query = {"limit": limit}
        answer = context.api("GET", path, credential=context.target.valid, query=query)
        if not answer.ok:
            # A node may refuse so high a limit.
            break
        listed = (answer.json_object() or {}).get(path.rpartition("/")[2])
        length = len(listed) if isinstance(listed, list) else 0
        _judge_told(context, answer, length)
        if before is not None and length < most:
            return f"limit={limit} has {length} entries of {path}, a lower one {most}", (
                before, answer,
            )  # fmt: skip
        most, before = length, answer
    return None


def _judge_usual(context: Context) -> None:
    """Rule on the limit that pages without one tell, with an offset and without."""
    queries: tuple[Query | None, ...] = (None, {"offset": 1})
    answers = [
        context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)
        for query in queries
    ]
    told = [(answer.json_object() or {}).get("limit") for answer in answers]
    if all(answer.ok for answer in answers) and all(map(is_int, told)):
        why = f"without a limit it is {told[0]}, and beside an offset {told[1]}"
        context.judge("NA-QUERY-024", told[0] == told[1], why, *answers)


def _judge_told(context: Context, answer: Answer, length: int) -> None:
    """Rule on the length of a page from the beginning that tells its limit and its total."""
    document = answer.json_object() or {}
    limit, total = document.get("limit"), document.get("total")
    if is_int(limit) and is_int(total):
        why = f"a page of {length} entries tells a limit of {limit} and a total of {total}"
        context.judge("NA-QUERY-023", length >= min(limit, total), why, answer)


def _judge_walk(context: Context) -> None:
    """Compare a page of many entries with short ones, which together are as long."""
    for _ in range(TRIES):
        before = _page(context, LONGEST, 0)
        whole = [str(row.get("id")) for row in rows_of(before.json_object())]
        pages = [_page(context, PIECE, offset) for offset in range(0, len(whole), PIECE)]
        after = _page(context, LONGEST, 0)
        if not all(page.ok for page in (before, after, *pages)):
            return
        walked = [str(row.get("id")) for page in pages for row in rows_of(page.json_object())]
        same = [str(row.get("id")) for row in rows_of(after.json_object())] == whole
        if same or walked[: len(whole)] == whole:
            break
    _judge_times(context, after)
    if same and len(whole) > PIECE:
        at = next((at for at, pair in enumerate(zip(whole, walked, strict=False))
                   if pair[0] != pair[1]), len(walked))  # fmt: skip
        why = f"pages of {PIECE} have another entry {at} than one page of {len(whole)}"
        context.judge("NA-QUERY-014", walked[: len(whole)] == whole, why, before, *pages, after)


def _judge_all(context: Context) -> None:
    """Look for each transfer of the run in the whole history of both accounts."""
    # A node that keeps its history in memory has lost it when it starts again.
    known = context.service.heard.memory.made.get("transfer", ())
    made = set(() if context.service.restarted else known)
    for turn in range(TRIES):
        time.sleep(LATE_S if turn else 0)
        listed, shown, whole = set[str](), list[Answer](), True
        for account in {context.target.valid, context.target.second}:
            offset, total = 0, 1
            while offset < min(total, MOST):
                query: Query = {"limit": LONGEST, "offset": offset}
                page = context.api("GET", TRANSACTIONS.path, credential=account, query=query)
                document = page.json_object() or {}
                rows, found = rows_of(document), document.get("total")
                total = int(found) if is_int(found) else 0
                offset += len(rows) or MOST
                listed |= {str(row.get("id")) for row in rows}
                shown.append(page)
                if context.edition >= SEVENTH and page.ok:
                    _judge_times(context, page)
            whole = whole and offset >= total and bool(total) and offset < MOST
        missing = sorted(made - listed)
        if not missing or not whole:
            break
    if made and whole:
        why = f"of {len(made)} transfers {brief(missing[:3])} are in no history"
        context.judge(MADE, not missing, why, *shown[:4])


def _judge_times(context: Context, answer: Answer) -> None:
    """Rule on the times of a long page: they fall from entry to entry, or rise."""
    stamps = [row.get("timestamp") for row in rows_of(answer.json_object())]
    times = [found for stamp in stamps if isinstance(stamp, str) and (found := moment(stamp))]
    pairs = list(pairwise(times))
    falls, rises = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    if pairs:
        why = f"of {len(times)} entries the times fall {falls} times, and rise {rises} times"
        context.judge("NA-QUERY-025", not falls or not rises, why, answer)


def _page(context: Context, limit: int, offset: int) -> Answer:
    query: Query = {"limit": limit, "offset": offset}
    return context.api("GET", TRANSACTIONS.path, credential=context.target.valid, query=query)
