"""Interface 2.2, 3 and 4.2: records, blocks and artifacts, and names that are nearly theirs.

What is not there is not made up, and what a record or a block shows is there, as far as its name
says what it is.
"""

import hashlib
import re

from conformance.checks.mixed_keys import SEARCHED, Record, drawn_blocks, drawn_records, record_of
from conformance.checks.native import members_of, named_digests, native_get
from conformance.checks.native_documents import judge_atoms, under
from conformance.checks.native_named import texts_in
from conformance.checks.signed_requests import state_of
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief, is_int

STAYS, WHOLE, ABOVE, RESULTS = "NT-RULE-063", "NT-RULE-064", "NT-RULE-065", "NT-RULE-066"
NEAR, PAIR, AMOUNTS = "NT-RULE-067", "NT-RULE-068", "NT-RULE-029"
CONTENT, SAME, OWN_ID = "NT-RULE-019", "NT-RULE-093", "NT-RULE-174"
PENDING, EXPIRED, COMPLETED = "pending", "expired", "completed"
# A chain does not grow by so many blocks within a request.
AHEAD = (40, 400)
PAGE, ENOUGH = 10, 3
_RESPONSE = re.compile(r"(response|result|output)s?\Z", re.ASCII | re.IGNORECASE)
_RESULTS = re.compile(r"(\w*_)?results?\Z", re.ASCII | re.IGNORECASE)
_NAMED = re.compile(r"(\w*_)?(id|hash|transaction|tx)\Z", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"[0-9a-fA-F]{32,}\Z", re.ASCII)
_HEIGHT = re.compile(r"\d{1,18}\Z", re.ASCII)
_TIP = re.compile(r"((latest|current|observed)_)?(block|tip|head|pair)\Z", re.ASCII | re.IGNORECASE)
_HASH = re.compile(r"(block_?)?hash\Z", re.ASCII | re.IGNORECASE)


def _tip(context: Context) -> tuple[Answer, Json, int]:
    """Return the network, and the highest number in it that is called a height."""
    answer = native_get(context, "/api/network")
    document = answer.json_object() if answer.ok else None
    heights = [int(value) for value in under(document, "height") if is_int(value)]
    return answer, document, max(heights, default=0)


@requirement(AMOUNTS, STAYS, WHOLE, OWN_ID)
def native_records(context: Context) -> None:
    """GET the requests that drawn blocks name; those that are pending twice."""
    for record in drawn_records(context):
        judge_atoms(context, record.answer, record.document)
        judge_whole(context, record.ident, record.answer, record.document)
        _judge_pending(context, record)
        if context.edition >= SEVENTH:
            _judge_own_id(context, record)


def _judge_own_id(context: Context, record: Record) -> None:
    """GET the requests of what a record names that looks like its id, such as a transaction."""
    alike = [
        text for text in dict.fromkeys(texts_in(record.document))
        if len(text) == len(record.ident) and text != record.ident and _DIGITS.match(text)
    ]  # fmt: skip
    for other in alike[:ENOUGH]:
        found = record_of(context, other)
        why = f"{brief(other)}, which the request {brief(record.ident)} names, is that request, too"
        same = found.document is not None and found.document == record.document
        context.judge(OWN_ID, not same, why, record.answer, found.answer)


def judge_whole(context: Context, ident: str, answer: Answer, document: Json) -> None:
    """Rule on the response in the record of a request, if it is completed."""
    if state_of(document) != COMPLETED:
        return
    found = {k: v for k, v in members_of(document) if _RESPONSE.match(k)}
    if found:
        why = f"the record of {brief(ident)} is completed, with {brief(found)}"
        context.judge(WHOLE, any(v is not None for v in found.values()), why, answer)


def _judge_pending(context: Context, record: Record) -> None:
    """Read a pending job again: without a block in between it is not expired."""
    if state_of(record.document) != PENDING:
        return
    _, _, before = _tip(context)
    again = [record_of(context, record.ident) for _ in range(2)]
    answer, _, after = _tip(context)
    if before and before == after:
        states = [state_of(one.document) for one in again]
        why = f"the job {brief(record.ident)} is pending, then {brief(states)}, at height {after}"
        shown = (record.answer, *(one.answer for one in again), answer)
        context.judge(STAYS, EXPIRED not in states, why, *shown)


@requirement(NEAR, CONTENT)
def native_artifact_near(context: Context) -> None:
    """GET artifacts by digests that differ in a few digits, or are cut, which have no content."""
    known = (context.target.artifact or "").lower()
    for digest in (
        [known, *named_digests(context, known)[:2]] if known else named_digests(context, "")
    ):
        reads = [native_get(context, f"/artifacts/sha256/{digest}") for _ in range(2)]
        if not all(one.ok for one in reads):
            continue
        again = hashlib.sha256(reads[1].body).hexdigest()
        why = f"the content of {digest}, read again, has the digest {again}"
        context.judge(CONTENT, again == digest, why, *reads)
        last = "0" if digest[-1] != "0" else "1"
        near_ones = [digest[:-1] + last, last * 8 + digest[8:], digest[:8] + last * 56, digest[:8]]
        if context.edition >= FIFTH:
            near_ones += [digest[:16], digest[:32], digest[:-1]]
        for near in near_ones:
            answer = native_get(context, f"/artifacts/sha256/{near}")
            if answer.ok:
                found = hashlib.sha256(answer.body).hexdigest()
                context.judge(NEAR, found == near, f"{near} has the digest {found}", answer)
            elif answer.status < 500:
                context.holds(NEAR, answer)


