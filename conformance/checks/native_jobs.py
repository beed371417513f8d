"""Interface 4.2 and 8: the inference requests that blocks name, and which of them are kept."""

import time

from conformance.checks.native import members_of, native_get
from conformance.checks.native_documents import numbers_of, read, under
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.httpwire import Answer
from conformance.strictjson import Json

# So many blocks are on a page, and so many of the latest requests are looked up first.
PAGE, LATEST = 6, 4
# Of the latest requests that blocks name: some that a node has to keep.
KEPT = range(40, 121, 20)
# So many requests of a whole chain are looked up.
FEW = 24
# So long blocks are read to find these requests.
WALK_S = 4.0


def named_requests(block: Json) -> list[str]:
    """Return the IDs of the requests that a block names."""
    return [value for value in under(block, "request_id") if isinstance(value, str)]


def may_have_failed(block: Json) -> bool:
    """Return whether something in a block may have failed, so that it made no job."""
    return any(
        (name == "code" and value not in (0, "0", None)) or value is False
        for name, value in members_of(block)
    )


def judge_kept(context: Context, blocks: list[int], named: list[str], *, failed: bool) -> None:
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
        _, document = read(context, f"/api/block/{height}", {})
        if may_have_failed(document):
            break
        jobs = list(dict.fromkeys([*jobs, *named_requests(document)]))
    else:
        _judge_few(context, [] if failed else jobs)

    def look_up(ranks: range) -> list[Answer]:
        return _look_up(context, [jobs[rank] for rank in ranks if rank < len(jobs)])

    if not blocks or blocks != sorted(blocks, reverse=True):
        return
    latest, older = look_up(range(LATEST)), look_up(KEPT)
    _, document = read(context, "/api/blocks", {"limit": PAGE})
    # What has been completed meanwhile may have taken the place of something older.
    moved = numbers_of(context, "/api/blocks height", "height", document)[:1] != blocks[:1]
    if context.edition >= FOURTH and not moved and not failed:
        _judge_named(context, latest)
    if moved or not older or not all(answer.ok for answer in latest):
        return
    again = look_up(KEPT)
    gone = [
        one for one, other in zip(older, again, strict=True) if one.status == other.status == 404
    ]
    why = f"{len(gone)} of {len(older)} requests among the latest {KEPT.stop} are not found"
    context.judge("LIM-008", not gone, why, latest[0], *gone[:2])


def _judge_named(context: Context, latest: list[Answer]) -> None:
    """Rule on the latest requests by the names that blocks have for them, where one is known."""
    declared = context.target.request_id
    if len(latest) < LATEST or declared is None:
        return
    control = native_get(context, "/api/inference/request", {"id": declared})
    if control.ok:
        why = (
            f"none of the {len(latest)} latest requests is found as blocks name it, another one is"
        )
        held = not all(answer.status == 404 for answer in latest)
        context.judge("LIM-008", held, why, control, *latest)


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
