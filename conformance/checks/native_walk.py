"""Interface 4.2: the lists of the native API and its single objects, walked against one another.

The document names no fields. A block list is walked where heights are found in it, by the target's
declaration or under keys called `height`; requests are those that blocks name. A chain may grow
meanwhile, so what is compared lies below the first height that was seen.
"""

import re
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

from conformance.checks.native import members_of, native_get
from conformance.context import Context
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

PAGE, PAGES, SINGLE, UNREADABLE = 6, 8, 4, 3
# The first edition in which bytes that are no message must not make a worker route fail.
UNREADABLE_SINCE = 4
# Of the latest requests that blocks name: some that a node has to keep. Since this edition.
KEPT, KEPT_SINCE = range(40, 121, 20), 4
# So many requests of a whole chain are looked up.
FEW = 24
# So long blocks are read to find these requests.
WALK_S = 4.0
# A whole number of atoms, as a text.
ATOMS = re.compile(r"-?\d+\Z", re.ASCII)
FAR = 1_000_000
# Keys under which the hash of a transaction is.
HASHES = ("hash", "tx_hash", "transaction_hash", "txid")
READ = ("/api/network", "/api/model", "/api/validators", "/api/inference")
WRITES = ("PUT", "PATCH", "DELETE")


def _read(context: Context, path: str, query: dict[str, object]) -> tuple[Answer, Any]:
    answer = native_get(context, path, query)
    return answer, answer.json_object() if answer.ok else None


def numbers_of(context: Context, name: str, key: str, document: Json) -> list[int]:
    """Return the heights or rounds of the entries of a page."""
    paths = context.target.field_map.get(name)
    if paths is not None:
        return [int(v) for path in paths for v in lookup(document, path) if is_int(v)]
    lists = [v for v in document.values() if isinstance(v, list)] if document else []
    entries = lists[0] if len(lists) == 1 else []
    found = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    return [int(value) for value in found if is_int(value)]


@requirement(
    "NT-PAGE-005",
    "NT-PAGE-006",
    "NT-RULE-029",
    "NT-RULE-030",
    "NT-RULE-034",
    "NT-RULE-035",
    "NT-RULE-036",
    "NT-RULE-040",
    "NT-RULE-054",
    "NT-PAGE-007",
    "NT-PAGE-008",
    "LIM-008",
)
def native_walk(context: Context) -> None:
    """GET blocks page by page, then each block by its height, and the requests that they name."""
    listed: dict[int, Json] = {}
    blocks = _walk(context, "/api/blocks", "/api/blocks height", "height", listed)
    _walk(context, "/api/training", "/api/training round", "round")
    documents = [_read(context, path, {}) for path in READ]
    requests, failed = list[str](), False
    for height in blocks:
        answer, document = _read(context, f"/api/block/{height}", {})
        documents.append((answer, document))
        _judge_height(context, height, document, answer)
        _judge_listed(context, height, listed.get(height), document, answer)
        requests += _named_requests(document)
        failed |= _failed(document)
    if context.edition >= KEPT_SINCE and blocks:
        _judge_oldest(context)
        # No chain gets there during a run.
        far = max(blocks) + FAR
        answer, document = _read(context, f"/api/block/{far}", {})
        _judge_height(context, far, document, answer)
    if context.edition >= KEPT_SINCE:
        _judge_kept(context, blocks, requests, failed=failed)
    walked = list(documents)
    for ident in list(dict.fromkeys(requests))[:SINGLE]:
        answer, document = _read(context, "/api/inference/request", {"id": ident})
        documents.append((answer, document))
        if document is not None:
            named = [value for key in ("request_id", "id") for value in under(document, key)]
            why = f"the record of {brief(ident)} names {brief(named)}"
            context.judge("NT-RULE-030", not named or ident in named, why, answer)
            _judge_prompt(context, ident, walked, document, answer)
    for answer, document in documents:
        judge_atoms(context, answer, document)
        _judge_two_names(context, answer, document)


