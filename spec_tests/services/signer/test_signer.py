"""One signer for each node: one transaction for each nonce, whoever asks (decisions 0084, 0125)."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import application_id, transaction_hash
from meshnode.domain.chain.errors import MempoolFull, Rejected, WrongNonce
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.domain.spending import Charge, Outcome
from meshnode.services.proofs.chain import ChainView
from meshnode.services.signer import submission
from meshnode.services.signer.accounts import AccountState
from meshnode.services.signer.signer import Signer
from meshnode.services.signer.submission import (
    Submission,
    SubmissionQueue,
    TransactionRefused,
    TransactionRequest,
)
from spec_tests.domain.chain.net import BOB
from spec_tests.edges.http_server import Answer, wait_until
from spec_tests.services.signer.signers import running_signer
from spec_tests.services.wallet.wallet_node import STRANGER, WALLET, start_wallet_node
from spec_tests.services.work.models_chain import node_key


class Recorder:
    """Records the transactions that the ledger is offered, by nonce."""

    def __init__(self, ledger: Any) -> None:
        self.ledger = ledger
        self.offered: defaultdict[int, set[bytes]] = defaultdict(set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def submit(self, raw: bytes) -> Any:
        self.offered[json.loads(raw)["body"]["nonce"]].add(raw)
        return await self.ledger.submit(raw)


async def test_wallet_provider_and_proofs_never_sign_with_the_same_nonce(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    made: list[Recorder] = []

    def wrap(ledger: Any) -> Recorder:
        made.append(Recorder(ledger))
        return made[0]

    node = await start_wallet_node(nursery, tmp_path, wrap=wrap)
    proofs = ChainView(lambda: made[0], lambda: node.signer, node.signer.public_key)
    fields: dict[str, Json] = {"to": STRANGER, "amount": 1}
    answers: list[Answer] = []

    async def send() -> None:
        answers.append(await node.ask("POST", WALLET + "/send", {"to": STRANGER, "amount": 1}))

    async with trio.open_nursery() as clients:
        for _ in range(4):
            clients.start_soon(send)
            clients.start_soon(node.signer.send, "transfer", fields)
            clients.start_soon(proofs.send, "transfer", fields)
    assert [answer.json["status"] for answer in answers] == ["confirmed"] * 4
    signed = {nonce: len(raws) for nonce, raws in made[0].offered.items()}
    assert signed == dict.fromkeys(range(12), 1)
    there = json.loads((await node.ledger.query("/account", {"public_key": STRANGER})).value)
    assert there["balance"] == 4 * 1_000_000 + 8


class ScriptedLedger:
    """Gives submissions the scripted answers in order; once none is left, a submission lands."""

    chain_id = "scripted"
    height = 1
    earliest_height = 1
    genesis = SimpleNamespace(profile=SimpleNamespace(params=SimpleNamespace(fee=1000)))

    def __init__(self, *answers: Rejected | Exception | None, lands_unheard: bool = False) -> None:
        self.answers = list(answers)
        self.submitted: list[bytes] = []
        self.nonce = 3
        self.blocks: dict[str, int] = {}
        self.lands_unheard = lands_unheard
        self.reason = "ok"
        self.looks = 0

    def readiness(self) -> Any:
        self.looks += 1
        return SimpleNamespace(ready=self.reason == "ok", reason=self.reason)

    async def query(self, path: str, options: Any = None) -> QueryResult:
        await trio.lowlevel.checkpoint()
        value: dict[str, Any] = {"nonce": self.nonce, "balance": 9999, "locked": 0}
        if path == "/stake":
            names = ("amount", "duration_days", "start_ns", "unlock_ns", "multiplier_millionths")
            value = {"cooling": [], **dict.fromkeys(names, 0)}
        return QueryResult(0, "", json.dumps(value).encode(), self.height)

    async def block(self, height: int) -> Any:
        await trio.lowlevel.checkpoint()
        return SimpleNamespace(time_ns=7, hash=b"")

    async def submit(self, raw: bytes) -> TransactionResult:
        await trio.lowlevel.checkpoint()
        self.submitted.append(raw)
        name = transaction_hash(raw)
        answer = self.answers.pop(0) if self.answers else None
        if self.lands_unheard or (answer is None and not self.answers):
            self.land(name)
        if isinstance(answer, Rejected):
            return TransactionResult(1, str(answer), name)
        if answer is not None:
            raise answer
        return TransactionResult(0, "", name)

    def land(self, name: str) -> None:
        self.nonce += 1
        self.blocks[name] = self.height

    async def wait_beyond(self, height: int) -> int:
        await trio.lowlevel.checkpoint()
        self.height += 1
        return self.height

    async def transaction(self, hash: str) -> tuple[int, TransactionResult] | None:
        await trio.lowlevel.checkpoint()
        height = self.blocks.get(hash)
        return None if height is None else (height, TransactionResult(0, "", hash))  # type: ignore[arg-type]


async def test_a_transaction_is_offered_until_it_is_in_a_block(
    autojump_clock: object, tmp_path: Path
) -> None:
    """After a taken nonce, an outage or a lost transaction, the same bytes are offered again."""
    ledger = ScriptedLedger(WrongNonce(), Unavailable("nobody"), MempoolFull(), None, None)
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        sent = await signer.send("respond", {"job_id": "x"})
    assert len(sent) == 64
    assert len(ledger.submitted) == 5
    assert len(set(ledger.submitted)) == 1


@pytest.mark.parametrize("answer", [Unavailable("nobody"), WrongNonce()])
async def test_a_transaction_whose_block_was_missed_is_not_sent_again(
    autojump_clock: object, tmp_path: Path, answer: Exception
) -> None:
    """The chain would refuse a second one, and the caller would take the first for refused."""
    ledger = ScriptedLedger(answer, TransactionRefused("A task is reserved"), lands_unheard=True)
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        sent = await signer.send("reserve", {})
    body = json.loads(ledger.submitted[0])["body"]
    assert sent == application_id(body, BOB.key)
    assert len(ledger.submitted) == 1


async def test_a_refusal_is_the_end(autojump_clock: object, tmp_path: Path) -> None:
    ledger = ScriptedLedger(TransactionRefused("No live inference"))
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        with pytest.raises(TransactionRefused, match="No live inference"):
            await signer.send("respond", {})
        # The refused transaction's nonce is used again.
        ledger.answers = []
        await signer.send("respond", {})
    assert [json.loads(raw)["body"]["nonce"] for raw in ledger.submitted] == [3, 3]


async def test_a_transaction_signed_before_a_kill_is_offered_again_before_all_others(
    autojump_clock: object, tmp_path: Path
) -> None:
    down = ScriptedLedger(*[Unavailable("nobody")] * 99)
    async with (
        running_signer(down, node_key(BOB), tmp_path) as signer,
        trio.open_nursery() as senders,
    ):
        fields: dict[str, Json] = {"price": 0}
        senders.start_soon(signer.send, "reserve", fields)
        await wait_until(lambda: len(down.submitted) > 1)
        senders.cancel_scope.cancel()
    up = ScriptedLedger()
    async with running_signer(up, node_key(BOB), tmp_path) as signer:
        await signer.send("respond", {"job_id": "x"})
    assert len(set(down.submitted)) == 1
    assert up.submitted[0] == down.submitted[0]
    assert [json.loads(raw)["body"]["nonce"] for raw in up.submitted] == [3, 4]


async def test_what_a_block_before_the_snapshot_may_hold_is_not_paid_again(
    autojump_clock: object, tmp_path: Path
) -> None:
    """The nonce was passed, and the block that says by what is not here: it counts as paid."""
    down = ScriptedLedger(*[Unavailable("nobody")] * 99)
    async with (
        running_signer(down, node_key(BOB), tmp_path) as signer,
        trio.open_nursery() as senders,
    ):
        signer.journal.post(Charge(BOB.key, 5))
        pays = TransactionRequest("transfer", {"to": STRANGER, "amount": 5}, spends=5, settles=5)
        order = Submission(BOB.key, lambda state: pays, order="f" * 32)
        signer.submit(order)
        await wait_until(lambda: len(down.submitted) > 1)
        senders.cancel_scope.cancel()
    joined = ScriptedLedger()
    joined.nonce, joined.height, joined.earliest_height = 4, 20, 21
    async with running_signer(joined, node_key(BOB), tmp_path) as signer:
        await wait_until(lambda: signer.journal.accounts.pending(BOB.key) is None)
        assert signer.journal.accounts.owed(BOB.key) == 0
        assert signer.journal.accounts.order("f" * 32) == Outcome.UNSEEN
        # Its own transactions land in blocks that are here.
        await signer.send("respond", {"job_id": "x"})
    assert [json.loads(raw)["body"]["nonce"] for raw in joined.submitted] == [4]


class HeldLedger(ScriptedLedger):
    """Keeps submissions waiting until the test sets ``go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = trio.Event()

    async def submit(self, raw: bytes) -> TransactionResult:
        if self.go_on.is_set():
            return await super().submit(raw)
        self.submitted.append(raw)
        await self.go_on.wait()
        self.submitted.pop()
        return await super().submit(raw)

    @property
    def kinds(self) -> list[str]:
        return [json.loads(raw)["body"]["kind"] for raw in self.submitted]


