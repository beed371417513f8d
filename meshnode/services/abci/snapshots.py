"""The snapshot calls of ABCI 2.0: what is offered to other nodes, and how this one is restored.

====================  ==============================================================================
call                  carried out by
====================  ==============================================================================
ListSnapshots         the folder of snapshots
LoadSnapshotChunk     a file of it; empty when it was removed
OfferSnapshot         comparing the hashes of all chunks with the root that the engine's light
                      client trusts. A peer that offers others has lied, and is not asked again
ApplySnapshotChunk    comparing a chunk with its hash. A false one is fetched from another peer,
                      and its sender is not asked again. The last one replaces the ledger
====================  ==============================================================================

Nothing of a snapshot can be seen before the last chunk. A ledger that has executed blocks of its
own is never replaced.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.chain.snapshots import FORMAT, InvalidChunk, InvalidSnapshot, read_snapshot
from meshnode.domain.errors import StartupError
from meshnode.services.ledger.database import StorageRefused
from meshnode.services.ledger.restoring import Restoring
from meshnode.wire import abci_pb2 as pb

if TYPE_CHECKING:
    from meshnode.services.ledger.ordered import OrderedLedger

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause before a chunk is tried again that the disk refused."""

_Offer, _Apply = pb.ResponseOfferSnapshot, pb.ResponseApplySnapshotChunk


class SnapshotCalls:
    """Carries out the calls of one engine's snapshot connection."""

    def __init__(self, ledger: OrderedLedger) -> None:
        """Calls about ``ledger``."""
        self._ledger = ledger
        self._restoring: Restoring | None = None

    async def list(self, request: pb.RequestListSnapshots) -> pb.Response:
        """The snapshots that are here."""
        found = [
            pb.Snapshot(
                height=one.height,
                format=FORMAT,
                chunks=len(one.hashes),
                hash=one.hash,
                metadata=one.metadata,
            )
            for one in self._ledger.snapshots.known
        ]
        return pb.Response(list_snapshots=pb.ResponseListSnapshots(snapshots=found))

    async def load(self, request: pb.RequestLoadSnapshotChunk) -> pb.Response:
        """One chunk of them."""
        chunk = b""
        if request.format == FORMAT:
            read = partial(self._ledger.snapshots.load, request.height, request.chunk)
            chunk = await trio.to_thread.run_sync(read)
        return pb.Response(load_snapshot_chunk=pb.ResponseLoadSnapshotChunk(chunk=chunk))

    async def offer(self, request: pb.RequestOfferSnapshot) -> pb.Response:
        """Whether a snapshot is the one of the trusted root."""
        verdict = await self._weigh(request)
        return pb.Response(offer_snapshot=_Offer(result=verdict))

    async def _weigh(self, request: pb.RequestOfferSnapshot) -> pb.ResponseOfferSnapshot.Result:
        offered = request.snapshot
        await self._drop()
        if not self._ledger.may_be_restored:
            log.error("engine: a snapshot is offered to a ledger that has blocks of its own")
            return _Offer.ABORT
        if offered.format != FORMAT:
            return _Offer.REJECT_FORMAT
        try:
            found = read_snapshot(offered.height, offered.chunks, offered.metadata, offered.hash)
        except Rejected:
            return _Offer.REJECT_SENDER
        if found.root != request.app_hash:
            log.warning("engine: the snapshot of block %d is not the chain's", found.height)
            return _Offer.REJECT_SENDER
        begin = partial(Restoring, self._ledger.data_dir, self._ledger.genesis_bytes, found)
        while True:
            try:
                self._restoring = await trio.to_thread.run_sync(begin)
                break
            except StorageRefused as refusal:
                self._ledger.report(str(refusal))
                await trio.sleep(RETRY_S)
        chunks = len(found.hashes)
        log.info("engine: the snapshot of block %d is fetched, %d chunks", found.height, chunks)
        return _Offer.ACCEPT

    async def apply(self, request: pb.RequestApplySnapshotChunk) -> pb.Response:
        """Take one chunk."""
        restoring = self._restoring
        if restoring is None or request.index >= len(restoring.snapshot.hashes):
            return _applied(_Apply.ABORT)
        try:
            await trio.to_thread.run_sync(restoring.add, request.index, request.chunk)
            if restoring.left:
                return _applied(_Apply.ACCEPT)
            await self._finish(restoring)
        except InvalidChunk:
            log.warning("engine: chunk %d from %s is false", request.index, request.sender)
            refused = _Apply(
                result=_Apply.RETRY,
                refetch_chunks=[request.index],
                reject_senders=[request.sender],
            )
            return pb.Response(apply_snapshot_chunk=refused)
        except InvalidSnapshot:
            await self._drop()
            return _applied(_Apply.REJECT_SNAPSHOT)
        except StorageRefused as refusal:
            # The engine gives the same chunk again.
            self._ledger.report(str(refusal))
            await trio.sleep(RETRY_S)
            return _applied(_Apply.RETRY)
        return _applied(_Apply.ACCEPT)

    async def _finish(self, restoring: Restoring) -> None:
        staged = await trio.to_thread.run_sync(restoring.finish)
        try:
            await self._ledger.adopt(staged)
        except StartupError as broken:
            raise LedgerBroken(f"the snapshot cannot be used: {broken}") from None
        self._restoring = None
        log.info("engine: the state is that of block %d", restoring.snapshot.height)

    async def _drop(self) -> None:
        restoring, self._restoring = self._restoring, None
        if restoring is not None:
            await trio.to_thread.run_sync(restoring.abandon)


def _applied(result: pb.ResponseApplySnapshotChunk.Result) -> pb.Response:
    return pb.Response(apply_snapshot_chunk=_Apply(result=result))
