"""Signing the node's own transactions for the chain and seeing them into a block (document, 3).

For what the node does by itself, as provider and as sponsor: one transaction at a time, each with
the nonce that the chain has now. Others may use the same key: whoever is late finds the nonce taken
and signs anew, unless it was taken by what was offered before and came into a block unheard. What
must not happen twice is refused by the chain itself (decisions/0089).
"""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol

import trio

from meshnode.domain.chain.blocks import ACCEPTED, TransactionResult
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import (
    ApplicationId,
    TransactionHash,
    application_id,
    sign_envelope,
    transaction_hash,
)
from meshnode.domain.chain.errors import MempoolFull, Rejected, TooManyOfSender, WrongNonce
from meshnode.domain.chain.queries import QueryResult
from meshnode.domain.errors import Unavailable
from meshnode.domain.identity import NodeKey

log = logging.getLogger(__name__)

OFFER_AGAIN_S = 30.0
"""A transaction that is in no block by then may have been dropped on the way: offer it again."""
ASK_AGAIN_S = 1.0
"""While the ledger cannot be asked."""

_PASSING = frozenset(str(refusal()) for refusal in (WrongNonce, MempoolFull, TooManyOfSender))
"""Refusals that the next block may end."""


Offered = tuple[TransactionHash, ApplicationId]


class Chain(Protocol):
    """What is asked of the ledger's handle."""

    @property
    def chain_id(self) -> str:
        """The chain's name."""

    @property
    def height(self) -> int:
        """Of the last committed block."""

    async def submit(self, raw: bytes) -> TransactionResult:
        """Offer a transaction for a block to come."""

    async def query(self, path: str, options: Any = ...) -> QueryResult:
        """Ask the committed state."""

    async def wait_beyond(self, height: int) -> int:
        """Wait for a height above this one."""

    async def transaction(self, hash: str) -> tuple[int, TransactionResult] | None:
        """Height and result of a transaction in a block."""

    async def wait_transaction(self, hash: str) -> tuple[int, TransactionResult]:
        """Wait until a transaction is in a block; height and result."""


class Refused(Rejected):
    """The chain refused a transaction of the node's own; the message is the chain's."""

    def __init__(self, log: str) -> None:
        Exception.__init__(self, log)


async def ask(chain: Chain, path: str, options: dict[str, Json] | None = None) -> dict[str, Any]:
    """The committed state's answer. Refused when it has none, Unavailable when it cannot say."""
    result = await chain.query(path, options or {})
    if result.code != ACCEPTED:
        raise Refused(result.log)
    value: dict[str, Any] = json.loads(result.value)
    return value


class Submitter:
    """Signs with one key, one transaction after another."""

    def __init__(self, chain: Chain, key: NodeKey) -> None:
        self._chain = chain
        self._key = key
        self._turn = trio.Lock()
        self._offered: Offered | None = None
        """What was signed last, for the fields that are being sent."""

    @property
    def public_key(self) -> str:
        """Whose account signs."""
        return self._key.public_key

    async def send(self, kind: str, fields: dict[str, Json]) -> ApplicationId:
        """Sign, submit, and wait for the block. Raises Refused when the chain will not have it.

        Waits as long as it takes: the caller sets the deadline. Cancelled, it leaves at most a
        signed transaction on its way.
        """
        async with self._turn:
            self._offered = None
            while True:
                height = self._chain.height
                try:
                    sent = await self._attempt(kind, fields)
                except Unavailable as error:
                    log.info("the ledger cannot take a transaction now: %s", error)
                    await trio.sleep(ASK_AGAIN_S)
                    continue
                if sent is not None:
                    return sent
                # Somebody else's transaction took the nonce or the room: a block will tell.
                with trio.move_on_after(OFFER_AGAIN_S):
                    await self._chain.wait_beyond(height)

    async def _attempt(self, kind: str, fields: dict[str, Json]) -> ApplicationId | None:
        body = await self._body(kind, fields)
        # Asked in this order: while that is in no block, its nonce is the one to sign with again.
        if self._offered is not None and await self._landed(self._offered):
            return self._offered[1]
        raw = encode(sign_envelope(body, self._key.seed))
        self._offered = transaction_hash(raw), application_id(body, self.public_key)
        result = await self._chain.submit(raw)
        if result.code == ACCEPTED:
            with trio.move_on_after(OFFER_AGAIN_S):
                _, result = await self._chain.wait_transaction(transaction_hash(raw))
                if result.code == ACCEPTED:
                    return self._offered[1]
        if result.code != ACCEPTED and result.log not in _PASSING:
            raise Refused(result.log)
        return None

    async def _landed(self, offered: Offered) -> bool:
        found = await self._chain.transaction(offered[0])
        return found is not None and found[1].code == ACCEPTED

    async def _body(self, kind: str, fields: dict[str, Json]) -> dict[str, Json]:
        account = await ask(self._chain, "/account", {"public_key": self.public_key})
        nonce: int = account["nonce"]
        return {"kind": kind, "chain_id": self._chain.chain_id, "nonce": nonce, **fields}
