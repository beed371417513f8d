"""An engine for tests: it asks the application in memory, in the order that ABCI 2.0 requires."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from meshnode.domain.chain.comet.validators import validator_address
from meshnode.services.abci.calls import Calls
from meshnode.services.abci.frames import FrameReader, InvalidFrame, frame
from meshnode.services.abci.server import serve_connection
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.decided import DecidedKeeper
from meshnode.services.ledger.ordered import OrderedLedger
from meshnode.wire import abci_pb2 as pb
from spec_tests.domain.chain.net import FakeModel
from spec_tests.services.ledger.ledgers import GENESIS, KEY

START_S = 1_767_225_600
"""The genesis' time."""


@dataclass
class FakeEngine:
    """One connection to an application."""

    ledger: OrderedLedger
    stream: trio.SocketStream
    height: int = 0
    reader: FrameReader = field(default_factory=FrameReader)
    answers: list[pb.Response] = field(default_factory=list)
    served: trio.Event = field(default_factory=trio.Event)
    """Set at the end of the connection, when the application has noticed it."""

    async def ask(self, **request: object) -> pb.Response:
        """One request and its answer."""
        return (await self.ask_all([pb.Request(**request)]))[0]  # type: ignore[arg-type]

    async def ask_all(self, requests: Sequence[pb.Request]) -> list[pb.Response]:
        """Several requests at once, and as many answers."""
        await self.stream.send_all(b"".join(frame(one.SerializeToString()) for one in requests))
        while len(self.answers) < len(requests):
            data = await self.stream.receive_some(65536)
            self.answers += [pb.Response.FromString(one) for one in self.reader.feed(data)]
        found, self.answers = self.answers[: len(requests)], self.answers[len(requests) :]
        return found

    async def handshake(self) -> pb.ResponseInfo:
        """Info, and InitChain for an application without a block."""
        info = (await self.ask(info=pb.RequestInfo(version="0.38.25"))).info
        self.height = info.last_block_height
        if not info.last_block_height:
            chain = pb.RequestInitChain(chain_id=self.ledger.chain_id, initial_height=1)
            begun = (await self.ask(init_chain=chain)).init_chain
            assert len(begun.app_hash) == 32
        return info

    async def check(self, raw: bytes, *, again: bool = False) -> pb.ResponseCheckTx:
        kind = pb.RECHECK if again else pb.NEW
        return (await self.ask(check_tx=pb.RequestCheckTx(tx=raw, type=kind))).check_tx

    def votes(self) -> list[pb.VoteInfo]:
        if self.height == 0:
            return []
        address = bytes.fromhex(validator_address(KEY.public_key))
        validator = pb.Validator(address=address, power=8)
        return [pb.VoteInfo(validator=validator, block_id_flag=pb.BLOCK_ID_FLAG_COMMIT)]

    async def prepare(self, *raws: bytes, room: int = 1 << 20) -> list[bytes]:
        """The transactions that the application puts into the next block."""
        votes = [
            pb.ExtendedVoteInfo(validator=one.validator, block_id_flag=one.block_id_flag)
            for one in self.votes()
        ]
        request = pb.RequestPrepareProposal(
            max_tx_bytes=room,
            txs=raws,
            local_last_commit=pb.ExtendedCommitInfo(votes=votes),
            height=self.height + 1,
            time=self.time(),
        )
        return list((await self.ask(prepare_proposal=request)).prepare_proposal.txs)

    async def process(self, *raws: bytes) -> bool:
        """Whether the application accepts the next block."""
        request = pb.RequestProcessProposal(
            txs=raws,
            proposed_last_commit=pb.CommitInfo(votes=self.votes()),
            hash=self.hash(),
            height=self.height + 1,
            time=self.time(),
        )
        answer = (await self.ask(process_proposal=request)).process_proposal
        return answer.status == pb.ResponseProcessProposal.ACCEPT

    async def finalize(self, *raws: bytes) -> pb.ResponseFinalizeBlock:
        request = pb.RequestFinalizeBlock(
            txs=raws,
            decided_last_commit=pb.CommitInfo(votes=self.votes()),
            hash=self.hash(),
            height=self.height + 1,
            time=self.time(),
        )
        return (await self.ask(finalize_block=request)).finalize_block

    async def commit(self) -> None:
        answer = await self.ask(commit=pb.RequestCommit())
        assert answer.WhichOneof("value") == "commit"
        self.height += 1

    def time(self) -> pb.Timestamp:
        return pb.Timestamp(seconds=START_S + self.height, nanos=5)

    def hash(self) -> bytes:
        return bytes([self.height + 1]) * 32


@asynccontextmanager
async def connected(folder: Path, every: int = 0) -> AsyncIterator[FakeEngine]:
    """An application in ``folder`` and an engine that is connected to it.

    A snapshot is due after ``every`` blocks.
    """
    keeper = DecidedKeeper(folder, GENESIS, FakeModel())
    clock = lambda: START_S * 10**9  # noqa: E731 - one expression
    ledger = OrderedLedger(keeper, LedgerReader(folder), FakeModel(), clock, folder, every)
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    engine = FakeEngine(ledger, ours)

    async def serve() -> None:
        with suppress(ConnectionError, trio.BrokenResourceError, InvalidFrame):
            await serve_connection(Calls(ledger), theirs)
        engine.served.set()

    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            yield engine
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await ledger.close()