@requirement(ABOVE)
def native_block_above(context: Context) -> None:
    """GET blocks above the height of the chain, and its height once more."""
    _, _, tip = _tip(context)
    if not tip or not native_get(context, f"/api/block/{tip}").ok:
        raise Skipped("no height in /api/network has a block")
    for ahead in AHEAD:
        block = native_get(context, f"/api/block/{tip + ahead}")
        answer, _, later = _tip(context)
        if block.ok and block.json_object() and later < tip + ahead:
            context.fails(ABOVE, f"the block {tip + ahead} is served at height {later}",
                          block, answer)  # fmt: skip
        elif 400 <= block.status < 500:
            context.holds(ABOVE, block, answer)


@requirement(PAIR)
def native_pair_within(context: Context) -> None:
    """GET the network, and the block of each pair of a height and a hash that is within it."""
    answer, document, _ = _tip(context)
    pairs = [
        (int(one["height"]), value)
        # Not deeper: the pair of another chain may be named there.
        for name, inner in (document.items() if isinstance(document, dict) else ())
        for one in ([inner] if isinstance(inner, dict) and _TIP.match(name) else [])
        for key, value in one.items()
        if _HASH.match(key) and isinstance(value, str) and value and is_int(one.get("height"))
    ]
    if not pairs:
        raise Skipped("/api/network has no pair of a height and a hash within it")
    for height, name in pairs:
        blocks = [
            native_get(context, f"/api/block/{at}") for at in (height, height + 1, height - 1)
        ]
        there = [
            one.ok and name.lower() in one.body.decode("utf-8", "replace").lower() for one in blocks
        ]
        # A hash that is in none of them may be written in another way.
        if any(there):
            why = f"the pair has the height {height} and the hash {brief(name)}, not of that block"
            # A block names that of the block before as well.
            before = context.edition >= FIFTH and name in _own_hashes(blocks[2])
            context.judge(PAIR, there[0] and not before, why, answer, *blocks)


def _own_hashes(block: Answer) -> list[Json]:
    """Return the hashes that a block gives for itself."""
    document = block.json_object() if block.ok else None
    return [value for key, value in (document or {}).items() if _HASH.match(key)]


@requirement(RESULTS, SAME)
def native_results(context: Context) -> None:
    """GET a page of blocks, and each of them, and compare the results that both have."""
    if context.edition >= FIFTH:
        _judge_named(context)
    listing = native_get(context, "/api/blocks", {"limit": PAGE})
    rows, seen = _rows(listing), False
    for row in rows[:PAGE]:
        block = native_get(context, f"/api/block/{int(row['height'])}")
        whole = dict(members_of(block.json_object() if block.ok else None))
        names = [name for name in row if _RESULTS.match(name) and whole.get(name) is not None]
        if names:
            seen = True
            null = [name for name in names if row[name] is None]
            why = f"{brief(null)} of the block {row['height']} is null in the list"
            context.judge(RESULTS, not null, why, listing, block)
    if not seen:
        raise Skipped("no block has something that is called its results")


def _has_null(listed: Json, there: Json) -> bool:
    """Return whether a list has null where the other one has something."""
    if not isinstance(listed, list) or not isinstance(there, list) or len(listed) != len(there):
        return False
    return any(a is None and b is not None for a, b in zip(listed, there, strict=True))


def _rows(listing: Answer) -> list[dict[str, Json]]:
    """Return the blocks of a page."""
    return [
        row for _, rows in members_of(listing.json_object() if listing.ok else None)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and is_int(row.get("height"))
    ]  # fmt: skip


def _judge_named(context: Context) -> None:
    """Rule on what drawn blocks, and the list of blocks, say of the same results."""
    judged = 0
    for block, document in drawn_blocks(context, SEARCHED):
        whole, heights = dict(members_of(document)), list(under(document, "height"))
        named = [
            name for name, value in whole.items() if _RESULTS.match(name) and _pairs(value, value)
        ]
        if not named or not heights or not _HEIGHT.match(str(heights[0])):
            continue
        height = int(str(heights[0]))
        # Whether a page ends before that height, or with it, is not said.
        listing = native_get(context, "/api/blocks", {"before": height + 2, "limit": 3})
        for row in _rows(listing):
            pairs = [
                pair for name in named if row["height"] == height
                for pair in _pairs(row.get(name), whole[name])
            ]  # fmt: skip
            if row["height"] == height and context.edition >= SEVENTH:
                null = [name for name in named if _has_null(row.get(name), whole[name])]
                why = f"in the list {brief(null)} of the block {height} has null"
                context.judge(RESULTS, not null, why, listing, block)
            wrong = [pair for pair in pairs if pair[0] != pair[1]]
            why = f"results of the block {height} are in the list, and there, {brief(wrong[:1])}"
            if pairs:
                judged += 1
                context.judge(SAME, not wrong, why, listing, block)
        if judged >= ENOUGH:
            break


def _pairs(listed: Json, there: Json) -> list[tuple[str, str]]:
    """Return what as many results name alike in both places: ids, hashes and transactions."""
    if not isinstance(listed, list) or not isinstance(there, list) or len(listed) != len(there):
        return []
    return [
        (value, other[key])
        for one, other in zip(listed, there, strict=True)
        if isinstance(one, dict) and isinstance(other, dict)
        for key, value in one.items()
        if _NAMED.match(key) and isinstance(value, str) and isinstance(other.get(key), str)
    ]
