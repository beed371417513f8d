"""Interface 4.3, UnaryInference and StreamInference, through the real executor (decision 0013)."""

from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.inference_rules import generation_request
from meshnode.domain.ratelimit import Rate
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.executor import EngineLimits
from meshnode.services.tokens import OPERATOR
from meshnode.wire import node_pb2 as pb
from spec_tests.edges.grpc_node import LIMITS, Node, grpc_node
from spec_tests.model.small_models import make_model
from spec_tests.rpc.scripted_service import grpcio_peer, in_thread, until

pytestmark = pytest.mark.wire

PROMPT = "A node serves"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # No end-of-text token, so that a generation ends at its token limit.
    return make_model(tmp_path_factory.mktemp("grpc") / "model", eos_token_ids=())


def asked(**changes: object) -> pb.InferenceRequest:
    """A greedy request of eight tokens."""
    fields: dict[str, Any] = {
        "request_id": "r1",
        "prompt": PROMPT,
        "max_tokens": 8,
        "temperature": 0.0,
    } | changes
    return pb.InferenceRequest(**fields)


async def stream(node: Node, *requests: pb.InferenceRequest) -> list[pb.InferenceResponse]:
    async with node.stub.StreamInference() as call:
        for request in requests:
            await call.send(request)
        call.end()
        return [answer async for answer in call]


async def refused(node: Node, request: pb.InferenceRequest) -> CallFailed:
    """Return the failure, after checking that it is the same for both operations."""
    with pytest.raises(CallFailed) as unary:
        await node.stub.UnaryInference(request)
    with pytest.raises(CallFailed) as streamed:
        await stream(node, request)
    assert str(unary.value) == str(streamed.value)
    return unary.value


async def test_a_whole_answer(directory: Path) -> None:
    async with grpc_node(directory) as node:
        answer = await node.stub.UnaryInference(asked())
    assert answer.request_id == "r1"
    assert answer.id
    assert answer.text
    assert answer.is_final
    assert answer.finish_reason == "length"
    assert answer.index == answer.tokens_generated == answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert answer.timing.inference_ms > 0
    parts = answer.timing.queue_ms + answer.timing.inference_ms
    assert answer.timing.total_ms == pytest.approx(parts, rel=0.2, abs=1)


async def test_a_stream_is_the_same_text_in_pieces(directory: Path) -> None:
    async with grpc_node(directory) as node:
        whole = await node.stub.UnaryInference(asked())
        answers = await stream(node, asked())
    *tokens, last = answers
    assert [answer.index for answer in tokens] == list(range(8))
    assert not any(answer.is_final for answer in tokens)
    assert {answer.request_id for answer in answers} == {"r1"}
    assert len({answer.id for answer in answers}) == 1
    assert "".join(answer.text for answer in answers) == whole.text
    assert last.is_final
    assert last.text == ""
    assert last.finish_reason == "length"
    assert last.usage == whole.usage
    assert last.index == last.tokens_generated == 8


async def test_requests_of_a_stream_are_answered_in_order(directory: Path) -> None:
    async with grpc_node(directory) as node:
        answers = await stream(
            node, asked(request_id="a"), asked(request_id="b", max_tokens=2), asked(request_id="c")
        )
    assert [(a.request_id, a.index, a.is_final) for a in answers] == [
        (name, index, index == count)
        for name, count in (("a", 8), ("b", 2), ("c", 8))
        for index in range(count + 1)
    ]


async def test_an_open_stream_answers_before_it_is_closed(directory: Path) -> None:
    async with grpc_node(directory) as node, node.stub.StreamInference() as call:
        for _ in range(2):
            await call.send(asked(max_tokens=1))
            assert not (await anext(call)).is_final
            assert (await anext(call)).is_final
        call.end()
        assert await call.receive() is None


async def test_an_empty_stream_ends_well(directory: Path) -> None:
    async with grpc_node(directory) as node:
        assert await stream(node) == []


async def test_grpcio_sees_the_same(directory: Path) -> None:
    async with grpc_node(directory) as node:
        with grpcio_peer(node.port) as peer:
            ours = await node.stub.UnaryInference(asked())
            call = peer.unary("UnaryInference", asked(), pb.InferenceResponse)
            theirs = await in_thread(call, asked(), timeout=120)
            assert theirs.text == ours.text
            streamed = await in_thread(lambda: list(peer.stream(iter([asked(), asked()]))))
            assert "".join(answer.text for answer in streamed) == 2 * ours.text


