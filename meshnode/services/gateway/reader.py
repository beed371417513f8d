"""The native API's resources, read from the node's own ledger (interface 2.2; decision 0076).

The ledger is the only source for the chain, the execution profile for the model, and the index,
which may lag, for histories. Nothing here changes state, and no private key is used.

Invariants: the height, the block hash and the state in one answer belong together; an error of the
state machine is raised as :class:`QueryRefused` with the same text; answers that depend only on the
height are computed once for each height.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.errors import LedgerBroken, Rejected
from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.services.gateway import views
from meshnode.services.gateway.views import Object

if TYPE_CHECKING:
    from meshnode.services.index.indexer import Index
    from meshnode.services.ledger.handle import Ledger
    from meshnode.services.ledger.records import StoredBlock

VIEW_IN_THREAD_BYTES = 64 * 1024
"""Blocks with more transactions than this are turned into JSON in a thread."""

PAGE_BYTES = 1 << 20
"""Limit for the bytes of transactions in a page of blocks, without its first block: clients read at
most 8 MiB of an answer, and decoded transactions take up to four times their bytes."""

CHECKPOINT_ENCODING = "base64 of little-endian float32, row by row"
SCOPE = "Requests, prompts and answers are on the chain: public, for everybody and for good."
VERIFICATION = "every validator generates the answer again, greedily, and compares its digest"


class QueryRefused(Rejected):
    """The state machine refused a query; the message is its own."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)


class ExecutionProfile(Protocol):
    """The model as the chain's execution profile defines it."""

    @property
    def dataset_bytes(self) -> bytes:
        """The tokenised dataset that the genesis names, as it is published."""

    def model_facts(self) -> Object:
        """The model's names and parameter counts, and the execution profile."""

    def checkpoint(self, root: str) -> Object:
        """The adapter with this root as JSON tensors ``a`` and ``b``. Blocks."""


@dataclass(frozen=True, slots=True)
class DefaultProvider:
    """The default provider: its account, and whether it answers."""

    public_key: str
    online: Callable[[], bool]


