"""A new node joins a chain under CometBFT: by its snapshot, and by all of its blocks.

    python -m bench.comet_join [ACCOUNTS] [BLOCKS] [TRANSFERS]

The chain has so many accounts, and blocks with so many transfers each, made by the solo engine and
then handed over to CometBFT (decision 0178). One validator goes on with it, with blocks of a
second. Two new nodes join it, one after the other, in processes of their own with real engines.
Bytes are what a new node's engine received from the other. A node has joined when it has executed
the block that was the last one when it was started. Processor time is that of a node and its
engine together, so it holds on a machine that does other things as well.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.comet import processor_s
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.services.ledger.keeper import Keeper
from spec_tests.domain.chain.net import CHAIN_ID, UNIT, FakeModel, actor, genesis
from spec_tests.ports import free_port
from spec_tests.processes.comet.cluster import Cluster, Validator
from spec_tests.processes.comet.rpc import Refused, Silent

SENDERS = 20
EVERY = 30
"""Blocks from one snapshot to the next: half a minute."""
LIMIT_S = 3600.0


def make_chain(folder: Path, accounts: int, blocks: int, transfers: int) -> Cluster:
    """A validator's folder with a chain of the solo engine."""
    first = Validator("v0", folder / "v0", free_port())
    senders = [actor(f"sender {index}") for index in range(SENDERS)]
    keys = sorted({one.key for one in senders} | {actor(f"a{n}").key for n in range(accounts)})
    start = genesis(
        validators=(GenesisValidator(first.owner.key, first.key.public_key, 8 * UNIT, 0),),
        accounts=tuple((key, 1_000_000_000) for key in keys),
    )
    this = Cluster(folder, [first], senders, pause_s=1.0)
    this.genesis_file.write_bytes(encode(genesis_document(start)))
    first.folder.mkdir()
    keeper = Keeper(first.folder, this.genesis_file.read_bytes(), FakeModel(), first.key)
    # Nothing is lost with this chain, and a disk that other jobs use takes long to sync.
    keeper._database._connection.execute("PRAGMA synchronous = OFF")
    sent = [0] * SENDERS
    # In the past, so that the chain is not ahead of the clock when it goes on.
    begun = time.time_ns() - (blocks + 60) * 10**9
    for height in range(blocks):
        for number in range(transfers):
            index = (height * transfers + number) % SENDERS
            body: dict[str, Json] = {"kind": "transfer", "chain_id": CHAIN_ID, "amount": 1}
            to = keys[(height * transfers + number) % len(keys)]
            raw = senders[index].sign({**body, "nonce": sent[index], "to": to})
            sent[index] += keeper.submit(raw).code == 0
        with patch("os.fsync"):
            keeper.make_block(begun + height * 10**9)
    keeper.close()
    return this


def received(which: Validator) -> int:
    """Bytes that an engine has received from others."""
    peers = which.call("net_info")["peers"]
    return sum(int(one["connection_status"]["RecvMonitor"]["Bytes"]) for one in peers)


def join(this: Cluster, name: str, goal: int, **more: Any) -> dict[str, float | int]:
    """Start a new node, and measure until it has the block ``goal``."""
    joining = Validator(name, this.folder / name, free_port())
    this.validators.append(joining)
    begun = time.monotonic()
    this.start(joining, **more)
    got = spent = 0.0

    def level() -> bool:
        nonlocal got, spent
        try:
            got = received(joining)
        except (Silent, Refused):
            return False
        if joining.process is None or joining.process.poll() is not None:
            raise SystemExit(joining.log()[-2000:])
        spent = processor_s([joining.process.pid, *joining.engines()])
        return joining.has(goal)

    while not level():
        time.sleep(0.2)
        if time.monotonic() > begun + LIMIT_S:
            raise SystemExit(f"{name} takes longer than {LIMIT_S} s")
    took = time.monotonic() - begun
    size = sum(one.stat().st_size for one in joining.folder.rglob("*") if one.is_file())
    this.stop(joining)
    this.validators.remove(joining)
    return {
        "seconds": round(took, 1),
        "processor_s": round(spent, 1),
        "received_mb": round(got / 1e6, 2),
        "on_disk_mb": round(size / 1e6, 1),
    }


def main() -> None:
    """Measure, and print one line of JSON for each way to join."""
    sizes = [int(one) for one in sys.argv[1:4]]
    accounts, blocks, transfers = (*sizes, *(100_000, 10_000, 2)[len(sizes) :])
    folder = Path(tempfile.mkdtemp(prefix="comet-join-"))
    this = make_chain(folder, accounts, blocks, transfers)
    (first,) = this.validators
    port = free_port()
    this.start(first, rpc=port, snapshot_every=EVERY)
    while not any((first.folder / "snapshots").glob("[0-9]*/metadata")):
        time.sleep(0.5)
    header = first.call("commit", height=str(blocks))["signed_header"]
    trusted = header["commit"]["block_id"]["hash"]
    urls = [f"http://127.0.0.1:{port}", f"http://localhost:{port}"]
    chain = {"accounts": accounts, "blocks": blocks, "transfers_a_block": transfers}
    ways: tuple[tuple[str, dict[str, Any]], ...] = (
        ("state sync", {"trust": [blocks, trusted], "servers": urls}),
        ("block sync", {}),
    )
    for way, more in ways:
        figures = join(this, way.replace(" ", "-"), first.height(), **more)
        print(json.dumps({"joined_by": way, **chain, **figures}), flush=True)
    this.stop(first)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