def _judge_oldest(context: Context) -> None:
    """Compare the first blocks of the chain by themselves with the end of the list."""
    answer, document = _read(context, "/api/blocks", {"limit": PAGE, "before": PAGE})
    heights = numbers_of(context, "/api/blocks height", "height", document)
    for height, entry in entries_of(heights, document):
        if height <= PAGE:
            answer, block = _read(context, f"/api/block/{height}", {})
            _judge_listed(context, height, entry, block, answer)


def _judge_prompt(
    context: Context, ident: str, blocks: list[tuple[Answer, Any]], record: Json, answer: Answer
) -> None:
    """Rule on the prompt of a record, where the transaction of this request shows one too."""
    signed = [
        prompt for _, block in blocks for one in _objects(block)
        if one.get("request_id") == ident for prompt in under(one, "prompt")
    ]  # fmt: skip
    shown = list(under(record, "prompt"))
    if signed and shown:
        why = f"the record of {brief(ident)} has the prompt {brief(shown)}, not {brief(signed)}"
        context.judge("NT-RULE-054", shown[0] in signed, why, answer)


def _named_requests(block: Json) -> list[str]:
    return [value for value in under(block, "request_id") if isinstance(value, str)]


def _failed(block: Json) -> bool:
    """Return whether something in a block may have failed, so that it made no job."""
    return any(
        (name == "code" and value not in (0, "0", None)) or value is False
        for name, value in members_of(block)
    )


def _judge_kept(context: Context, blocks: list[int], named: list[str], *, failed: bool) -> None:
    """Look up requests of the latest blocks, of which the latest are known and so are the others.

    `blocks` are the heights that were read, and `named` the requests in them. More are read until
    there are enough of them. A block need not name its requests in the order in which they were
    completed, so those at the edge of the 128 say nothing. Where all blocks have been read and name
    few, each of them is among the 128, unless something may have `failed`.
    """
    jobs, below = list(dict.fromkeys(named)), range(min(blocks, default=0) - 1, 0, -1)
    ends = time.monotonic() + WALK_S
    for height in below if jobs else ():
        if len(jobs) >= KEPT.stop or time.monotonic() > ends:
            break
        _, document = _read(context, f"/api/block/{height}", {})
        if _failed(document):
            break
        jobs = list(dict.fromkeys([*jobs, *_named_requests(document)]))
    else:
        _judge_few(context, [] if failed else jobs)

    def look_up(ranks: range) -> list[Answer]:
        return _look_up(context, [jobs[rank] for rank in ranks if rank < len(jobs)])

    if not blocks or blocks != sorted(blocks, reverse=True):
        return
    latest, older = look_up(range(SINGLE)), look_up(KEPT)
    _, document = _read(context, "/api/blocks", {"limit": PAGE})
    # What has been completed meanwhile may have taken the place of something older.
    moved = numbers_of(context, "/api/blocks height", "height", document)[:1] != blocks[:1]
    if moved or not older or not all(answer.ok for answer in latest):
        return
    again = look_up(KEPT)
    gone = [
        one for one, other in zip(older, again, strict=True) if one.status == other.status == 404
    ]
    why = f"{len(gone)} of {len(older)} requests among the latest {KEPT.stop} are not found"
    context.judge("LIM-008", not gone, why, latest[0], *gone[:2])


def _judge_few(context: Context, jobs: list[str]) -> None:
    """Look up all requests of a chain that has few."""
    if not 1 < len(jobs) <= FEW:
        return
    answers = _look_up(context, jobs)
    gone = [answer for answer in answers if answer.status == 404]
    if len(gone) < len(answers):
        why = f"{len(gone)} of {len(jobs)} requests of the whole chain are not found"
        context.judge("LIM-008", not gone, why, *gone[:3])


def _look_up(context: Context, jobs: list[str]) -> list[Answer]:
    return [native_get(context, "/api/inference/request", {"id": ident}) for ident in jobs]


def _judge_height(context: Context, height: int, document: Json, answer: Answer) -> None:
    """Rule on one block of the list, where the target declares the height in it."""
    paths = context.target.field_map.get("/api/block height", ())
    values = [value for path in paths for value in lookup(document, path)]
    # 7.0 is the integer 7.
    found = [str(int(value) if is_int(value) else value) for value in values]
    if document is not None and found:
        why = f"the block at {height} has the height {brief(found)}"
        context.judge("NT-RULE-034", found == [str(height)], why, answer)


