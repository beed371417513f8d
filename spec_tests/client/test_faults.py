"""Payments under any sequence of faults: nothing is paid twice, and nothing is lost."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.client import commands, follow, payments
from meshnode.client.gateway import Patience
from meshnode.client.outbox import Outbox
from meshnode.client.session import Session
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file
from spec_tests.client.gateway import (
    ChainGateway,
    after,
    before,
    cut,
    cut_short,
    garbage,
    giant,
    lying,
    run_client,
    serving,
    unavailable,
)
from spec_tests.domain.chain.net import ALICE, BOB

DONE, REFUSED, MISUSED, UNKNOWN = 0, 1, 2, 3


def refuse(answer: dict[str, Any]) -> None:
    answer["result"].update(code=1, log="no")


WAYS = (cut, unavailable, garbage, giant, cut_short)
SENDING = (*map(before, WAYS), *map(after, WAYS), lying(refuse))
READING = tuple(map(before, WAYS))
PATHS = ("/api/network", "/api/account", "/api/blocks")

step = st.tuples(
    st.booleans(),  # whether blocks are made
    st.lists(st.tuples(st.sampled_from(SENDING), st.integers(1, 5)), max_size=2),
    st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(READING)), max_size=2),
)


@settings(max_examples=15)
@given(st.lists(step, min_size=1, max_size=5))
def test_what_is_paid_is_what_was_said(steps: list[Any]) -> None:
    with (
        patch.object(payments, "PAUSES", (0.0, 0.0, 0.0)),
        patch.object(follow, "FIRST_PAUSE", 0.0),
        patch.object(follow, "MAX_PAUSE", 0.0),
        patch.object(commands, "Session", partial(Session, patience=Patience(20, 20))),
        tempfile.TemporaryDirectory() as name,
        serving(ChainGateway()) as gateway,
    ):
        home = Path(name)
        (home / "client").mkdir()
        path = home / "client" / "key.json"
        path.write_bytes(plain_key_file(key_from_seed(ALICE.seed)))
        path.chmod(0o600)
        to = ("--gateway", gateway.url)
        assert run_client(home, "status", *to) == DONE
        told: list[int] = []
        for number, (auto, sending, reading) in enumerate(steps):
            gateway.auto = auto
            for fault, times in sending:
                gateway.fail("broadcast_tx_sync", fault, times)
            for where, fault in reading:
                gateway.fail(where, fault)
            # Each amount is a power of ten, so that the receiver's balance shows which were paid.
            amount = f"0.{10**number:06}"
            told.append(run_client(home, "transfer", BOB.key, amount, *to, "--wait", "0.05"))
        gateway.rules.clear()
        gateway.auto = True
        gateway.commit()
        assert run_client(home, "outbox", "resume", *to) == DONE
        # Before this is signed, the client settles even a payment whose refusal was a lie.
        run_client(home, "transfer", BOB.key, "0.1", *to)
        received = int(gateway.net.account(BOB)["total"]) - 3_000_000
        with Outbox(home / "client") as outbox:
            entries = outbox.recent(100)
        paid = sum(
            int(entry.summary.split()[2].removeprefix("0.").ljust(6, "0"))
            for entry in entries
            if entry.state == "committed"
        )
        assert received == paid
        for number, status in enumerate(told):
            if status == DONE:
                # The amount's own digit is 1: it was paid exactly once.
                assert received // 10**number % 10 == 1
