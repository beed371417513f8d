"""Interface 2.3 and 4.3: stores, searches and look-ups of the DHT in an order that is drawn.

Model: the values that a node has stored with success, by their keys. Which of several values under
one key is found is open; that one of them is found is not. A store that is refused changes nothing,
and a search or a ping stores nothing.

The seed of the run draws the order, the kinds of keys and the values. The keys themselves are fresh
in every try, since nothing can be removed again; under the ID of a node nothing is stored but its
own address. Two senders take turns: what one of them has stored, the other one finds.
"""

import os
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from conformance import messages
from conformance.checks.dht import NODE_ID_BYTES, SENDER
from conformance.checks.money import TRIES, Comparison
from conformance.context import Context
from conformance.editions import FOURTH
from conformance.findings import Skipped
from conformance.grpcwire import Reply
from conformance.registry import requirement
from conformance.strictjson import brief

FOUND = "DH-031"
# Statuses that say that a store was refused. After any other one it may have been made.
REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND")
# So many characters has a value that a node may well refuse.
LENGTHS = (300, 5000, (1 << 20) + 1)
# The record does not show longer ones.
SHOWN = 10_000
# So many keys of each kind, and steps after they have got their first values.
FRESH, STEPS = 4, 8
# So many keys of nobody are looked up, more than a run has stored before.
NOTHING, NOTHING_S = 64, 2.0
# So many more values are stored after these, some kilobytes in all.
MORE, MORE_S = 48, 3.0
# So many bytes of a key are refused.
TOO_LONG = 1000
LETTERS = " \t\nab:9/-_\u00e9\u00df\u65e5\U0001f642"
# No text in UTF-8, as a string has to be.
NO_TEXT = b"\xff\xfe\xfd"
VALUE_NUMBER = 3
# Of a second sender, on which nobody answers either.
OTHER_IP = "127.0.0.2"


@dataclass
class Walk:
    """What one try has stored, and the first value that it did not find again."""

    context: Context
    draw: Random
    senders: tuple[Any, ...]
    """Who stores and looks up; None is nobody."""
    # IDs of other nodes, about which nothing else is said.
    foreign: set[bytes] = field(default_factory=set)
    kept: dict[bytes, list[str]] = field(default_factory=dict)
    latest: dict[bytes, Reply] = field(default_factory=dict)
    done: str = ""
    lost: tuple[str, tuple[Reply, ...]] | None = None

    def store(self, key: bytes, value: str) -> bool | None:
        """Store a value; return whether it was taken, or None where the answer does not say it."""
        sender = self.draw.choice(self.senders)
        request = messages.make("DHTStoreRequest", sender=sender, key=key, value=value)
        hidden = len(value) > SHOWN
        reply = self.context.grpc.call(
            "DHTStore", request.SerializeToString() if hidden else request
        )
        answer = reply.message
        taken = bool(answer.success) if answer is not None else None
        if answer is None and reply.code in REFUSED:
            taken = False
        if taken:
            # The key that was stored under last is the last one.
            self.kept[key] = [*self.kept.pop(key, []), value]
            self.latest[key] = reply
        elif taken is None:
            # It may have been stored or not, so that nothing can be said of this key any more.
            self.kept.pop(key, None)
        self.done = f"after a store of {len(value)} characters" + ("" if taken else ", refused")
        return taken

    def own_key(self) -> bytes | None:
        """Draw a key that has a value and is not the ID of another node."""
        keys = [key for key in self.kept if key not in self.foreign]
        return self.draw.choice(keys) if keys else None

    def look_up(self, key: bytes) -> None:
        """Look up a key, and remember the first one whose value is lost."""
        if key not in self.kept or self.lost:
            return
        sender = self.draw.choice([one for one in self.senders if one is not None])
        request = messages.make("DHTFindValueRequest", sender=sender, key=key)
        reply = self.context.grpc.call("DHTFindValue", request)
        answer = reply.message
        if answer is None and reply.code != "NOT_FOUND":
            raise Skipped(f"DHTFindValue ended with {reply.code}")
        found = answer.value if answer is not None and answer.found else None
        if found not in self.kept[key]:
            stored = " or ".join(brief(value, 60) for value in self.kept[key][-2:])
            why = f"under {key.hex()} {stored} was stored; {self.done}, found is {brief(found)}"
            self.lost = why, (self.latest[key], reply)


@requirement(FOUND)
def dht_walk(context: Context) -> None:
    """Store, search, look up and ping in a drawn order; each stored value has to be found."""
    compared = Comparison(context)
    other = messages.make(
        "DHTNodeInfo", node_id=os.urandom(NODE_ID_BYTES), ip=OTHER_IP, port=SENDER.port
    )
    for _ in range(TRIES):
        draw = Random(context.target.seed)  # noqa: S311 - an order, no secret
        walk = Walk(context, draw, (SENDER, other, SENDER, None))
        _begin(walk)
        if not walk.kept:
            raise Skipped("no store succeeds")
        for _ in range(STEPS):
            _step(walk)
        _search_for_nothing(walk)
        if context.edition >= FOURTH:
            _store_more(walk)
        _store_nowhere(walk)
        _overwrite_until_refused(walk)
        for key in walk.draw.sample(list(walk.kept), len(walk.kept)):
            walk.look_up(key)
        why, shown = walk.lost or ("", tuple(walk.latest.values())[:1])
        compared.note(FOUND, walk.lost is None, why, *shown)
        if compared.clean:
            break
    compared.conclude()


