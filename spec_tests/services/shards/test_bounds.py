"""Interface 4.3, 7.3: limits of sessions in number, time and per caller; drain and shutdown."""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import torch
import trio

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.domain.shares import Requester, Standing
from meshnode.model.loading import LoadedModel
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.executor import Executor, ShardSession, serve_executor
from meshnode.services.shards import holder as holder_module
from meshnode.services.shards import messages
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.messages import ForwardCall, SessionBehind
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import until
from spec_tests.services.shards.holders import (
    HOLDER_LIMITS,
    LIMITS,
    LONG_S,
    TOKENS,
    at,
    close,
    holder_node,
    ids,
    logits_of,
    refused,
    send,
    until_free,
)

pytestmark = pytest.mark.wire


async def test_sessions_that_are_idle_are_dropped(directory: Path) -> None:
    limits = replace(HOLDER_LIMITS, idle_s=0.05, crowded_idle_s=0.05)
    async with holder_node(directory, holder_limits=limits) as node:
        await send(node, **ids(TOKENS))
        with trio.fail_after(LONG_S):
            await until_free(node.executor)
        assert len(node.holder) == 0
        late = await send(node, **ids([5]), position_ids=at(5, 1))
        assert late.error_message.startswith("session unknown")


async def test_sessions_are_bounded_in_all(directory: Path) -> None:
    limits = HolderLimits(sessions=3)
    async with holder_node(directory, holder_limits=limits) as node:
        for name in "abc":
            await send(node, name, **ids(TOKENS))
        assert await refused(node, session="d", **ids(TOKENS)) is Code.RESOURCE_EXHAUSTED
        await close(node, "b")
        assert (await send(node, "d", **ids(TOKENS))).success


def test_strangers_have_a_share_and_this_machine_all() -> None:
    limits = HolderLimits(sessions=8)
    assert limits.of_one("127.0.0.1") == limits.of_one("::1") == 8
    assert limits.of_one("10.1.2.3") == limits.of_one("fe80::1%eth0") == 4
    assert HolderLimits(sessions=1).of_one("10.1.2.3") == 1


async def test_an_address_with_fewer_sessions_gets_a_place(directory: Path) -> None:
    """The session of the others that was used least recently goes; its driver replays."""
    async with holder_node(directory, holder_limits=HolderLimits(sessions=4)) as node:
        for ip, name in (
            ("10.0.0.1", "a"),
            ("10.0.0.1", "b"),
            ("10.0.0.2", "a"),
            ("10.0.0.2", "b"),
        ):
            await node.holder.forward(first_message(ip, name, None))
        with pytest.raises(RateLimited):
            await node.holder.forward(first_message("10.0.0.1", "c", None))
        await node.holder.forward(first_message("10.0.0.3", "a", None))
        assert len(node.holder) == 4
        with pytest.raises(SessionBehind):
            await node.holder.forward(
                replace(first_message("10.0.0.1", "a", None), positions=at(5, 5))
            )


async def test_a_session_that_was_evicted_is_replayed(directory: Path) -> None:
    async with holder_node(directory) as node:
        for name in "abcdefgh":
            await send(node, name, **ids(TOKENS))
        paying = Requester(Standing.PAYING, "alice")
        session = await node.executor.open_session(range(4), 8, paying)
        late = await send(node, "a", **ids([5]), position_ids=at(5, 1))
        assert late.error_message.startswith("session unknown")
        assert (await send(node, "b", **ids([5]), position_ids=at(5, 1))).success
        session.close()


OF_ONE = 4 * 2 * 2 * 16 * 4
"""Bytes of keys and values for one position in the model's four layers."""


def first_message(ip: str, name: str, reserve: int | None, tokens: int = 5) -> ForwardCall:
    return ForwardCall(
        caller_ip=ip,
        session_id=name,
        request_id="",
        layers=range(4),
        data=b"\x01\0\0\0\0\0\0\0" * tokens,
        shape=(1, tokens),
        use_cache=True,
        reserve=reserve,
    )