async def test_absent_parameters_take_the_defaults_and_zeros_do_not(directory: Path) -> None:
    async with grpc_node(directory) as node:
        default = await node.stub.UnaryInference(pb.InferenceRequest(prompt=PROMPT, seed=1))
        assert default.tokens_generated == 100
        one = await node.stub.UnaryInference(asked(temperature=0.0, top_k=0, seed=0))
        two = await node.stub.UnaryInference(asked(temperature=0.0))
        assert one.text == two.text
        seeded = [await node.stub.UnaryInference(asked(temperature=1.5, seed=7)) for _ in range(2)]
        assert seeded[0].text == seeded[1].text


WRONG = [
    {"prompt": ""},
    {"max_tokens": 0},
    {"max_tokens": -5},
    {"temperature": -0.1},
    {"temperature": 2.1},
    {"temperature": float("nan")},
    {"temperature": float("inf")},
    {"top_p": 1.5},
    {"top_p": -1.0},
    {"top_k": -1},
    {"seed": -1},
    {"stop": [""]},
    {"stop": ["x"] * 1000},
]


@pytest.mark.parametrize("fields", WRONG, ids=str)
async def test_the_rules_are_those_of_the_http_interface(
    directory: Path, fields: dict[str, object]
) -> None:
    with pytest.raises(MeshnodeError) as rule:
        generation_request({"prompt": PROMPT} | fields)
    async with grpc_node(directory) as node:
        failure = await refused(node, asked(**fields))
        assert failure.code is Code.INVALID_ARGUMENT
        assert failure.message == str(rule.value)
        assert node.executor.active == 0


async def test_the_rate_limit_of_an_address_holds(directory: Path) -> None:
    async with grpc_node(directory, rate=Rate(per_second=0.01, burst=2)) as node:
        await stream(node, asked(max_tokens=1), asked(max_tokens=1))
        failure = await refused(node, asked())
    assert failure.code is Code.RESOURCE_EXHAUSTED


async def test_a_token_in_the_metadata_is_that_of_an_account(directory: Path) -> None:
    """Without a ledger, only the operator is served (decision 0084)."""
    async with grpc_node(directory) as node:
        ask = node.stub.UnaryInference.ask
        served = await ask(asked(), metadata={"authorization": "Bearer operator"})
        assert served.message.tokens_generated == 8
        for secret, code in (("alice", Code.UNAVAILABLE), ("wrong", Code.UNAUTHENTICATED)):
            with pytest.raises(CallFailed) as caught:
                await ask(asked(), metadata={"authorization": f"Bearer {secret}"})
            assert caught.value.code is code


async def test_a_long_request_id_is_refused(directory: Path) -> None:
    async with grpc_node(directory) as node:
        failure = await refused(node, asked(request_id="x" * 257))
    assert failure.code is Code.INVALID_ARGUMENT
    assert failure.message.startswith("request_id: ")


async def test_a_prompt_that_does_not_fit_is_refused(directory: Path) -> None:
    async with grpc_node(directory) as node:
        failure = await refused(node, asked(prompt="word " * 1000))
    assert failure.code is Code.INVALID_ARGUMENT


async def test_a_full_queue_is_resource_exhausted(directory: Path) -> None:
    async with (
        grpc_node(directory, EngineLimits(max_batch=1, max_queue=1)) as node,
        node.stub.StreamInference() as one,
        node.stub.StreamInference() as two,
    ):
        await one.send(asked(max_tokens=200))
        await one.receive()
        await two.send(asked(max_tokens=200))
        await until(lambda: node.executor.active == 2, "one computes, one waits")
        failure = await refused(node, asked())
    assert failure.code is Code.RESOURCE_EXHAUSTED


async def test_draining_refuses_new_generations_and_ends_old_ones(directory: Path) -> None:
    async with grpc_node(directory) as node, node.stub.StreamInference() as call:
        await call.send(asked(max_tokens=200))
        await call.receive()
        node.drain.begin()
        failure = await refused(node, asked())
        assert failure.code is Code.UNAVAILABLE
        # A generation in progress is finished; the next request of the stream is not started.
        await call.send(asked())
        last = None
        while last is None or not last.is_final:
            last = await call.receive()
        assert last.tokens_generated == 200
        with pytest.raises(CallFailed) as later:
            await call.receive()
        assert later.value.code is Code.UNAVAILABLE


