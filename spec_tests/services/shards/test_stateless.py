"""Interface 2.3, 4.3: PipelineForward without a session, and the forms that tensors may have."""

from pathlib import Path

import numpy as np
import pytest
import torch

from meshnode.model.loading import load_model
from meshnode.rpc.errors import Code
from meshnode.wire import node_pb2 as pb
from spec_tests.model.small_models import make_model
from spec_tests.services.shards.holders import (
    TOKENS,
    at,
    holder_node,
    ids,
    logits_of,
    refused,
    send,
    states,
)

pytestmark = pytest.mark.wire


async def test_without_a_session_nothing_stays(directory: Path) -> None:
    whole = load_model(directory, threads=1).decoder
    rows = [TOKENS, TOKENS[::-1], [1] * 5]
    with torch.inference_mode():
        expected = whole(torch.tensor(rows))[:, -1:].numpy()
    data = np.array(rows, dtype="<i8").tobytes()
    async with holder_node(directory) as node:
        answer = await send(
            node,
            "",
            use_cache=False,
            hidden_states=data,
            hidden_shape=[3, 5],
            attention_mask=b"\x01" * 15,
        )
        assert np.abs(logits_of(answer) - expected).max() < 1e-4
        assert not answer.past_key_values
        assert node.executor.kv_bytes_in_use == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_past_key_values_travel_with_the_message(directory: Path, dtype: str) -> None:
    """A client that keeps the keys and values itself gets the same bits as with a session."""
    async with holder_node(directory, dtype=dtype) as node:
        await send(node, **ids(TOKENS[:3]))
        expected = await send(node, **ids(TOKENS[3:4]))
        first = await send(node, "", **ids(TOKENS[:3]))
        assert len(first.past_key_values) == 4
        assert len(first.past_key_values[0]) == 2 * 2 * 3 * 16 * 4
        second = await send(
            node,
            "",
            use_cache=False,
            past_key_values=first.past_key_values,
            attention_mask=np.ones(4, dtype="<i8").tobytes(),
            position_ids=at(3, 1),
            **ids(TOKENS[3:4]),
        )
        assert second.logits == expected.logits
        assert len(second.past_key_values[0]) == 2 * 2 * 4 * 16 * 4
        assert len(node.holder) == 1
        broken = {"past_key_values": first.past_key_values[:3]}
        assert await refused(node, **ids([1]), **broken) is Code.INVALID_ARGUMENT
        broken = {"past_key_values": [data[:-4] for data in first.past_key_values]}
        assert await refused(node, **ids([1]), **broken) is Code.INVALID_ARGUMENT
        nan = np.full(2 * 2 * 3 * 16, np.nan, dtype="<f4").tobytes()
        assert await refused(node, **ids([1]), past_key_values=[nan] * 4) is Code.INVALID_ARGUMENT
        late = {"position_ids": at(2, 1), "past_key_values": first.past_key_values}
        assert await refused(node, **ids([1]), **late) is Code.INVALID_ARGUMENT


async def test_half_precision_and_compressed_states_are_read(directory: Path) -> None:
    import lz4.frame

    values = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)
    values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    half = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    async with holder_node(directory, [2, 3]) as node:
        plain = logits_of(await send(node, "plain", **states(values, 2)))
        for name, data in (
            ("half", half),
            ("frame", lz4.frame.compress(values.tobytes())),
            ("both", lz4.frame.compress(half)),
        ):
            other = await send(node, name, **states(values, 2) | {"hidden_states": data})
            assert logits_of(other).tobytes() == plain.tobytes(), name


async def test_large_states_pass(tmp_path: Path) -> None:
    """States too large to convert in the event loop give equal bits with and without a session."""
    make_model(tmp_path / "wide", hidden_size=512, num_heads=4, head_dim=16, num_layers=2)
    values = np.random.default_rng(0).standard_normal((1, 200, 512)).astype(np.float32)
    async with holder_node(tmp_path / "wide", [1]) as node:
        session = await send(node, **states(values, 1))
        stateless = await send(node, "", use_cache=False, **states(values, 1))
        assert logits_of(session).tobytes() == logits_of(stateless).tobytes()


async def test_times_come_beside_the_answer(directory: Path) -> None:
    async with holder_node(directory) as node:
        stub = await node.stub()
        answer = await stub.PipelineForward.ask(
            pb.PipelineForwardRequest(session_id="s", use_cache=True, **ids(TOKENS))
        )
        assert float(answer.metadata["compute-ms"]) > 0
        assert float(answer.metadata["queue-ms"]) >= 0