async def test_one_stranger_cannot_take_all_memory(directory: Path) -> None:
    async with holder_node(directory, limits=replace(LIMITS, kv_bytes=200 * OF_ONE)) as node:

        async def first(ip: str, name: str, reserve: int, tokens: int = 5) -> None:
            await node.holder.forward(first_message(ip, name, reserve, tokens))

        await first("10.0.0.1", "a", 90)
        for again in (("b", 20, 5), ("a", 0, 99)):
            with pytest.raises(RateLimited):
                await first("10.0.0.1", *again)
        await first("10.0.0.1", "b", 10)
        await first("10.0.0.2", "a", 60)
        assert len(node.holder) == 3


async def test_no_memory_is_resource_exhausted_and_harmless(directory: Path) -> None:
    limits = replace(LIMITS, kv_bytes=100 * OF_ONE)
    quick = replace(HOLDER_LIMITS, open_s=2.0)
    async with holder_node(directory, limits=limits, holder_limits=quick) as node:
        await send(node, "a", {"session-positions": "90"}, **ids(TOKENS))
        await send(node, "b", {"session-positions": "10"}, **ids(TOKENS))
        assert await refused(node, session="c", **ids(TOKENS)) is Code.RESOURCE_EXHAUSTED
        # A session that cannot grow fails alone, and stays usable.
        answer = logits_of(await send(node, "b", **ids(TOKENS)))
        assert await refused(node, session="b", **ids(TOKENS)) is Code.RESOURCE_EXHAUSTED
        await close(node, "a")
        again = logits_of(await send(node, "b", **ids(TOKENS), position_ids=at(5, 5)))
        assert again.tobytes() == answer.tobytes()
        assert (await send(node, "b", **ids(TOKENS))).success


