"""Ledgers for tests: a producer, followers of it, and sources that lie."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.comet import jsonform
from meshnode.domain.chain.comet.commits import Commit
from meshnode.domain.chain.comet.headers import CometBlock, Header
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.domain.errors import Unavailable
from meshnode.services.ledger import Ledger, ValidatorKey, serve_ledger
from meshnode.services.ledger.follower import BlockSource
from spec_tests.domain.chain.net import ALICE, BOB, Actor, FakeModel, genesis

KEY = ValidatorKey.of(bytes(range(32)))
GENESIS = encode(
    genesis_document(
        genesis(validators=(GenesisValidator(ALICE.key, KEY.public_key, 8 * 250_000, 0),))
    )
)
SOON_S = 180.0
"""Seconds that a test waits for what takes milliseconds on an idle machine."""


@asynccontextmanager
async def running_ledger(
    folder: Path,
    key: ValidatorKey | None = KEY,
    source: BlockSource | None = None,
    *,
    document: bytes = GENESIS,
    model: Any = None,
    **options: Any,
) -> AsyncIterator[Ledger]:
    """Run a ledger as a node does, and stop it when the context ends."""
    await trio.Path(folder).mkdir(exist_ok=True)
    serve = partial(serve_ledger, folder, document, model or FakeModel(), key, source, **options)
    async with trio.open_nursery() as nursery:
        ledger = await nursery.start(serve)
        with trio.fail_after(3 * SOON_S):
            yield ledger
        nursery.cancel_scope.cancel()


async def until(ledger: Ledger, height: int) -> None:
    """Wait until the ledger reaches this height."""
    with trio.fail_after(SOON_S):
        await ledger.wait_beyond(height - 1)


async def eventually(condition: Callable[..., object]) -> None:
    """Poll until the condition holds, for at most ``SOON_S`` seconds."""
    with trio.fail_after(SOON_S):
        while not condition():  # noqa: ASYNC110 - a plain condition has no event
            await trio.sleep(0.01)


async def account(ledger: Ledger, who: Actor) -> dict[str, Any]:
    result = await ledger.query("/account", {"public_key": who.key})
    return dict(json.loads(result.value))


async def transfer(
    ledger: Ledger, who: Actor = ALICE, to: Actor = BOB, amount: int = 1, ahead: int = 0
) -> bytes:
    """Sign a transfer whose nonce is ``ahead`` of the account's next one."""
    nonce = (await account(ledger, who))["nonce"] + ahead
    return sign(ledger, who, "transfer", nonce, to=to.key, amount=amount)


def sign(ledger: Ledger, who: Actor, kind: str, nonce: int, **fields: Json) -> bytes:
    return who.sign({"kind": kind, "chain_id": ledger.chain_id, "nonce": nonce, **fields})


async def send(ledger: Ledger, who: Actor = ALICE, amount: int = 1) -> int:
    """Commit one transfer and return its height."""
    result = await ledger.submit(await transfer(ledger, who, amount=amount))
    assert result.code == 0, result.log
    with trio.fail_after(SOON_S):
        height, outcome = await ledger.wait_transaction(result.hash)
    assert outcome.code == 0, outcome.log
    return height


@dataclass
class LedgerSource:
    """A producer's answers, in the JSON form that a gateway sends; a test may change them."""

    ledger: Ledger
    bend_block: Callable[[CometBlock], CometBlock] = lambda block: block
    bend_commit: Callable[[Commit], Commit] = lambda commit: commit
    bend_status: Callable[[jsonform.SyncInfo], jsonform.SyncInfo] = lambda info: info
    down: bool = False
    asked: list[str] = field(default_factory=list)
    name: str = "http://producer"
    relayed: list[tuple[bytes, str, int]] = field(default_factory=list)

    def try_next(self) -> None:
        self.asked.append("next")

    async def genesis(self) -> bytes:
        await self._noted("genesis")
        return self.ledger.genesis_bytes

    async def status(self) -> jsonform.SyncInfo:
        await self._noted("status")
        latest = self.ledger.latest
        info = jsonform.SyncInfo(self.ledger.chain_id, self.ledger.height)
        if latest is not None:
            info = replace(info, hash=latest.hash, time_ns=latest.time_ns)
        return jsonform.read_status(
            through_json(jsonform.status_result(self.bend_status(info), "0" * 40, None))
        )

    async def block(self, height: int) -> CometBlock:
        await self._noted("block")
        stored = await self.ledger.block(height)
        if stored is None:
            raise Unavailable("no such block")
        return jsonform.read_block(
            through_json(jsonform.block_result(self.bend_block(stored.block)))
        )

    async def commit(self, height: int) -> tuple[Header, Commit]:
        await self._noted("commit")
        stored = await self.ledger.block(height)
        if stored is None:
            raise Unavailable("no such block")
        bent = self.bend_block(stored.block).header
        return jsonform.read_commit(
            through_json(jsonform.commit_result(bent, self.bend_commit(stored.commit)))
        )

    async def relay(self, raw: bytes, kind: str, ttl: int) -> tuple[bool, str]:
        await self._noted("relay")
        self.relayed.append((raw, kind, ttl))
        result = await self.ledger.submit(raw, ttl - 1)
        return result.code == 0, result.log

    async def _noted(self, what: str) -> None:
        self.asked.append(what)
        await trio.lowlevel.checkpoint()
        if self.down:
            raise Unavailable("nobody there")


def through_json(value: Json) -> Any:
    return parse(encode(value), JsonLimits(2**24))
