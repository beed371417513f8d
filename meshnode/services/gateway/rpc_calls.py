"""``/rpc`` calls, carried out by the node's own ledger (interface 4.2 rules 1, 2, 5 and 6).

Results have CometBFT 0.38's shapes; a failure that CometBFT would answer with a JSON-RPC error is
raised as :class:`EngineError`. A broadcast is preliminary acceptance: its ``code`` is that of the
check, and only a block decides. A transaction is decoded and its signature verified before it
reaches the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.blocks import ACCEPTED
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.comet import jsonform
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.envelope import decode_transaction, transaction_hash
from meshnode.domain.chain.errors import Rejected, TransactionTooLarge
from meshnode.domain.errors import Unavailable
from meshnode.services.gateway.rpc_table import (
    BlockCall,
    BroadcastCommitCall,
    BroadcastSyncCall,
    Call,
    CommitCall,
    QueryCall,
    StatusCall,
    ValidatorsCall,
)

if TYPE_CHECKING:
    from meshnode.services.ledger.handle import Ledger
    from meshnode.services.ledger.records import StoredBlock

KNOWN = "tx already exists in cache"
"""CometBFT's words for bytes that already wait for a block."""
MAX_WAITING_COMMITS = 16
"""The most broadcasts that wait for their block at one time, as on the public network; each holds a
client's connection for up to :data:`COMMIT_S`."""
COMMIT_S = 60.0
"""Seconds to wait for a transaction to get into a block. CometBFT's own limit is 10 s."""


class EngineError(Rejected):
    """A failure that CometBFT answers with an error object; the message is its JSON text."""

    def __init__(self, data: str) -> None:
        error: Json = {"code": -32603, "message": "Internal error", "data": data}
        Exception.__init__(self, encode(error).decode())


class TransactionExceedsLimit(Rejected):
    """Transaction exceeds the network's limit."""

    def __init__(self, limit: int) -> None:
        size = f"{limit // 1024} KiB" if limit % 1024 == 0 else f"{limit} bytes"
        Exception.__init__(self, f"Transaction exceeds {size}")


@dataclass
class RpcCalls:
    """Carries out permitted calls. ``consensus_key`` is this node's own, with or without power."""

    ledger: Ledger
    node_id: str
    consensus_key: str = ""
    draining: Callable[[], bool] = lambda: False
    address: str = ""
    """HOST:PORT where this node listens."""
    weights: Callable[[str], Awaitable[Json]] | None = None
    """The adapter with a root, which a foreign provider needs for a pending job."""
    _waiting: int = field(default=0, init=False)

    async def run(self, call: Call) -> Json:
        """Return the call's result. Raises Rejected, Unavailable or trio.TooSlowError."""
        match call.arguments:
            case StatusCall():
                return await self._status()
            case BlockCall(height):
                return jsonform.block_result((await self._stored(height)).block)
            case CommitCall(height):
                return await self._commit(height)
            case ValidatorsCall():
                return await self._validators(call.arguments)
            case QueryCall(path, data):
                return await self._query(path, data)
            case BroadcastSyncCall(raw):
                return jsonform.broadcast_result(*await self._submit(raw))
            case BroadcastCommitCall(raw):
                return await self._broadcast_commit(raw)

    async def _query(self, path: str, data: bytes) -> Json:
        result = await self.ledger.query(path, data)
        value = result.value
        if path == "/job" and result.code == ACCEPTED and self.weights is not None:
            job = json.loads(value)
            if job["status"] == "pending":
                value = encode({**job, "weights": await self.weights(job["model_root"])})
        return jsonform.query_result(result.code, result.log, value, result.height)

    async def _status(self) -> Json:
        latest, readiness = self.ledger.latest, self.ledger.readiness()
        info = jsonform.SyncInfo(chain_id=self.ledger.chain_id, height=0)
        if latest is not None:
            info = jsonform.SyncInfo(
                chain_id=self.ledger.chain_id,
                height=latest.height,
                hash=latest.hash,
                app_hash=latest.header.app_hash,
                time_ns=latest.time_ns,
                catching_up=readiness.catching_up,
            )
        # A node without power shows its key with a power of 0, as CometBFT does.
        signs = await self.ledger.validators(self.ledger.height) if self.consensus_key else ()
        own = (one for one in signs if one.consensus_key == self.consensus_key)
        validator = next(own, CometValidator(self.consensus_key, 0)) if self.consensus_key else None
        earliest = await self.ledger.block(self.ledger.earliest_height)
        return jsonform.status_result(
            info,
            self.node_id,
            validator,
            address=self.address,
            earliest=None if earliest is None else earliest.header,
        )

    async def _commit(self, height: int | None) -> Json:
        stored = await self._stored(height)
        # The last commit may still gain signatures; the next block contains the final version.
        canonical = stored.height < self.ledger.height
        return jsonform.commit_result(stored.header, stored.commit, canonical=canonical)

    async def _validators(self, call: ValidatorsCall) -> Json:
        height = call.height or self.ledger.height
        page, per_page = call.page, call.per_page
        validators = await self.ledger.validators(height)
        if not validators:
            raise self._no_height(height)
        pages = -(-len(validators) // per_page)
        if page > pages:
            raise EngineError(f"page should be within [1, {pages}] range, given {page}")
        chosen = validators[(page - 1) * per_page : page * per_page]
        turns = await self.ledger.priorities(height)
        return jsonform.validators_result(height, chosen, len(validators), turns)

    async def _broadcast_commit(self, raw: bytes) -> Json:
        if self._waiting >= MAX_WAITING_COMMITS:
            raise Unavailable("too many broadcasts wait for their block; use broadcast_tx_sync")
        self._waiting += 1
        try:
            with trio.fail_after(COMMIT_S):
                code, log, name = await self._submit(raw)
                checked = (code, log)
                if code != ACCEPTED:
                    return jsonform.broadcast_commit_result(checked, (ACCEPTED, ""), name, 0)
                height, result = await self.ledger.wait_transaction(name)
        finally:
            self._waiting -= 1
        outcome = (result.code, result.log)
        return jsonform.broadcast_commit_result(checked, outcome, name, height)

    async def _submit(self, raw: bytes) -> tuple[int, str, str]:
        profile = self.ledger.genesis.profile
        # Size and signature are checked first, so that only signed transactions go any further.
        try:
            decode_transaction(raw, profile.params.max_tx_bytes, profile.limits.transaction_depth)
        except TransactionTooLarge:
            raise TransactionExceedsLimit(profile.params.max_tx_bytes) from None
        readiness = self.ledger.readiness()
        # The transaction might never get into a block, and the client could not know.
        if self.draining():
            raise Unavailable("the node is draining")
        if not readiness.ready:
            raise Unavailable(f"the node is not ready: {readiness.reason}")
        name = transaction_hash(raw)
        if self.ledger.is_waiting(name):
            raise EngineError(KNOWN)
        result = await self.ledger.submit(raw)
        return result.code, result.log, name

    async def _stored(self, height: int | None) -> StoredBlock:
        height = height or self.ledger.height
        stored = await self.ledger.block(height)
        if stored is None:
            raise self._no_height(height)
        return stored

    def _no_height(self, height: int) -> EngineError:
        tip, lowest = self.ledger.height, self.ledger.earliest_height
        if height < lowest <= tip:
            return EngineError(f"height {height} is not available, lowest height is {lowest}")
        return EngineError(
            f"height {height} must be less than or equal to the current blockchain height {tip}"
        )
