"""Money survives crashes (decision 0084): a stateful test over HTTP that can die between any steps.

A *batch* of requests is sent at once, and the node dies at its k-th step: before or after a line of
the journal is written, before or after a transaction is submitted. It starts again over the same
folder. At the end, each request that was answered must have been carried out once, and each request
without an answer at most once. Each transfer has an amount of its own, by which it is recognized.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import h11
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.services.ledger import solo
from spec_tests.edges.http_server import TOKEN
from spec_tests.services.wallet.crashing import Fate, living
from spec_tests.services.wallet.wallet_node import FEE, PRICE, STRANGER, WALLET, WalletNode

ATOMS = 1_000_000
FUNDS = 100 * ATOMS


@dataclass
class Told:
    """The amounts of the clients' requests: of those that succeeded, and of unknown outcome."""

    answered: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, amount: int, answer: Any) -> None:
        book = self.unknown if answer is None else self.answered
        if answer is None or answer.status == 200:
            book[what] = book.get(what, 0) + amount


KINDS = ("send", "infer", "infer", "stake")
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1)), min_size=1, max_size=4),
        st.none() | st.integers(0, 9),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=max(8, settings().max_examples // 6))
@given(BATCHES)
def test_no_atom_is_lost_or_made_whenever_the_node_dies(batches: list[Any]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(solo, "INTERVAL_S", 0.0),
        mock.patch.object(solo, "EMPTY_S", 0.05),
    ):
        trio.run(play, Path(folder), batches)


async def play(folder: Path, batches: list[Any]) -> None:
    told = [Told(), Told()]
    number = 0
    async with living(folder, Fate()) as node:
        tokens = [node.issue("alice"), node.issue("bob")]
        for token in tokens:
            await node.fund(token, FUNDS // ATOMS)
    for requests, at in batches:
        async with living(folder, Fate(at)) as node, trio.open_nursery() as clients:
            for kind, who in requests:
                clients.start_soon(ask, node, kind, tokens[who], told[who], number)
                number += 1
    async with living(folder, Fate(), settle_every_s=0.01) as node:
        for token, heard in zip(tokens, told, strict=True):
            await check(node, token, heard)
        await check_supply(node, tokens)


async def ask(node: WalletNode, kind: str, token: str, told: Told, number: int) -> None:
    answer = None
    amount = 1 << (number % 9)
    try:
        if kind == "send":
            amount = 1 << number
            body: Any = {"to": STRANGER, "amount": amount / ATOMS}
            answer = await node.ask("POST", WALLET + "/send", body, token)
        elif kind == "infer":
            answer = await node.infer(token, amount)
        else:
            body = {"amount": 1 + amount / ATOMS, "duration_days": 1}
            amount += ATOMS
            answer = await node.ask("POST", WALLET + "/stake", body, token)
    except (OSError, h11.RemoteProtocolError, AssertionError, trio.BrokenResourceError):
        answer = None
    # A status above 500 leaves the outcome open, as a missing answer does.
    told.note(f"{kind} {number}", amount, None if answer is None or answer.status > 500 else answer)


async def check(node: WalletNode, token: str, told: Told) -> None:
    balances = await node.balances_once(lambda now: now["pending"] <= FEE / ATOMS, token)
    owed = round(balances["pending"] * ATOMS)
    history = await node.history(token)
    amounts = [(entry["type"], round(entry["amount"] * ATOMS), entry) for entry in history]
    # The amounts of the history add up to the balance.
    assert sum(amount for _, amount, _ in amounts) == round(balances["available"] * ATOMS) + owed
    # Answered transfers and stakes happened once, unanswered ones at most once, and no others did.
    for kind, to in (("send", STRANGER), ("stake", None)):
        done = [
            -amount for name, amount, entry in amounts if name == kind and entry.get("to") == to
        ]
        known = [atoms for what, atoms in told.answered.items() if what.startswith(kind)]
        maybe = [atoms for what, atoms in told.unknown.items() if what.startswith(kind)]
        for atoms in known:
            done.remove(atoms)
        for atoms in done:
            maybe.remove(atoms)
    # Charges: what was paid for them, fees included, and what is still owed.
    node_key = node.keys.node_key.public_key
    settlements = [-amount + FEE for name, amount, entry in amounts if entry.get("to") == node_key]
    charged = sum(settlements) + owed
    settled = sum(amount for what, amount in told.answered.items() if what.startswith("infer"))
    maybe = [amount for what, amount in told.unknown.items() if what.startswith("infer")]
    assert charged % PRICE == 0
    sums = {0}
    for amount in maybe:
        # A generation that was cut off is charged for the tokens that it had generated.
        sums |= {before + part for before in sums for part in range(amount + 1)}
    assert charged // PRICE - settled in sums


async def check_supply(node: WalletNode, tokens: list[str]) -> None:
    summary = json.loads((await node.ledger.query("/summary")).value)
    keys = [node.key_of(token) for token in (*tokens, TOKEN)] + [STRANGER]
    there = 0
    for key in keys:
        options = {"public_key": key}
        there += json.loads((await node.ledger.query("/account", options)).value)["total"]
        there += json.loads((await node.ledger.query("/stake", options)).value)["amount"]
    powers = json.loads((await node.ledger.query("/validators")).value)["validators"]
    bonded = sum(one["bond"] for one in powers)
    assert there + bonded == summary["initial_supply"] + summary["issued"] - summary["burned"]
