"""Sequences of requests that Hypothesis generates and shrinks, checked against a model.

Three state machines follow the document's sentences: the DHT of one node (interface 4.3), the
configuration and the wallet (interface 4.1). The wallet sequence stays within the budget, and what
it does is not undone: its transfers go to the target itself, and a stake cannot be undone at once.
"""

import os
from functools import partial

from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.stateful import rule

from conformance import messages
from conformance.catalogue import fields_of_message
from conformance.checks.config import changeable, flat, nested, patch, read_config, restore
from conformance.checks.dht import SENDER, find_value
from conformance.checks.money import EXACT, TRIES
from conformance.checks.wallet import AMOUNT, AMOUNTS, DAYS, MEMO
from conformance.context import Context
from conformance.exploration import Exploration, Sequence, explore_sequences
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

SLOTS = st.integers(0, 2)
PORTS = st.integers(1, 65535)


class DhtSequence(Sequence):
    """Stores and searches under three fresh keys.

    Model: the values stored successfully under each key. The document does not say whether a second
    value replaces the first, so any of them is right. After a refused store nothing is known about
    its key.
    """

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin with three unused keys."""
        super().__init__(exploration, context)
        self.keys = [os.urandom(20) for _ in range(3)]
        self.stored: dict[int, set[str]] = {}
        self.unknown: set[int] = set()

    @rule(slot=SLOTS, port=PORTS)
    def store(self, slot: int, port: int) -> None:
        """Store an address under one key, then look up every key."""
        self.step(lambda: self._store(slot, f"192.0.2.{slot}:{port}"))
        for known in sorted(self.stored):
            self.step(partial(self._find, known))

    @rule(slot=SLOTS)
    def search_nodes(self, slot: int) -> None:
        """Search for the nodes nearest to one key, which must not remove what is stored."""
        request = messages.make("DHTFindNodeRequest", sender=SENDER, target_id=self.keys[slot])
        self.step(partial(self._search, request))

    def _search(self, request: Message) -> None:
        # The answer is judged by the check of DHTFindNode.
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
                f"stored {sorted(known)}, found is {answer.found} with {brief(answer.value)}",
                reply,
            )


@requirement("DH-015", *fields_of_message("DHTFindValueResponse", "DHTNodeInfo"))
def dht_sequence(context: Context) -> None:
    """Store, store again, search and look up, in generated orders."""
    explore_sequences(context, DhtSequence, examples=max(3, context.target.examples // 3))


class ConfigSequence(Sequence):
    """Changes one key after the other and reads the configuration in between.

    Model: the value of each key. After a change that needs a restart, or was refused, the value of
    its key counts as unknown.
    """

    original: dict[str, Json]

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin with the configuration that is in force."""
        super().__init__(exploration, context)
        self.near = changeable(self.original)
        self.expected: dict[str, Json] = {}
        self.step(self._begin)

    def _begin(self) -> None:
        self.expected = flat(read_config(self.context))

    @rule(choice=st.integers(0, 4), other=st.booleans())
    def change(self, choice: int, other: bool) -> None:
        """Change one key to a value near its original one, then compare all keys."""
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
    """PATCH one key after the other, reading all keys in between, and restore them."""
    original = read_config(context)
    if not changeable(original):
        raise Skipped("the configuration has none of the keys that the suite would change")
    machine = type("Changes", (ConfigSequence,), {"original": original})
    try:
        explore_sequences(context, machine, examples=max(2, context.target.examples // 5))
    finally:
        restore(context, original)


class WalletSequence(Sequence):
    """Sends to itself and stakes, in any order, and reads the balance in between.

    Model: the staked amount, and the minimum that is available. More may be available, since
    rewards may arrive at any time. A refusal changes nothing.
    """

    short: list[float]
    """What was missing so far, in all sequences of a check."""

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin with the balance of the account."""
        super().__init__(exploration, context)
        self.address: Json = None
        self.available = self.staked = 0.0
        self.step(self._begin)

    def _begin(self) -> None:
        self.address, self.available, self.staked = self._balance()

    def _balance(self) -> tuple[Json, float, float]:
        answer = self.context.api("GET", "/wallet/balance", credential=self.context.target.second)
        document = answer.json_object() if answer.ok else None
        values = [lookup(document, f"balances.{key}") for key in ("available", "staked")]
        if document is None or not all(found and is_number(found[0]) for found in values):
            raise Skipped(f"GET /wallet/balance returned no balance, status {answer.status}")
        return document.get("address"), float(values[0][0]), float(values[1][0])

    @rule(hundredths=st.integers(1, 3))
    def send(self, hundredths: int) -> None:
        """Send a small amount from the account to itself."""
        amount = round(hundredths * AMOUNT, 2)
        body: dict[str, Json] = {"to": self.address, "amount": amount, "memo": MEMO}
        self.step(lambda: self._move("/wallet/send", body, amount))
        self.step(self._look)

    @rule(choice=st.integers(0, len(AMOUNTS) - 1))
    def stake(self, choice: int) -> None:
        """Stake a small amount more."""
        amount = AMOUNTS[choice]
        if amount <= self.context.budget.left:
            body: dict[str, Json] = {"amount": amount, "duration_days": DAYS}
            self.step(lambda: self._move("/wallet/stake", body, amount))
            self.step(self._look)

    @rule()
    def look(self) -> None:
        """Read the balance without having done anything."""
        self.step(self._look)

    def _move(self, path: str, body: dict[str, Json], amount: float) -> None:
        context = self.context
        if context.budget.exhausted:
            raise context.budget.used_up()
        if self.available < 2 * amount:
            return
        answer = context.api("POST", path, credential=context.target.second, json_body=body)
        result = answer.json_object() or {}
        if not answer.ok or result.get("success") is False:
            return
        fee = result.get("fee")
        if path == "/wallet/stake":
            context.budget.charge(amount)
            self.available -= amount
            self.staked += amount
            left = lookup(result, "new_balance.available")
            # The document does not say what a stake costs, but the answer says what is left.
            if left and is_number(left[0]):
                self.available = min(self.available, float(left[0]))
        else:
            context.budget.charge(float(fee) if is_number(fee) else amount)
            self.available -= float(fee) if is_number(fee) else 0.0

    def _look(self) -> None:
        _, available, staked = self._balance()
        missing = self.available - available
        if missing > EXACT:
            self.short.append(missing)
        # An answer that the account has asked for before may be charged only now.
        complete = missing <= EXACT or len(self.short) < TRIES
        self.context.judge(
            "NA-WALLET-008",
            complete and abs(staked - self.staked) <= EXACT,
            f"expected at least {self.available:.10g} and {self.staked:.10g} staked,"
            f" found {available:.10g} and {staked:.10g}",
        )
        self.available = available


@requirement("NA-WALLET-008")
def wallet_sequence(context: Context) -> None:
    """Send to itself and stake in generated orders, reading the balance in between."""
    machine = type("Wallet", (WalletSequence,), {"short": list[float]()})
    explore_sequences(context, machine, examples=max(4, context.target.examples // 5))
