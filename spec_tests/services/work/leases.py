"""Helpers for tests of work on a chain: get a lease, sign messages, wait for rounds."""

from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.services.ledger import Ledger
from meshnode.services.work.sponsor import Sponsor
from spec_tests.services.ledger.ledgers import SOON_S, eventually
from spec_tests.services.work.models_chain import (
    FIRST,
    SECOND,
    DirectGateway,
    ask,
    make_worker,
    network_of,
    work,
)


async def round_reached(ledger: Ledger, number: int) -> dict[str, Any]:
    with trio.fail_after(SOON_S):
        while True:
            height = ledger.height
            summary = await ask(ledger, "/summary")
            if summary["round"] >= number:
                return summary
            await ledger.wait_beyond(height)


async def leased(ledger: Ledger, sponsor: Sponsor, folder: Path) -> DirectGateway:
    """Have both workers poll, and wait until the first worker's assignment is ready."""
    gateway = DirectGateway(ledger, sponsor)
    for stage, who in enumerate((FIRST, SECOND)):
        assert await work(make_worker(gateway, who, stage, folder, ledger)) is None
    await eventually(lambda: sponsor.status()["active_operations"] == 1)
    return gateway


def signed(ledger: Ledger, who: Any, kind: str, **fields: Json) -> dict[str, Json]:
    import time

    return sign_envelope(network_of(ledger).body(kind, time.time(), **fields), who.seed)