@dataclass(kw_only=True)
class NativeReader:
    """Computes the answers. ``execution`` and ``index`` are None on a node without them."""

    ledger: Ledger
    execution: ExecutionProfile | None
    index: Index | None
    node_id: str
    provider: DefaultProvider | None = None
    bootstrap_peers: Callable[[], Sequence[str]] = tuple
    """URLs of nodes through which another one can join, this node included."""
    draining: Callable[[], bool] = lambda: False
    """Whether the node is about to stop."""
    _summary: tuple[int, Object] | None = field(default=None, init=False)
    _checkpoint: tuple[str, Object] | None = field(default=None, init=False)
    _one_checkpoint: trio.Lock = field(default_factory=trio.Lock, init=False)

    async def network(self) -> Object:
        """``/api/network``."""
        summary, block = await self._observed()
        draining = self.draining()
        more: Object = {
            "genesis_sha256": self.ledger.genesis_sha256,
            "node_id": self.node_id,
            "engine": self.ledger.engine,
            "earliest_block_height": self.ledger.earliest_height,
            "bootstrap_peers": list(self.bootstrap_peers()),
            "trouble": "the node is draining" if draining else self.ledger.trouble or None,
        }
        readiness = self.ledger.readiness()
        if draining:
            readiness = replace(readiness, ready=False, reason="unavailable")
        return views.network_view(summary, block, readiness, more)

    async def _observed(self) -> tuple[Object, StoredBlock | None]:
        """The state's summary, and the block that produced that state.

        There is none at height 0, and at that of the snapshot with which this node began.
        """
        while True:
            height, summary = await self.summary()
            block = await self.ledger.block(height)
            if block is not None or height < self.ledger.earliest_height:
                return summary, block
            # The state may be ahead, because it is written before its block is announced.
            await self.ledger.wait_beyond(height - 1)

    async def manifest(self) -> bytes:
        """``/api/manifest``: the genesis manifest."""
        return encode(self.ledger.genesis.manifest)

    async def model(self) -> Object:
        """``/api/model``."""
        _, summary = await self.summary()
        facts = self._execution().model_facts()
        more: Object = {"genesis_sha256": self.ledger.genesis_sha256}
        return views.model_view(summary, facts, more)

    async def adapter(self, root: str) -> Object:
        """The adapter with this root. Raises Unavailable when this node does not hold it."""
        execution = self._execution()
        async with self._one_checkpoint:
            if self._checkpoint is None or self._checkpoint[0] != root:
                read = partial(execution.checkpoint, root)
                try:
                    self._checkpoint = (root, await trio.to_thread.run_sync(read))
                except LedgerBroken:
                    raise Unavailable("this node does not hold the latest adapter") from None
            return self._checkpoint[1]

    async def checkpoint(self) -> Object:
        """``/api/model/checkpoint.json``: the latest training adapter."""
        height, summary = await self.summary()
        root = str(summary["model_root"])
        weights = await self.adapter(root)
        return {
            "format": self.ledger.genesis.profile.checkpoint_format,
            "chain_id": self.ledger.chain_id,
            "genesis_sha256": self.ledger.genesis_sha256,
            "state_height": height,
            "round": summary["round"],
            "model_root": root,
            "weights": weights,
            "encoding": CHECKPOINT_ENCODING,
        }

    async def training(self, limit: int, before: int) -> Object:
        """``/api/training``: accepted updates of rounds below ``before``."""
        index = self._index()
        records, rounds = await index.training(before, limit)
        full = len(records) == limit and records[-1].round > 1
        return {
            "chain_id": self.ledger.chain_id,
            "records": [views.training_view(record) for record in records],
            "next_before": records[-1].round if full else None,
            "indexed_rounds": rounds,
            "metric": "training loss of the accepted step, before its update",
            **self._progress(index),
        }

    async def blocks(self, limit: int, before: int | None) -> Object:
        """``/api/blocks``: blocks below height ``before``."""
        stored = await self.ledger.blocks(before, limit)
        shown = stored[: _fitting(stored)]
        more = len(stored) == limit or len(shown) < len(stored)
        lowest = self.ledger.earliest_height
        return {
            "chain_id": self.ledger.chain_id,
            "chain_height": self.ledger.height,
            "blocks": [await self._block_view(block) for block in shown],
            "next_before": shown[-1].height if more and shown[-1].height > lowest else None,
        }

    async def block(self, height: int) -> Object:
        """``/api/block/<height>``. Raises InvalidRequest above the tip."""
        block = await self.ledger.block(height)
        if block is None:
            lowest = self.ledger.earliest_height
            raise InvalidRequest("height", f"must be between {lowest} and {self.ledger.height}")
        return {"chain_id": self.ledger.chain_id, **await self._block_view(block)}

    async def account(self, public_key: str) -> Object:
        """``/api/account``."""
        _, account = await self.query("/account", {"public_key": public_key})
        return views.account_view(account)

    async def validators(self, options: Object) -> Object:
        """``/api/validators``."""
        _, page = await self.query("/validators", options)
        return views.validators_view(page)

    async def inference(self) -> Object:
        """``/api/inference``: what a client must know before it sends a prompt."""
        _, summary = await self.summary()
        profile, readiness = self.ledger.genesis.profile, self.ledger.readiness()
        provider = self.provider
        online = provider is not None and provider.online()
        return {
            "chain_id": self.ledger.chain_id,
            "genesis_sha256": self.ledger.genesis_sha256,
            "model_root": summary["serving_root"],
            "model_name": self._model_name(),
            "provider": None if provider is None else provider.public_key,
            "provider_online": online and readiness.ready,
            "provider_connected": online,
            "network_ready": readiness.ready,
            "seconds_since_block": round(readiness.seconds_since_block, 1),
            "fee_atoms": str(profile.params.fee),
            "price_per_max_token_atoms": str(profile.params.inference_token_price),
            "max_tokens": profile.limits.output_tokens,
            "request_lifetime_blocks": profile.params.inference_blocks,
            "pending_requests": summary["pending_inference"],
            "public_prompts": True,
            "verification": VERIFICATION,
            "scope": SCOPE,
        }

    async def request(self, request_id: str) -> Object:
        """``/api/inference/request``: a job by its application request id."""
        _, job = await self.query("/job", {"id": request_id})
        return views.request_view(job)

    async def summary(self) -> tuple[int, Object]:
        """The state's summary, and the height that it belongs to."""
        known = self._summary
        if known is None or known[0] != self.ledger.height:
            known = self._summary = await self.query("/summary")
        return known

    async def query(self, path: str, options: dict[str, Json] | None = None) -> tuple[int, Object]:
        """A native query's height and value, with money as integers. Raises QueryRefused."""
        result = await self.ledger.query(path, options or {})
        if result.code:
            raise QueryRefused(result.log)
        value: dict[str, Any] = json.loads(result.value)
        return result.height, value

    async def _block_view(self, block: StoredBlock) -> Object:
        view = partial(views.block_view, block, self.ledger.genesis.profile)
        if _size(block) > VIEW_IN_THREAD_BYTES:
            return await trio.to_thread.run_sync(view)
        return view()

    def _progress(self, index: Index) -> Object:
        return {
            "indexed_height": index.indexed_height,
            "chain_height": self.ledger.height,
            "error": index.error,
        }

    def _model_name(self) -> str:
        facts = {} if self.execution is None else self.execution.model_facts()
        return str(facts.get("model_name", ""))

    def _execution(self) -> ExecutionProfile:
        if self.execution is None:
            raise Unavailable("this node has no execution profile")
        return self.execution

    def _index(self) -> Index:
        if self.index is None:
            raise Unavailable("this node keeps no explorer index")
        return self.index


def _size(block: StoredBlock) -> int:
    return sum(map(len, block.transactions))


def _fitting(blocks: list[StoredBlock]) -> int:
    """How many of ``blocks`` fit in one page; the first one always counts as fitting."""
    total = 0
    for count, block in enumerate(blocks):
        total += _size(block)
        if count and total > PAGE_BYTES:
            return count
    return len(blocks)
