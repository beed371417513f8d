"""Interface 2.2: the history entries that blocks add; an index built anew equals the old one."""

import ast
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.domain.chain.accounts import read_account
from meshnode.domain.chain.application import Finalized
from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.transactions import KINDS
from meshnode.domain.chain.view import Effect
from meshnode.services.index.entries import EFFECTS, MEANINGS, HistoryEntry, block_entries
from meshnode.services.index.store import IndexStore
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    FEE,
    PROFILE,
    UNIT,
    VALIDATOR,
    Actor,
    Net,
    actor,
    genesis,
    next_root,
)
from spec_tests.edges.native_gateway import StepModel, parse_raw, step_receipts

SOME = settings().max_examples // 3
"""Number of examples; small, because each one is a whole chain."""
WORKERS = actor("first worker"), actor("second worker")
EVERYBODY = (ALICE, BOB, CAROL, VALIDATOR, *WORKERS)
LIQUID = {ALICE: 50_000_000, BOB: 30_000_000, VALIDATOR: 10_000_000}


@dataclass(frozen=True)
class Stored:
    """The fields of a stored block that the index reads."""

    height: int
    time_ns: int
    hash: bytes
    transactions: tuple[bytes, ...]
    results: tuple[TransactionResult, ...]
    effects: tuple[Effect, ...]


def stored(finalized: Finalized) -> Any:
    frame = finalized.block.frame
    return Stored(
        frame.height,
        frame.time_ns,
        frame.height.to_bytes(32),
        finalized.block.transactions,
        finalized.results,
        finalized.effects,
    )


class History(Net):
    """A chain that keeps its blocks in stored form, as the ledger does."""

    def __init__(self) -> None:
        accounts = ((ALICE.key, LIQUID[ALICE]), (BOB.key, LIQUID[BOB]))
        super().__init__(genesis(accounts=accounts))
        self.app._model._model = StepModel()
        self.committers = frozenset({VALIDATOR.address, BOB.address})
        self.stored: list[Any] = []

    def block(self, *args: Any, **more: Any) -> Finalized:
        finalized = super().block(*args, **more)
        self.stored.append(stored(finalized))
        return finalized

    def try_(self, who: Actor, kind: str, **fields: Any) -> str | None:
        """Put one transaction, valid or not, in a block of its own; return its application id."""
        return self.block([self.tx(who, kind, **fields)]).results[0].id

    def train(self) -> None:
        summary = self.query("/summary")
        parent, number = summary["model_root"], summary["round"]
        task_id = self.try_(
            ALICE,
            "reserve",
            task_kind="train",
            parent=parent,
            round=number,
            workers=[worker.key for worker in WORKERS],
            request={},
            price=0,
        )
        if task_id is None:
            return
        bodies = step_receipts(task_id, parent, number)
        receipts = [parse_raw(w.sign(body)) for w, body in zip(WORKERS, bodies, strict=True)]
        root = next_root(number)
        self.try_(ALICE, "submit", task_id=task_id, result_root=root, receipts=receipts)

    def entries(self) -> list[tuple[str, HistoryEntry]]:
        return [e for block in self.stored for e in block_entries(block, PROFILE).entries]

    def of(self, who: Actor) -> list[HistoryEntry]:
        return [entry for account, entry in self.entries() if account == who.key]


def kinds(entries: list[HistoryEntry]) -> list[tuple[str, int]]:
    return [(entry.kind, entry.amount) for entry in entries]


def test_a_transfer_is_sent_by_one_and_received_by_the_other() -> None:
    chain = History()
    name = chain.do(ALICE, "transfer", to=BOB.key, amount=7)
    fee, sent = chain.of(ALICE)
    assert kinds([fee, sent]) == [("fee", -FEE), ("send", -7)]
    assert (sent.id, sent.counterparty, sent.height) == (name, BOB.key, 1)
    (received,) = chain.of(BOB)
    assert (received.kind, received.amount, received.counterparty) == ("receive", 7, ALICE.key)
    assert received.time_ns == chain.app.time_ns
    assert received.details["transaction_hash"] == sent.details["transaction_hash"]


def test_an_answer_is_a_settlement_and_rewards_its_verifiers() -> None:
    chain = History()
    job = chain.do(ALICE, "infer", **chain.infer(ALICE, BOB))
    chain.do(BOB, "respond", job_id=job, result_root=chain.result_root(job))
    chain.block()
    assert kinds(chain.of(ALICE)) == [("fee", -FEE), ("inference", -8000)]
    assert kinds(chain.of(BOB)) == [("respond", 0), ("settlement", 6400)]
    (reward,) = chain.of(VALIDATOR)
    assert (reward.kind, reward.amount) == ("reward", 1600)
    assert reward.details["role"] == "validator"
    assert chain.of(BOB)[1].details["proof_id"] == job


def test_an_expired_request_is_refunded_by_the_block_itself() -> None:
    chain = History()
    job = chain.do(ALICE, "infer", **chain.infer(ALICE, BOB))
    chain.skip(6)
    refund = chain.of(ALICE)[-1]
    assert (refund.kind, refund.amount, refund.details["reference"]) == ("refund", 8000, job)
    assert refund.id == f"block-{refund.height}:0"