async def test_leaving_a_stream_ends_its_generation_within_a_step(directory: Path) -> None:
    async with grpc_node(directory) as node:
        async with node.stub.StreamInference() as call:
            await call.send(asked(max_tokens=240))
            await call.receive()
            assert node.executor.active == 1
        await until(lambda: node.executor.active == 0, "the generation is gone")
        assert node.executor.kv_bytes_in_use == 0
        assert (await node.stub.UnaryInference(asked())).is_final


async def test_a_cancelled_unary_call_ends_its_generation(directory: Path) -> None:
    async with grpc_node(directory) as node:
        with trio.move_on_after(120) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.stub.UnaryInference, asked(max_tokens=240))
                await until(lambda: node.executor.active == 1, "it computes")
                scope.cancel()
        await until(lambda: node.executor.active == 0, "the generation is gone")


async def test_a_grpcio_client_that_cancels_frees_its_place(directory: Path) -> None:
    async with grpc_node(directory) as node:
        with grpcio_peer(node.port) as peer:

            def run() -> None:
                call = peer.stream(iter([asked(max_tokens=240)]))
                next(call)
                call.cancel()

            await in_thread(run)
            await until(lambda: node.executor.active == 0, "the generation is gone")


async def test_streams_share_the_batch(directory: Path) -> None:
    async with grpc_node(directory) as node:
        alone = await node.stub.UnaryInference(asked(max_tokens=40))
        texts: list[str] = []

        async def run() -> None:
            answers = await stream(node, asked(max_tokens=40))
            texts.append("".join(answer.text for answer in answers))

        before = node.executor.steps
        async with trio.open_nursery() as nursery:
            for _ in range(LIMITS.max_batch):
                nursery.start_soon(run)
        assert texts == [alone.text] * LIMITS.max_batch
        # Batched requests take far fewer steps than they would one after the other.
        assert node.executor.steps - before < 4 * 40


@pytest.mark.parametrize(
    ("operation", "request_type"),
    [
        ("GetWeights", pb.WeightRequest),
        ("GossipGradient", pb.GossipGradientRequest),
        ("GetCheckpoint", pb.GetCheckpointRequest),
        ("GetCheckpointInfo", pb.GetCheckpointInfoRequest),
        ("GossipProof", pb.GossipProofRequest),
        ("GossipTransaction", pb.GossipTransactionRequest),
        ("GossipStake", pb.GossipStakeRequest),
        ("RequestProofValidation", pb.ProofValidationRequest),
        ("GossipValidationVote", pb.ValidationVoteRequest),
        ("PipelineForward", pb.PipelineForwardRequest),
        ("PipelineBackward", pb.PipelineBackwardRequest),
        ("GetShardInfo", pb.GetShardInfoRequest),
        ("DHTPing", pb.DHTPingRequest),
        ("DHTStore", pb.DHTStoreRequest),
        ("DHTFindNode", pb.DHTFindNodeRequest),
        ("DHTFindValue", pb.DHTFindValueRequest),
        ("SwarmForward", pb.SwarmForwardRequest),
        ("GetSwarmStatus", pb.SwarmStatusRequest),
        ("UpdatePeerCapacity", pb.UpdatePeerCapacityRequest),
    ],
)
async def test_operations_that_are_not_served_yet(
    directory: Path, operation: str, request_type: type
) -> None:
    async with grpc_node(directory) as node:
        with grpcio_peer(node.port) as peer:
            call = peer.unary(operation, request_type(), pb.DHTPingResponse)

            def run() -> grpc.StatusCode:
                with pytest.raises(grpc.RpcError) as failure:
                    call(request_type(), timeout=120)
                return failure.value.code()

            assert await in_thread(run) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(("free_to", "free"), [("loopback", True), ("all", True), ("none", False)])
async def test_who_needs_a_token(directory: Path, free_to: str, free: bool) -> None:
    async with grpc_node(directory, free_to=free_to) as node:
        if free:
            assert (await node.stub.UnaryInference(asked())).is_final
        else:
            failure = await refused(node, asked())
            assert failure.code is Code.UNAUTHENTICATED
            assert "authorization" in str(failure)
        paid = {"authorization": f"Bearer {OPERATOR}"}
        assert (await node.stub.UnaryInference.ask(asked(), metadata=paid)).message.is_final


async def test_a_token_without_the_scope_is_refused(directory: Path) -> None:
    async with grpc_node(directory) as node:
        reads = {"authorization": "Bearer reader"}
        with pytest.raises(CallFailed, match="infer") as failed:
            await node.stub.UnaryInference.ask(asked(), metadata=reads)
        assert failed.value.code is Code.PERMISSION_DENIED