def _judge_listed(
    context: Context, height: int, entry: Json, document: Json, answer: Answer
) -> None:
    """Rule on one block of the list: it can be read, and has the hash that the list shows."""
    if document is None and answer.status in (404, *range(500, 600)):
        again, document = _read(context, f"/api/block/{height}", {})
        if document is None and again.status == answer.status:
            why = f"the list has a block {height}, which is read with status {again.status}"
            context.fails("NT-RULE-036", why, answer, again)
        return
    context.holds("NT-RULE-036", answer)
    for path in context.target.field_map.get("/api/block hash", ()):
        found, key = lookup(document, path), path.rpartition(".")[2]
        there = list(under(entry, key))
        if len(found) == 1 and len(there) == 1:
            why = (
                f"the block {height} has the hash {brief(found[0])}, in the list {brief(there[0])}"
            )
            same = str(found[0]).lower() == str(there[0]).lower()
            context.judge("NT-RULE-035", same, why, answer)


def entries_of(numbers: list[int], document: Json) -> Iterator[tuple[int, Json]]:
    """Yield the entries of a page with their numbers, where it has one list of as many."""
    lists = [v for v in document.values() if isinstance(v, list)] if document else []
    fitting = [some for some in lists if len(some) == len(numbers)]
    if len(fitting) == 1:
        yield from zip(numbers, fitting[0], strict=True)


def _walk(
    context: Context, path: str, name: str, key: str, entries: dict[int, Json] | None = None
) -> list[int]:
    """Rule on pages that follow one another, and return their numbers.

    The entries of the pages are added to ``entries``.
    """
    entries = {} if entries is None else entries
    answer, document = _read(context, path, {"limit": PAGE})
    whole = page = first_page = numbers_of(context, name, key, document)
    entries.update(entries_of(whole, document))
    seen, shown = list(page), [answer]
    for _ in range(PAGES - 1):
        if len(whole) < PAGE or not page or min(page) <= 1:
            break
        bound = min(page)
        answer, document = _read(context, path, {"limit": PAGE, "before": bound})
        # Whether the bound itself is on the page is not said.
        whole = numbers_of(context, name, key, document)
        entries.update(entries_of(whole, document))
        page = [number for number in whole if number != bound]
        seen += page
        shown.append(answer)
        if page and min(page) >= bound:
            # The bound is ignored, which NT-PAGE-002 and NT-PAGE-003 report.
            return seen
    if path == "/api/blocks" and seen:
        _judge_recent(context, name, key, seen, shown[0])
    if seen and context.edition >= KEPT_SINCE:
        # Read last, so that it has what has been made meanwhile too.
        answer, document = _read(context, path, {"limit": 1})
        single = numbers_of(context, name, key, document)
        why = f"{path} of one entry has {brief(single)}, and of {PAGE} {brief(first_page)}"
        ident = "NT-PAGE-007" if path == "/api/blocks" else "NT-PAGE-008"
        recent = not single or max(single) >= max(first_page)
        context.judge(ident, recent, why, shown[0], answer)
    if len(seen) < 2:
        return seen
    why = f"{path} in pages of {PAGE}: {brief(seen, 160)}"
    context.judge("NT-PAGE-005", len(set(seen)) == len(seen), why, *shown)
    if path == "/api/blocks":
        lacking = [at for at in range(min(seen), max(seen)) if at not in seen]
        left_out = [at for at in lacking[:SINGLE] if native_get(context, f"/api/block/{at}").ok]
        why = f"{why}, without {brief(left_out)}, which can be read"
        context.judge("NT-PAGE-006", not left_out, why, *shown)
    return seen


def _judge_recent(context: Context, name: str, key: str, seen: list[int], first: Answer) -> None:
    """Rule on the page without a bound: it has the block that is highest in the list."""
    query: dict[str, object] = {"limit": PAGE, "before": max(seen) + 2 * PAGE}
    answer, document = _read(context, "/api/blocks", query)
    above = numbers_of(context, name, key, document)
    again, document = _read(context, "/api/blocks", {"limit": PAGE})
    latest = numbers_of(context, name, key, document)
    if above and latest:
        # It was read last, so it has what has been made meanwhile too.
        why = f"without `before` the highest block is {max(latest)}, with it {max(above)}"
        context.judge("NT-PAGE-007", max(latest) >= max(above), why, first, answer, again)


