"""Turns of the ledger's threads: one at a time, and blocks before an engine's checks."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import trio
import trio.testing

from meshnode.domain.errors import Unavailable
from meshnode.services.ledger.thread import LedgerThread

SOON_S = 60.0


async def test_a_block_goes_before_checks_that_come_later() -> None:
    ledger, order = LedgerThread(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def first_check() -> None:
        begun.set()
        assert go_on.wait(SOON_S)
        order.append("check under way")

    def check(name: str) -> None:
        ledger.check_here(lambda: order.append(name))

    with trio.fail_after(SOON_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, ledger.check_here, first_check)
            await trio.to_thread.run_sync(begun.wait)
            nursery.start_soon(ledger.block, lambda: order.append("block"))
            while not ledger._turns._blocks:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(trio.to_thread.run_sync, check, "later check")
            go_on.set()
    assert order == ["check under way", "block", "later check"]


async def test_a_block_that_is_cancelled_leaves_no_check_waiting() -> None:
    ledger = LedgerThread()
    with trio.CancelScope() as scope:
        scope.cancel()
        await ledger.block(lambda: None)
    with trio.fail_after(SOON_S):
        assert await trio.to_thread.run_sync(ledger.check_here, lambda: 7) == 7


async def test_a_brief_check_is_made_at_once_and_here_if_nobody_has_the_turn() -> None:
    ledger, threads = LedgerThread(), list[int]()
    begun, go_on = threading.Event(), threading.Event()

    def check() -> None:
        threads.append(threading.get_ident())

    def long_check() -> None:
        begun.set()
        assert go_on.wait(SOON_S)

    here = threading.get_ident()
    with trio.fail_after(SOON_S):
        await ledger.check(check, brief=True)
        await ledger.check(check)
        assert threads[0] == here
        assert threads[1] != here
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.check, long_check)
            await trio.to_thread.run_sync(begun.wait)
            nursery.start_soon(partial(ledger.check, check, brief=True))
            await trio.testing.wait_all_tasks_blocked()
            # It waits for its turn elsewhere, and the event loop goes on.
            assert len(threads) == 2
            go_on.set()
        assert threads[2] != here
        with pytest.raises(ValueError, match="no"):
            await ledger.check(_fail, brief=True)
        await ledger.check(check, brief=True)
        assert threads[3] == here
        await ledger.close()
        with pytest.raises(Unavailable):
            await ledger.check(check, brief=True)


def _fail() -> None:
    raise ValueError("no")


async def test_a_failure_ends_the_turn() -> None:
    ledger = LedgerThread()

    def fail() -> None:
        raise ValueError

    for _ in range(2):
        try:
            ledger.check_here(fail)
        except ValueError:
            continue
    with trio.fail_after(SOON_S):
        assert await ledger.block(lambda: 7) == 7
