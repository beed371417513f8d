"""The part of the ledger's handle that other services use, as protocols, and how to query it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from meshnode.domain.chain.blocks import ACCEPTED, TransactionResult
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.queries import QueryResult

if TYPE_CHECKING:
    from meshnode.domain.chain.genesis import Genesis


class CommittedBlock(Protocol):
    """A committed block."""

    @property
    def time_ns(self) -> int:
        """Its time."""

    @property
    def hash(self) -> bytes:
        """Its hash."""


class LedgerReadiness(Protocol):
    """Whether the ledger is up to date with its chain."""

    @property
    def ready(self) -> bool:
        """Whether its answers are current."""

    @property
    def reason(self) -> str:
        """Why they are not, in a word or two."""


class ChainLedger(Protocol):
    """The ledger's handle."""

    @property
    def genesis(self) -> Genesis:
        """The chain's genesis, with its profile."""

    @property
    def chain_id(self) -> str:
        """The chain's name."""

    @property
    def height(self) -> int:
        """The height of the last committed block."""

    @property
    def earliest_height(self) -> int:
        """The first height whose block is here, or comes next."""

    def readiness(self) -> LedgerReadiness:
        """Whether its answers are current."""

    async def submit(self, raw: bytes) -> TransactionResult:
        """Submit a transaction for a later block."""

    async def query(self, path: str, options: Any = ...) -> QueryResult:
        """Query the committed state."""

    async def transaction(self, hash: str) -> tuple[int, TransactionResult] | None:
        """Height and result of a transaction in a block."""

    async def block(self, height: int) -> CommittedBlock | None:
        """A committed block."""

    async def wait_beyond(self, height: int) -> int:
        """Wait for a height above this one."""


class QueryFailed(Rejected):
    """The ledger refused a query; the message is the ledger's."""

    def __init__(self, log: str) -> None:
        Exception.__init__(self, log)


async def ask(
    ledger: ChainLedger, path: str, options: dict[str, Json] | None = None
) -> dict[str, Any]:
    """The committed state's answer to a query. Raises QueryFailed and Unavailable."""
    result = await ledger.query(path, options or {})
    if result.code != ACCEPTED:
        raise QueryFailed(result.log)
    value: dict[str, Any] = json.loads(result.value)
    return value