def transfer(signer: Signer) -> Submission:
    def plan(state: AccountState) -> TransactionRequest:
        return TransactionRequest("transfer", {"to": STRANGER, "amount": 1}, spends=1001)

    return signer.submit(Submission(signer.public_key, plan))


async def held(
    signer: Signer, ledger: HeldLedger, waiting: int = 3
) -> tuple[Submission, list[Submission]]:
    """Return a pending transfer that cannot land yet, and the transfers that wait behind it."""
    first = transfer(signer)
    await wait_until(lambda: ledger.submitted)
    return first, [transfer(signer) for _ in range(waiting)]


async def test_an_answer_that_would_lapse_goes_before_transfers_that_wait(tmp_path: Path) -> None:
    ledger = HeldLedger()
    async with (
        running_signer(ledger, node_key(BOB), tmp_path) as signer,
        trio.open_nursery() as senders,
    ):
        await held(signer, ledger)
        for kind in ("prove", "respond", "submit"):
            senders.start_soon(signer.send, kind, {})
        await wait_until(lambda: len(signer._queue) == 7)
        ledger.go_on.set()
        await wait_until(lambda: len(ledger.submitted) == 7)
    # The pending one lands first, because no block takes a later nonce before it.
    assert ledger.kinds[0] == "transfer"
    assert sorted(ledger.kinds[1:3]) == ["respond", "submit"]
    assert ledger.kinds[3:] == ["transfer"] * 3 + ["prove"]
    assert [json.loads(raw)["body"]["nonce"] for raw in ledger.submitted] == [*range(3, 10)]


