"""The calls of ABCI 2.0, carried out by the ledger (decision 0175).

====================  ============================================================================
call                  carried out by
====================  ============================================================================
Info                  height and root of the committed state
InitChain             comparing the engine's genesis with the ledger's
CheckTx               ``check``, in order, several in one turn with the ledger's thread
Query                 ``query``, from the committed state, beside everything else
PrepareProposal       ``propose``
ProcessProposal       ``process``: ACCEPT, or REJECT for any rule that refuses
FinalizeBlock         ``decide``, which writes nothing
Commit                ``commit``, again every second while the disk refuses
snapshots             :mod:`meshnode.services.abci.snapshots`
====================  ============================================================================

A fault of a caller is a code in an answer and never a ResponseException, at which the engine would
end. A decided block that the rules refuse is no such fault: this node then differs from more than
two thirds of the power, and LedgerBroken ends it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from meshnode import __version__
from meshnode.domain.chain.blocks import REFUSED
from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.errors import Unavailable
from meshnode.services.abci.messages import (
    TX_OVERHEAD_BYTES,
    check_message,
    decided_block,
    finalized_message,
    proposal_frame,
    proposed_block,
)
from meshnode.services.abci.snapshots import SnapshotCalls
from meshnode.services.ledger.database import StorageRefused
from meshnode.wire import abci_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.ledger.ordered import OrderedLedger

log = logging.getLogger(__name__)

CHECKS_S = 0.02
"""Checks that are done in one turn take about this long at most, unless one asks the model; a block
waits for one turn."""
FLUSHED = pb.Response(flush=pb.ResponseFlush())
RETRY_S = 1.0
"""Pause before another attempt to commit, after the disk refused."""


class Calls:
    """Carries out one call at a time for each connection."""

    def __init__(self, ledger: OrderedLedger) -> None:
        """Calls about ``ledger``."""
        self._ledger = ledger
        snapshots = SnapshotCalls(ledger)
        self._table: dict[str, Callable[[Any], Awaitable[pb.Response]]] = {
            "echo": self._echo,
            "flush": self._flush,
            "info": self._info,
            "init_chain": self._init_chain,
            "query": self._query,
            "prepare_proposal": self._prepare,
            "process_proposal": self._process,
            "finalize_block": self._finalize,
            "commit": self._commit,
            "extend_vote": self._extend_vote,
            "verify_vote_extension": self._verify_vote_extension,
            "list_snapshots": snapshots.list,
            "offer_snapshot": snapshots.offer,
            "load_snapshot_chunk": snapshots.load,
            "apply_snapshot_chunk": snapshots.apply,
        }

    async def run(self, request: pb.Request) -> pb.Response:
        """Answer one request that is no CheckTx. Raises LedgerBroken when the node must end."""
        name = request.WhichOneof("value")
        call = self._table.get(name or "")
        if call is None:
            raise LedgerBroken("the engine asks something that ABCI 2.0 does not have")
        return await call(getattr(request, str(name)))

    def answer_checks(self, group: Sequence[pb.Request]) -> list[pb.Response]:
        """Answer checks and the flushes among them: at least one, in order, in this thread.

        The engine flushes after nearly every check, so they come mixed.
        """
        checks = [one.check_tx for one in group if one.WhichOneof("value") == "check_tx"]
        results = iter(self._check(checks) if checks else ())
        answers: list[pb.Response] = []
        for one in group:
            if one.WhichOneof("value") == "flush":
                answers.append(FLUSHED)
            elif (result := next(results, None)) is not None:
                answers.append(pb.Response(check_tx=result))
            else:
                break
        return answers

    def _check(self, requests: Sequence[pb.RequestCheckTx]) -> list[pb.ResponseCheckTx]:
        again = requests[0].type == pb.RECHECK
        same = [one.tx for one in requests if (one.type == pb.RECHECK) == again]
        end = time.monotonic() + CHECKS_S
        try:
            results = self._ledger.check_here(
                same if len(same) == len(requests) else same[:1],
                again=again,
                until=lambda: time.monotonic() > end,
            )
        except Unavailable as reason:
            return [pb.ResponseCheckTx(code=REFUSED, log=str(reason))]
        return [check_message(one) for one in results]

    async def _echo(self, request: pb.RequestEcho) -> pb.Response:
        return pb.Response(echo=pb.ResponseEcho(message=request.message))

    async def _flush(self, request: pb.RequestFlush) -> pb.Response:
        return pb.Response(flush=pb.ResponseFlush())

    async def _info(self, request: pb.RequestInfo) -> pb.Response:
        height = self._ledger.state_height
        return pb.Response(
            info=pb.ResponseInfo(
                data="meshnode",
                version=__version__,
                last_block_height=height,
                # Before the first commit, InitChain gives the root.
                last_block_app_hash=self._ledger.state_app_hash if height else b"",
            )
        )

    async def _init_chain(self, request: pb.RequestInitChain) -> pb.Response:
        ledger = self._ledger
        if request.chain_id != ledger.chain_id or request.initial_height not in (0, 1):
            raise LedgerBroken(f"the engine begins the chain {request.chain_id}")
        if ledger.state_height:
            raise LedgerBroken("the engine begins a chain that this ledger has already")
        # Without validators in the answer, those of the genesis stay.
        return pb.Response(init_chain=pb.ResponseInitChain(app_hash=ledger.state_app_hash))

    async def _query(self, request: pb.RequestQuery) -> pb.Response:
        try:
            if request.height not in (0, self._ledger.height) or request.prove:
                raise Unavailable("only the current state, without proofs, can be queried")
            found = await self._ledger.query(request.path, request.data)
        except (Unavailable, Rejected) as reason:
            return pb.Response(query=pb.ResponseQuery(code=REFUSED, log=str(reason)))
        answer = pb.ResponseQuery(
            code=found.code, log=found.log, value=found.value, height=found.height
        )
        return pb.Response(query=answer)

    async def _prepare(self, request: pb.RequestPrepareProposal) -> pb.Response:
        room = request.max_tx_bytes - TX_OVERHEAD_BYTES * len(request.txs)
        try:
            chosen = await self._ledger.propose(proposal_frame(request), list(request.txs), room)
        except Rejected as reason:
            log.warning("no transactions in the proposal for block %d: %s", request.height, reason)
            chosen = ()
        return pb.Response(prepare_proposal=pb.ResponsePrepareProposal(txs=chosen))

    async def _process(self, request: pb.RequestProcessProposal) -> pb.Response:
        status = pb.ResponseProcessProposal.ACCEPT
        try:
            await self._ledger.process(proposed_block(request))
        except Rejected as reason:
            log.warning("the proposal for block %d is refused: %s", request.height, reason)
            status = pb.ResponseProcessProposal.REJECT
        return pb.Response(process_proposal=pb.ResponseProcessProposal(status=status))

    async def _finalize(self, request: pb.RequestFinalizeBlock) -> pb.Response:
        try:
            with self._ledger.execution():
                finalized = await self._ledger.decide(decided_block(request), request.hash)
        except Rejected as reason:
            raise LedgerBroken(
                f"block {request.height} was decided, but this node refuses it: {reason}"
            ) from reason
        return pb.Response(finalize_block=finalized_message(finalized))

    async def _commit(self, request: pb.RequestCommit) -> pb.Response:
        with self._ledger.execution():
            while True:
                try:
                    await self._ledger.commit()
                except StorageRefused as refusal:
                    # The engine waits. Nothing was committed, and nothing is lost.
                    self._ledger.report(str(refusal))
                    await trio.sleep(RETRY_S)
                    continue
                return pb.Response(commit=pb.ResponseCommit())

    async def _extend_vote(self, request: pb.RequestExtendVote) -> pb.Response:
        # The genesis switches extensions off, so the engine never asks.
        return pb.Response(extend_vote=pb.ResponseExtendVote())

    async def _verify_vote_extension(self, request: pb.RequestVerifyVoteExtension) -> pb.Response:
        status = pb.ResponseVerifyVoteExtension.ACCEPT
        verdict = pb.ResponseVerifyVoteExtension(status=status)
        return pb.Response(verify_vote_extension=verdict)
