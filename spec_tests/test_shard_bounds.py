"""Sections 4.3, 7.3: how many sessions there are, how long, and for whom; drain and end."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from support_shards import (
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

from meshnode.domain.errors import RateLimited
from meshnode.rpc.errors import Code
from meshnode.services.shards.holder import Holder, HolderLimits, serve_holder
from meshnode.services.shards.messages import ForwardCall

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


async def test_one_stranger_cannot_take_all_memory(directory: Path) -> None:
    of_one = 4 * 2 * 2 * 16 * 4
    async with holder_node(directory, limits=replace(LIMITS, kv_bytes=200 * of_one)) as node:

        async def first(ip: str, name: str, reserve: int, tokens: int = 5) -> None:
            call = ForwardCall(
                caller_ip=ip,
                session_id=name,
                request_id="",
                layers=range(4),
                data=b"\x01\0\0\0\0\0\0\0" * tokens,
                shape=(1, tokens),
                use_cache=True,
                reserve=reserve,
            )
            await node.holder.forward(call)

        await first("10.0.0.1", "a", 90)
        for again in (("b", 20, 5), ("a", 0, 99)):
            with pytest.raises(RateLimited):
                await first("10.0.0.1", *again)
        await first("10.0.0.1", "b", 10)
        await first("10.0.0.2", "a", 60)
        assert len(node.holder) == 3


async def test_no_memory_is_resource_exhausted_and_harmless(directory: Path) -> None:
    of_one = 4 * 2 * 2 * 16 * 4
    limits = replace(LIMITS, kv_bytes=100 * of_one)
    quick = replace(HOLDER_LIMITS, open_s=2.0)
    async with holder_node(directory, limits=limits, holder_limits=quick) as node:
        await send(node, "a", {"session-positions": "90"}, **ids(TOKENS))
        await send(node, "b", {"session-positions": "10"}, **ids(TOKENS))
        assert await refused(node, session="c", **ids(TOKENS)) is Code.RESOURCE_EXHAUSTED
        # A session that is full fails alone, and is whole afterwards.
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
