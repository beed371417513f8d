"""Inference is paid for exactly and only once (interface 2.1 ``cost``, 7.1; decision 0085)."""

import os
from pathlib import Path

import pytest
import trio

from meshnode.domain.amounts import ATOMS_PER_UNIT
from meshnode.domain.errors import RateLimited
from meshnode.services.ledger import solo
from meshnode.services.signer import journal as wallet_journal
from spec_tests.edges.http_server import CARD, TOKEN, Client, FakeExecutor, wait_until
from spec_tests.services.wallet.wallet_node import WALLET, WalletNode, start_wallet_node

pytestmark = pytest.mark.wire


async def settled(node: WalletNode, token: str) -> dict[str, float]:
    """Return the balances once nothing is pending."""
    return await node.balances_once(lambda balances: not balances["pending"], token)


async def test_a_generation_costs_what_it_generated(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    answer = await node.infer(alice, 7)
    assert answer.json["cost"] == {"amount": 0.007, "currency": "MESH"}
    balances = await node.balances(alice)
    assert balances == {"available": 0.993, "staked": 0.0, "pending": 0.007, "total": 1.0}
    # After a restart, the node finds the charge in its journal.
    await node.stop()
    again = await start_wallet_node(nursery, tmp_path, settle_every_s=0.05)
    assert (await settled(again, alice))["total"] == 0.993
    # The node bears the fee: exactly the cost leaves the account, fee included.
    sent, fee = (await again.history(alice))[:2]
    assert sorted([sent["amount"], fee["amount"]]) == [-0.006, -0.001]
    assert sent.get("to", fee.get("to")) == again.keys.node_key.public_key


async def test_the_highest_cost_is_set_aside_first(nursery: trio.Nursery, tmp_path: Path) -> None:
    executor = FakeExecutor(permits=trio.Semaphore(0))
    node = await start_wallet_node(nursery, tmp_path, executor)
    alice = node.issue("alice")
    await node.fund(alice, 0.1)
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        body = {"prompt": "hi", "max_tokens": 60, "stream": True}
        await client.send("POST", "/api/v1/inference", body, token=alice)
        assert (await client.head())[0] == 200
        balances = await node.balances(alice)
        assert (balances["available"], balances["pending"]) == (0.04, 0.06)
        # More than the rest is refused, both for inference and for a transfer.
        refused = await node.infer(alice, 41)
        assert (refused.status, refused.code) == (402, "INSUFFICIENT_BALANCE")
        assert refused.details == {"required": 0.041, "available": 0.04}
        to = node.keys.node_key.public_key
        refused = await node.ask("POST", WALLET + "/send", {"to": to, "amount": 0.04}, alice)
        assert refused.details == {"required": 0.041, "available": 0.04}
        assert len(executor.generations) == 1
        # The client goes away after three tokens.
        assert executor.permits is not None
        for _ in range(3):
            executor.permits.release()
        seen = b""
        while b"token-2" not in seen:
            seen += await client.chunk()
    await wait_until(lambda: executor.active == 0)
    await node.balances_once(lambda balances: balances["available"] == 0.097, alice)


async def test_no_money_is_reserved_for_tokens_that_cannot_be_generated(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    poor = await node.infer(node.issue("alice"), 2**31 - 1)
    assert poor.details == {"required": CARD.context_length / 1000, "available": 0.0}


async def test_a_failure_costs_what_was_delivered(nursery: trio.Nursery, tmp_path: Path) -> None:
    executor = FakeExecutor(fail_after=4)
    node = await start_wallet_node(nursery, tmp_path, executor)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    # The answer is an error without any text, so it costs nothing.
    assert (await node.infer(alice, 10)).status == 500
    await wait_until(lambda: executor.active == 0)
    assert (await node.balances(alice))["available"] == 1.0
    # The stream has four tokens and then an error.
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        body = {"prompt": "hi", "max_tokens": 10, "stream": True}
        answer = await client.ask("POST", "/api/v1/inference", body, token=alice)
    assert b"token-3" in answer.body
    assert b"error" in answer.body
    await wait_until(lambda: executor.active == 0)
    assert (await node.balances(alice))["pending"] == 0.004
    executor.refuse = RateLimited(3)
    assert (await node.infer(alice, 10)).status == 429
    assert (await node.balances(alice))["available"] == 0.996


async def test_the_operator_pays_itself(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_wallet_node(nursery, tmp_path, settle_every_s=0.02)
    before, height = await node.balances(), node.ledger.height
    answer = await node.infer(TOKEN, 10)
    assert answer.json["cost"]["amount"] == 0.01
    assert await node.balances() == before
    assert [entry for entry in await node.history() if entry["type"] == "send"] == []
    assert node.ledger.height <= height + 1


async def test_many_small_charges_are_one_transfer(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice, bob = node.issue("alice"), node.issue("bob")
    await node.fund(alice, 1)
    await node.fund(bob, 1)
    async with trio.open_nursery() as clients:
        for _ in range(10):
            clients.start_soon(node.infer, alice, 3)
            clients.start_soon(node.infer, bob, 5)
    assert (await node.balances(alice))["pending"] == 0.03
    await node.stop()
    again = await start_wallet_node(nursery, tmp_path, settle_every_s=0.02)
    assert (await settled(again, alice))["total"] == 0.97
    assert (await settled(again, bob))["total"] == 0.95
    sends = [entry for entry in await again.history(alice) if entry["type"] == "send"]
    assert [entry["amount"] for entry in sends] == [-0.029]


async def test_an_account_that_owes_no_more_than_the_fee_waits(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solo, "EMPTY_S", 0.3)
    node = await start_wallet_node(nursery, tmp_path, settle_every_s=0.01)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    assert (await node.infer(alice, 1)).status == 200
    await node.ledger.wait_beyond(node.ledger.height)
    assert (await node.balances(alice))["pending"] == 0.001
    assert (await node.infer(alice, 1)).status == 200
    assert (await settled(node, alice))["total"] == 0.998


async def test_a_charge_that_cannot_be_written_is_not_made_and_the_answer_shows_no_cost(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused = await node.infer(alice, 5)
        assert (refused.status, refused.code) == (503, "UNAVAILABLE")
    # The journal could not be written, so nobody is served until the node is started again.
    assert (await node.infer(alice, 5)).status == 503
    assert len(node.executor.generations) == 1
    await node.stop()
    again = await start_wallet_node(nursery, tmp_path)
    assert (await again.balances(alice))["pending"] == 0.0
    assert (await again.infer(alice, 5)).status == 200
    assert (await again.balances(alice))["pending"] == 0.005


async def test_compaction_keeps_what_is_owed(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wallet_journal, "COMPACT_AT", 1500)
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    sizes = set()
    for _ in range(30):
        assert (await node.infer(alice, 3)).status == 200
        sizes.add((tmp_path / "wallet.journal").stat().st_size)
    assert max(sizes) < 3000
    await node.stop()
    again = await start_wallet_node(nursery, tmp_path)
    assert (await again.balances(alice))["pending"] == 0.09
    assert again.signer.journal.accounts.owed(again.key_of(alice)) == 0.09 * ATOMS_PER_UNIT
