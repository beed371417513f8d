"""Interface 4.3: a node without the first layer and a real driver, over gRPC (decision 0218)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import trio

from meshnode.domain.errors import (
    InvalidRequest,
    LayersUnavailable,
    PromptTooLong,
    RateLimited,
    Unavailable,
)
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.identity import key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.peer_session import CallerCheck, Credentials
from meshnode.domain.peers import Peer, ShardInfo
from meshnode.domain.shares import Requester, Standing
from meshnode.edges.grpc_inference import InferenceServicer
from meshnode.edges.grpc_service import node_services
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.pool import serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import EngineLimits, Executor, serve_executor
from meshnode.services.executor.torch_thread import TorchThread
from meshnode.services.forwarding import Forwarding, ForwardingLimits, serve_forwarding
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.shards.decoding import CREDENTIAL
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.edges.grpc_node import caller_access
from spec_tests.rpc.scripted_service import until
from spec_tests.services.executor.generations import read
from spec_tests.services.pipeline.pipelines import loaded

pytestmark = pytest.mark.wire

KEY, DRIVER = key_from_seed("11" * 32), key_from_seed("22" * 32)
LIMITS = EngineLimits(max_batch=2, max_queue=2, kv_bytes=1 << 22, prefill_chunk=16)
ALICE = Requester(Standing.PAYING, "alice")
GREEDY = GenerationRequest("A node serves", max_tokens=12, temperature=0.0, requester=ALICE)
MOST = 8
PATIENT_S = 120.0
"""On a busy machine a driver is silent for longer than usual."""


class Book:
    """The peers of a forwarding node."""

    def __init__(self, own: ShardInfo) -> None:
        self.own = own
        self.listed: list[Peer] = []
        self.suspected: list[str] = []

    def peers(self) -> list[Peer]:
        return self.listed

    def suspect(self, node_id: str) -> None:
        self.suspected.append(node_id)


Result = TypeVar("Result")


class SlowThread(TorchThread):
    """Takes a while for each step, as it does for a large model."""

    async def __call__(self, function: Callable[[], Result]) -> Result:
        await trio.sleep(0.02)
        return await super().__call__(function)


@dataclass
class Pair:
    """A driver that holds all layers, and a node that holds some."""

    driver: Executor
    drain: Drain
    served: trio.CancelScope
    """Cancelling it ends the driver's port."""
    forwarding: Forwarding
    passing: trio.CancelScope
    """Cancelling it ends the forwarding."""
    hops: HopRecorder
    book: Book
    peers: list[str]
    """The ids of the driver's peers."""
    stub: Any


