"""Concurrent, interrupted and lost requests to the wallet, and shared keys (decision 0084)."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from meshnode.domain.account_address import address_of
from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.envelope import sign_envelope, transaction_hash
from meshnode.domain.chain.errors import (
    MempoolFull,
    Rejected,
    TooManyCooldowns,
    TooManyOfSender,
)
from meshnode.domain.errors import Unavailable
from meshnode.edges import http_wallet
from meshnode.services.ledger import solo
from meshnode.services.signer import signer as signing
from meshnode.services.signer import submission
from meshnode.services.signer.journal import Journal
from spec_tests.edges.http_server import TOKEN, Answer, Client, wait_until
from spec_tests.services.wallet.wallet_node import (
    FEE,
    STRANGER,
    WALLET,
    WalletNode,
    start_wallet_node,
)

pytestmark = pytest.mark.wire

SEND = WALLET + "/send"


@dataclass
class Unsteady:
    """A ledger whose failures a test chooses."""

    ledger: Any
    ready: bool = True
    lose_answers: int = 0
    refuse: list[Rejected] = field(default_factory=list)
    """Refusals for the next submissions, the last one first."""
    hide_blocks: int = 0
    """How many queries for a block fail once something was submitted."""
    closed: trio.Event | None = None
    """If set, submissions wait for this event."""
    submitted: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def readiness(self) -> Any:
        return SimpleNamespace(ready=self.ready, reason="ok" if self.ready else "catching_up")

    async def block(self, height: int) -> Any:
        if self.submitted and self.hide_blocks:
            self.hide_blocks -= 1
            raise Unavailable("the ledger is busy")
        return await self.ledger.block(height)

    async def submit(self, raw: bytes) -> Any:
        self.submitted.append(transaction_hash(raw))
        if self.closed is not None:
            await self.closed.wait()
        if self.refuse:
            return TransactionResult(1, str(self.refuse.pop()), transaction_hash(raw))
        result = await self.ledger.submit(raw)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the block maker does not answer")
        return result


async def start(nursery: trio.Nursery, folder: Path, **ways: Any) -> tuple[WalletNode, Unsteady]:
    made: list[Unsteady] = []

    def wrap(ledger: Any) -> Unsteady:
        made.append(Unsteady(ledger, **ways))
        return made[0]

    node = await start_wallet_node(nursery, folder, wrap=wrap)
    return node, made[0]


async def test_concurrent_sends_of_one_account_are_one_after_another(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    answers: list[Answer] = []

    async def send() -> None:
        body = {"to": STRANGER, "amount": 0.149}
        answers.append(await node.ask("POST", SEND, body, alice))

    async with trio.open_nursery() as clients:
        for _ in range(9):
            clients.start_soon(send)
    # Six clients pay 0.15 each, fee included; the 0.1 left is too little for a seventh.
    assert Counter(answer.status for answer in answers) == {200: 6, 402: 3}
    ids = {answer.json["transaction_id"] for answer in answers if answer.status == 200}
    assert len(ids) == 6
    assert (await node.balances(alice))["total"] == pytest.approx(0.1)


async def test_a_client_that_goes_away_loses_nothing(nursery: trio.Nursery, tmp_path: Path) -> None:
    opened = trio.Event()
    node, ledger = await start(nursery, tmp_path, closed=opened)
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        await client.send("POST", SEND, {"to": STRANGER, "amount": 2}, token=TOKEN)
        await wait_until(lambda: ledger.submitted)
    # The transfer is signed but not in a block: its amount cannot be spent again.
    assert (await node.balances())["pending"] == 2.001
    opened.set()
    await node.ledger.wait_transaction(ledger.submitted[0])
    await node.balances_once(lambda balances: not balances["pending"])
    assert (await node.balances())["available"] == 899_997.999


async def test_waiting_callers_fail_when_the_disk_fails(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "ASK_AGAIN_S", 0.01)
    opened = trio.Event()
    node, ledger = await start(nursery, tmp_path, closed=opened)
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        await client.send("POST", SEND, {"to": STRANGER, "amount": 2}, token=TOKEN)
        await wait_until(lambda: ledger.submitted)
    with monkeypatch.context() as disk:
        disk.setattr(Journal, "_append_line", lambda *_: False)
        disk.setattr(signing, "NOTED_WITHIN_S", 0.05)
        opened.set()
        await node.ledger.wait_transaction(ledger.submitted[0])
        answer = await node.ask("GET", WALLET + "/balance")
        assert answer.status == 503
        assert "cannot be written" in str(answer.json)
    # The disk has room again: nothing was lost, and nothing is paid twice.
    await node.balances_once(lambda balances: not balances["pending"])
    assert (await node.balances())["available"] == 899_997.999
    assert len(ledger.submitted) == 1


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_paid_twice(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "ASK_AGAIN_S", 0.01)
    node, ledger = await start(nursery, tmp_path, lose_answers=3)
    answer = await node.ask("POST", SEND, {"to": STRANGER, "amount": 2})
    assert answer.json["status"] == "confirmed"
    assert len(set(ledger.submitted)) == 1
    assert (await node.balances())["total"] == 899_997.999


async def test_a_payment_is_confirmed_though_its_block_cannot_be_read_at_once(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refusal, the client would pay a second time."""
    monkeypatch.setattr(signing, "ASK_AGAIN_S", 0.01)
    node, ledger = await start(nursery, tmp_path, hide_blocks=2)
    answer = await node.ask("POST", SEND, {"to": STRANGER, "amount": 2})
    assert answer.json["status"] == "confirmed"
    assert ledger.hide_blocks == 0
    assert (await node.balances())["total"] == 899_997.999


