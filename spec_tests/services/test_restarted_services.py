"""After a service has crashed and restarted, handles obtained before the crash work again."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.services.index import indexer
from meshnode.services.index.indexer import Index, serve_indexer
from meshnode.services.index.store import IndexStore
from meshnode.services.ledger import Ledger
from meshnode.services.work.provider import Provider, serve_provider
from meshnode.services.work.sponsor import Sponsor
from meshnode.services.work.sponsoring import serve_sponsor
from meshnode.supervise import Restarts, ServiceBoard, supervise
from spec_tests.domain.chain.net import ALICE, BOB, CAROL
from spec_tests.edges.native_gateway import Gateway, start_gateway
from spec_tests.services.ledger.ledgers import SOON_S, eventually
from spec_tests.services.signer.signers import start_signer
from spec_tests.services.work.leases import leased, round_reached
from spec_tests.services.work.models_chain import (
    FIRST,
    SECOND,
    ask,
    infer,
    make_worker,
    network_of,
    node_key,
    running_chain,
    shared_execution,
    work_until_done,
)


class Watched(ServiceBoard):
    """A board for one service that records every state it is set to."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []

    def set(self, name: str, state: str) -> None:
        super().set(name, state)
        self.states.append(state)

    async def wait_restarted(self) -> None:
        """Wait until the service has crashed once and runs again."""
        await eventually(lambda: self.states.count("ok") == 2)
        assert "restarting" in self.states
        assert self.summary() == "ok"

    async def run(self, service: Callable[..., Any], *, task_status: Any) -> None:
        await supervise(
            "it",
            service,
            board=self,
            random=lambda: 0.5,
            restarts=Restarts(),
            task_status=task_status,
        )


def crash_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Make the next call raise an exception that no code expects."""
    whole, crashes = getattr(owner, name), ["unforeseen"]

    def call(*args: Any, **options: Any) -> Any:
        if crashes:
            raise RuntimeError(crashes.pop())
        return whole(*args, **options)

    monkeypatch.setattr(owner, name, call)


async def level(gateway: Gateway, index: Index) -> None:
    with trio.fail_after(SOON_S):
        await index.wait_indexed(gateway.ledger.height)


async def completed(ledger: Ledger, job_id: str) -> dict[str, Any]:
    with trio.fail_after(SOON_S):
        while True:
            height = ledger.height
            job = await ask(ledger, "/job", id=job_id)
            if job["status"] == "completed":
                return job
            await ledger.wait_beyond(height)


async def watched_index(nursery: trio.Nursery, folder: Path) -> tuple[Gateway, Watched, Index]:
    gateway = await start_gateway(nursery, folder, with_index=False)
    board, index = Watched(), Index(gateway.ledger, folder)
    await nursery.start(board.run, partial(serve_indexer, index))
    return gateway, board, index


async def test_an_index_that_crashed_answers_and_follows_new_blocks(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, board, index = await watched_index(nursery, tmp_path)
    await level(gateway, index)
    crash_once(monkeypatch, IndexStore, "add")
    for amount in (7, 8):
        await gateway.do(ALICE, "transfer", to=BOB.key, amount=amount)
        await board.wait_restarted()
        await level(gateway, index)
        entries, _ = await index.account_history(BOB.key, 1, 0)
        assert [(entry.kind, entry.amount) for entry in entries] == [("receive", amount)]
    assert index.error is None


async def test_a_crash_of_the_index_takes_no_file_from_its_readers(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, board, index = await watched_index(nursery, tmp_path)
    await gateway.do(ALICE, "transfer", to=BOB.key, amount=7)
    await level(gateway, index)
    history, reading, go_on = IndexStore.history, threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        reading.set()
        assert go_on.wait(SOON_S)
        return history(*args)

    monkeypatch.setattr(IndexStore, "history", slow)
    totals = []

    async def read() -> None:
        totals.append((await index.account_history(BOB.key, 1, 0))[1])

    try:
        async with trio.open_nursery() as readers:
            readers.start_soon(read)
            await eventually(reading.is_set)
            crash_once(monkeypatch, indexer, "block_entries")
            await gateway.next_block()
            # The index has begun to close its file, and waits for the reader to finish.
            await eventually(lambda: index._store is None)
            go_on.set()
    finally:
        go_on.set()
    assert totals == [1]
    await board.wait_restarted()
    await level(gateway, index)
    assert (await index.account_history(BOB.key, 1, 0))[1] > 1


async def test_a_provider_that_crashed_is_online_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = shared_execution()
    async with running_chain(tmp_path, execution) as ledger, trio.open_nursery() as nursery:
        board = Watched()
        signer = await start_signer(nursery, ledger, node_key(CAROL), tmp_path / "signer")
        provider = Provider(ledger, execution, signer)
        await nursery.start(board.run, partial(serve_provider, provider))
        crash_once(monkeypatch, execution, "answer_prompt")
        # The first job crashes the provider; the second comes after the restart.
        for answered in (1, 2):
            job_id = await infer(ledger, CAROL.key)
            await board.wait_restarted()
            await completed(ledger, job_id)
            await eventually(lambda answered=answered: provider.answered == answered)
            assert provider.online
        nursery.cancel_scope.cancel()


async def test_a_sponsor_that_crashed_goes_on_with_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, key = shared_execution(), node_key(ALICE)
    async with running_chain(tmp_path, execution) as ledger, trio.open_nursery() as nursery:
        board, sponsor = Watched(), Sponsor(execution, key, network_of(ledger))
        signer = await start_signer(nursery, ledger, key, tmp_path)
        serve = partial(serve_sponsor, sponsor, ledger, signer, tmp_path, tasks=1)
        await nursery.start(board.run, serve)
        assert sponsor.status()["remaining_tasks"] == 1
        # The crash comes when the task is reserved and nothing is assigned yet.
        crash_once(monkeypatch, Sponsor, "compute")
        gateway = await leased(ledger, sponsor, tmp_path / "w")
        await board.wait_restarted()
        assert sponsor.status()["remaining_tasks"] == 0
        lease = (await ask(ledger, "/summary"))["lease"]
        for stage, who in enumerate((FIRST, SECOND)):
            worker = make_worker(gateway, who, stage, tmp_path / "w", ledger)
            assert await work_until_done(worker) == lease["task_id"]
        assert (await round_reached(ledger, 1))["lease"] is None
        nursery.cancel_scope.cancel()
