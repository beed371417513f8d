"""Each operation bounds its messages, before they arrive and before they are parsed.

Interface 8; decision 0130."""

from typing import Any

import grpc
import pytest
import trio
from google.protobuf.message import Message

from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.channel import open_channel
from meshnode.rpc.decoding import IN_PLACE_BYTES, PIECE_BYTES, decode
from meshnode.rpc.errors import CallFailed, CallRefused, Code
from meshnode.rpc.framing import FIRST_LOOK, PREFIX, prefix
from meshnode.rpc.message_limits import LIMITS, limits_of
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import health_pb2, line_pb2, reflection_pb2, reflection_v1alpha_pb2
from meshnode.wire import node_pb2 as pb
from spec_tests.rpc.scripted_service import SERVICE, Probe, grpcio_server, raw_peer, running

MIB = 1024 * 1024
INSIDE = {pb.LayerCommand, pb.LayerAnswer}
"""They come as bytes in a message of an operation, and are looked at in the same way."""
EMPTY_HOP = b"\x42\0"
REFUSED, INVALID = str(int(Code.RESOURCE_EXHAUSTED)), str(int(Code.INVALID_ARGUMENT))


def test_every_message_of_every_operation_has_limits() -> None:
    files = (pb, health_pb2, line_pb2, reflection_pb2, reflection_v1alpha_pb2)
    used = {
        getattr(file, message.name)
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        for message in (method.input_type, method.output_type)
    }
    assert used | INSIDE == set(LIMITS)


@pytest.mark.parametrize(
    "message",
    [
        pb.InferenceRequest(prompt="x" * MIB, stop=["𝄞" * 256] * 16, request_id="𝄞" * 256),
        pb.GossipGradientRequest(
            layer_gradients={f"{index}." + "weight" * 45: b"" for index in range(2700)}
        ),
        pb.SwarmForwardRequest(
            route=[pb.SwarmHop(node_id="n" * 40, address="a" * 255, last_layer=999)] * 256
        ),
        pb.SwarmForwardResponse(
            hops=[pb.SwarmHopReport(node_id="n" * 40, first_layer=1, network_ms=0.1)] * 256
        ),
        pb.SwarmStatusResponse(
            peers=[
                pb.SwarmPeer(
                    node_id="n" * 40,
                    address="a" * 60,
                    role="worker",
                    layers=range(200),
                    latency_ms=1.0,
                    capacity=pb.NodeCapacity(memory_total=1 << 40, kv_total=1 << 40, max_batch=9),
                )
            ]
            * 256
        ),
        pb.UpdatePeerCapacityRequest(node_id="n" * 40, layers=range(1024)),
        pb.DHTFindValueResponse(value="v" * 512 * 64),
        pb.DHTStoreRequest(key=bytes(20), value="v" * 512),
    ],
    ids=lambda message: message.DESCRIPTOR.name,
)
async def test_the_largest_honest_messages_are_taken(message: Message) -> None:
    data = bytearray(message.SerializeToString())
    assert len(data) <= limits_of(type(message)).size
    assert await decode(type(message), data, CallRefused) == message


async def test_a_message_is_the_same_when_it_is_parsed_in_pieces() -> None:
    message = pb.PipelineForwardRequest(
        session_id="s",
        hidden_states=bytes(3 * PIECE_BYTES),
        hidden_shape=[1, 2, 3],
        past_key_values=[bytes([index]) * (PIECE_BYTES // 3) for index in range(7)],
        sender_url="http://a",
    )
    data = bytearray(message.SerializeToString())
    assert await decode(pb.PipelineForwardRequest, data, CallRefused) == message
    tensor = pb.WeightResponse(weights_data=bytes(3 * PIECE_BYTES))
    data = bytearray(tensor.SerializeToString())
    assert await decode(pb.WeightResponse, data, CallRefused) == tensor


@pytest.mark.parametrize("size", [IN_PLACE_BYTES, 2 * MIB])
async def test_many_entries_are_refused_unparsed(size: int) -> None:
    with pytest.raises(CallRefused) as refusal:
        await decode(pb.SwarmForwardRequest, bytearray(EMPTY_HOP * (size // 2)), CallRefused)
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert "entries" in refusal.value.message
    with pytest.raises(CallRefused) as refusal:
        await decode(pb.SwarmForwardRequest, bytearray(b"\x0f" * size), CallRefused)
    assert refusal.value.code is Code.INVALID_ARGUMENT


@pytest.mark.wire
async def test_a_length_above_the_operations_limit_is_refused_before_the_message() -> None:
    inference = {":path": f"/{SERVICE}/UnaryInference"}
    async with running(Probe()) as port, raw_peer(port) as peer:
        only_a_prefix = PREFIX.pack(0, 3 * MIB)
        stream_id = await peer.request(body=only_a_prefix, end=False, **inference)
        assert await peer.status(stream_id) == REFUSED
        assert "limit" in peer.fields(stream_id)["grpc-message"]


@pytest.mark.wire
async def test_a_request_of_many_entries_is_refused() -> None:
    probe = Probe()
    async with running(probe) as port, raw_peer(port) as peer:
        hostile = b"\x3a\0" * 5000
        stream_id = await peer.request(body=prefix(hostile) + hostile)
        assert await peer.status(stream_id) == INVALID
        assert not probe.started.is_set()
        assert await peer.forward(b"still served")


@pytest.mark.wire
async def test_a_request_of_many_entries_is_refused_while_it_arrives() -> None:
    probe = Probe()
    async with running(probe) as port, raw_peer(port) as peer:
        # After this the peer knows the node's windows.
        assert await peer.forward(b"first")
        probe.started = trio.Event()
        begin = PREFIX.pack(0, 90 * MIB) + EMPTY_HOP * FIRST_LOOK
        stream_id = await peer.request(body=begin, end=False)
        assert await peer.status(stream_id) == INVALID
        assert not probe.started.is_set()
        assert await peer.forward(b"still served")


@pytest.mark.wire
async def test_an_answer_of_many_entries_fails_its_call() -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        return pb.SwarmForwardResponse(hops=[pb.SwarmHopReport()] * 5000)

    with grpcio_server(SwarmForward=answer) as port:
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            with pytest.raises(CallFailed) as failure:
                await NodeServiceStub(channel).SwarmForward(pb.SwarmForwardRequest())
    assert failure.value.code is Code.INTERNAL
    assert "entries" in failure.value.message