@asynccontextmanager
async def pair(
    directory: Path, *, takes: bool = True, most: int = MOST, **changes: Any
) -> AsyncIterator[Pair]:
    """Run both. ``changes`` replace fields of the driver's model."""
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            whole = replace(loaded(directory), **{"eos_token_ids": frozenset(), **changes})
            part = loaded(directory, range(2, 4))
            driver = await nursery.start(partial(serve_executor, whole, LIMITS))
            executor = await nursery.start(partial(serve_executor, part, LIMITS))
            pool = await nursery.start(serve_pool, TrafficMeter())
            peers = [KEY.node_id]
            check = CallerCheck(DRIVER.node_id, peers.__contains__, time.time)
            access = replace(
                caller_access(driver, free_to="none"),
                driving=driver if takes else None,
                by_peer=check.by_peer,
            )
            drain, served, passing = Drain(), trio.CancelScope(), trio.CancelScope()
            servicer = InferenceServicer(access=access, drain=drain, hops=HopRecorder())

            async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
                with served:
                    await serve_grpc(
                        node_services([servicer], drain),
                        "127.0.0.1",
                        0,
                        traffic=TrafficMeter(),
                        task_status=task_status,
                    )

            _, port = await nursery.start(serve)
            card = part.facts.card
            book = Book(
                ShardInfo(
                    node_id=KEY.node_id,
                    version="",
                    model_name="",
                    model_hash="",
                    total_layers=card.num_layers,
                    layers=card.layers,
                    hidden_dim=card.hidden_dim,
                    vocab_size=card.vocab_size,
                    context_length=card.context_length,
                )
            )
            book.listed = [
                Peer(
                    node_id=DRIVER.node_id,
                    host="127.0.0.1",
                    port=port - 1000,
                    role="driver",
                    layers=tuple(range(card.num_layers)),
                    total_layers=card.num_layers,
                    model_hash="",
                    latency_ms=1.0,
                    connected_since=0.0,
                )
            ]
            hops = HopRecorder()

            async def forward(*, task_status: trio.TaskStatus[Forwarding]) -> None:
                with passing:
                    await serve_forwarding(
                        part.facts,
                        executor,
                        cast(PeerBook, book),
                        pool,
                        ForwardingLimits(most=most, call_s=PATIENT_S),
                        key=KEY,
                        recorder=hops,
                        task_status=task_status,
                    )

            forwarding = await nursery.start(forward)
            stub = await pool.stub("127.0.0.1", port)
            yield Pair(driver, drain, served, forwarding, passing, hops, book, peers, stub)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.9, "seed": 5, "top_p": 0.9, "top_k": 7},
        {"temperature": 0.9, "seed": -5, "frequency_penalty": 1.5, "presence_penalty": -1.0},
        {"logprobs": 3},
        {"stop": ("e",), "max_tokens": 60},
        {"special_tokens": False, "end_tokens": frozenset(range(0, 60, 7)), "max_tokens": 60},
        {"json_schema": '{"type": "boolean"}'},
    ],
    ids=str,
)
async def test_the_answer_is_that_of_the_driver(directory: Path, changes: dict[str, Any]) -> None:
    request = replace(GREEDY, **changes)
    # A text of a schema needs a token that ends it; all others are as long as was asked for.
    ends = loaded(directory).facts.eos_token_ids if request.json_schema else frozenset()
    async with pair(directory, eos_token_ids=ends) as nodes:
        async with await nodes.driver.open(request) as generation:
            wanted, end = await read(generation)
        async with await nodes.forwarding.open(request) as passed:
            tokens, finished = await read(passed)
        assert [(each.text, each.index) for each in tokens] == [
            (each.text, each.index) for each in wanted
        ]
        assert [each.logprobs for each in tokens] == [each.logprobs for each in wanted]
        assert (finished.finish_reason, finished.usage) == (end.finish_reason, end.usage)
        assert passed.usage == finished.usage
        assert nodes.forwarding.active == 0
        trace = nodes.hops.trace(passed.id)
        assert trace is not None
        assert (trace.paths, trace.failures) == (1, [])


async def test_what_the_driver_refuses_is_refused(directory: Path) -> None:
    async with pair(directory) as nodes:
        with pytest.raises(PromptTooLong):
            await nodes.forwarding.open(replace(GREEDY, prompt="word " * 2000))
        with pytest.raises(InvalidRequest) as caught:
            await nodes.forwarding.open(replace(GREEDY, json_schema='{"type": "nothing"}'))
        assert caught.value.field == "json_schema"
        nodes.drain.begin()
        with pytest.raises(Unavailable, match="the node is draining"):
            await nodes.forwarding.open(GREEDY)
        assert (nodes.forwarding.active, nodes.driver.active) == (0, 0)


async def test_a_driver_takes_requests_of_peers_only(directory: Path) -> None:
    async with pair(directory) as nodes:
        nodes.peers.clear()
        with pytest.raises(Unavailable, match="takes requests"):
            await nodes.forwarding.open(GREEDY)
        assert nodes.driver.active == 0


async def said(nodes: Pair, message: pb.InferenceRequest, **metadata: str) -> list[Any]:
    """What the driver answers to a request of which nobody has checked anything."""
    credential = Credentials(KEY, time.time).for_node(DRIVER.node_id)
    async with nodes.stub.StreamInference(metadata={CREDENTIAL: credential, **metadata}) as call:
        await call.send(message, last=True)
        return [answer async for answer in call]


def passed_on(**fields: Any) -> pb.InferenceRequest:
    extra = pb.ForwardedRequest(**fields.pop("forwarded", {}))
    given: dict[str, Any] = {"prompt": "A", "max_tokens": 2, "temperature": 0.0, "top_p": 1.0}
    given |= fields
    return pb.InferenceRequest(**given, forwarded=extra)


async def test_a_node_that_does_not_drive_takes_no_request_of_others(directory: Path) -> None:
    """A request is passed on once at most: there is no way for it to go round in a circle."""
    async with pair(directory, takes=False) as nodes:
        (answer,) = await said(nodes, passed_on())
        assert answer.forwarded.failure.kind == "LAYERS_UNAVAILABLE"
        with pytest.raises(LayersUnavailable):
            await nodes.forwarding.open(GREEDY)
        with pytest.raises(CallFailed) as caught:
            await nodes.stub.UnaryInference(passed_on())
        assert caught.value.code is Code.INVALID_ARGUMENT