async def test_while_it_drains_only_open_sessions_go_on(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        node.drain.begin()
        assert (await send(node, **ids([5]))).success
        assert await refused(node, session="new", **ids(TOKENS)) is Code.UNAVAILABLE
        assert await refused(node, session="", use_cache=False, **ids(TOKENS)) is Code.UNAVAILABLE
        await close(node)


async def test_the_executor_ending_ends_the_sessions(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        node.executor.close()
        assert await refused(node, **ids([6])) is Code.UNAVAILABLE
        assert len(node.holder) == 0


async def test_cancelling_the_service_closes_all_sessions(directory: Path) -> None:
    call = ForwardCall(
        caller_ip="10.0.0.1",
        session_id="s",
        request_id="",
        layers=range(4),
        data=ids(TOKENS)["hidden_states"],
        shape=(1, len(TOKENS)),
        use_cache=True,
    )
    async with holder_node(directory) as node, trio.open_nursery() as nursery:
        serve = partial(serve_holder, node.executor, HOLDER_LIMITS, accepting=lambda: True)
        holder: Holder = await nursery.start(serve)
        await holder.forward(call)
        assert len(holder) == 1
        nursery.cancel_scope.cancel()
    assert len(holder) == 0


async def test_sessions_that_are_being_opened_count_in_the_share(directory: Path) -> None:
    limits = replace(LIMITS, kv_bytes=200 * OF_ONE)
    async with holder_node(directory, limits=limits) as node:
        outcomes: list[str] = []

        async def one(name: str) -> None:
            try:
                await node.holder.forward(first_message("10.0.0.1", name, 60))
            except RateLimited:
                outcomes.append("refused")
            else:
                outcomes.append("opened")

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(one, name)
        assert sorted(outcomes) == ["opened", "refused", "refused"]
        assert node.executor.kv_bytes_in_use <= 100 * OF_ONE


async def test_a_session_that_grows_stays_within_the_share(directory: Path) -> None:
    limits = replace(LIMITS, kv_bytes=200 * OF_ONE)
    async with holder_node(directory, limits=limits) as node:
        await node.holder.forward(first_message("10.0.0.1", "a", 64))
        await node.holder.forward(first_message("10.0.0.1", "a", None, 60))
        assert 65 * OF_ONE <= node.executor.kv_bytes_in_use <= 100 * OF_ONE


async def test_a_session_that_could_not_be_finished_is_refused_at_once(directory: Path) -> None:
    limits = replace(LIMITS, kv_bytes=100 * OF_ONE)
    async with holder_node(directory, limits=limits) as node:
        assert node.executor.card.context_length == 100
        for reserve in ("101", "256", str(1 << 31)):
            with pytest.raises(CallFailed) as caught:
                await send(node, "a", {"session-positions": reserve}, **ids(TOKENS))
            assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert len(node.holder) == 0
        assert (await send(node, "a", {"session-positions": "100"}, **ids(TOKENS))).success


async def test_a_message_whose_answer_is_cancelled_leaves_the_session_as_it_was(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holder_node(directory, [0, 1]) as node:
        begin = replace(first_message("10.0.0.1", "s", None), layers=range(2))
        await node.holder.forward(begin)
        ((_, record),) = node.holder._records.items()
        # An answer of five positions now counts as large, and all places to convert one are taken.
        monkeypatch.setattr(messages, "LARGE", 1000)
        takers = [object(), object()]
        for taker in takers:
            await messages._converting.acquire_on_behalf_of(taker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.holder.forward, begin)
            await until(
                lambda: messages._converting.statistics().tasks_waiting == 1, "an answer waits"
            )
            assert record.session.length == 10
            nursery.cancel_scope.cancel()
        for taker in takers:
            messages._converting.release_on_behalf_of(taker)
        assert record.session.length == 5
        assert (await node.holder.forward(begin)).shape == (1, 5, 64)
        assert record.session.length == 10


async def test_a_session_that_is_closed_while_the_executor_ends_keeps_nobody_waiting(
    model: LoadedModel,
) -> None:
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, model, LIMITS)
        session = await executor.open_session(range(4), 8)
        go_on = threading.Event()
        limiter = executor.thread._limiter
        async with trio.open_nursery() as callers:
            # Keep the torch thread busy, so that the session's step has to wait.
            callers.start_soon(executor.compute, go_on.wait)
            callers.start_soon(fails_with_unavailable, executor, session)
            try:
                await until(lambda: bool(limiter.statistics().tasks_waiting), "a step")
                session.close()
                nursery.cancel_scope.cancel()
            finally:
                go_on.set()
    assert executor.active == executor.kv_bytes_in_use == 0


async def fails_with_unavailable(executor: Executor, session: ShardSession) -> None:
    with trio.fail_after(LONG_S, shield=True), pytest.raises(Unavailable):
        await executor.forward(session, torch.tensor([[7, 8]]))


async def test_what_messages_unpack_to_is_bounded(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting messages are bounded by their unpacked size, which may be far above the sent size."""
    states = np.ones((2, 2, 64), dtype="<f4")
    call = ForwardCall(
        caller_ip="10.0.0.1",
        session_id="",
        request_id="",
        layers=range(1, 4),
        data=lz4.frame.compress(states.tobytes()),
        shape=states.shape,
    )
    monkeypatch.setattr(holder_module, "MAX_UNPACKED_BYTES", 2 * states.nbytes)
    async with holder_node(directory, [1, 2, 3]) as node:
        go_on = threading.Event()
        executor = node.executor
        async with trio.open_nursery() as nursery:
            nursery.start_soon(executor.compute, go_on.wait)
            nursery.start_soon(node.holder.forward, call)
            nursery.start_soon(node.holder.forward, call)
            try:
                await until(lambda: executor.active == 2, "two messages that wait")
                with trio.fail_after(LONG_S), pytest.raises(RateLimited):
                    await node.holder.forward(call)
            finally:
                go_on.set()
        assert (await node.holder.forward(call)).shape == (2, 1, 320)


def test_of_too_many_numbers_one_too_many_is_looked_at() -> None:
    sent = pb.PipelineForwardRequest(hidden_shape=range(1, 100_000))
    assert messages.bounded(sent.hidden_shape, 3) == (1, 2, 3, 4)
    assert messages.bounded(sent.hidden_shape[:3], 3) == (1, 2, 3)