def _begin(walk: Walk) -> None:
    """Store a first value under keys of each kind, and look each of them up at once."""
    first = list[tuple[bytes, str]]()
    for _ in range(FRESH):
        key = os.urandom(NODE_ID_BYTES - 1) + b"\x01"
        first.append((key, _value(walk.draw)))
        # One that differs in a single bit.
        bit = walk.draw.randrange(8, 8 * NODE_ID_BYTES)
        number = int.from_bytes(key, "big") ^ (1 << bit)
        first.append((number.to_bytes(NODE_ID_BYTES, "big"), _value(walk.draw)))
    first.append((os.urandom(NODE_ID_BYTES), ""))
    first += _nodes(walk)
    walk.draw.shuffle(first)
    for key, value in first:
        walk.store(key, value)
        walk.look_up(key)


def _value(draw: Random) -> str:
    """Draw an address, blanks, or a text of any letters."""
    kind = draw.randrange(3)
    if kind == 0:
        return f"192.0.2.{draw.randrange(1, 255)}:{draw.randrange(1, 65536)}"
    if kind == 1:
        return " " * draw.randrange(1, 9)
    return "".join(draw.choices(LETTERS, k=draw.randrange(1, 200)))


def _nodes(walk: Walk) -> list[tuple[bytes, str]]:
    """Return the IDs of nodes with their own addresses: of the responder, listed ones, a sender."""
    near = walk.draw.randbytes(NODE_ID_BYTES)
    request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=near)
    answer = walk.context.grpc.call("DHTFindNode", request).message
    known: list[Any] = [_ping(walk, os.urandom(NODE_ID_BYTES))]
    if answer is not None:
        others = [answer.responder, *answer.nodes[:2]]
        known += others
        walk.foreign |= {bytes(node.node_id) for node in others}
    return [
        (bytes(node.node_id), f"{node.ip}:{node.port}")
        for node in known
        if len(node.node_id) == NODE_ID_BYTES and node.ip
    ]


def _ping(walk: Walk, ident: bytes) -> Any:
    """Call DHTPing as a sender with this ID, and return how it has called itself."""
    sender = messages.make("DHTNodeInfo", node_id=ident, ip=SENDER.ip, port=SENDER.port)
    walk.context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
    return sender


def _step(walk: Walk) -> None:
    """Do something else about a key that has a value, then look up this key and another one."""
    key = walk.own_key()
    if key is None:
        return
    kind = walk.draw.randrange(5)
    if kind == 0:
        walk.store(key, f"192.0.2.{walk.draw.randrange(1, 255)}:9000")
    elif kind == 1:
        _ping(walk, key)
        walk.done = "after a ping by a node with this ID"
    elif kind == 2:
        request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=key)
        walk.context.grpc.call("DHTFindNode", request)
        walk.done = "after a search for a node with this ID"
    elif kind == 3:
        _store_no_text(walk, key)
    elif key[-1]:
        # The key of another length is another one, or none, however it is filled up.
        short = messages.make("DHTStoreRequest", sender=SENDER, key=key[:-1], value="none")
        walk.context.grpc.call("DHTStore", short)
        walk.done = "after a store under its first 19 bytes"
    walk.look_up(key)
    if walk.kept:
        walk.look_up(list(walk.kept)[-1])
        walk.look_up(walk.draw.choice(list(walk.kept)))


def _store_no_text(walk: Walk, key: bytes) -> None:
    """Store bytes that are no text; a node that takes them has another value then."""
    bare = messages.make("DHTStoreRequest", sender=SENDER, key=key).SerializeToString()
    content = bytes([VALUE_NUMBER << 3 | messages.LENGTH, len(NO_TEXT)]) + NO_TEXT
    reply = walk.context.grpc.call("DHTStore", bare + content)
    answer = reply.message
    if reply.code not in REFUSED and (answer is None or answer.success):
        walk.kept.pop(key, None)
    walk.done = "after a store of bytes that are no text, refused"


def _search_for_nothing(walk: Walk) -> None:
    """Look up keys under which nothing is stored; nothing is lost by that."""
    ends = time.monotonic() + NOTHING_S
    for _ in range(NOTHING):
        request = messages.make("DHTFindValueRequest", sender=SENDER, key=os.urandom(NODE_ID_BYTES))
        walk.context.grpc.call("DHTFindValue", request)
        if time.monotonic() > ends:
            break
    walk.done = f"after {NOTHING} look-ups of keys that nobody has stored"
    for key in list(walk.kept)[:2]:
        walk.look_up(key)


def _store_more(walk: Walk) -> None:
    """Store more values, as long as they are taken; those that were stored first stay."""
    ends = time.monotonic() + MORE_S
    stored = 0
    while stored < MORE and time.monotonic() < ends:
        if not walk.store(os.urandom(NODE_ID_BYTES), _value(walk.draw)):
            break
        stored += 1
    walk.done = f"after {stored} other stores"
    for key in list(walk.kept)[:2]:
        walk.look_up(key)


def _store_nowhere(walk: Walk) -> None:
    """Store under no key, and under one that is far too long; what was stored last stays."""
    for nowhere in (b"", os.urandom(TOO_LONG)):
        key = os.urandom(NODE_ID_BYTES)
        walk.store(key, _value(walk.draw))
        request = messages.make("DHTStoreRequest", sender=SENDER, key=nowhere, value="none")
        reply = walk.context.grpc.call("DHTStore", request)
        walk.done = f"after a store under a key of {len(nowhere)} bytes, {reply.code}"
        walk.look_up(key)


def _overwrite_until_refused(walk: Walk) -> None:
    """Store ever longer values under a key that has one, until the node refuses one of them."""
    key = walk.own_key()
    if key is None or walk.lost:
        return
    for length in LENGTHS:
        taken = walk.store(key, walk.draw.choice("xyz") * length)
        walk.look_up(key)
        if not taken:
            break
