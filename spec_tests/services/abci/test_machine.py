"""Sequences of calls that ABCI 2.0 allows, crashes included, against the pure state.

The machine is an engine: it checks, proposes and refuses in several rounds of a height, decides one
of the proposals or another block, commits, checks again what waits, ends without a warning at any
of these points and shakes hands again, which replays what the application has lost. After each step
the application has the height and the root of one that only executes decided blocks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meshnode.domain.chain.application import Application
from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.chain.statetree import MemoryStore
from meshnode.services.abci.calls import Calls
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.decided import DecidedKeeper
from meshnode.services.ledger.ordered import OrderedLedger
from meshnode.wire import abci_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.services.abci.engine import START_S
from spec_tests.services.ledger.ledgers import GENESIS, KEY

COMMITTERS = frozenset({validator_address(KEY.public_key)})
AMOUNTS = st.lists(st.integers(-1, 5), max_size=3)
"""Amounts of a block's transfers; -1 is one that is refused, 0 one that is malformed."""


ROUNDS = st.integers(0, 2)
"""Each round of a height has a time of its own."""


def frame_of(height: int, number: int) -> BlockFrame:
    voted = COMMITTERS if height > 1 else frozenset()
    return BlockFrame(height, (START_S + height) * 10**9 + number, voted)


@dataclass(frozen=True)
class Proposal:
    """A block's transactions, and the round in which it was proposed."""

    raws: tuple[bytes, ...]
    number: int


