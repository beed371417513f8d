"""How a supervisor reacts when a service fails, returns or cannot start."""

import errno
import logging
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import StartupError
from meshnode.supervise import Drain, Restarts, ServiceBoard, ServiceFailed, supervise


class Scripted:
    """A service that starts, then makes one call that the test sends it, and returns."""

    def __init__(self) -> None:
        self.starts = 0
        self.send, self.receive = trio.open_memory_channel[Callable[[], None]](10)

    async def __call__(self, *, task_status: trio.TaskStatus[int]) -> None:
        self.starts += 1
        task_status.started(self.starts)
        async for act in self.receive:
            act()
            return

    def crash(self) -> None:
        def act() -> None:
            raise RuntimeError("boom")

        self.send.send_nowait(act)

    def end(self) -> None:
        self.send.send_nowait(lambda: None)


def jitter() -> float:
    return 0.5


@pytest.fixture
def board() -> ServiceBoard:
    return ServiceBoard()


async def test_a_crash_without_restarts_ends_the_tree_and_names_the_service(
    board: ServiceBoard, caplog: pytest.LogCaptureFixture
) -> None:
    service = Scripted()
    with pytest.RaisesGroup(pytest.RaisesExc(ServiceFailed, match="service ledger")):
        async with trio.open_nursery() as nursery:
            run = partial(supervise, "ledger", service, board=board, random=jitter)
            assert await nursery.start(run) == 1
            assert board.summary() == "ok"
            service.crash()
    assert board.summary() == "ledger stopped"
    assert "service ledger failed for good" in caplog.text
    assert "boom" in caplog.text


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_shortage_of_descriptors_is_never_final(
    board: ServiceBoard, autojump_clock: trio.testing.MockClock, wrapped: bool
) -> None:
    starts = 0

    async def short(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal starts
        starts += 1
        task_status.started()
        if starts > 20:
            await trio.sleep_forever()
        shortage = OSError(errno.EMFILE, "Too many open files")
        raise ExceptionGroup("in a nursery", [shortage]) if wrapped else shortage

    async with trio.open_nursery() as nursery:
        run = partial(supervise, "grpc", short, board=board, random=jitter)
        await nursery.start(partial(run, restarts=Restarts(budget=2)))
        assert board.summary() == "grpc waits: Too many open files"
        await trio.sleep(3600)
        assert (starts, board.summary()) == (21, "ok")
        nursery.cancel_scope.cancel()


async def test_a_service_that_comes_late_is_not_a_failure(board: ServiceBoard) -> None:
    async def slow(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(supervise, "chain", slow, board=board, random=jitter))
        await trio.testing.wait_all_tasks_blocked()
        assert board.summary() == "ok"
        nursery.cancel_scope.cancel()


async def test_a_service_that_returns_by_itself_has_failed(board: ServiceBoard) -> None:
    service = Scripted()
    with pytest.RaisesGroup(ServiceFailed):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(supervise, "x", service, board=board, random=jitter))
            service.end()


async def test_a_service_that_was_asked_to_end_may_return(board: ServiceBoard) -> None:
    service = Scripted()
    service.end()
    await supervise("x", service, board=board, random=jitter, may_end=lambda: True)
    assert service.starts == 1
    assert board.summary() == "x stopped"


async def test_a_stateless_service_is_started_again_until_its_budget_is_spent(
    board: ServiceBoard, autojump_clock: trio.testing.MockClock
) -> None:
    service = Scripted()
    restarts = Restarts(budget=3, window_s=60)
    with pytest.RaisesGroup(ServiceFailed):
        async with trio.open_nursery() as nursery:
            run = partial(supervise, "x", service, board=board, random=jitter, restarts=restarts)
            await nursery.start(run)
            for crashes in range(1, 5):
                service.crash()
                await trio.testing.wait_all_tasks_blocked()
                if crashes <= 3:
                    assert board.summary() == "x restarting"
                    await trio.sleep(10)
                    assert board.summary() == "ok"
                    assert service.starts == crashes + 1
    assert service.starts == 4


async def test_failures_that_are_far_apart_do_not_add_up(
    board: ServiceBoard, autojump_clock: trio.testing.MockClock
) -> None:
    service = Scripted()
    restarts = Restarts(budget=1, window_s=60)
    async with trio.open_nursery() as nursery:
        run = partial(supervise, "x", service, board=board, random=jitter, restarts=restarts)
        await nursery.start(run)
        for _ in range(5):
            service.crash()
            await trio.sleep(61)
        assert board.summary() == "ok"
        nursery.cancel_scope.cancel()
    assert service.starts == 6


async def test_a_service_that_cannot_start_is_not_retried(board: ServiceBoard) -> None:
    async def refuses(*, task_status: trio.TaskStatus[None]) -> None:
        raise StartupError("port 1 is already in use")

    with pytest.raises(StartupError, match="port 1"):
        await supervise("x", refuses, board=board, random=jitter, restarts=Restarts())


async def test_a_crash_before_the_first_start_is_final(
    board: ServiceBoard, caplog: pytest.LogCaptureFixture
) -> None:
    async def crashes(*, task_status: trio.TaskStatus[None]) -> None:
        raise RuntimeError("no")

    with pytest.raises(ServiceFailed), caplog.at_level(logging.CRITICAL):
        await supervise("x", crashes, board=board, random=jitter, restarts=Restarts())


async def test_cancellation_is_not_a_failure(
    board: ServiceBoard, caplog: pytest.LogCaptureFixture
) -> None:
    service = Scripted()
    async with trio.open_nursery() as nursery:
        run = partial(supervise, "x", service, board=board, random=jitter, restarts=Restarts())
        await nursery.start(run)
        nursery.cancel_scope.cancel()
    assert service.starts == 1
    assert caplog.text == ""


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_grow_and_are_capped(failures: int, jitter: float) -> None:
    restarts = Restarts()
    pause = restarts.pause(failures, jitter)
    assert 0 < pause <= restarts.longest_pause_s
    assert pause <= restarts.pause(failures + 1, 1.0)


async def test_a_drain_begins_once_and_lasts() -> None:
    drain = Drain()
    assert not drain.draining
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain.wait_begun)
        drain.begin()
        drain.begin()
    assert drain.draining
