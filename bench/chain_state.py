"""The cost of a block as accounts grow: ``python -m bench.chain_state [accounts ...]``.

Two tables. The first compares depths of the state tree with a digest of the whole state, as the
public network computes it, for a block that touches 200 accounts; the depth was chosen from it
(decision 0059). The second measures whole blocks of 100 signed transfers through the application.
Times are medians in milliseconds of processor time, which a busy machine does not distort; memory
is the growth of the process in MiB.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable

import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.table import MEBIBYTE
from meshnode.domain.chain.application import Application
from meshnode.domain.chain.blocks import ACCEPTED, Block, BlockFrame
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.codec import encode_record
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.genesis import Genesis, GenesisValidator
from meshnode.domain.chain.records import Account, Job, Lease
from meshnode.domain.chain.statetree import DEPTH, MemoryStore, StateTree
from meshnode.domain.identity import key_from_seed

ACCOUNTS = (1_000, 10_000, 100_000, 1_000_000)
DEPTHS = (8, 12, 16, 20)
TOUCHED = 200
TRANSFERS = 100
REPEATS = 15


def account_name(number: int) -> str:
    """Return the key of an account entry. It is only hashed, so it need not be on the curve."""
    return "account/02" + hashlib.sha256(str(number).encode()).hexdigest()


def filled(accounts: int, depth: int) -> MemoryStore:
    """Return a store with ``accounts`` accounts."""
    store = MemoryStore(depth)
    for number in range(accounts):
        store.write({account_name(number): encode_record(Account(number * 1000, 0, number % 7))})
    return store


def changes(accounts: int, source: random.Random) -> dict[str, bytes | None]:
    """Return new balances for randomly chosen accounts."""
    chosen = source.sample(range(accounts), min(TOUCHED, accounts))
    return {account_name(n): encode_record(Account(source.randrange(2**40), 0, 1)) for n in chosen}


def timed(action: Callable[[], object]) -> float:
    """Return the processor time of an action in milliseconds."""
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000


def memory() -> float:
    """Return the resident memory of this process in MiB."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / MEBIBYTE)


def compare_depths(accounts: int) -> None:
    """Print one row for each depth, and one for the digest of the whole state."""
    for depth in DEPTHS:
        source, before = random.Random(1), memory()  # noqa: S311 - a workload, not a secret
        store, tree = filled(accounts, depth), StateTree(depth)
        rebuilt = timed(lambda: tree.rebuild(store))  # noqa: B023 - called at once
        grown = memory() - before
        blocks = []
        for _ in range(REPEATS):
            change = changes(accounts, source)
            blocks.append(timed(lambda: tree.fresh(store, change)))  # noqa: B023 - called at once
        row(accounts, depth, statistics.median(blocks), rebuilt, grown)
        if depth == DEPTHS[-1]:
            entries = {key: json.loads(value) for key, value in store.entries().items()}
            whole = timed(lambda: hashlib.sha256(encode(entries)).digest())  # noqa: B023 - at once
            row(accounts, "whole", whole, whole, 0)


def whole_blocks(accounts: int) -> None:
    """Print one row: blocks of signed transfers in a state of this size, from check to commit."""
    seeds = [hashlib.sha256(f"sender {n}".encode()).hexdigest() for n in range(TRANSFERS)]
    keys = [key_from_seed(seed).public_key for seed in seeds]
    signer = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw().hex()
    start = Genesis(
        chain_id="bench",
        genesis_time="2026-01-01T00:00:00Z",
        model_root="0" * 64,
        validation_loss_hex=(1.0).hex(),
        validators=(GenesisValidator(keys[0], signer, 250_000),),
        accounts=tuple((key, 10**12) for key in keys),
    )
    before = memory()
    store = filled(accounts, DEPTH)
    application = Application(start, store, NoModel())
    grown = memory() - before
    samples: dict[str, list[float]] = {"check": [], "finalize": [], "commit": []}
    for nonce in range(REPEATS):
        batch = tuple(
            encode(sign_envelope(transfer(keys, n, nonce), seed)) for n, seed in enumerate(seeds)
        )
        samples["check"].append(timed(lambda: [application.check(raw) for raw in batch]))  # noqa: B023
        block = Block(BlockFrame(nonce + 1, nonce + 1), batch)
        samples["finalize"].append(timed(lambda: application.finalize(block)))  # noqa: B023
        results = application.finalize(block).results
        if any(result.code != ACCEPTED for result in results):
            raise SystemExit(f"a transfer was refused: {results}")
        samples["commit"].append(timed(application.commit))
    row(accounts, *(statistics.median(times) for times in samples.values()), grown)


def transfer(keys: list[str], number: int, nonce: int) -> dict[str, Json]:
    """Return a transfer from one account to the next."""
    to = keys[(number + 1) % len(keys)]
    return {"kind": "transfer", "chain_id": "bench", "nonce": nonce, "to": to, "amount": 1}


class NoModel:
    """Takes the place of the model, which transfers do not need."""

    def check_request(self, prompt: str, max_tokens: int) -> None:
        """Never called."""

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        """Never called."""
        raise NotImplementedError

    def train(self, lease: Lease) -> TrainingReplay:
        """Never called."""
        raise NotImplementedError

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        """Never called."""
        raise NotImplementedError


def row(*cells: float | int | str) -> None:
    """Print one row."""
    print("".join(f"{cell:>12.2f}" if type(cell) is float else f"{cell:>12}" for cell in cells))


def main() -> None:
    """Print both tables."""
    sizes = tuple(map(int, sys.argv[1:])) or ACCOUNTS
    row("accounts", "depth", "block ms", "rebuild ms", "MiB")
    for accounts in sizes:
        compare_depths(accounts)
    print()
    row("accounts", "check ms", "finalize ms", "commit ms", "MiB")
    for accounts in sizes:
        whole_blocks(accounts)


if __name__ == "__main__":
    main()