async def test_a_caller_that_leaves_before_the_signature_signs_nothing(tmp_path: Path) -> None:
    ledger = HeldLedger()
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        first, _ = await held(signer, ledger, waiting=0)
        async with trio.open_nursery() as senders:
            senders.start_soon(signer.send, "respond", {})
            await wait_until(lambda: len(signer._queue) == 2)
            senders.cancel_scope.cancel()
        ledger.go_on.set()
        await first.wait()
        await transfer(signer).wait()
    assert ledger.kinds == ["transfer", "transfer"]


async def test_a_signed_transaction_is_followed_even_if_its_caller_has_left(tmp_path: Path) -> None:
    ledger = HeldLedger()
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        async with trio.open_nursery() as senders:
            senders.start_soon(signer.send, "respond", {})
            await wait_until(lambda: ledger.submitted)
            senders.cancel_scope.cancel()
        ledger.go_on.set()
        await wait_until(lambda: ledger.nonce == 4)
        await wait_until(lambda: not signer.journal.accounts.all_pending())
    assert ledger.kinds == ["respond"]


async def test_the_end_of_the_signer_ends_every_wait(tmp_path: Path) -> None:
    ledger = HeldLedger()
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        first, others = await held(signer, ledger)
    for one in (first, *others):
        with pytest.raises(Unavailable, match="the node stops"):
            await one.wait()
    with pytest.raises(Unavailable, match="the node stops"):
        transfer(signer)