class Engine(RuleBasedStateMachine):
    """An engine and its application, beside a pure one."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.pure = Application(parse_genesis(GENESIS), MemoryStore(), FakeModel())
        self.decided: list[Proposal] = []
        """Every block that was decided: what the engine keeps."""
        self.proposals: list[Proposal] = []
        """The valid ones of this height."""
        self.waiting: list[bytes] = []
        """The transactions that passed a check."""
        self.finalized = False
        self.open()

    def open(self) -> None:
        keeper = DecidedKeeper(self.folder, GENESIS, FakeModel())

        async def make() -> OrderedLedger:
            clock = lambda: START_S * 10**9  # noqa: E731 - one expression
            reader = LedgerReader(self.folder)
            return OrderedLedger(keeper, reader, FakeModel(), clock, self.folder)

        self.ledger = trio.run(make)
        self.calls = Calls(self.ledger)
        self.finalized = False
        info = self.ask(info=pb.RequestInfo()).info
        assert info.last_block_height == self.pure.height
        if not info.last_block_height:
            chain = pb.RequestInitChain(chain_id=self.ledger.chain_id, initial_height=1)
            assert self.ask(init_chain=chain).init_chain.app_hash == self.pure.app_hash
        # The engine has every decided block, and replays the one that the application has lost.
        assert len(self.decided) - info.last_block_height in (0, 1)

    def ask(self, **request: Any) -> pb.Response:
        return trio.run(self.calls.run, pb.Request(**request))

    def transfers(self, amounts: list[int]) -> tuple[bytes, ...]:
        raws, nonce = [], self.nonce()
        for amount in amounts:
            body: dict[str, Json] = {"kind": "transfer", "chain_id": "test-chain-1"}
            used = nonce + (7 if amount < 0 else 0)
            raws.append(ALICE.sign({**body, "nonce": used, "to": BOB.key, "amount": amount}))
            nonce += amount > 0
        return tuple(raws)

    def nonce(self) -> int:
        found = self.pure.query("/account", json.dumps({"public_key": ALICE.key}).encode())
        return int(json.loads(found.value)["nonce"])

    def fields(self, proposal: Proposal, votes: str) -> dict[str, Any]:
        height = self.pure.height + 1
        address = bytes.fromhex(next(iter(COMMITTERS)))
        vote = pb.VoteInfo(
            validator=pb.Validator(address=address), block_id_flag=pb.BLOCK_ID_FLAG_COMMIT
        )
        info = pb.CommitInfo(votes=[vote] if height > 1 else [])
        return {
            "txs": proposal.raws,
            votes: info,
            "hash": height.to_bytes(32),
            "height": height,
            "time": pb.Timestamp(seconds=START_S + height, nanos=proposal.number),
        }

    @property
    def replaying(self) -> bool:
        """Whether a decided block waits to be executed again."""
        return len(self.decided) > self.pure.height

    def check_all(self, raws: Sequence[bytes], kind: pb.CheckTxType) -> list[int]:
        flush = pb.Request(flush=pb.RequestFlush())
        requests = []
        for raw in raws:
            requests += [pb.Request(check_tx=pb.RequestCheckTx(tx=raw, type=kind)), flush]
        answers: list[pb.Response] = []
        # On a busy machine one turn may be too short for all.
        while len(answers) < len(requests):
            answers += self.calls.answer_checks(requests[len(answers) :])
        return [one.check_tx.code for one in answers[::2]]

    @precondition(lambda self: not self.finalized)
    @rule(amounts=AMOUNTS)
    def check(self, amounts: list[int]) -> None:
        raws = self.transfers(amounts)
        codes = self.check_all(raws, pb.NEW)
        # What is malformed or out of order is refused, whatever waits.
        assert all(code == 1 for code, amount in zip(codes, amounts, strict=True) if amount <= 0)
        self.waiting += [raw for raw, code in zip(raws, codes, strict=True) if code == 0]

    @precondition(lambda self: not self.finalized and not self.replaying)
    @rule(amounts=AMOUNTS, number=ROUNDS)
    def propose(self, amounts: list[int], number: int) -> None:
        raws = self.transfers(amounts)
        fields = self.fields(Proposal(raws, number), "votes")
        voted = [
            pb.ExtendedVoteInfo(validator=one.validator, block_id_flag=one.block_id_flag)
            for one in fields["votes"].votes
        ]
        request = pb.RequestPrepareProposal(
            max_tx_bytes=1 << 20,
            txs=raws,
            local_last_commit=pb.ExtendedCommitInfo(votes=voted),
            height=fields["height"],
            time=fields["time"],
        )
        chosen = tuple(self.ask(prepare_proposal=request).prepare_proposal.txs)
        assert chosen == tuple(raw for raw, amount in zip(raws, amounts, strict=True) if amount > 0)
        # The same question has the same answer.
        assert tuple(self.ask(prepare_proposal=request).prepare_proposal.txs) == chosen
        self.proposals.append(Proposal(chosen, number))

    @precondition(lambda self: not self.finalized and not self.replaying)
    @rule(amounts=AMOUNTS, number=ROUNDS)
    def process(self, amounts: list[int], number: int) -> None:
        proposal = Proposal(self.transfers(amounts), number)
        request = pb.RequestProcessProposal(**self.fields(proposal, "proposed_last_commit"))
        verdict = self.ask(process_proposal=request).process_proposal.status
        valid = all(amount > 0 for amount in amounts)
        assert (verdict == pb.ResponseProcessProposal.ACCEPT) == valid
        if valid:
            self.proposals.append(proposal)

    @precondition(lambda self: not self.finalized)
    @rule(which=st.integers(0, 5), amounts=AMOUNTS, number=ROUNDS)
    def decide(self, which: int, amounts: list[int], number: int) -> None:
        """Decide a proposal of this height, or a block that was never proposed here."""
        if not self.replaying:
            other = Proposal(self.transfers(amounts), number)
            self.decided.append((*self.proposals, other)[which % (len(self.proposals) + 1)])
        decided = self.decided[self.pure.height]
        request = pb.RequestFinalizeBlock(**self.fields(decided, "decided_last_commit"))
        answer = self.ask(finalize_block=request).finalize_block
        frame = frame_of(self.pure.height + 1, decided.number)
        finalized = self.pure.finalize(Block(frame, decided.raws))
        assert answer.app_hash == finalized.app_hash
        assert [one.code for one in answer.tx_results] == [one.code for one in finalized.results]
        self.finalized = True

    @precondition(lambda self: self.finalized)
    @rule()
    def commit(self) -> None:
        self.ask(commit=pb.RequestCommit())
        self.pure.commit()
        self.finalized = False
        self.proposals = []
        # What was not in the block is checked again; what was in it must fail.
        done = self.decided[-1].raws
        codes = self.check_all(self.waiting, pb.RECHECK)
        assert all(code == 1 for raw, code in zip(self.waiting, codes, strict=True) if raw in done)
        self.waiting = [raw for raw, code in zip(self.waiting, codes, strict=True) if code == 0]

    @rule()
    def crash(self) -> None:
        trio.run(self.ledger.close)
        self.open()

    @invariant()
    def the_state_is_the_pure_one(self) -> None:
        info = self.ask(info=pb.RequestInfo()).info
        assert info.last_block_height == self.pure.height
        if self.pure.height:
            assert info.last_block_app_hash == self.pure.app_hash

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            trio.run(self.ledger.close)
            shutil.rmtree(self.folder)


TestEngine = Engine.TestCase
TestEngine.settings = settings(
    max_examples=settings().max_examples // 15, stateful_step_count=12, deadline=None
)
