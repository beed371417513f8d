"""Interface 4.2: the lists of the native API and its single objects, walked against one another.

The document names no fields. A block list is walked where heights are found in it, by the target's
declaration or under keys called `height`; requests are those that blocks name. A chain may grow
meanwhile, so what is compared lies below the first height that was seen.
"""

from itertools import product
from typing import Any

from conformance.checks.native import native_get
from conformance.checks.native_documents import (
    entries_of,
    judge_atoms,
    numbers_of,
    objects,
    read,
    under,
)
from conformance.checks.native_jobs import judge_kept, may_have_failed, named_requests
from conformance.context import Context
from conformance.editions import FIFTH
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_int

PAGE, PAGES, SINGLE, UNREADABLE = 6, 8, 4, 3
# The first edition in which bytes that are no message must not make a worker route fail.
UNREADABLE_SINCE = 4
# The first edition that looks up what a node has to keep.
KEPT_SINCE = 4
FAR = 1_000_000
# Keys under which the hash of a transaction is.
HASHES = ("hash", "tx_hash", "transaction_hash", "txid")
READ = ("/api/network", "/api/model", "/api/validators", "/api/inference")
WRITES = ("PUT", "PATCH", "DELETE")
SPELT = "NT-RULE-104"


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
    SPELT,
    "NT-PAGE-007",
    "NT-PAGE-008",
    "LIM-008",
)
def native_walk(context: Context) -> None:
    """GET blocks page by page, then each block by its height, and the requests that they name."""
    listed: dict[int, Json] = {}
    blocks = _walk(context, "/api/blocks", "/api/blocks height", "height", listed)
    _walk(context, "/api/training", "/api/training round", "round")
    documents = [read(context, path, {}) for path in READ]
    requests, failed = list[str](), False
    for height in blocks:
        answer, document = read(context, f"/api/block/{height}", {})
        documents.append((answer, document))
        _judge_height(context, height, document, answer)
        _judge_listed(context, height, listed.get(height), document, answer)
        requests += named_requests(document)
        failed |= may_have_failed(document)
    if context.edition >= KEPT_SINCE and blocks:
        _judge_oldest(context)
        # No chain gets there during a run.
        far = max(blocks) + FAR
        answer, document = read(context, f"/api/block/{far}", {})
        _judge_height(context, far, document, answer)
    if context.edition >= KEPT_SINCE:
        judge_kept(context, blocks, requests, failed=failed)
    walked = list(documents)
    for ident in list(dict.fromkeys(requests))[:SINGLE]:
        answer, document = read(context, "/api/inference/request", {"id": ident})
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
    answer, document = read(context, "/api/blocks", {"limit": PAGE, "before": PAGE})
    heights = numbers_of(context, "/api/blocks height", "height", document)
    for height, entry in entries_of(heights, document):
        if height <= PAGE:
            answer, block = read(context, f"/api/block/{height}", {})
            _judge_listed(context, height, entry, block, answer)


def _judge_prompt(
    context: Context, ident: str, blocks: list[tuple[Answer, Any]], record: Json, answer: Answer
) -> None:
    """Rule on the prompt of a record, where the transaction of this request shows one too."""
    signed = [
        prompt for _, block in blocks for one in objects(block)
        if one.get("request_id") == ident for prompt in under(one, "prompt")
    ]  # fmt: skip
    shown = list(under(record, "prompt"))
    if signed and shown:
        why = f"the record of {brief(ident)} has the prompt {brief(shown)}, not {brief(signed)}"
        context.judge("NT-RULE-054", shown[0] in signed, why, answer)


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
        again, document = read(context, f"/api/block/{height}", {})
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
            if same and context.edition >= FIFTH:
                context.judge(SPELT, found[0] == there[0], why, answer)


def _walk(
    context: Context, path: str, name: str, key: str, entries: dict[int, Json] | None = None
) -> list[int]:
    """Rule on pages that follow one another, and return their numbers.

    The entries of the pages are added to ``entries``.
    """
    entries = {} if entries is None else entries
    answer, document = read(context, path, {"limit": PAGE})
    whole = page = first_page = numbers_of(context, name, key, document)
    entries.update(entries_of(whole, document))
    seen, shown = list(page), [answer]
    for _ in range(PAGES - 1):
        if len(whole) < PAGE or not page or min(page) <= 1:
            break
        bound = min(page)
        answer, document = read(context, path, {"limit": PAGE, "before": bound})
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
        answer, document = read(context, path, {"limit": 1})
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
    answer, document = read(context, "/api/blocks", query)
    above = numbers_of(context, name, key, document)
    again, document = read(context, "/api/blocks", {"limit": PAGE})
    latest = numbers_of(context, name, key, document)
    if above and latest:
        # It was read last, so it has what has been made meanwhile too.
        why = f"without `before` the highest block is {max(latest)}, with it {max(above)}"
        context.judge("NT-PAGE-007", max(latest) >= max(above), why, first, answer, again)


def _judge_two_names(context: Context, answer: Answer, document: Json) -> None:
    """Rule on objects that have both a request ID and a hash of a transaction: they differ."""
    pairs = [
        (one["request_id"], one[key]) for one in objects(document) for key in HASHES
        if "request_id" in one and isinstance(one.get(key), str)
    ]  # fmt: skip
    if pairs:
        same = [ident for ident, name in pairs if ident == name]
        context.judge("NT-RULE-040", not same, f"hash and request_id are {brief(same)}", answer)


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
