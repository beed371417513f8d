"""Interface 8: the node's connections to the peer, their pings, and the largest message."""

from conformance.checks.peering import can_stimulate, uses_the_peer, watched
from conformance.context import Context
from conformance.findings import Skipped
from conformance.messages import LENGTH, WireField, encode_field
from conformance.peer import requests
from conformance.peer.answers import Answer, Reply
from conformance.peer.keepalive import (
    LATEST_S,
    SLACK,
    TIMEOUT_S,
    Rest,
    fault,
    proof,
    regular,
    rests,
)
from conformance.peer.peer import Peer
from conformance.peer.tap import ACK, DATA, PING, RST_STREAM, Link
from conformance.peer.watch import Call
from conformance.registry import requirement

EVERY, TIMEOUT, WITHOUT_CALLS, LARGE = "LIM-002", "LIM-003", "LIM-004", "LIM-001"
# An unknown field of any message, which every reader skips.
PADDING = 2047
MAX_HEAD_BYTES = 10
# What the common libraries take unless they are told otherwise.
COMMON_DEFAULT_BYTES = 4 * 1024 * 1024
OF_ANY_SIZE = ("GetWeights", "GetCheckpoint")
LARGE_WITHIN_S = 60.0


@requirement(EVERY, WITHOUT_CALLS, *requests.PROVES)
def peer_keepalive(context: Context) -> None:
    """Leave a connection of the node alone until a ping is due."""
    peer = context.peer
    with watched(context):
        _need_company(peer)

        def shown() -> bool:
            return any(map(_telling, _rests(context))) or any(map(regular, peer.links))

        peer.wait(shown, peer.patience.idle_s)
        found = _rests(context)
        for rest in found:
            why = fault(rest)
            if why:
                context.fails(EVERY, why)
            elif proof(rest):
                context.holds(EVERY)
            if rest.pings and not rest.calls:
                context.holds(WITHOUT_CALLS)
        links = [link for link in peer.links if link.http2 and regular(link)]
        if links:
            context.holds(EVERY)
        if not links and not any(_telling(rest) for rest in found):
            raise Skipped(f"no connection of the node rested for {LATEST_S:.0f} s")


def _need_company(peer: Peer) -> None:
    if not peer.came():
        raise Skipped("nobody called")


def _rests(context: Context) -> list[Rest]:
    now = context.peer.time.now()
    return [rest for link in context.peer.links if link.http2 for rest in rests(link, now)]


def _telling(rest: Rest) -> bool:
    return proof(rest) or fault(rest) is not None


@requirement(TIMEOUT, *requests.PROVES)
def peer_silent_pings(context: Context) -> None:
    """Leave a ping without an answer, and see when the node gives the connection up."""
    peer = context.peer
    longest = TIMEOUT_S * (1 + SLACK)
    with watched(context), peer.silent_pings():
        _need_company(peer)
        begins = peer.time.now()

        def over() -> bool:
            now = peer.time.now()
            return any(
                link.closed_at is not None or now - at > longest
                for link, at in _unanswered(context, begins)
            )

        peer.wait(over, LATEST_S + peer.patience.idle_s)
        found = _unanswered(context, begins)
        now = peer.time.now()
        if not found:
            raise Skipped("the node sent no ping")
        for link, at in found:
            held = (now if link.closed_at is None else link.closed_at) - at
            if link.closed_at is not None and not link.by_caller:
                continue
            if held > longest:
                context.fails(TIMEOUT, f"a connection was kept {held:.0f} s after the ping")
            elif link.closed_at is not None:
                early = held < TIMEOUT_S * (1 - SLACK)
                context.judge(TIMEOUT, not early, f"given up {held:.1f} s after the ping")


def _unanswered(context: Context, begins: float) -> list[tuple[Link, float]]:
    """Return connections with the time of their first ping since then."""
    found = []
    for link in context.peer.links:
        pings = [
            mark.at
            for mark in list(link.marks)
            if mark.kind == PING and mark.from_caller and not mark.flags & ACK and mark.at >= begins
        ]
        if pings:
            found.append((link, pings[0]))
    return found


@requirement(LARGE, *requests.PROVES)
def peer_large(context: Context) -> None:
    """Answer with a message of nearly 100 MiB, most of which the node can skip."""
    peer = context.peer
    size = peer.setup.large_bytes
    sent: dict[str, Call] = {}

    def conduct(call: Call) -> Answer | None:
        if call.operation in sent or not (call.works or call.operation in OF_ANY_SIZE):
            return None
        answer = peer.usual(call)
        if not isinstance(answer, Reply) or len(answer.body) > COMMON_DEFAULT_BYTES:
            # Large enough as it is: to read less than that is wrong, whatever one expects.
            return answer
        sent[call.operation] = call
        call.filled = True
        return Reply(_padded(answer.body, size), answer.metadata)

    with watched(context), peer.answering(conduct):
        if can_stimulate(context):
            uses_the_peer(context)
        peer.wait(lambda: any(_passed(call, size) for call in sent.values()), peer.patience.first_s)
        peer.wait(lambda: all(_decided(call, size) for call in sent.values()), LARGE_WITHIN_S)
        for call in sent.values():
            exchanges = () if call.exchange is None else (call.exchange,)
            if _passed(call, size):
                context.holds(LARGE, *exchanges)
            else:
                # Whoever knows how large the answer should be may take no more than that.
                context.observe(LARGE, f"{call.operation}: {size} bytes were not read", *exchanges)
        natural = [call for call in peer.watch.calls if _is_large(call)]
        for call in natural:
            if not _passed(call, len(call.answer)) and _refused(call):
                why = f"an answer of {len(call.answer)} bytes to {call.operation} was not read"
                context.fails(LARGE, why, *(() if call.exchange is None else (call.exchange,)))
        if not sent and not natural:
            raise Skipped("the node made no call whose answer could be large")


def _is_large(call: Call) -> bool:
    """Return whether an answer was large without the peer's doing."""
    return call.code == "OK" and len(call.answer) > COMMON_DEFAULT_BYTES and not call.filled


def _decided(call: Call, size: int) -> bool:
    return _passed(call, size) or _refused(call)


def _padded(body: bytes, size: int) -> bytes:
    """Return a message of this size, or of what it has already: with a field that nobody knows."""
    size = max(0, size - len(body) - MAX_HEAD_BYTES)
    return body + encode_field(WireField(PADDING, LENGTH, bytes(size)))


def _refused(call: Call) -> bool:
    """Return whether the node gave up reading before its own deadline."""
    link = call.link
    if link is None:
        return False
    ends = call.at + (call.deadline_s or LARGE_WITHIN_S) * 0.9
    resets = (mark for mark in list(link.marks) if mark.kind == RST_STREAM and mark.from_caller)
    hung_up = link.closed_at is not None and link.by_caller and link.closed_at < ends
    return hung_up or any(call.at <= mark.at < ends for mark in resets)


def _passed(call: Call, size: int) -> bool:
    taken: dict[int, int] = {}
    for mark in list(call.link.marks) if call.link else ():
        if mark.kind == DATA and not mark.from_caller and mark.at >= call.at:
            taken[mark.stream] = taken.get(mark.stream, 0) + mark.size
    return any(found >= size - MAX_HEAD_BYTES for found in taken.values())
