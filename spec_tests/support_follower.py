"""A producer and a follower over it, for tests of following."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from support_ledger import (
    LedgerSource,
    running_ledger,
    send,
)

from meshnode.services.ledger import (
    Ledger,
)


@asynccontextmanager
async def pair(
    folder: Path, **bent: Callable
) -> AsyncIterator[tuple[Ledger, LedgerSource, Ledger]]:
    """A producer with three transfers, and a follower of it that the test may lie to."""
    async with running_ledger(folder / "producer") as producer:
        for _ in range(3):
            await send(producer)
        source = LedgerSource(producer, **bent)
        async with running_ledger(folder / "follower", None, source) as follows:
            yield producer, source, follows


def root(ledger: Ledger) -> bytes:
    return ledger._keeper._app.app_hash
