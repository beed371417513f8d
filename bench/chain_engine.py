"""The speed of the ledger: ``python -m bench.chain_engine [accounts ...]``.

Three tables, for states with these numbers of accounts on the disk. Blocks contain 100 signed
transfers between accounts that are spread over the state. Everything is written and synced as a
node does it.

* *engine*: transaction checks per second; a whole block (select, execute, sign, write, check the
  waiting transactions again); replay of full and empty blocks, with their signatures verified, as a
  follower does it.
* *start*: opening and checking a stored chain; the size of the file, and the growth of the process.
* *latency*: from ``submit`` to the committed block through the service, one at a time and with a
  hundred others waiting.

Figures are medians of wall time, which includes the time of the disk. The cost should depend on
what a block touches, not on the number of accounts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import trio

from bench.chain_state import NoModel, memory
from bench.table import MEBIBYTE, seconds
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.codec import decode_record, encode_record
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.genesis import Genesis, GenesisValidator, genesis_document
from meshnode.domain.chain.records import Account, Supply
from meshnode.domain.chain.statetree import StateTree, bucket_of
from meshnode.domain.errors import Unavailable
from meshnode.domain.identity import key_from_seed
from meshnode.services.ledger import Ledger, ValidatorKey, serve_ledger
from meshnode.services.ledger.database import LEDGER_FILE, LedgerDatabase, create_ledger
from meshnode.services.ledger.keeper import Keeper
from meshnode.services.ledger.records import StoredBlock

ACCOUNTS = (1_000, 10_000, 100_000, 1_000_000)
TRANSFERS = 100
BLOCKS = 15
SAMPLES = 30
SECOND_NS = 1_000_000_000
START_NS = 1_800_000_000 * SECOND_NS
CHAIN_ID = "bench"

KEY = ValidatorKey.of(bytes(range(32)))
SEEDS = [hashlib.sha256(f"sender {n}".encode()).hexdigest() for n in range(TRANSFERS)]
OWNERS = [key_from_seed(seed).public_key for seed in SEEDS]
GENESIS = encode(
    genesis_document(
        Genesis(
            chain_id=CHAIN_ID,
            genesis_time="2026-01-01T00:00:00Z",
            model_root="0" * 64,
            validation_loss_hex=(1.0).hex(),
            validators=(GenesisValidator(OWNERS[0], KEY.public_key, 250_000),),
            accounts=tuple((key, 10**12) for key in OWNERS),
        )
    )
)


def fill(folder: Path, accounts: int) -> None:
    """Write a chain without blocks, whose state has ``accounts`` additional accounts."""
    create_ledger(folder, GENESIS)
    connection = sqlite3.connect(folder / LEDGER_FILE)
    with connection:
        rows = ((bucket_of(key), key, value) for key, value in strangers(accounts))
        # In the order of the table, so that the file is laid out like one that has grown.
        connection.executemany("INSERT INTO state VALUES (?, ?, ?)", sorted(rows))
        value = connection.execute("SELECT value FROM state WHERE key = 'supply'").fetchone()[0]
        supply = decode_record(Supply.table, value)
        assert isinstance(supply, Supply)  # noqa: S101 - the table's own record
        more = replace(supply, accounts=supply.accounts + accounts)
        connection.execute(
            "UPDATE state SET value = ? WHERE key = 'supply'", (encode_record(more),)
        )
    connection.close()
    database, tree = LedgerDatabase(folder, check=False), StateTree()
    tree.rebuild(database)
    database.close()
    connection = sqlite3.connect(folder / LEDGER_FILE)
    with connection:
        connection.execute("UPDATE facts SET value = ? WHERE name = 'app_hash'", (tree.root,))
    connection.close()


def strangers(accounts: int) -> Iterator[tuple[str, bytes]]:
    """Yield account entries. They only fill the state, so their keys need not be on the curve."""
    for number in range(accounts):
        name = hashlib.sha256(str(number).encode()).hexdigest()
        yield f"account/02{name}", encode_record(Account(number, 0, number % 7))


def transfer(number: int, nonce: int) -> bytes:
    """Return a signed transfer from one account to the next."""
    to = OWNERS[(number + 1) % TRANSFERS]
    body: dict[str, Json] = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": nonce}
    return encode(sign_envelope({**body, "to": to, "amount": 1}, SEEDS[number]))


def measure_engine(accounts: int, filled: Path, folder: Path) -> None:
    """Print one row: rates of a keeper, and of a second one that replays its blocks."""
    made, replayed = folder / "made", folder / "replayed"
    shutil.copytree(filled, made)
    shutil.copytree(filled, replayed)
    keeper = Keeper(made, GENESIS, NoModel(), KEY)
    checks, blocks, stored = list[float](), list[float](), list[StoredBlock]()
    for nonce in range(BLOCKS):
        batch = [transfer(number, nonce) for number in range(TRANSFERS)]
        checks.append(seconds(partial(submit_all, keeper, batch)))
        now = START_NS + nonce * SECOND_NS
        blocks.append(seconds(lambda: stored.append(keeper.make_block(now))))  # noqa: B023 - at once
    empty = [keeper.make_block(START_NS + (BLOCKS + n) * SECOND_NS) for n in range(BLOCKS)]
    keeper.close()
    if any(len(one.transactions) != TRANSFERS for one in stored):
        raise SystemExit("a block is not full")
    follower = Keeper(replayed, GENESIS, NoModel())
    full_s = [seconds(partial(follower.take_block, one.block, one.commit)) for one in stored]
    empty_s = [seconds(partial(follower.take_block, one.block, one.commit)) for one in empty]
    same = follower.opened.genesis_sha256 == keeper.opened.genesis_sha256
    follower.close()
    if not same:
        raise SystemExit("the follower has another chain")
    row(
        accounts,
        TRANSFERS / statistics.median(checks),
        statistics.median(blocks) * 1000,
        TRANSFERS / (statistics.median(checks) + statistics.median(blocks)),
        1 / statistics.median(full_s),
        1 / statistics.median(empty_s),
    )


def submit_all(keeper: Keeper, batch: list[bytes]) -> None:
    """Submit transactions, which the keeper checks and keeps."""
    for raw in batch:
        result = keeper.submit(raw)
        if result.code:
            raise SystemExit(f"a transfer was refused: {result.log}")


def measure_start(accounts: int, folder: Path) -> None:
    """Print one row: the cost of opening a stored chain in a new process."""
    with get_context("spawn").Pool(1) as fresh:
        opening, grown = fresh.apply(open_once, (folder,))
    row(accounts, opening, (folder / LEDGER_FILE).stat().st_size / MEBIBYTE, grown)


def open_once(folder: Path) -> tuple[float, float]:
    """Return the seconds that opening takes, and the MiB by which the process grows."""
    before = memory()
    keepers: list[Keeper] = []
    opening = seconds(lambda: keepers.append(Keeper(folder, GENESIS, NoModel(), KEY)))
    grown = memory() - before
    keepers[0].close()
    return opening, grown


async def measure_latency(accounts: int, folder: Path) -> None:
    """Print one row: milliseconds from submission to the committed block."""
    serve = partial(serve_ledger, folder, GENESIS, NoModel(), KEY, None)
    async with trio.open_nursery() as nursery:
        ledger: Ledger = await nursery.start(serve)
        nonces = [await next_nonce(ledger, key) for key in OWNERS]
        alone = list[float]()
        for turn in range(SAMPLES):
            await commit_one(ledger, transfer(0, nonces[0] + turn), alone)
        crowd = list[float]()
        async with trio.open_nursery() as many:
            for number in range(1, TRANSFERS):
                many.start_soon(commit_one, ledger, transfer(number, nonces[number]), crowd)
        nursery.cancel_scope.cancel()
    ordered = sorted(alone)
    row(
        accounts,
        statistics.median(ordered),
        ordered[int(len(ordered) * 0.95)],
        statistics.median(crowd),
        max(crowd),
    )


async def next_nonce(ledger: Ledger, key: str) -> int:
    """Return the next nonce of an account."""
    result = await ledger.query("/account", {"public_key": key})
    return int(json.loads(result.value)["nonce"])


async def commit_one(ledger: Ledger, raw: bytes, samples: list[float]) -> None:
    """Submit a transaction, wait for its block, and add the milliseconds to ``samples``."""
    start = trio.current_time()
    while True:
        try:
            result = await ledger.submit(raw)
            break
        except Unavailable:
            # The queue of checks is full; a client would retry too.
            await trio.sleep(0.001)
    if result.code:
        raise SystemExit(f"a transfer was refused: {result.log}")
    await ledger.wait_transaction(result.hash)
    samples.append((trio.current_time() - start) * 1000)


def row(*cells: float | int | str) -> None:
    """Print one row."""
    print("".join(f"{cell:>15.1f}" if type(cell) is float else f"{cell:>15}" for cell in cells))


def main() -> None:
    """Print the tables."""
    sizes = tuple(map(int, sys.argv[1:])) or ACCOUNTS
    with tempfile.TemporaryDirectory() as name:
        folders = {size: Path(name) / str(size) for size in sizes}
        for size, folder in folders.items():
            (folder / "filled").mkdir(parents=True)
            fill(folder / "filled", size)
        row("accounts", "checks/s", "block ms", "transfers/s", "replay/s", "empty replay/s")
        for size, folder in folders.items():
            measure_engine(size, folder / "filled", folder)
        print()
        row("accounts", "start s", "file MiB", "memory MiB")
        for size, folder in folders.items():
            measure_start(size, folder / "made")
        print()
        row("accounts", "alone ms", "95 % ms", "crowd ms", "slowest ms")
        for size, folder in folders.items():
            trio.run(measure_latency, size, folder / "made")


if __name__ == "__main__":
    main()
