"""Real engines under the ledger: one history, faults, and a node as users start it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from meshnode.domain.chain.canonical import Json
from meshnode.services.ledger.keeper import Keeper
from spec_tests.domain.chain.net import CHAIN_ID, FakeModel
from spec_tests.ports import free_port
from spec_tests.processes.comet.cluster import (
    Cluster,
    Validator,
    blocks_of,
    cluster,
    missing,
    require_one_chain,
    wait_until,
)
from spec_tests.processes.comet.rounds import run_rounds
from spec_tests.processes.nodes import run, starting_node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


def make_solo_blocks(this: Cluster, which: Validator, count: int) -> bytes:
    """Blocks of the solo engine, with a transfer each; the hash of the last."""
    which.folder.mkdir()
    keeper = Keeper(which.folder, this.genesis_file.read_bytes(), FakeModel(), which.key)
    who, to = this.actors[:2]
    for nonce in range(count):
        body: dict[str, Json] = {"kind": "transfer", "chain_id": CHAIN_ID, "nonce": nonce}
        result = keeper.submit(who.sign({**body, "to": to.key, "amount": 5}))
        assert result.code == 0, result.log
        last = keeper.make_block(time.time_ns()).hash
    keeper.close()
    return last


def test_a_solo_chain_goes_on_with_one_history_and_a_new_node_fetches_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as this:
        (first,) = this.validators
        last = make_solo_blocks(this, first, 12)
        this.start(first)
        this.wait_height(14)
        after = first.call("block", height="13")["block"]["header"]
        assert after["last_block_id"]["hash"] == last.hex().upper()
        assert first.call("commit", height="5")["canonical"] is True
        shown = first.call("validators", height="3")["validators"]
        assert [one["proposer_priority"] for one in shown] == ["0"]
        joining = Validator("joining", tmp_path / "joining", free_port())
        this.validators.append(joining)
        this.start(joining)
        this.wait_height(this.tip() + 1)
        for one in this.validators:
            assert this.stop(one) == 0, one.log()
        require_one_chain(this.validators)
        assert blocks_of(joining.folder)[12] == last


def test_four_validators_survive_a_handful_of_faults(tmp_path: Path) -> None:
    only = (
        *("node killed at a point", "engine killed at a point", "both killed"),
        *("node stopped for a while", "one cut off", "two cut off", "liar"),
    )
    run_rounds(tmp_path, len(only), 11, only=only)


@pytest.mark.parametrize("point", ["after decide", "after commit"])
def test_an_engine_that_stands_still_is_replaced(tmp_path: Path, point: str) -> None:
    with cluster(tmp_path, 1) as this:
        (only,) = this.validators
        this.start(only, still_s=3.0, freeze_engine_at=point, die_height=3)
        this.wait_height(6)
        assert "engine: started again: no block for" in only.log()
        this.stop(only)
        require_one_chain(this.validators)


def test_no_engine_outlives_its_node(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as this:
        (one,) = this.validators
        this.start(one)
        this.wait_height(2)
        assert one.engines()
        assert this.stop(one, signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not one.engines(), "the end of the engine")


def test_a_node_under_cometbft_serves_what_users_ask(tmp_path: Path) -> None:
    with starting_node(tmp_path / "node", MESHNODE_CHAIN_ENGINE="cometbft") as node:
        node.wait_ready()
        wait_until(lambda: node.ask("GET", "/healthz").status == 200, "a ready chain")
        status = node.ask("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "status"}).json
        height = int(status["result"]["sync_info"]["latest_block_height"])
        assert node.ask("GET", f"/api/block/{height}").json["height"] == height
        sent = node.ask("GET", "/api/v1/wallet/balance")
        assert sent.status == 200
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    # From now on the chain stays under CometBFT.
    refused = run("--data-dir", str(tmp_path / "node"), "--port", str(free_port()))
    assert refused.returncode == 2
    assert "is under CometBFT and stays there" in refused.stderr


def test_a_missing_engine_is_one_line(tmp_path: Path) -> None:
    port = str(free_port())
    arguments = ["--data-dir", str(tmp_path / "node"), "--port", port, "--chain-engine", "cometbft"]
    refused = run(*arguments, PATH=os.path.dirname(os.__file__))
    assert refused.returncode == 2
    assert "no cometbft is on the PATH: go install" in refused.stderr.splitlines()[-1]