async def test_an_address_with_a_checksum_is_paid_and_a_wrong_one_refused(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node, _ = await start(nursery, tmp_path)
    address = address_of(STRANGER)
    answer = await node.ask("POST", SEND, {"to": address, "amount": 2})
    assert (answer.status, answer.json["to"]) == (200, address)
    sent = (await node.ask("GET", WALLET + "/transactions")).json["transactions"]
    assert [entry["to"] for entry in sent if entry["type"] == "send"] == [STRANGER]
    wrong = address[:-1] + ("q" if address[-1] != "q" else "p")
    answer = await node.ask("POST", SEND, {"to": wrong, "amount": 2})
    assert (answer.status, answer.details["field"]) == (400, "to")
    assert "does not match its checksum" in answer.details["reason"]


async def test_a_full_mempool_is_waited_for_and_a_rule_is_not(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solo, "EMPTY_S", 0.2)
    node, ledger = await start(nursery, tmp_path, refuse=[MempoolFull(), TooManyOfSender()])
    answer = await node.ask("POST", SEND, {"to": STRANGER, "amount": 2})
    assert answer.json["status"] == "confirmed"
    assert (len(ledger.submitted), len(set(ledger.submitted))) == (3, 1)
    ledger.refuse = [TooManyCooldowns()]
    answer = await node.ask("POST", SEND, {"to": STRANGER, "amount": 2})
    assert (answer.status, answer.details["field"]) == (400, "request")
    assert "cooling down" in answer.details["reason"]
    # Nothing of the refused transaction is left: the next one gets its nonce.
    assert (await node.balances())["pending"] == 0.0
    assert (await node.ask("POST", SEND, {"to": STRANGER, "amount": 1})).status == 200
    assert (await node.balances())["total"] == 899_996.998


async def test_a_key_that_is_used_elsewhere_too_is_signed_with_again(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    opened = trio.Event()
    node, ledger = await start(nursery, tmp_path, closed=opened)
    foreign: dict[str, Any] = {
        "kind": "transfer", "chain_id": node.ledger.chain_id, "nonce": 0,
        "to": STRANGER, "amount": 7,
    }  # fmt: skip
    raw = encode(sign_envelope(foreign, node.keys.node_key.seed))
    answers: list[Answer] = []

    async def send() -> None:
        answers.append(await node.ask("POST", SEND, {"to": STRANGER, "amount": 2}))

    async with trio.open_nursery() as clients:
        clients.start_soon(send)
        await wait_until(lambda: ledger.submitted)
        # Meanwhile another user of the key takes the nonce of the signed transaction.
        assert (await node.ledger.submit(raw)).code == 0
        opened.set()
    assert answers[0].json["status"] == "confirmed"
    assert len(set(ledger.submitted)) == 2
    assert (await node.balances())["total"] == 900_000 - 2 - 0.000007 - 2 * FEE / 1e6


async def test_a_slow_payment_is_pending_and_not_refused(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_wallet, "CONFIRM_WITHIN_S", 0.05)
    opened = trio.Event()
    node, ledger = await start(nursery, tmp_path, closed=opened)
    transfer = {"to": STRANGER, "amount": 2}
    answer = await node.ask("POST", SEND, transfer)
    assert (answer.status, answer.json["status"]) == (200, "pending")
    # Requests behind it are not even signed, so that the client may try them again.
    for path, body in (("/stake", {"amount": 5, "duration_days": 1}), ("/send", transfer)):
        behind = await node.ask("POST", WALLET + path, body)
        assert behind.status == 503
        assert "nothing was signed" in behind.json["error"]["message"]
    opened.set()
    await node.ledger.wait_transaction(ledger.submitted[0])
    await node.balances_once(lambda balances: not balances["pending"])
    assert (await node.balances())["total"] == 899_997.999
    assert answer.json["transaction_id"] in {entry["id"] for entry in await node.history()}
    # The stake is confirmed too late for its answer, which names the transaction to look for.
    ledger.closed = opened = trio.Event()
    late = await node.ask("POST", WALLET + "/stake", {"amount": 5, "duration_days": 1})
    assert late.status == 503
    opened.set()
    balances = await node.balances_once(lambda now: now["staked"] > 0)
    (stake,) = [entry for entry in await node.history() if entry["type"] == "stake"]
    assert stake["id"] in late.json["error"]["message"]
    assert balances["staked"] == 5.0


async def test_a_stop_in_flight_is_finished_at_the_next_start(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node, ledger = await start(nursery, tmp_path, closed=trio.Event())
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        await client.send("POST", SEND, {"to": STRANGER, "amount": 2}, token=TOKEN)
        await wait_until(lambda: ledger.submitted)
        await node.stop()
    again, ledger = await start(nursery, tmp_path)
    await again.ledger.wait_transaction(await _first(ledger))
    await again.balances_once(lambda balances: not balances["pending"])
    assert (await again.balances())["total"] == 899_997.999


async def _first(ledger: Unsteady) -> str:
    await wait_until(lambda: ledger.submitted)
    return ledger.submitted[0]


async def test_a_ledger_that_is_behind_sells_nothing_but_serves_its_operator(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    node, ledger = await start(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 1)
    ledger.ready = False
    transfer, stake = {"to": STRANGER, "amount": 1}, {"amount": 1, "duration_days": 1}
    for method, path, body in (
        ("GET", "/balance", None),
        ("GET", "/transactions", None),
        ("POST", "/send", transfer),
        ("POST", "/stake", stake),
        ("POST", "/unstake", {"amount": 1}),
    ):
        answer = await node.ask(method, WALLET + path, body)
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        assert "catching up" in answer.json["error"]["message"]
    assert (await node.infer(alice, 1)).status == 503
    assert (await node.infer(TOKEN, 1)).status == 200


async def test_a_node_that_drains_signs_nothing(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    node.drain.begin()
    answer = await node.ask("POST", SEND, {"to": STRANGER, "amount": 1})
    assert answer.status == 503
    assert (await node.ask("GET", WALLET + "/balance")).status == 200


async def test_too_many_at_once_get_429(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MAX_OF_CLIENTS", 3)
    opened = trio.Event()
    node, _ = await start(nursery, tmp_path, closed=opened)
    answers: list[Answer] = []

    async def send() -> None:
        answers.append(await node.ask("POST", SEND, {"to": STRANGER, "amount": 1}))

    async with trio.open_nursery() as clients:
        for _ in range(5):
            clients.start_soon(send)
        await wait_until(lambda: len(answers) == 2)
        assert {answer.status for answer in answers} == {429}
        opened.set()
    assert Counter(answer.status for answer in answers) == {429: 2, 200: 3}
