"""Interface 2.3 and 4.3: whose gradients go back, under which names, and several at one moment.

As in `returning`, the suite is the previous node, and looks at what comes to it.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from conformance.checks.bringing_back import BACKWARD, bring_back, send_from, send_gradients
from conformance.checks.kept_passes import (
    Fields,
    is_taken,
    kept_way,
    send_back,
    send_kept,
    way_back,
)
from conformance.checks.mixed_passes import BUSY
from conformance.checks.money import TRIES, Comparison
from conformance.checks.passes import fresh_id
from conformance.checks.peering import shown, watched
from conformance.context import Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.peer import requests
from conformance.peer.watch import Call
from conformance.registry import requirement
from conformance.strictjson import brief

OWN, DEPENDS, NAMED, BOTH = "PL-BWD-020", "PL-BWD-021", "PL-BWD-022", "PL-BWD-023"
AT_ONCE = "PL-BWD-026"
# So many passes at a time.
PASSES = 2
# Endings of identifiers: longer than a digest, and beyond ASCII.
ENDING = "-\u00e9\u65e5\U0001f642-" + "x" * 300
LETTERS = "-AbC"
# Which gradients are turned round, of passes one after another.
TURNED = (False, False, True, True)


class Sender:
    """Sends passes and gradients from where the suite's own node is, and sees what comes back."""

    def __init__(self, context: Context, way: Fields) -> None:
        """`way` is what a pass has besides, so that it is kept."""
        self.context, self.way = context, way
        self.url = (context.service.sender_urls or ("",))[0]

    def send(self, **named: str) -> tuple[dict[str, str], Any]:
        """Send a pass with these IDs, and fresh ones besides; `Skipped` if it is refused."""
        return send_from(self.context, self.url, **named, **self.way)

    def came(self, named: dict[str, str]) -> list[Call]:
        """Return the gradients of a pass that have come back."""
        return [
            call for call in list(self.context.peer.watch.calls)
            if call.operation == BACKWARD and call.message is not None
            and call.message.request_id == named["request_id"]
            and call.message.session_id == named["session_id"]
        ]  # fmt: skip

    def returned(self, named: dict[str, str]) -> list[Call]:
        """Wait for the gradients of a pass."""
        peer = self.context.peer
        peer.wait(lambda: bool(self.came(named)), peer.patience.settle_s)
        return self.came(named)


@requirement(OWN, DEPENDS, NAMED, BOTH, *requests.PROVES)
def back_own(context: Context) -> None:
    """Send passes and gradients of other values, and with other identifiers; see what comes."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    with watched(context):
        if not bring_back(context).calls or not context.service.sender_urls:
            raise Skipped("no gradient comes back to the suite")
        sender = Sender(context, {})
        try:
            send_gradients(context, *sender.send())
        except Skipped:
            # It may keep a pass for its labels.
            sender = Sender(context, way_back(context))
        for note in (_note_own, _note_named, _note_both):
            compared = Comparison(context)
            for _ in range(TRIES):
                note(sender, compared)
                if compared.clean:
                    break
            compared.conclude()


def _note_own(sender: Sender, compared: Comparison) -> None:
    calls = list[Call]()
    for turned in TURNED:
        named, passed = sender.send()
        send_gradients(sender.context, named, passed, turned=turned)
        calls += sender.returned(named)[:1]
    if len(calls) < len(TURNED):
        raise Skipped("the gradients of a pass do not come back")
    values = [bytes(call.message.grad_output) for call in calls if call.message is not None]
    stale = values[1] == values[2] != values[3]
    why = "the first gradients of other values came back as those before them, the next ones not"
    compared.note(OWN, not stale, why, *shown(calls))
    if not sender.way:
        why = f"gradients of other values came back alike, {len(values[0])} bytes"
        compared.note(DEPENDS, len(set(values)) > 1, why, *shown(calls))


def _note_named(sender: Sender, compared: Comparison) -> None:
    ending = ENDING + (LETTERS if sender.context.edition >= SEVENTH else "")
    ids = {"session_id": fresh_id() + ending, "request_id": fresh_id() + ending}
    before = len(sender.context.peer.watch.calls)
    named, passed = sender.send(**ids)
    reply = send_gradients(sender.context, named, passed)
    held = bool(sender.returned(named))
    others = [] if held else sender.context.peer.watch.calls[before:]
    why = f"the gradients of a pass with the identifiers {brief(list(named.values()), 200)} are"
    why = f"{why} accepted, and do not come back under them"
    compared.note(NAMED, held, why, reply, *shown(others))


def _note_both(sender: Sender, compared: Comparison) -> None:
    session = fresh_id()
    sent = [sender.send(session_id=session) for _ in range(2)]
    replies = [send_gradients(sender.context, *one) for one in reversed(sent)]
    came = [len(sender.returned(named)) for named, _ in sent]
    why = f"of two passes of one session the gradients of {sum(map(bool, came))} come back"
    compared.note(BOTH, all(came), why, *replies)


@requirement(AT_ONCE)
def back_at_once(context: Context) -> None:
    """Send passes, then the gradients of each one after another, and of others at one moment."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    way = kept_way(context)
    for many in (0, PASSES):
        compared = Comparison(context)
        for _ in range(TRIES):
            _note_at_once(context, compared, way, many)
            if compared.clean:
                break
        compared.conclude()


def _note_at_once(context: Context, compared: Comparison, way: Fields, many: int) -> None:
    """Note what becomes of gradients at one moment, over so many connections more than one."""
    turns = [[send_kept(context, way) for _ in range(PASSES)] for _ in range(2)]
    kept = [[one.fields for one in pair if one is not None] for pair in turns]
    if not all(len(fields) == PASSES for fields in kept):
        raise Skipped("a pass is refused")
    control = [send_back(context, fields) for fields in kept[0]]
    with context.grpc.spread(many), ThreadPoolExecutor(PASSES) as pool:
        replies: list[Reply] = list(pool.map(lambda one: send_back(context, one), kept[1]))
    if all(map(is_taken, control)) and not any(reply.code in BUSY for reply in replies):
        taken = sum(map(is_taken, replies))
        why = f"of {len(replies)} gradients at one moment {taken} are accepted"
        compared.note(AT_ONCE, taken == len(replies), why, *control, *replies)
