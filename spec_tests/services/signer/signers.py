"""A signer for tests, with one key and a journal in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.identity import NodeKey
from meshnode.services.signer.signer import Signer, serve_signer


@dataclass
class OneKey:
    """A keystore that holds only the node's key."""

    node_key: NodeKey

    def signer(self, public_key: str) -> NodeKey:
        assert public_key == self.node_key.public_key
        return self.node_key


async def start_signer(nursery: trio.Nursery, ledger: Any, key: NodeKey, folder: Path) -> Signer:
    """Start a signer in the nursery; its journal is in ``folder``, which is created if missing."""
    await trio.Path(folder).mkdir(parents=True, exist_ok=True)
    signer: Signer = await nursery.start(partial(serve_signer, ledger, OneKey(key), folder))
    return signer


@asynccontextmanager
async def running_signer(ledger: Any, key: NodeKey, folder: Path) -> AsyncIterator[Signer]:
    """Run a signer until the context ends."""
    async with trio.open_nursery() as nursery:
        yield await start_signer(nursery, ledger, key, folder)
        nursery.cancel_scope.cancel()
