"""Interface 7.3: what the node does when the peer answers with each of the documented statuses.

A request that is sent again is known by its `request_id` or by its bytes, and while one inference
runs, by its layer. The document has no figures for a pause, so only what is certainly none counts:
more attempts in one second than its own recommended pauses would allow, twice over.
"""

from collections.abc import Callable

from conformance.checks.peering import (
    can_stimulate,
    need_work,
    settle,
    shown,
    stimulate,
    uses_the_peer,
    watched,
)
from conformance.context import Context
from conformance.editions import SEVENTH
from conformance.findings import Skipped
from conformance.peer import requests
from conformance.peer.answers import Answer, Refusal
from conformance.peer.watch import WORK, Call
from conformance.registry import requirement

UNAVAILABLE, LATE, BUSY = "CL-CODE-001", "CL-CODE-002", "CL-CODE-003"
ABSENT, BAD, BROKEN = "CL-CODE-004", "CL-CODE-005", "CL-CODE-006"
WINDOW_S = 1.0
# With pauses of 0.1, 0.2 and 0.4 s there are four; a driver may also try another way at once.
MAX_IN_WINDOW = 8
# A deadline that was raised is longer by more than clocks and connections make it.
RAISED = 1.05
# So soon after it a call is an attempt to make one that has failed.
AGAIN_S = 2.0


def _fail(context: Context, code: str, operations: tuple[str, ...]) -> tuple[list[Call], bool]:
    """Answer these operations with a status; return the calls, and whether one inference made them.

    Raises `Skipped` if there are none.
    """

    refused: list[Call] = []

    def conduct(call: Call) -> Answer | None:
        if operations and not call.works:
            return None
        refused.append(call)
        return Refusal(code)

    with context.peer.answering(conduct):
        outcome = stimulate(context) if operations else None
        if outcome is None and not context.peer.wait(
            lambda: bool(refused), context.peer.patience.first_s
        ):
            raise Skipped("the node made no call that could be refused")
        settle(context)
    if not refused:
        raise Skipped(f"the node made no {' and no '.join(operations)}")
    return refused, outcome is not None


def _work_or_anything(context: Context) -> tuple[str, ...]:
    """Return the operations to fail: those that compute, or all if the node makes none."""
    return WORK if can_stimulate(context) and uses_the_peer(context) else ()


def _judge_pause(context: Context, ident: str, calls: list[Call], one_request: bool) -> None:
    """Rule on whether the node waited between its attempts."""
    groups: dict[object, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.operation if one_request else call.identity, []).append(call)
    for same in groups.values():
        for at, first in enumerate(same):
            close = [call for call in same[at:] if call.at - first.at < WINDOW_S]
            if len(close) > MAX_IN_WINDOW:
                why = f"{len(close)} times {first.operation} within {WINDOW_S:g} s"
                context.fails(ident, why, *shown(close[:3]))
                return
    context.holds(ident, *shown(calls[:3]))


def _paused(code: str, ident: str) -> Callable[[Context], None]:
    def check(context: Context) -> None:
        with watched(context):
            calls, one_request = _fail(context, code, _work_or_anything(context))
            _judge_pause(context, ident, calls, one_request)
            if one_request:
                requests.judge_attempts(context, calls)

    return check


@requirement(UNAVAILABLE, *requests.PROVES)
def peer_unavailable(context: Context) -> None:
    """Answer UNAVAILABLE, and see whether the node waits before it tries again."""
    _paused("UNAVAILABLE", UNAVAILABLE)(context)


@requirement(BUSY, *requests.PROVES)
def peer_exhausted(context: Context) -> None:
    """Answer RESOURCE_EXHAUSTED, and see whether the node waits before it calls again."""
    _paused("RESOURCE_EXHAUSTED", BUSY)(context)


@requirement(LATE, *requests.PROVES)
def peer_deadline(context: Context) -> None:
    """Answer DEADLINE_EXCEEDED, and see whether the node gives the peer more time or leaves it."""
    works = _work_or_anything(context)
    if not works and context.edition < SEVENTH:
        need_work(context)
    usual = list(context.peer.watch.calls)
    with watched(context):
        calls, _ = _fail(context, "DEADLINE_EXCEEDED", works)
        if not works:
            calls = _tried_again(usual, calls)
        seen: dict[tuple[str, str], Call] = {}
        for call in calls:
            first = seen.setdefault(call.identity, call)
            if call is first:
                continue
            more = (first.deadline_s or 0) * RAISED
            if call.deadline_s is not None and call.deadline_s <= more:
                why = f"{call.operation} came again with {call.deadline_s:.1f} s"
                context.fails(LATE, why, *shown([first, call]))
                return
        context.holds(LATE, *shown(calls[:3]))


def _tried_again(usual: list[Call], failed: list[Call]) -> list[Call]:
    """Return the failed calls that came again at once, as they never do where none has failed.

    Raises `Skipped` if there are none: what a node asks of its peers from time to time is no
    attempt of what has failed.
    """
    often = {later.operation for first, later in _close(usual) if first.code == "OK"}
    found = [call for pair in _close(failed) for call in pair if call.operation not in often]
    if not found:
        raise Skipped("the node tries no call again, or makes the same ones often")
    return found


def _close(calls: list[Call]) -> list[tuple[Call, Call]]:
    """Return the pairs of calls that are the same, one soon after the other."""
    found, latest = list[tuple[Call, Call]](), dict[tuple[str, str], Call]()
    for call in calls:
        before = latest.get(call.identity)
        if before is not None and call.at - before.at < AGAIN_S:
            found.append((before, call))
        latest[call.identity] = call
    return found


@requirement(ABSENT, *requests.PROVES)
def peer_not_found(context: Context) -> None:
    """Answer NOT_FOUND, and see whether the node asks the peer for the same layer again."""
    need_work(context)
    with watched(context):
        calls, one_request = _fail(context, "NOT_FOUND", WORK)
        for at, first in enumerate(calls):
            again = [call for call in calls[at + 1 :] if _same_layer(first, call, one_request)]
            if again:
                why = f"{first.operation} came again after NOT_FOUND"
                context.fails(ABSENT, why, *shown([first, *again[:2]]))
                return
        context.holds(ABSENT, *shown(calls[:3]))


def _same_layer(first: Call, later: Call, one_request: bool) -> bool:
    if first.operation != later.operation:
        return False
    if first.identity == later.identity:
        return True
    before, after = first.message, later.message
    if before is None or after is None:
        return False
    return bool(one_request and before.target_shard == after.target_shard)


@requirement(BAD, *requests.PROVES)
def peer_invalid(context: Context) -> None:
    """Answer INVALID_ARGUMENT, and see whether the node sends the same request again."""
    need_work(context)
    with watched(context):
        calls, _ = _fail(context, "INVALID_ARGUMENT", WORK)
        for at, first in enumerate(calls):
            again = [call for call in calls[at + 1 :] if call.body == first.body]
            if again:
                why = f"the same {first.operation} came again"
                context.fails(BAD, why, *shown([first, *again[:2]]))
                return
        context.holds(BAD, *shown(calls[:3]))


@requirement(BROKEN, *requests.PROVES)
def peer_internal(context: Context) -> None:
    """Answer INTERNAL, and see how often the node tries again."""
    need_work(context)
    with watched(context):
        calls, _ = _fail(context, "INTERNAL", WORK)
        requests.judge_attempts(context, calls)
        context.observe(BROKEN, f"{len(calls)} calls of the peer in all", *shown(calls[:3]))
