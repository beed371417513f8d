"""Another node as a source of blocks: its gateway for reading, its gRPC port for transactions.

It reads ``/network/genesis.json`` and CometBFT's methods at ``/rpc``, which other gateways of the
same API have as well. Transactions go to ``GossipTransaction``, stakes to ``GossipStake``
(interface 4.3).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from meshnode.domain.addresses import grpc_addresses
from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.comet.jsonform import SyncInfo, read_block, read_commit, read_status
from meshnode.domain.chain.errors import MalformedBlock, Rejected
from meshnode.domain.chain.genesis import GENESIS_LIMITS
from meshnode.domain.errors import Unavailable
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.ledger.fetch import fetch
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshnode.domain.chain.comet.commits import Commit
    from meshnode.domain.chain.comet.headers import CometBlock, Header
    from meshnode.rpc.pool import ChannelPool

T = TypeVar("T")

ANSWER_LIMITS = JsonLimits(size=8 * 1024 * 1024, tokens=200_000)
"""The size that clients of the public network use; a block of 1 MiB is less than 2 MiB of JSON. The
votes of 10,000 validators have 160,000 tokens."""
MAX_REASON_CHARS = 200
"""Characters of another node's text that go into this node's own answers."""
STAKE_KINDS = ("stake", "unstake")


class TrackerSource:
    """The nodes of ``tracker_url``: one is asked at a time, the next when it does not answer."""

    def __init__(
        self, tracker_url: str, pool: ChannelPool, node_id: str, authorities: str = ""
    ) -> None:
        """``tracker_url`` is as in the configuration, not empty; ``node_id`` is this node's.

        ``authorities`` is a PEM file of those who sign certificates, unless the system knows them.
        """
        self._authorities = authorities
        self._urls = [url.rstrip("/") for url in tracker_url.split(",") if url]
        self._grpc = grpc_addresses(tracker_url)
        self._pool = pool
        self._node_id = node_id
        self._asked = 0

    @property
    def name(self) -> str:
        """The URL of the node that is asked now."""
        return self._urls[self._asked]

    def try_next(self) -> None:
        """Ask the next node from now on."""
        self._asked = (self._asked + 1) % len(self._urls)

    async def genesis(self) -> bytes:
        """See :class:`~meshnode.services.ledger.follower.BlockSource`."""
        return await self._document("/network/genesis.json")

    async def dataset(self) -> bytes:
        """The chain's data set, unchecked: its SHA-256 is in the genesis. Raises Unavailable."""
        return await self._document("/network/dataset.json")

    async def _document(self, path: str) -> bytes:
        status, content = await fetch(
            self.name, path, most_bytes=GENESIS_LIMITS.size, authorities=self._authorities
        )
        if status != 200:
            raise Unavailable(f"{path} is answered with {status}")
        return content

    async def status(self) -> SyncInfo:
        """See :class:`~meshnode.services.ledger.follower.BlockSource`."""
        return await self._ask("status", {}, read_status)

    async def block(self, height: int) -> CometBlock:
        """See :class:`~meshnode.services.ledger.follower.BlockSource`."""
        return await self._ask("block", {"height": str(height)}, read_block)

    async def commit(self, height: int) -> tuple[Header, Commit]:
        """See :class:`~meshnode.services.ledger.follower.BlockSource`."""
        return await self._ask("commit", {"height": str(height)}, read_commit)

    async def relay(self, raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
        """See :class:`~meshnode.services.ledger.follower.BlockSource`."""
        address, answered = self._grpc[self._asked], False
        try:
            stub = await self._pool.stub(*address)
            if kind in STAKE_KINDS:
                stake = await stub.GossipStake(
                    pb.GossipStakeRequest(transaction=raw, sender_id=self._node_id, ttl=ttl)
                )
                outcome = stake.accepted, stake.reason[:MAX_REASON_CHARS]
            else:
                answer = await stub.GossipTransaction(
                    pb.GossipTransactionRequest(transaction=raw, sender_id=self._node_id, ttl=ttl)
                )
                outcome = answer.accepted, answer.reason[:MAX_REASON_CHARS]
            answered = True
        except CallFailed as failure:
            answered = True
            if failure.code == Code.INVALID_ARGUMENT:
                return False, failure.message[:MAX_REASON_CHARS]
            raise Unavailable(f"{self.name} does not take transactions: {failure}") from failure
        finally:
            if not answered:
                self._pool.distrust(*address)
        return outcome

    async def _ask(self, method: str, params: dict[str, Json], read: Callable[[Json], T]) -> T:
        question = encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        status, content = await fetch(
            self.name,
            "/rpc",
            body=question,
            most_bytes=ANSWER_LIMITS.size,
            authorities=self._authorities,
        )
        if status != 200:
            raise Unavailable(f"{method} is answered with {status}")
        # A large block takes tens of milliseconds to decode.
        return await trio.to_thread.run_sync(partial(_read, content, read))


def _read(content: bytes, read: Callable[[Json], T]) -> T:
    try:
        answer = parse(content, ANSWER_LIMITS)
    except Rejected:
        raise MalformedBlock from None
    if not isinstance(answer, dict) or "result" not in answer:
        raise MalformedBlock
    return read(answer["result"])
