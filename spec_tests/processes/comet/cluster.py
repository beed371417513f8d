"""Validators with real engines, a stream of transfers to them, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.services.engine.home import HOME, RPC_SOCKET, engine_id, node_key
from meshnode.services.ledger.validator_key import ValidatorKey
from spec_tests.domain.chain.net import UNIT, Actor, actor, genesis
from spec_tests.ports import free_port
from spec_tests.processes.comet.rpc import Refused, Silent, call

VALIDATOR = "spec_tests.processes.comet.validator"
CLIENT, PROVIDER = actor("client of inferences"), actor("provider of inferences")
SOON_S = 120.0
"""Seconds for what takes one on an idle machine."""


def missing() -> str:
    """Why no engine can be started here; empty if one can."""
    return "" if shutil.which("cometbft") else "no cometbft on the PATH"


@dataclass
class Validator:
    """One validator's folder, and its process while it runs."""

    name: str
    folder: Path
    port: int
    host: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    @property
    def seed(self) -> str:
        return hashlib.sha256(f"consensus of {self.name}".encode()).hexdigest()

    @property
    def key(self) -> ValidatorKey:
        return ValidatorKey.of(bytes.fromhex(self.seed))

    @property
    def owner(self) -> Actor:
        return actor(f"owner of {self.name}")

    @property
    def peer(self) -> str:
        return f"{engine_id(node_key(self.seed))}@{self.host}:{self.port}"

    @property
    def socket(self) -> Path:
        return self.folder / HOME / RPC_SOCKET

    def call(self, method: str, **params: Any) -> Any:
        """A call of its engine. Raises Silent or Refused."""
        return call(self.socket, method, params)

    def height(self) -> int:
        """The engine's height; -1 while it does not answer."""
        try:
            return int(self.call("status")["sync_info"]["latest_block_height"])
        except (Silent, Refused):
            return -1

    def has(self, height: int) -> bool:
        """Whether its engine has this block."""
        return self.height() >= height

    def engines(self) -> list[int]:
        """The processes that run in the engine's folder."""
        wanted, found = str(self.folder / HOME), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if os.readlink(entry / "cwd") == wanted:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def log(self) -> str:
        return self.folder.with_suffix(".log").read_text()


@dataclass
class Cluster:
    """Some validators of one chain."""

    folder: Path
    validators: list[Validator]
    actors: list[Actor]
    pause_s: float = 0.2
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def genesis_file(self) -> Path:
        return self.folder / "genesis.json"

    def start(self, which: Validator, enter: Callable[[], None] | None = None, **more: Any) -> None:
        """Start one validator's process, with switches."""
        peers = [one.peer for one in self.validators if one is not which]
        document = {
            "folder": str(which.folder),
            "genesis": str(self.genesis_file),
            "seed": which.seed,
            "p2p": f"{which.host}:{which.port}",
            "peers": ",".join(peers),
            "pause_s": self.pause_s,
            **more,
        }
        with which.folder.with_suffix(".log").open("ab") as log:
            which.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "spec_tests.processes.comet.validator",
                    json.dumps(document),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=enter,
            )

    def stop(self, which: Validator, number: int = signal.SIGTERM) -> int:
        """End one validator's process and wait for it; its status."""
        assert which.process is not None
        if which.process.poll() is None:
            which.process.send_signal(number)
        status = which.process.wait(SOON_S)
        which.process = None
        return status

    @property
    def running(self) -> list[Validator]:
        return [one for one in self.validators if one.process and one.process.poll() is None]

    def wait_height(self, height: int, which: Sequence[Validator] = ()) -> None:
        """Wait until these validators, or all, have this block, as long as they come nearer."""
        for one in which or self.validators:
            reached, end = -1, time.monotonic() + SOON_S
            while (now := one.height()) < height:
                if now > reached:
                    reached, end = now, time.monotonic() + SOON_S
                if time.monotonic() > end:
                    raise AssertionError(f"{one.name} stays at {reached}, below {height}")
                time.sleep(0.05)

    def tip(self) -> int:
        return max(one.height() for one in self.validators)


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {SOON_S} s for {what or condition}")
        time.sleep(0.05)


@contextmanager
def cluster(
    folder: Path, count: int, *, base: int = 0, accounts: int = 20, **changes: Any
) -> Iterator[Cluster]:
    """Make a chain with ``count`` validators of equal power; end what still runs afterwards.

    Their engines listen on ports from ``base`` on; on free ones if that is 0.
    """
    made = [
        Validator(f"v{i}", folder / f"v{i}", base + i if base else free_port())
        for i in range(count)
    ]
    actors = [actor(f"sender {i}") for i in range(accounts)]
    start = genesis(
        validators=tuple(
            GenesisValidator(one.owner.key, one.key.public_key, 8 * UNIT, 10_000_000)
            for one in made
        ),
        accounts=tuple(sorted((one.key, 1_000_000_000) for one in (*actors, CLIENT))),
        **changes,
    )
    this = Cluster(folder, made, actors)
    this.genesis_file.write_bytes(encode(genesis_document(start)))
    try:
        yield this
    finally:
        for one in this.running:
            assert one.process is not None
            one.process.kill()
            one.process.wait()


# What must hold.


def blocks_of(folder: Path) -> dict[int, bytes]:
    """The hashes of the blocks that a ledger has, by height."""
    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        return dict(file.execute("SELECT height, hash FROM blocks"))


def money_of(folder: Path) -> int:
    """The sum of all money records, which must be zero."""
    from meshnode.domain.chain.codec import decode_record

    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        rows = file.execute("SELECT key, value FROM state").fetchall()
    return sum(decode_record(key, bytes(value)).money for key, value in rows)


def outcomes_of(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Height and outcome of each block of a ledger."""
    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        for height, outcome in file.execute("SELECT height, outcome FROM blocks ORDER BY height"):
            yield height, json.loads(outcome)


def results_of(folder: Path) -> Iterator[tuple[int, list[Any]]]:
    """Height and stored form of each transaction's result."""
    for height, outcome in outcomes_of(folder):
        for result in outcome["results"]:
            yield height, result


def committed_of(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """Heights and codes of each transaction, by its hash."""
    found: dict[str, list[tuple[int, int]]] = {}
    for height, result in results_of(folder):
        found.setdefault(result[2], []).append((height, result[0]))
    return found


def require_one_chain(validators: Sequence[Validator]) -> None:
    """All ledgers have the same blocks as far as they go, and each conserves money."""
    chains = [blocks_of(one.folder) for one in validators]
    for one, other in pairwise(chains):
        shared = one.keys() & other.keys()
        assert shared
        assert all(one[height] == other[height] for height in shared)
    for validator, chain in zip(validators, chains, strict=True):
        assert sorted(chain) == list(range(1, len(chain) + 1)), validator.name
        assert money_of(validator.folder) == 0, validator.name
        for name, places in committed_of(validator.folder).items():
            accepted = [height for height, code in places if code == 0]
            assert len(accepted) <= 1, (validator.name, name, places)