def under(document: Json, name: str) -> Iterator[Json]:
    """Yield the values under keys of this name at any depth."""
    if isinstance(document, dict):
        if name in document:
            yield document[name]
        for value in document.values():
            yield from under(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from under(value, name)


def atoms(document: Json, key: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the values that call themselves atoms, with their keys."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from atoms(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from atoms(value, key)
    elif re.search(r"(^|_)atoms$", key):
        yield key, document


def _judge_two_names(context: Context, answer: Answer, document: Json) -> None:
    """Rule on objects that have both a request ID and a hash of a transaction: they differ."""
    pairs = [
        (one["request_id"], one[key]) for one in _objects(document) for key in HASHES
        if "request_id" in one and isinstance(one.get(key), str)
    ]  # fmt: skip
    if pairs:
        same = [ident for ident, name in pairs if ident == name]
        context.judge("NT-RULE-040", not same, f"hash and request_id are {brief(same)}", answer)


def _objects(document: Json) -> Iterator[dict[str, Json]]:
    if isinstance(document, dict):
        yield document
    inner = document.values() if isinstance(document, dict) else document
    for value in inner if isinstance(document, dict | list) else ():
        yield from _objects(value)


def judge_atoms(context: Context, answer: Answer, document: Json) -> None:
    """Rule on amounts whose names say that they are in atoms."""
    found = [(key, value) for key, value in atoms(document) if value is not None]
    if found:
        wrong = {k: v for k, v in found if not (isinstance(v, str) and ATOMS.match(v))}
        context.judge("NT-RULE-029", not wrong, brief(wrong), answer)


@requirement("NT-RULE-031")
def native_kept(context: Context) -> None:
    """PUT, PATCH and DELETE the declared views of the earlier chain, which stay as they are."""
    for path in context.target.reference:
        before = native_get(context, path)
        if not before.ok:
            continue
        for method in WRITES:
            written = context.http.call(method, path, json_body={"conformance": 1})
            after = native_get(context, path)
            held = not written.ok and after.body == before.body
            why = f"{method} {path}: status {written.status}, then {after.status}"
            context.judge("NT-RULE-031", held, why, before, written, after)


@requirement("NT-RULE-032", "NT-RULE-033")
def native_work_errors(context: Context) -> None:
    """POST an empty object, and bytes that are no message, to the worker routes."""
    missing: dict[str, list[Answer]] = {}
    for path in ("/work/poll", "/work/result"):
        answers = [context.http.call("POST", path, content=body) for body in (b"{}", b"{", b"")]
        missing[path] = [answer for answer in answers if answer.status in (404, 410)]
    lacking = [path for path, answers in missing.items() if len(answers) == UNREADABLE]
    if len(lacking) == 1:
        # Nothing in these bytes can name a worker or an attempt that does not exist.
        why = f"{lacking[0]} answers {missing[lacking[0]][0].status}, the other route does not"
        context.fails("NT-RULE-033", why, *missing[lacking[0]])
    elif not lacking:
        context.holds("NT-RULE-033")
    contents = [b"{}"] + [b"{"] * (context.edition >= UNREADABLE_SINCE)
    for path, content in product(("/work/poll", "/work/result"), contents):
        answers = [context.http.call("POST", path, content=content) for _ in range(2)]
        if all(answer.status in (500, 502, 504) for answer in answers):
            why = f"{path}: status {answers[-1].status} twice to {brief(content.decode())}"
            context.fails("NT-RULE-032", why, *answers)
        elif all(answer.status < 500 for answer in answers):
            context.holds("NT-RULE-032", *answers)


@requirement("NT-RULE-039")
def native_work_unsigned(context: Context) -> None:
    """POST an empty object to the worker routes, which nobody can have signed."""
    for path in ("/work/poll", "/work/result"):
        answer = context.http.call("POST", path, content=b"{}")
        why = f"POST {path} with an empty object: status {answer.status}"
        context.judge("NT-RULE-039", not answer.ok, why, answer)
