"""A producer and its follower, for tests of following."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from meshnode.services.ledger import (
    Ledger,
)
from spec_tests.services.ledger.ledgers import (
    LedgerSource,
    running_ledger,
    send,
)


@asynccontextmanager
async def pair(folder: Path, **bent: Any) -> AsyncIterator[tuple[Ledger, LedgerSource, Ledger]]:
    """Run a producer with three transfers, and a follower; ``bent`` changes the answers it gets."""
    async with running_ledger(folder / "producer") as producer:
        for _ in range(3):
            await send(producer)
        source = LedgerSource(producer, **bent)
        async with running_ledger(folder / "follower", None, source) as follows:
            yield producer, source, follows


def root(ledger: Ledger) -> bytes:
    return ledger._keeper._app.app_hash
