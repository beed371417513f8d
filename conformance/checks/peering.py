"""What the checks of the suite's peer share: a scene, a stimulus, and the way back to normal.

A *scene* is the time of one check: whatever the tested node asks of the peer in it is also judged
by `requests`. Before the peer fails a node that uses its layers, the node has to use them again;
one that never does is failed in the DHT instead, where that shows something.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.catalogue import Effect
from conformance.context import API, Context
from conformance.findings import Shown, Skipped
from conformance.httpwire import HttpClient, Unanswered
from conformance.peer import requests
from conformance.peer.peer import Outcome, Peer
from conformance.peer.watch import PEER, Call
from conformance.strictjson import is_number

# Few tokens, of which each may be a call through all layers.
BODY = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
AGAIN_S = 5.0


class Scene:
    """The calls of the tested node since the scene began."""

    def __init__(self, peer: Peer) -> None:
        """Begin now."""
        self.peer = peer
        self._from = len(peer.watch.calls)

    @property
    def calls(self) -> list[Call]:
        """Every call so far, at all addresses."""
        return self.peer.watch.calls[self._from :]

    @property
    def work(self) -> list[Call]:
        """The calls that have the peer compute something."""
        return [call for call in self.calls if call.works and call.post == PEER]


@contextmanager
def watched(context: Context) -> Iterator[Scene]:
    """Watch the node during a check, and judge at the end what it has asked since the last one."""
    scene = Scene(context.peer)
    try:
        yield scene
    finally:
        requests.judge(context, context.peer.answered(), context.peer.known)


def shown(calls: list[Call]) -> tuple[Shown, ...]:
    """Return what shows these calls, for a finding."""
    return tuple(call.exchange for call in calls if call.exchange is not None)


def can_stimulate(context: Context) -> bool:
    """Return whether the run can make the node use its peers."""
    return context.peer.stimulus is not None or context.target.allows(Effect.SPEND)


def stimulate(context: Context) -> Outcome | None:
    """Have the node generate, so that it uses its peers; None if the run may not spend."""
    if context.peer.stimulus is not None:
        return context.peer.stimulus()
    if not context.target.allows(Effect.SPEND):
        return None
    if context.budget.exhausted:
        raise context.budget.used_up()
    target, journal = context.target, context.peer.watch.journal
    if journal is None:
        return None
    # A second request after a 429 could not be told from the node's own second attempt.
    http = HttpClient(target.url, journal, timeout_s=target.inference_timeout_s, max_wait_s=0)
    http.check = context.peer.watch.check
    try:
        answer = http.call(
            "POST", f"{API}/inference", credential=target.valid, json_body=dict(BODY)
        )
    except Unanswered as reason:
        status = (reason.exchange.response or {}).get("status", 0)
        return Outcome(status, (reason,))
    cost = (answer.json_object() or {}).get("cost")
    amount = cost.get("amount") if isinstance(cost, dict) else None
    if is_number(amount):
        context.budget.charge(float(amount))
    return Outcome(answer.status, (answer,))


def settle(context: Context) -> None:
    """Wait for what the node does in the background about what it was just answered."""
    context.peer.wait(lambda: False, context.peer.patience.settle_s)


def uses_the_peer(context: Context) -> bool:
    """Return whether the node has the peer compute, waiting until it does so again."""
    peer = context.peer
    if not can_stimulate(context) or peer.used is False:
        return False
    ends = peer.time.now() + peer.patience.recover_s
    while True:
        scene = Scene(peer)
        stimulate(context)
        if any(call.code == "OK" for call in scene.work):
            peer.used = True
            return True
        if peer.time.now() >= ends:
            break
        peer.wait(lambda: False, AGAIN_S)
    if peer.used is None:
        peer.used = False
        return False
    raise Skipped(f"the node has not come back to the peer within {peer.patience.recover_s:g} s")


def need_work(context: Context) -> None:
    """Skip the check unless the node has the peer compute."""
    if not can_stimulate(context):
        raise Skipped("needs --allow spend, so that the node uses its peers")
    if not uses_the_peer(context):
        raise Skipped("the node makes no PipelineForward and no SwarmForward at the peer")
