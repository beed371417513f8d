"""Sequences of requests, made and shortened by Hypothesis, whose model is the document's sentences.

Two state machines: the DHT of one node (section 4.3) and the configuration (section 4.1).
"""

import os
from functools import partial

from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.stateful import rule

from conformance import messages
from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.checks.dht import SENDER, find_value
from conformance.context import Context
from conformance.exploration import Exploration, Sequence, Skipped, explore_sequences
from conformance.registry import fields_of_message, requirement
from conformance.strictjson import Json, brief

SLOTS = st.integers(0, 2)
PORTS = st.integers(1, 65535)


class DhtSequence(Sequence):
    """Stores and searches under three fresh keys.

    Model: what was stored under each key with success. Whether a second value replaces the first is
    not shown, so any of them is right; where a store was refused, nothing is known of that key.
    """

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin with three keys that nobody has used."""
        super().__init__(exploration, context)
        self.keys = [os.urandom(20) for _ in range(3)]
        self.stored: dict[int, set[str]] = {}
        self.unknown: set[int] = set()

    @rule(slot=SLOTS, port=PORTS)
    def store(self, slot: int, port: int) -> None:
        """Store an address under one key, then look for every key."""
        self.step(lambda: self._store(slot, f"192.0.2.{slot}:{port}"))
        for known in sorted(self.stored):
            self.step(partial(self._find, known))

    @rule(slot=SLOTS)
    def search_nodes(self, slot: int) -> None:
        """Search for the nodes nearest to one key; what is stored stays."""
        request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=self.keys[slot])
        self.step(partial(self._search, request))

    def _search(self, request: Message) -> None:
        # What it answers is judged by the check that is about it.
        self.context.grpc.call("DHTFindNode", request)

    def _store(self, slot: int, value: str) -> None:
        request = messages.make("DHTStoreRequest", sender=SENDER, key=self.keys[slot], value=value)
        reply = self.context.grpc.call("DHTStore", request)
        if reply.code == "UNIMPLEMENTED":
            raise Skipped("DHTStore is not implemented")
        try:
            taken = reply.ok and messages.parse("DHTStoreResponse", reply.body).success
        except messages.BadMessage:
            taken = False
        if taken:
            self.stored.setdefault(slot, set()).add(value)
        else:
            self.unknown.add(slot)

    def _find(self, slot: int) -> None:
        reply, answer = find_value(self.context, self.keys[slot])
        known = self.stored.get(slot)
        if known and slot not in self.unknown:
            self.context.judge(
                "DH-015",
                answer.found and answer.value in known,
                f"stored were {sorted(known)}, found is {answer.found} {brief(answer.value)}",
                reply,
            )


@requirement("DH-015", *fields_of_message("DHTFindValueResponse", "DHTNodeInfo"))
def dht_sequence(context: Context) -> None:
    """Store, store again, search and find, in generated orders."""
    explore_sequences(context, DhtSequence, examples=max(3, context.target.examples // 3))


class ConfigSequence(Sequence):
    """Changes one key after the other and looks in between.

    Model: the value of each key. A key whose change needs a restart, or was refused, is not known
    from then on.
    """

    original: dict[str, Json]

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin with whatever is in force."""
        super().__init__(exploration, context)
        self.near = changeable(self.original)
        self.expected: dict[str, Json] = {}
        self.step(self._begin)

    def _begin(self) -> None:
        self.expected = flat(read_config(self.context))

    @rule(choice=st.integers(0, 4), other=st.booleans())
    def change(self, choice: int, other: bool) -> None:
        """Change one key to one of the values near the first, then compare everything."""
        paths = sorted(self.near)
        path = paths[choice % len(paths)]
        value = self.near[path][-1 if other else 0]
        self.step(lambda: self._change(path, value))
        self.step(self._look)

    def _change(self, path: str, value: Json) -> None:
        answer = patch(self.context, nested({path: value}))
        result = answer.json_object() or {}
        if answer.ok and result.get("success") and result.get("restart_required") is False:
            self.expected[path] = value
        else:
            self.expected.pop(path, None)

    def _look(self) -> None:
        current = flat(read_config(self.context))
        wrong = {
            path: current.get(path)
            for path, value in self.expected.items()
            if current.get(path) != value
        }
        expected = {path: self.expected[path] for path in wrong}
        self.context.judge(
            "NA-PATCH-108", not wrong, f"expected {brief(expected)}, found {brief(wrong)}"
        )


@requirement("NA-PATCH-108")
def config_sequence(context: Context) -> None:
    """PATCH one key after the other, looking in between, and put all of them back."""
    original = read_config(context)
    if not changeable(original):
        raise Skipped("the configuration has none of the keys that the suite would change")
    machine = type("Changes", (ConfigSequence,), {"original": original})
    try:
        explore_sequences(context, machine, examples=max(2, context.target.examples // 5))
    finally:
        restore(context, original)
