"""``/rpc`` calls, carried out by the node's own ledger (document, 4.2 rules 1, 2, 5 and 6).

Results have CometBFT 0.38's shapes; what CometBFT would answer with a JSON-RPC error is an
:class:`EngineError`. A broadcast is preliminary acceptance: its ``code`` is that of the check, and
only a block decides. A transaction is decoded and its signature verified before anything of the
ledger sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from meshnode.domain.chain.blocks import ACCEPTED
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.comet import jsonform
from meshnode.domain.chain.envelope import decode_transaction, transaction_hash
from meshnode.domain.chain.errors import Rejected, TransactionTooLarge
from meshnode.domain.errors import Unavailable
from meshnode.services.gateway.rpc_table import Argument, Call

if TYPE_CHECKING:
    from meshnode.domain.chain.comet.validators import CometValidator
    from meshnode.services.ledger.handle import Ledger
    from meshnode.services.ledger.records import StoredBlock

MAX_WAITING_COMMITS = 16
"""Broadcasts that wait for their block at a time, as on the public network; each holds a client's
connection for up to :data:`COMMIT_S`."""
COMMIT_S = 60.0
"""For a transaction to get into a block; CometBFT's own limit is 10 s, and its callers poll."""

Arguments = Mapping[str, Argument]


class EngineError(Rejected):
    """What CometBFT answers with an error object, as the JSON text that clients know."""

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
    """Carries out permitted calls. ``validator`` is this node's own key, where it signs blocks."""

    ledger: Ledger
    node_id: str
    validator: CometValidator | None = None
    draining: Callable[[], bool] = lambda: False
    _waiting: int = field(default=0, init=False)

    async def run(self, call: Call) -> Json:
        """The call's result. Rejected, Unavailable, or trio.TooSlowError when it has none."""
        return await _HANDLERS[call.method](self, call.arguments)

    async def _status(self, _: Arguments) -> Json:
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
        return jsonform.status_result(info, self.node_id, self.validator)

    async def _block(self, arguments: Arguments) -> Json:
        return jsonform.block_result((await self._stored(arguments)).block)

    async def _commit(self, arguments: Arguments) -> Json:
        stored = await self._stored(arguments)
        # The last commit may still gain signatures; the next block holds the final one.
        canonical = stored.height < self.ledger.height
        return jsonform.commit_result(stored.header, stored.commit, canonical=canonical)

    async def _validators(self, arguments: Arguments) -> Json:
        height = arguments["height"] or self.ledger.height
        page, per_page = arguments["page"], arguments["per_page"]
        assert isinstance(height, int)  # noqa: S101 - read by the table
        assert isinstance(page, int) and isinstance(per_page, int)  # noqa: S101, PT018 - likewise
        validators = await self.ledger.validators(height)
        if not validators:
            raise self._no_height(height)
        pages = -(-len(validators) // per_page)
        if page > pages:
            raise EngineError(f"page should be within [1, {pages}] range, given {page}")
        chosen = validators[(page - 1) * per_page : page * per_page]
        return jsonform.validators_result(height, chosen, len(validators))

    async def _query(self, arguments: Arguments) -> Json:
        path, data = arguments["path"], arguments["data"]
        assert isinstance(path, str) and isinstance(data, bytes)  # noqa: S101, PT018 - by the table
        result = await self.ledger.query(path, data)
        return jsonform.query_result(result.code, result.log, result.value, result.height)

    async def _broadcast_sync(self, arguments: Arguments) -> Json:
        code, log, name = await self._submit(arguments)
        return jsonform.broadcast_result(code, log, name)

    async def _broadcast_commit(self, arguments: Arguments) -> Json:
        if self._waiting >= MAX_WAITING_COMMITS:
            raise Unavailable("too many broadcasts wait for their block; use broadcast_tx_sync")
        self._waiting += 1
        try:
            with trio.fail_after(COMMIT_S):
                code, log, name = await self._submit(arguments)
                checked = (code, log)
                if code != ACCEPTED:
                    return jsonform.broadcast_commit_result(checked, (ACCEPTED, ""), name, 0)
                height, result = await self.ledger.wait_transaction(name)
        finally:
            self._waiting -= 1
        outcome = (result.code, result.log)
        return jsonform.broadcast_commit_result(checked, outcome, name, height)

    async def _submit(self, arguments: Arguments) -> tuple[int, str, str]:
        raw = arguments["tx"]
        assert isinstance(raw, bytes)  # noqa: S101 - read by the table
        profile = self.ledger.genesis.profile
        # Size and signature first: what nobody signed goes no further.
        try:
            decode_transaction(raw, profile.params.max_tx_bytes, profile.limits.transaction_depth)
        except TransactionTooLarge:
            raise TransactionExceedsLimit(profile.params.max_tx_bytes) from None
        readiness = self.ledger.readiness()
        # It would wait for a block that may not come, and the client could not tell.
        if self.draining():
            raise Unavailable("the node is draining")
        if not readiness.ready:
            raise Unavailable(f"the node is not ready: {readiness.reason}")
        result = await self.ledger.submit(raw)
        return result.code, result.log, transaction_hash(raw)

    async def _stored(self, arguments: Arguments) -> StoredBlock:
        height = arguments["height"] or self.ledger.height
        assert isinstance(height, int)  # noqa: S101 - read by the table
        stored = await self.ledger.block(height)
        if stored is None:
            raise self._no_height(height)
        return stored

    def _no_height(self, height: int) -> EngineError:
        tip = self.ledger.height
        return EngineError(
            f"height {height} must be less than or equal to the current blockchain height {tip}"
        )


_HANDLERS: Mapping[str, Callable[[RpcCalls, Arguments], Awaitable[Json]]] = {
    "status": RpcCalls._status,
    "block": RpcCalls._block,
    "commit": RpcCalls._commit,
    "validators": RpcCalls._validators,
    "abci_query": RpcCalls._query,
    "broadcast_tx_sync": RpcCalls._broadcast_sync,
    "broadcast_tx_commit": RpcCalls._broadcast_commit,
}
