"""A wallet's node that dies at a chosen step, and starts again over the same folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import trio

from meshnode.services.signer.journal import Journal
from spec_tests.edges.http_server import FakeExecutor
from spec_tests.services.wallet.wallet_node import WalletNode, serve_wallet_node


class Crash(Exception):
    """Raised at the step where the process dies."""


@dataclass
class Fate:
    """Counts steps, and raises Crash at step ``at`` and at every later one."""

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
    """The real ledger, with one step before and one after each submission."""

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
    """Runs a node for the time of an ``async with`` block, unless its fate ends it earlier."""

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
        found: WalletNode = self.node
        return found

    async def _serve(self, *, task_status: Any) -> None:
        try:
            await self.start(task_status=task_status)
        except* Crash:
            # A real crash is instant, but this one is not: from here on, nothing may reach the
            # disk.
            self.fate.dead = True

    async def __aexit__(self, *error: Any) -> bool | None:
        self.node.scope.cancel()
        try:
            return await self.manager.__aexit__(*error)
        finally:
            self.patch.stop()
