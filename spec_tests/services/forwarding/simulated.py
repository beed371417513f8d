"""Simulated drivers in virtual time: what an honest one answers depends only on the request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import trio

from meshnode.domain.generation import Finished, GenerationRequest, TokenEvent
from meshnode.domain.identity import key_from_seed
from meshnode.domain.peer_session import Credentials
from meshnode.domain.peers import Peer, ShardInfo
from meshnode.domain.shares import Requester, Standing
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.forwarding.drivers import Drivers
from meshnode.services.forwarding.passing import ForwardingContext, Passing
from meshnode.services.generation import Generation
from meshnode.services.peers import PeerBook
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.stub_pool import StubPool
from meshnode.wire import node_pb2 as pb

CALL_S = 5.0
TOKENS = 6
HASH = "a" * 64
TOKEN_S = 0.1

Answers = AsyncGenerator[pb.InferenceResponse, None]
Script = Callable[[pb.InferenceRequest], Answers]


def taken(**more: Any) -> pb.InferenceResponse:
    return pb.InferenceResponse(forwarded=pb.ForwardedAnswer(waits=True, model_hash=HASH, **more))


def token(index: int, text: str) -> pb.InferenceResponse:
    answer = pb.InferenceResponse(index=index, text=text)
    answer.forwarded.SetInParent()
    return answer


def final(tokens: int, reason: str = "length", **more: Any) -> pb.InferenceResponse:
    answer = pb.InferenceResponse(
        index=tokens, is_final=True, finish_reason=reason, tokens_generated=tokens
    )
    answer.forwarded.MergeFrom(pb.ForwardedAnswer(**more))
    return answer


def failed(kind: str, **more: Any) -> pb.InferenceResponse:
    failure = pb.InferenceFailure(kind=kind, **more)
    return pb.InferenceResponse(forwarded=pb.ForwardedAnswer(failure=failure))


def text_of(request: pb.InferenceRequest, index: int) -> str:
    """What every honest driver of one class generates."""
    return f"{(request.seed + index) % 89} "


async def honest(request: pb.InferenceRequest) -> Answers:
    yield taken()
    for index in range(request.max_tokens):
        await trio.sleep(TOKEN_S)
        yield token(index, text_of(request, index))
    yield final(request.max_tokens)


def then(count: int, *after: pb.InferenceResponse, hangs: bool = False) -> Script:
    """An honest beginning of ``count`` tokens, and then something else."""

    async def script(request: pb.InferenceRequest) -> Answers:
        yield taken()
        for index in range(count):
            yield token(index, text_of(request, index))
        for each in after:
            yield each
        if hangs:
            await trio.sleep_forever()

    return script


def says(*answers: pb.InferenceResponse) -> Script:
    async def script(request: pb.InferenceRequest) -> Answers:
        for each in answers:
            yield each

    return script


def refuses(code: Code, after: int = 0) -> Script:
    """The call ends with a status, after some tokens."""

    async def script(request: pb.InferenceRequest) -> Answers:
        if after:
            async for each in then(after)(request):
                yield each
        raise CallFailed(code, "for a test")

    return script


async def hangs(request: pb.InferenceRequest) -> Answers:
    await trio.sleep_forever()
    yield taken()


@dataclass
class SimulatedDriver:
    """A peer with the first layer, and the requests that it got."""

    name: str
    script: Script = honest
    latency_ms: float = 1.0
    layers: tuple[int, ...] = (0,)
    requests: list[pb.InferenceRequest] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    left: int = 0
    """Calls that ended, however."""

    @property
    def node_id(self) -> str:
        return self.name.encode().hex().ljust(40, "0")

    @property
    def peer(self) -> Peer:
        return Peer(
            node_id=self.node_id,
            host=self.name,
            port=1,
            role="driver",
            layers=self.layers,
            total_layers=4,
            model_hash=HASH,
            latency_ms=self.latency_ms,
            connected_since=0.0,
        )


class _Call:
    """A call of ``StreamInference`` at a simulated driver."""

    def __init__(self, driver: SimulatedDriver, metadata: dict[str, str]) -> None:
        self._driver = driver
        driver.metadata.append(metadata)

    async def __aenter__(self) -> _Call:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._driver.left += 1
        await self._answers.aclose()

    async def send(self, request: pb.InferenceRequest, *, last: bool) -> None:
        assert last
        self._driver.requests.append(request)
        self._answers = self._driver.script(request)

    async def receive(self) -> pb.InferenceResponse | None:
        await trio.lowlevel.checkpoint()
        return await anext(self._answers, None)


class SimulatedNetwork:
    """Peer book and pool of connections of a forwarding node."""

    def __init__(self, *drivers: SimulatedDriver) -> None:
        self.simulated = list(drivers)
        self.suspected: list[str] = []
        self.tokens = 0
        self.recorder = HopRecorder()
        self.drivers = Drivers(cast(PeerBook, self))
        self.context = ForwardingContext(
            drivers=self.drivers,
            pool=cast(StubPool, self),
            credentials=Credentials(key_from_seed("11" * 32), lambda: 1e9),
            recorder=self.recorder,
            call_s=CALL_S,
            token=self._count,
        )

    # As a peer book

    @property
    def own(self) -> ShardInfo:
        return ShardInfo(
            node_id="f" * 40,
            version="",
            model_name="",
            model_hash=HASH,
            total_layers=4,
            layers=(1,),
            hidden_dim=1,
            vocab_size=1,
            context_length=1,
        )

    def peers(self) -> list[Peer]:
        return [driver.peer for driver in self.simulated]

    def suspect(self, node_id: str) -> None:
        self.suspected.append(node_id)

    # As a pool

    async def stub(self, host: str, grpc_port: int) -> Any:
        (driver,) = (each for each in self.simulated if each.name == host)

        class Stub:
            @staticmethod
            def StreamInference(  # noqa: N802 - the document's name
                *, metadata: dict[str, str], most_bytes: int
            ) -> _Call:
                return _Call(driver, metadata)

        return Stub

    def distrust(self, host: str, grpc_port: int) -> None:
        """As ``ChannelPool.distrust``; there are no connections here."""

    def _count(self, generation: Generation) -> None:
        self.tokens += 1

    def generation(self, number: int = 0, **changes: Any) -> Generation:
        fields: dict[str, Any] = {
            "max_tokens": TOKENS,
            "seed": 7,
            "requester": Requester(Standing.PAYING, "alice"),
        } | changes
        return Generation(
            GenerationRequest("words", **fields),
            id=f"gen-{number}",
            prompt=[1, 2, 3],
            most_tokens=fields["max_tokens"],
            opened_at=trio.current_time(),
            leave=lambda generation: None,
        )

    async def pass_on(
        self, generation: Generation | None = None
    ) -> tuple[list[TokenEvent], Finished]:
        """Pass a generation on; return its events. Raises its failure."""
        generation = generation or self.generation()
        await Passing(generation, self.context).run()
        events = [event async for event in until_finished(generation)]
        *tokens, finished = events
        assert isinstance(finished, Finished)
        assert all(isinstance(each, TokenEvent) for each in tokens)
        return cast(list[TokenEvent], tokens), finished


async def until_finished(generation: Generation) -> AsyncIterator[TokenEvent | Finished]:
    """The events of a generation that has finished."""
    async for event in generation:
        yield event
        if isinstance(event, Finished):
            return


def honest_text(seed: int = 7, tokens: int = TOKENS) -> str:
    request = pb.InferenceRequest(seed=seed)
    return "".join(text_of(request, index) for index in range(tokens))
