"""Interface 4.2: another node can read the whole chain through this gateway and serve it."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from meshnode.services.gateway.reader import NativeReader
from meshnode.services.ledger import Ledger, load_or_fetch_genesis, serve_ledger
from meshnode.services.ledger.source import TrackerSource
from spec_tests.domain.chain.net import ALICE, BOB
from spec_tests.edges.native_gateway import StepModel, start_gateway


async def test_a_follower_executes_what_it_reads_here(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    producer, follower = tmp_path / "producer", tmp_path / "follower"
    for folder in (producer, follower):
        await trio.Path(folder).mkdir()
    gateway = await start_gateway(nursery, producer, with_index=False)
    await gateway.train(ALICE)
    job = await gateway.infer(ALICE, BOB)
    await gateway.respond(BOB, job)
    # The source only reads over HTTP, so it needs no channels.
    url = f"http://127.0.0.1:{gateway.address[1]}"
    source = TrackerSource(url, cast("Any", None), "ef" * 20)
    with trio.fail_after(120):
        genesis = await load_or_fetch_genesis(follower, source, gateway.ledger.genesis_sha256)
        ledger: Ledger = await nursery.start(
            partial(serve_ledger, follower, genesis, StepModel(), None, source)
        )
        height = gateway.ledger.height
        await ledger.wait_beyond(height - 1)
    mine, theirs = await ledger.block(height), await gateway.ledger.block(height)
    assert mine == theirs
    reader = NativeReader(ledger=ledger, execution=None, index=None, node_id="ef" * 20)
    assert await reader.request(job) == await gateway.get(f"/api/inference/request?id={job}")
