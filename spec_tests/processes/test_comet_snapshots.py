"""State sync with real engines: a new node, a liar among those who offer, kills at every point."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spec_tests.ports import free_port
from spec_tests.processes.comet.cluster import (
    SOON_S,
    Cluster,
    Validator,
    blocks_of,
    cluster,
    missing,
    money_of,
    wait_until,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

EVERY = 5
SMALL: dict[str, Any] = {"snapshot_every": EVERY, "chunk_bytes": 2048}
PAUSE_S = 1.0
"""Pause after a block. The engine looks around for 5 s, and the snapshot must still be there."""


def start_with_snapshots(this: Cluster, liar: Validator | None = None) -> list[str]:
    """Start all validators, wait for their snapshots, and return their gateways' URLs."""
    urls, this.pause_s = [], PAUSE_S
    for one in this.validators:
        port = free_port()
        urls.append(f"http://127.0.0.1:{port}")
        this.start(one, rpc=port, false_chunks=one is liar, **SMALL)
    this.wait_height(EVERY + 2)
    for one in this.validators:
        wait_until(lambda one=one: any((one.folder / "snapshots").glob("[0-9]*/metadata")))  # type: ignore[misc]
    return urls


def trust(this: Cluster, urls: list[str]) -> dict[str, Any]:
    """What a new node is started with: a block that it trusts, and whom it asks."""
    header = this.validators[0].call("commit", height="3")["signed_header"]
    return {"trust": [3, header["commit"]["block_id"]["hash"]], "servers": urls}


def join(this: Cluster) -> Validator:
    joining = Validator("joining", this.folder / "joining", free_port())
    this.validators.append(joining)
    return joining


def base_of(which: Validator) -> int:
    """The height of the snapshot with which a ledger began; 0 without one."""
    with sqlite3.connect(f"file:{which.folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        row = file.execute("SELECT value FROM facts WHERE name = 'base'").fetchone()
    file.close()
    return int(row[0].strip(b"[]").split(b",")[0]) if row else 0


def require_restored(this: Cluster, joining: Validator) -> None:
    """It is level, without the blocks up to its snapshot, and has the others' state."""
    this.wait_height(this.tip() + 2, [joining])
    for one in this.validators:
        assert this.stop(one) == 0, one.log()[-3000:]
    others, own, base = blocks_of(this.validators[0].folder), blocks_of(joining.folder), 0
    base = base_of(joining)
    assert base >= EVERY
    assert base % EVERY == 0
    assert sorted(own) == list(range(base + 1, base + 1 + len(own)))
    shared = own.keys() & others.keys()
    assert shared
    assert all(own[height] == others[height] for height in shared)
    assert money_of(joining.folder) == 0


def test_a_new_node_begins_with_a_snapshot_although_one_who_offers_it_lies(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, accounts=300) as this:
        urls = start_with_snapshots(this, liar=this.validators[1])
        joining = join(this)
        this.start(joining, log="INFO", **trust(this, urls), **SMALL)
        this.wait_height(EVERY + 2, [joining])
        assert "is false" in joining.log()
        require_restored(this, joining)


def test_a_node_that_is_killed_while_it_is_restored_begins_again(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, accounts=300) as this:
        urls = start_with_snapshots(this)
        joining, trusted = join(this), trust(this, urls)
        signed = joining.folder / "cometbft" / "data" / "priv_validator_state.json"
        for point, height in (("before chunk", 3), ("after exchange", 1), ("before write", 1)):
            this.start(joining, die_at=point, die_height=height, **trusted, **SMALL)
            assert joining.process is not None
            assert joining.process.wait(SOON_S) == -signal.SIGKILL, joining.log()[-3000:]
            wait_until(lambda: not joining.engines(), "the end of its engine")
            assert blocks_of(joining.folder) == {}
            assert (base_of(joining) > 0) == (point != "before chunk")
            assert signed.exists()
        this.start(joining, **trusted, **SMALL)
        require_restored(this, joining)
        assert "it is begun again" in joining.log()
