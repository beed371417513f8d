"""Interface 2.3, 4.3: PipelineForward on a real port: sessions, positions, replay, owners."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trio
from h2.events import DataReceived

from meshnode.domain.metering import TrafficMeter
from meshnode.model.loading import load_model
from meshnode.rpc.channel import open_channel
from meshnode.rpc.errors import Code
from meshnode.rpc.framing import prefix
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import RawPeer
from spec_tests.services.shards.holders import (
    LONG_S,
    TOKENS,
    HolderNode,
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


async def test_a_session_computes_what_the_whole_model_computes(directory: Path) -> None:
    whole = load_model(directory, threads=1).decoder
    with torch.inference_mode():
        expected = whole(torch.tensor([TOKENS]))[:, -1:].numpy()
    async with (
        holder_node(directory, [0, 1]) as first,
        holder_node(directory, [2]) as second,
        holder_node(directory, [3]) as third,
    ):
        # Send the tokens in one message, and then as a prompt followed by single positions.
        for session, cut in (("whole", len(TOKENS)), ("parts", 2)):
            pieces = [TOKENS[:cut], *([token] for token in TOKENS[cut:])]
            for piece in pieces:
                answer = await send(first, session, **ids(piece), request_id="r")
                assert answer.success
                assert answer.request_id == "r"
                assert not answer.is_final
                assert not answer.logits
                assert list(answer.hidden_shape) == [1, len(piece), 64]
                for node, target in ((second, 2), (third, 3)):
                    answer = await send(
                        node,
                        session,
                        hidden_states=answer.hidden_states,
                        hidden_shape=answer.hidden_shape,
                        target_shard=target,
                    )
                # The first holder has seen the request id before.
                assert await refused(first, session=session, **ids(piece), request_id="r") == (
                    Code.INVALID_ARGUMENT
                )
                for node in (first,):
                    node.holder._records[("127.0.0.1", session, 0)].requests.clear()
            assert np.abs(logits_of(answer) - expected).max() < 1e-4
            for node in (first, second, third):
                await close(node, session)
                assert len(node.holder) == 0


async def test_positions_continue_rewind_or_are_beyond(directory: Path) -> None:
    async with holder_node(directory) as node:
        first = logits_of(await send(node, **ids(TOKENS[:3])))
        second = logits_of(await send(node, **ids(TOKENS[3:4]), position_ids=at(3, 1)))
        # The driver did not get the answer, and sends the same position again.
        again = logits_of(await send(node, **ids(TOKENS[3:4]), position_ids=at(3, 1)))
        assert again.tobytes() == second.tobytes()
        # The driver sends all positions again.
        assert (
            logits_of(await send(node, **ids(TOKENS[:3]), position_ids=at(0, 3))).tobytes()
            == first.tobytes()
        )
        beyond = await send(node, **ids([1]), position_ids=at(4, 1))
        assert not beyond.success
        assert beyond.error_message.startswith("session unknown or behind")
        # The session still works after the refusal.
        third = await send(node, **ids(TOKENS[3:4]))
        assert logits_of(third).tobytes() == second.tobytes()
        unknown = await send(node, "another", **ids([1]), position_ids=at(1, 1))
        assert not unknown.success
        assert unknown.error_message.startswith("session unknown")
        assert len(node.holder) == 1


async def test_a_replay_gives_the_bits_of_single_steps(directory: Path) -> None:
    async with holder_node(directory) as node:
        answers = [await send(node, **ids(TOKENS[:2]))]
        answers += [await send(node, **ids([token])) for token in TOKENS[2:]]
        replay = await send(
            node,
            "replayed",
            {"decode-from": "2", "session-positions": "40"},
            **ids(TOKENS),
        )
        assert replay.logits == answers[-1].logits
        record = node.holder._records["127.0.0.1", "replayed", 0]
        assert record.session.capacity == 40


async def from_another_address(node: HolderNode, **fields: Any) -> pb.PipelineForwardResponse:
    """Send like ``send``, but from 127.0.0.2, which is this machine too."""
    stream = await trio.open_tcp_stream("127.0.0.1", node.port, local_address="127.0.0.2")
    async with stream, trio.open_nursery() as nursery:
        peer = RawPeer(stream)
        peer.h2.initiate_connection()
        nursery.start_soon(peer.run)
        with_session: dict[str, Any] = {"session_id": "s", "use_cache": True} | fields
        body = pb.PipelineForwardRequest(**with_session).SerializeToString()
        call = await peer.request(body=prefix(body) + body)
        assert await peer.status(call) == "0"
        data = b"".join(e.data for e in peer.events if isinstance(e, DataReceived))
        nursery.cancel_scope.cancel()
    return pb.PipelineForwardResponse.FromString(data[5:])


async def test_a_session_is_its_callers_alone(directory: Path) -> None:
    """A caller at another address cannot read, rewind or close a session, even with its id."""
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        stolen = await from_another_address(node, **ids([6]), position_ids=at(5, 1))
        assert stolen.error_message.startswith("session unknown")
        closed = await from_another_address(node, use_cache=False)
        assert closed.success
        own = await from_another_address(node, **ids([9, 9]), position_ids=at(0, 2))
        assert own.success
        assert len(node.holder) == 2
        mine = await send(node, **ids([6]), position_ids=at(5, 1))
        alone = await send(node, "alone", **ids(TOKENS))
        alone = await send(node, "alone", **ids([6]))
        assert mine.logits == alone.logits


async def test_a_replayed_message_is_refused(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS), request_id="one")
        assert await refused(node, **ids(TOKENS), request_id="one") is Code.INVALID_ARGUMENT
        assert (await send(node, **ids([5]), request_id="two")).success
        # Another session may use the same request id.
        assert (await send(node, "other", **ids([5]), request_id="one")).success


async def test_closing_frees_and_may_be_repeated(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        assert node.executor.kv_bytes_in_use > 0
        await close(node)
        assert node.executor.kv_bytes_in_use == 0
        await close(node)
        await close(node, "never was")


async def test_a_cancelled_call_leaves_the_session_consistent(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        expected = logits_of(await send(node, **ids([6])))
        async with open_channel("127.0.0.1", node.port, traffic=TrafficMeter()) as channel:
            stub = NodeServiceStub(channel)
            for _ in range(6):
                request = pb.PipelineForwardRequest(
                    session_id="s", use_cache=True, position_ids=at(5, 150), **ids([3] * 150)
                )
                with trio.move_on_after(0.004):
                    await stub.PipelineForward(request)
        again = await send(node, **ids([6]), position_ids=at(5, 1))
        assert logits_of(again).tobytes() == expected.tobytes()


async def test_a_cancelled_first_message_opens_no_session(directory: Path) -> None:
    async with (
        holder_node(directory) as node,
        open_channel("127.0.0.1", node.port, traffic=TrafficMeter()) as channel,
    ):
        request = pb.PipelineForwardRequest(session_id="s", use_cache=True, **ids([3] * 250))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(NodeServiceStub(channel).PipelineForward, request)
            # The call is now in the middle of the first of many chunks.
            while not node.executor.kv_bytes_in_use:
                await trio.lowlevel.checkpoint()
            assert node.executor.steps == 0
            nursery.cancel_scope.cancel()
        with trio.fail_after(LONG_S):
            await until_free(node.executor)
        assert len(node.holder) == 0


async def test_a_failed_computation_is_reported_and_the_session_stays(directory: Path) -> None:
    async with holder_node(directory) as node:
        await send(node, **ids(TOKENS))
        expected = logits_of(await send(node, **ids([6])))
        ((_, record),) = node.holder._records.items()
        shard = record.session.shard
        assert shard is not None
        saved = shard.cache.storage.clone()
        shard.cache.storage[..., :2, :] = torch.nan
        answer = await send(node, **ids([6]), position_ids=at(5, 1), request_id="r")
        assert not answer.success
        assert answer.error_message == "the computation failed"
        shard.cache.storage.copy_(saved)
        # The failed message did not use up its request id.
        again = await send(node, **ids([6]), position_ids=at(5, 1), request_id="r")
        assert logits_of(again).tobytes() == expected.tobytes()
