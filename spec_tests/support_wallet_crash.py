"""A wallet's node that dies at a chosen step, and starts again over the same folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import trio
from support_http import FakeExecutor
from support_wallet import WalletNode, serve_wallet_node

from meshnode.services.wallet.journal import Journal


class Crash(Exception):
    """The process dies here."""


@dataclass
class Fate:
    """Counts steps, and ends the process at one of them."""

    at: int | None = None
    steps: int = 0
    dead: bool = False

    def step(self) -> None:
        if self.dead or self.steps == self.at:
            self.dead = True
            raise Crash
        self.steps += 1


@dataclass
class FatefulLedger:
    """The real ledger, with a step before and after each submission."""

    ledger: Any
    fate: Fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def submit(self, raw: bytes) -> Any:
        self.fate.step()
        result = await self.ledger.submit(raw)
        self.fate.step()
        return result


class living:  # noqa: N801 - used like the function that it would be, were nurseries allowed to yield
    """A node for the time of a block, unless its fate is another."""

    def __init__(self, folder: Path, fate: Fate, **options: Any) -> None:
        self.manager = trio.open_nursery()
        self.start = partial(
            serve_wallet_node, folder, FakeExecutor(), wrap=partial(FatefulLedger, fate=fate),
            **{"settle_every_s": 0.02, **options},
        )  # fmt: skip
        self.fate = fate

    async def __aenter__(self) -> WalletNode:
        fate, real = self.fate, Journal._append_line

        def append(journal: Journal, records: Any) -> bool:
            if fate.dead:
                return False
            fate.step()
            done = real(journal, records)
            fate.step()
            return done

        self.patch = mock.patch.object(Journal, "_append_line", append)
        self.patch.start()
        nursery = await self.manager.__aenter__()
        self.node: WalletNode = await nursery.start(self._serve)
        return self.node

    async def _serve(self, *, task_status: Any) -> None:
        try:
            await self.start(task_status=task_status)
        except* Crash:
            # Dying takes longer here than in life; nothing of it may reach the disk.
            self.fate.dead = True

    async def __aexit__(self, *error: Any) -> bool | None:
        self.node.scope.cancel()
        try:
            return await self.manager.__aexit__(*error)
        finally:
            self.patch.stop()