async def test_the_driver_checks_the_rules_itself(directory: Path) -> None:
    async with pair(directory) as nodes:
        *tokens, last = await said(nodes, passed_on())
        assert last.is_final
        assert not last.HasField("cost")
        assert len(tokens) == 3
        for field, message in (
            ("max_tokens", passed_on(max_tokens=0)),
            ("logprobs", passed_on(forwarded={"logprobs": 1000})),
            ("presence_penalty", passed_on(forwarded={"presence_penalty": 9.0})),
            ("request_id", passed_on(request_id="x" * 300)),
        ):
            (answer,) = await said(nodes, message)
            failure = answer.forwarded.failure
            assert (failure.kind, failure.field) == ("INVALID_REQUEST", field)
        with pytest.raises(CallFailed) as caught:
            await said(nodes, passed_on(), **{CREDENTIAL: "1:forged"})
        assert caught.value.code is Code.UNAUTHENTICATED


async def test_a_client_that_leaves_ends_the_drivers_generation(directory: Path) -> None:
    async with pair(directory) as nodes:
        async with await nodes.forwarding.open(replace(GREEDY, max_tokens=200)) as generation:
            await anext(generation)
            assert nodes.driver.active == 1
        assert nodes.forwarding.active == 0
        await until(lambda: nodes.driver.active == 0, "the driver's generation is gone")
        # One that leaves before the driver has answered leaves nothing either.
        with trio.move_on_after(0.0):
            await nodes.forwarding.open(GREEDY)
        assert nodes.forwarding.active == 0
        await until(lambda: nodes.driver.active == 0, "the driver's generation is gone")


async def test_a_driver_that_goes_fails_the_stream_of_its_client(directory: Path) -> None:
    async with (
        pair(directory) as nodes,
        await nodes.forwarding.open(replace(GREEDY, max_tokens=200)) as generation,
    ):
        await anext(generation)
        nodes.served.cancel()
        with pytest.raises(Unavailable):
            await read(generation)
        assert 0 < generation.usage.completion_tokens < 200
        assert nodes.book.suspected == [DRIVER.node_id] * len(nodes.book.suspected)
        assert nodes.book.suspected


async def test_the_end_of_the_service_ends_its_generations(directory: Path) -> None:
    async with pair(directory) as nodes:
        async with await nodes.forwarding.open(replace(GREEDY, max_tokens=200)) as generation:
            nodes.passing.cancel()
            with pytest.raises(Unavailable):
                await read(generation)
        with pytest.raises(Unavailable):
            await nodes.forwarding.open(GREEDY)
        with trio.fail_after(PATIENT_S):
            await nodes.forwarding.wait_idle()
        await until(lambda: nodes.driver.active == 0, "the driver's generation is gone")


async def test_one_account_has_half_of_the_room_and_strangers_an_eighth(directory: Path) -> None:
    long = replace(GREEDY, max_tokens=200)
    async with pair(directory, most=2 * MOST) as nodes:
        nodes.driver.thread = SlowThread()
        opened = [await nodes.forwarding.open(long) for _ in range(4)]
        # The driver is full: two compute, two wait.
        with pytest.raises(RateLimited):
            await nodes.forwarding.open(long)
        for generation in opened:
            await generation.__aexit__(None, None, None)
    async with pair(directory, most=4) as nodes:
        nodes.driver.thread = SlowThread()
        opened = [await nodes.forwarding.open(long) for _ in range(2)]
        with pytest.raises(RateLimited):
            await nodes.forwarding.open(long)
        assert nodes.forwarding.requesters() == {ALICE}
        free = replace(long, requester=Requester(Standing.FREE, "192.0.2.1"))
        other = replace(free, requester=Requester(Standing.FREE, "192.0.2.2"))
        opened.append(await nodes.forwarding.open(free))
        with pytest.raises(RateLimited):
            await nodes.forwarding.open(other)
        for generation in opened:
            await generation.__aexit__(None, None, None)


async def test_the_standing_at_the_driver_is_that_of_a_peer(directory: Path) -> None:
    async with pair(directory) as nodes:
        for request, standing in (
            (GREEDY, Standing.PEER),
            (replace(GREEDY, requester=Requester(Standing.FREE, "192.0.2.1")), Standing.FREE),
        ):
            long = replace(request, max_tokens=200)
            async with await nodes.forwarding.open(long):
                assert {each.standing for each in nodes.driver.requesters()} == {standing}
            await until(lambda: nodes.driver.active == 0, "the driver's generation is gone")
