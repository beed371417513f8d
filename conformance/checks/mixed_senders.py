"""Interface 2.3 and 4.3: gradients of passes from two senders go back to the sender of each.

The suite listens at a second address besides that of its own node, and sends passes from both.
Their request_ids are of two sessions, and differ in the case of their last letter, or not. A node
need not pass anything on to an address that it does not know: what does not come to the second one
is no fault, and what comes to the first one in its place only if the node sends to the second one
at all.
"""

from collections.abc import Callable
from itertools import chain
from random import Random

from conformance.checks.bringing_back import BACKWARD, bring_back, send_from, send_gradients
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import fresh_id
from conformance.checks.peering import shown, watched
from conformance.context import Context
from conformance.findings import Skipped
from conformance.peer import requests
from conformance.peer.peer import Peer, Setup
from conformance.peer.watch import Call
from conformance.registry import requirement

OWN_SENDER = "PL-BWD-009"
# So long is a gradient waited for that need not come.
PERHAPS_S, SHORTLY_S = 1.5, 0.3
# With which the request_ids of the two passes end: in letters that differ in their case, or in one.
ENDS = ("aA", "aa")


@requirement(OWN_SENDER, *requests.PROVES)
def back_to_each(context: Context) -> None:
    """Send passes from two addresses, then their gradients, which go back to where each is from."""
    peer = context.peer
    with watched(context):
        if not bring_back(context).calls or not context.service.sender_urls:
            raise Skipped("no gradient comes back to the suite")
        form = peer.sender_urls.index(context.service.sender_urls[0])
        setup = Setup(host=peer.setup.host, patience=peer.patience, time=peer.time, told=False)
        with _second(setup) as other:
            other.watch.journal, other.watch.check = peer.watch.journal, peer.watch.check
            urls = (peer.sender_urls[form], other.sender_urls[form])
            _compare(context, (peer, other), urls)


def _second(setup: Setup) -> Peer:
    try:
        return Peer(setup)
    except OSError as error:
        raise Skipped(f"there is no second address to listen at: {error}") from None


def _compare(context: Context, peers: tuple[Peer, Peer], urls: tuple[str, str]) -> None:
    """Send passes from both in drawn orders, as often as needed."""
    named, passed = send_from(context, urls[1])
    send_gradients(context, named, passed)
    reaches = peers[1].wait(lambda: bool(_came(peers[1], named)), PERHAPS_S)
    draw = Random(context.target.seed)  # noqa: S311 - an order, no secret
    for ends in ENDS:
        compared = Comparison(context)
        for _ in range(TRIES):
            _send_both(context, compared, peers, urls, draw, ends, reaches=reaches)
            if compared.clean:
                break
        compared.conclude()


def _send_both(
    context: Context, compared: Comparison, peers: tuple[Peer, Peer], urls: tuple[str, str],
    draw: Random, ends: str, *, reaches: bool,
) -> None:  # fmt: skip
    """Send one pass from each, then the gradients of each, and see where they come."""
    alike = fresh_id()
    passed = {at: send_from(context, urls[at], alike + ends[at]) for at in draw.sample((0, 1), 2)}
    taken = [send_gradients(context, *passed[at]) for at in draw.sample((0, 1), 2)]
    names = passed[0][0], passed[1][0]

    def arrived(at: int) -> Callable[[], bool]:
        return lambda: bool(list(chain(*(_came(peer, names[at]) for peer in peers))))

    waits = [peers[0].patience.settle_s, peers[0].patience.settle_s if reaches else SHORTLY_S]
    for at, wait_s in enumerate(waits):
        # Another watch notices what comes elsewhere, so that both are asked in turns.
        until = peers[0].time.now() + wait_s
        while not arrived(at)() and peers[0].time.now() < until:
            peers[at].wait(arrived(at), min(wait_s, 0.25))
    # A node need not send to the second one, but then it sends that one's gradients nowhere.
    strayed = _came(peers[1], names[0]) + _came(peers[0], names[1])
    lost = not _came(peers[0], names[0])
    why = "the gradients of a pass went to the sender of another one"
    why = why if strayed else "the gradients of a pass did not come, after a pass of another sender"
    compared.note(OWN_SENDER, not strayed and not lost, why, *taken, *shown(strayed))


def _came(peer: Peer, named: dict[str, str]) -> list[Call]:
    """Return the gradients of a pass that have come to a node of the suite."""
    return [
        call
        for call in list(peer.watch.calls)
        if call.operation == BACKWARD
        and call.message is not None
        and call.message.request_id == named["request_id"]
        and call.message.session_id == named["session_id"]
    ]