async def test_nothing_is_signed_with_a_nonce_of_the_past(
    autojump_clock: object, tmp_path: Path
) -> None:
    """Nothing is signed while the ledger catches up; if it is only stalled, a response is."""
    ledger = ScriptedLedger()
    async with running_signer(ledger, node_key(BOB), tmp_path) as signer:
        ledger.reason = "catching_up"
        async with trio.open_nursery() as senders:
            senders.start_soon(signer.send, "respond", {})
            await wait_until(lambda: ledger.looks > 3)
            senders.cancel_scope.cancel()
        assert not ledger.submitted
        ledger.reason = "stalled"
        await signer.send("respond", {})
        with pytest.raises(Unavailable, match="stalled"):
            await transfer(signer).wait()
    assert len(ledger.submitted) == 1


async def test_a_ledger_that_starts_over_is_waited_for_block_by_block(
    autojump_clock: object, tmp_path: Path
) -> None:
    """A ledger that is behind the journal is asked once per block, not constantly."""
    async with running_signer(ScriptedLedger(), node_key(BOB), tmp_path) as signer:
        await signer.send("respond", {})
    behind = ScriptedLedger()
    asked: list[int] = []
    whole = behind.query

    async def query(path: str, options: Any = None) -> QueryResult:
        asked.append(behind.height)
        behind.nonce = 3 + (behind.height > 5)
        return await whole(path, options)

    behind.query = query  # type: ignore[method-assign]
    async with running_signer(behind, node_key(BOB), tmp_path) as signer:
        assert (await signer.read_account(BOB.key)).nonce == 4
    assert max(asked.count(height) for height in asked) == 2


def waiting(own: bool = False, urgent: bool = False, account: str = "alice") -> Submission:
    return Submission(account, lambda state: None, own=own, urgent=urgent)


def test_the_queue_is_bounded_for_clients_and_for_the_node_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission, "MAX_OF_CLIENTS", 2)
    monkeypatch.setattr(submission, "MAX_OWN", 1)
    queue = SubmissionQueue()
    first, second = waiting(), waiting(account="bob")
    queue.add(first)
    queue.add(second)
    own = waiting(own=True)
    queue.add(own)
    for one in (waiting(), waiting(own=True)):
        with pytest.raises(RateLimited):
            queue.add(one)
    # A submission that was started counts until it ends; one that was withdrawn does not count.
    assert queue.take("bob") is second
    with pytest.raises(RateLimited):
        queue.add(waiting())
    first.withdraw()
    third = waiting()
    queue.add(third)
    assert first.ended.is_set()
    assert (queue.take("alice"), queue.take("alice"), queue.take("alice")) == (own, third, None)
    for one in (own, second, third):
        queue.end(one)
    assert len(queue) == 0


def test_urgent_submissions_come_first_and_the_rest_in_order_of_arrival() -> None:
    queue = SubmissionQueue()
    made = [waiting(urgent=urgent) for urgent in (False, True, False, True)]
    for one in made:
        queue.add(one)
    take: Callable[[], Submission | None] = lambda: queue.take("alice")  # noqa: E731
    assert [take() for _ in made] == [made[1], made[3], made[0], made[2]]