def test_a_stake_and_its_way_back() -> None:
    chain = History()
    chain.do(ALICE, "stake", amount=5000, duration_days=1)
    chain.skip(1, seconds=2 * 86_400)
    chain.do(ALICE, "unstake", amount=5000)
    chain.skip(1, seconds=3 * 86_400)
    chain.do(ALICE, "transfer", to=BOB.key, amount=1)
    entries = [entry for entry in chain.of(ALICE) if entry.kind != "fee"]
    assert kinds(entries) == [("stake", -5000), ("unstake", 0), ("unstaked", 5000), ("send", -1)]
    assert entries[1].details["amount"] == 5000


def test_a_training_task_pays_its_workers_and_is_an_update() -> None:
    chain = History()
    chain.train()
    sponsor = [entry for entry in chain.of(ALICE) if entry.kind != "fee"]
    assert kinds(sponsor) == [("reserve", -2_000_000), ("submit", 0), ("bond_return", 2_000_000)]
    for worker in WORKERS:
        (reward,) = chain.of(worker)
        assert (reward.kind, reward.amount, reward.details["role"]) == ("reward", 400_000, "worker")
    (update,) = block_entries(chain.stored[1], PROFILE).updates
    assert (update.model_root, update.loss_hex) == (next_root(0), (3.5).hex())
    assert update.workers == tuple(worker.key for worker in WORKERS)


def test_a_refused_transaction_leaves_no_trace() -> None:
    chain = History()
    chain.refused(CAROL, "transfer", to=BOB.key, amount=1)
    assert chain.entries() == []


def test_every_kind_and_every_payment_has_a_meaning() -> None:
    assert set(MEANINGS) == set(KINDS)
    folder = Path(__file__).parents[3] / "meshnode" / "domain" / "chain"
    reasons = {
        call.args[3].value
        for path in folder.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "pay"
        and isinstance(call.args[3], ast.Constant)
    }
    assert reasons == set(EFFECTS)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("transfer"),
            st.sampled_from(EVERYBODY[:4]),
            st.sampled_from(EVERYBODY[:4]),
            st.integers(1, 5000),
        ),
        st.tuples(st.just("infer"), st.sampled_from([ALICE, BOB]), st.booleans()),
        st.tuples(st.just("stake"), st.sampled_from([ALICE, BOB]), st.integers(1, 9000)),
        st.tuples(st.just("unstake"), st.sampled_from([ALICE, BOB]), st.integers(1, 9000)),
        st.tuples(st.just("bond"), st.integers(1, 4)),
        st.tuples(st.just("train")),
        st.tuples(st.just("blocks"), st.integers(1, 6), st.sampled_from([1, 86_400, 300_000])),
    ),
    max_size=12,
)


def run(chain: History, steps: list[Any]) -> None:
    for step in steps:
        match step:
            case ("transfer", sender, recipient, amount):
                chain.try_(sender, "transfer", to=recipient.key, amount=amount)
            case ("infer", who, answered):
                job = chain.try_(who, "infer", **chain.infer(who, CAROL))
                if job is not None and answered:
                    root = chain.result_root(job)
                    chain.try_(CAROL, "respond", job_id=job, result_root=root)
            case ("stake", who, amount):
                chain.try_(who, "stake", amount=amount, duration_days=1)
            case ("unstake", who, amount):
                chain.try_(who, "unstake", amount=amount)
            case ("bond", units):
                nonce = chain.account(BOB)["nonce"]
                chain.try_(
                    BOB,
                    "bond",
                    consensus_key=BOB.consensus_key,
                    amount=units * UNIT,
                    possession=BOB.possession(units * UNIT, nonce),
                )
            case ("train",):
                chain.train()
            case ("blocks", count, seconds):
                chain.skip(count, seconds)


def dump(store: IndexStore) -> list[str]:
    return list(store._connection.iterdump())


@settings(max_examples=SOME)
@given(STEPS, st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_an_index_that_is_rebuilt_equals_the_one_that_grew(steps: Any, batches: list[int]) -> None:
    chain = History()
    run(chain, steps)
    blocks = [block_entries(block, PROFILE) for block in chain.stored]
    with tempfile.TemporaryDirectory() as folder:
        grown, path = IndexStore(Path(folder) / "grown", "chain"), Path(folder) / "built"
        position = 0
        for size in batches * (len(blocks) + 1):
            grown.add(blocks[position : position + size])
            position += size
        built = IndexStore(path, "chain")
        built.add(blocks)
        assert dump(grown) == dump(built)
        assert built.cursor[0] == len(blocks)
        for who in EVERYBODY:
            pages = [
                entry
                for offset in range(0, 400, 7)
                for entry in built.history(who.key, 7, offset, 10**9, ())[0]
            ]
            # Newest first, complete, and equal to the entries made from the chain's blocks.
            assert pages == chain.of(who)[::-1]
        grown.close()
        built.close()


@settings(max_examples=SOME)
@given(STEPS)
def test_an_accounts_entries_add_up_to_its_balance(steps: Any) -> None:
    chain = History()
    run(chain, steps)
    for who in EVERYBODY:
        moved = sum(entry.amount for entry in chain.of(who))
        context = chain.app._read_only()
        available = read_account(context.view, who.key).available
        assert LIQUID.get(who, 0) + moved == available
        ids = [entry.id for entry in chain.of(who)]
        assert len(ids) == len(set(ids))
