"""Decision 0132 in the executor: places that are taken, given up, waited for and refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import trio

from meshnode.domain.batching import Scheduler
from meshnode.domain.errors import Overloaded, RateLimited
from meshnode.domain.shares import Requester, Standing
from meshnode.model.engine import Outcome, Session
from meshnode.model.loading import LoadedModel
from meshnode.services.admission import STARVING_FOR_S, Starvation
from meshnode.services.executor import Executor, SessionEvicted
from spec_tests.services.executor.generations import (
    GREEDY,
    LIMITS,
    LONG,
    complete,
    read,
    with_executor,
)

ALICE = Requester(Standing.PAYING, "alice")
BOB = Requester(Standing.PAYING, "bob")
PEER = Requester(Standing.PEER, "10.0.0.1")
ANY = Requester(Standing.FREE, "10.0.0.2")


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("replays", [True, False])
async def test_a_suspended_generation_goes_on_with_the_tokens_that_it_would_have_had(
    model: LoadedModel, temperature: float, replays: bool
) -> None:
    request = replace(
        LONG, prompt="x" * 21, max_tokens=60, temperature=temperature, seed=5, requester=ANY
    )

    async def use(executor: Executor) -> None:
        executor.versions.current.engine.replays = (
            executor.versions.current.engine.replays and replays
        )
        alone = await complete(executor, request)
        async with await executor.open(request) as suspended:
            tokens = [await anext(suspended) for _ in range(7)]
            paying = await executor.open(replace(LONG, max_tokens=30, requester=ALICE))
            async with paying:
                await anext(paying)
                assert executor.queued == 1
                assert executor.kv_bytes_in_use == executor.kv_bytes(paying.positions, 4)
                await read(paying)
            more, finished = await read(suspended)
        text = "".join(event.text for event in [*tokens, *more] if hasattr(event, "text"))
        assert (text, finished.usage) == (alone[0], alone[1].usage)

    await with_executor(model, use, replace(LIMITS, max_batch=1))


async def test_what_a_suspended_generation_has_computed_is_kept(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(LONG, prompt="x" * 40, max_tokens=60, requester=BOB)

    async def use(executor: Executor) -> None:
        engine = executor.versions.current.engine
        if not engine.seamless:
            pytest.skip("chunks round differently here: nothing is kept")
        text, ended = await complete(executor, request)
        # Nothing of that run is found by the next one.
        executor.prefixes.shrink(0)
        computed: list[tuple[int, int]] = []
        prefill = engine.prefill_together

        def noting(parts: Sequence[tuple[Session, int, int]]) -> list[Outcome | None]:
            computed.extend((start, stop) for _, start, stop in parts)
            return prefill(parts)

        monkeypatch.setattr(engine, "prefill_together", noting)
        async with (
            await executor.open(replace(request, max_tokens=30, temperature=1.5)) as other,
            await executor.open(request) as suspended,
        ):
            await anext(other)
            tokens = [await anext(suspended) for _ in range(7)]
            hit = executor.prefixes.hit
            async with await executor.open(replace(LONG, max_tokens=30, requester=ALICE)) as paying:
                await anext(paying)
                assert executor.queued == 1
                computed.clear()
                await read(paying)
            more, finished = await read(suspended)
            # One position: its logits give the next token.
            assert [stop - start for start, stop in computed] == [1]
            assert executor.prefixes.hit == hit
        again = "".join(event.text for event in [*tokens, *more] if hasattr(event, "text"))
        assert (again, finished.usage) == (text, ended.usage)

    await with_executor(model, use, replace(LIMITS, max_batch=2))


async def test_a_suspended_generation_can_be_left(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        async with await executor.open(replace(LONG, requester=ANY)) as suspended:
            await anext(suspended)
            async with await executor.open(replace(LONG, requester=ALICE)) as paying:
                await anext(paying)
                await suspended.__aexit__(None, None, None)
                assert executor.active == 1

    await with_executor(model, use, replace(LIMITS, max_batch=1))


@pytest.mark.parametrize("whose", [PEER, ANY])
async def test_sessions_of_other_nodes_make_room_within_a_step(
    model: LoadedModel, whose: Requester
) -> None:
    async def use(executor: Executor) -> None:
        sessions = [await executor.open_session(range(4), 8, whose) for _ in range(4)]
        await complete(executor, replace(GREEDY, requester=ALICE))
        assert [session.closed for session in sessions] == [True, False, False, False]
        with pytest.raises(SessionEvicted):
            await executor.forward(sessions[0], torch.tensor([[7]]))
        for session in sessions:
            session.close()

    await with_executor(model, use)


async def test_who_waits_too_long_is_refused_and_health_says_that_nobody_is_served(
    model: LoadedModel,
) -> None:
    limits = replace(LIMITS, max_batch=1, max_wait_s=0.05)

    async def use(executor: Executor) -> None:
        own = await executor.open_session(range(4), 8, BOB, bound=True)
        async with await executor.open(replace(GREEDY, requester=ALICE)) as late:
            with pytest.raises(Overloaded):
                await read(late)
            assert late.usage.completion_tokens == 0
        assert executor.device_check() == "overloaded"
        with pytest.raises(Overloaded):
            await executor.open_session(range(4), 8, BOB)
        own.close()
        await complete(executor, GREEDY)
        assert executor.device_check() == "absent"

    await with_executor(model, use, limits)


async def test_what_is_refused_counts_as_time_of_whoever_asks(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        scheduler = executor._scheduler
        held = [await executor.open(replace(LONG, requester=ALICE)) for _ in range(7)]
        for _ in range(60):
            with pytest.raises(RateLimited):
                await executor.open(replace(LONG, requester=ALICE))
        assert scheduler._time.held_back({ALICE, BOB}) == {ALICE}
        for generation in held:
            await generation.__aexit__(None, None, None)

    await with_executor(model, use)


async def test_one_account_does_not_fill_the_queue_for_others(model: LoadedModel) -> None:
    async def use(executor: Executor) -> None:
        held = [await executor.open(replace(LONG, requester=ALICE)) for _ in range(7)]
        with pytest.raises(RateLimited):
            await executor.open(replace(LONG, requester=ALICE))
        await complete(executor, replace(GREEDY, requester=BOB))
        # The newest request was refused in its place.
        with pytest.raises(RateLimited):
            await read(held[-1])
        for generation in held:
            await generation.__aexit__(None, None, None)

    await with_executor(model, use)


def test_starvation_ends_by_itself() -> None:
    starvation = Starvation()
    assert not starvation.lasts(0.0)
    starvation.placed(5.0)
    starvation.timed_out(30.0, 20.0)
    assert not starvation.lasts(20.0)
    starvation.timed_out(30.0, 40.0)
    assert starvation.lasts(40.0)
    assert not starvation.lasts(40.0 + STARVING_FOR_S)
    starvation.placed(41.0)
    assert not starvation.lasts(41.0)


@pytest.mark.parametrize("busy", [True, False])
async def test_who_is_ahead_waits_for_the_event_loop_but_not_for_ever(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    turns = 0
    turn = Scheduler.turn

    def is_ahead(scheduler: Scheduler[object], now: float = 0.0) -> bool:
        nonlocal turns
        turns += 1
        turn(scheduler, now)
        return False

    async def use(executor: Executor) -> None:
        alone = await complete(executor, replace(GREEDY, requester=BOB))
        monkeypatch.setattr(Scheduler, "turn", is_ahead)
        async with trio.open_nursery() as nursery:
            if busy:
                nursery.start_soon(stay_busy)
            answer = await complete(executor, replace(GREEDY, requester=BOB))
            nursery.cancel_scope.cancel()
        assert (answer[0], answer[1].usage) == (alone[0], alone[1].usage)
        assert turns >= GREEDY.max_tokens - 1

    await with_executor(model, use)


async def test_the_event_loops_time_for_tokens_counts_for_their_customer(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed: dict[Requester, float] = {}

    def note(scheduler: Scheduler[object], requester: Requester, seconds: float) -> None:
        owed[requester] = owed.get(requester, 0.0) + seconds

    monkeypatch.setattr(Scheduler, "owe", note)

    async def use(executor: Executor) -> None:
        await complete(executor, replace(GREEDY, requester=ALICE))

    await with_executor(model, use)
    assert set(owed) == {ALICE}
    assert owed[ALICE] > 0


async def stay_busy() -> None:
    """Give the event loop something to do all the time."""
    while True:
        await trio.lowlevel.checkpoint()
