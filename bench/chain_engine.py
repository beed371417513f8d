"""What the ledger does in a second: ``python -m bench.chain_engine [accounts ...]``.

Three tables, for states of so many accounts on the disk. Blocks hold 100 signed transfers between
accounts that are spread over the state; everything is written as a node writes it, synced.

* *engine*: checks a second; a whole block (choose, execute, sign, write, check again what waits);
  replay of blocks as a follower does it, with signatures verified, full and empty.
* *start*: opening and checking a stored chain; the file, and the process after it.
* *latency*: from ``submit`` to the committed block through the service, one at a time and with a
  hundred others waiting.

Wall time, since the disk counts; medians. Cost should follow what a block touches, not the number
of accounts.
"""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psutil
import trio

from bench.chain_state import NoModel
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
    """A chain without blocks, whose state has that many further accounts."""
    create_ledger(folder, GENESIS)
    connection = sqlite3.connect(folder / LEDGER_FILE)
    with connection:
        rows = ((bucket_of(key), key, value) for key, value in strangers(accounts))
        # In the order of the table, as it would have grown into it.
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
    """Entries in the form of accounts; no points on the curve are needed to be in the way."""
    for number in range(accounts):
        name = hashlib.sha256(str(number).encode()).hexdigest()
        yield f"account/02{name}", encode_record(Account(number, 0, number % 7))


def transfer(number: int, nonce: int) -> bytes:
    """To a neighbour."""
    to = OWNERS[(number + 1) % TRANSFERS]
    body: dict[str, Json] = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": nonce}
    return encode(sign_envelope({**body, "to": to, "amount": 1}, SEEDS[number]))


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def memory() -> float:
    """MiB of this process."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / 2**20)


def measure_engine(accounts: int, filled: Path, folder: Path) -> None:
    """One row: rates of the keeper, and of a second one that replays its blocks."""
    made, taken = folder / "made", folder / "taken"
    shutil.copytree(filled, made)
    shutil.copytree(filled, taken)
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
    follower = Keeper(taken, GENESIS, NoModel())
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
    """Check and keep them."""
    for raw in batch:
        result = keeper.submit(raw)
        if result.code:
            raise SystemExit(f"a transfer was refused: {result.log}")


def measure_start(accounts: int, folder: Path) -> None:
    """One row: what opening a stored chain takes, in a process that has opened none before."""
    with get_context("spawn").Pool(1) as fresh:
        opening, grown = fresh.apply(open_once, (folder,))
    row(accounts, opening, (folder / LEDGER_FILE).stat().st_size / 2**20, grown)


def open_once(folder: Path) -> tuple[float, float]:
    """Seconds, and MiB by which this process has grown."""
    before = memory()
    keepers: list[Keeper] = []
    opening = seconds(lambda: keepers.append(Keeper(folder, GENESIS, NoModel(), KEY)))
    grown = memory() - before
    keepers[0].close()
    return opening, grown


async def measure_latency(accounts: int, folder: Path) -> None:
    """One row: milliseconds from submitting to being in a block."""
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
    """Of an account."""
    result = await ledger.query("/account", {"public_key": key})
    return int(json.loads(result.value)["nonce"])


async def commit_one(ledger: Ledger, raw: bytes, samples: list[float]) -> None:
    """Note how long it took, in milliseconds."""
    start = trio.current_time()
    while True:
        try:
            result = await ledger.submit(raw)
            break
        except Unavailable:
            # The line of checks is full: a client is told so, and comes again.
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
