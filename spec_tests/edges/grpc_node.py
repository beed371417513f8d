"""Serves the node service on a real port, with a real executor and a small random model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from meshnode.domain.errors import Unauthorized, Unavailable
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.domain.tokens import Scope, TokenRecord
from meshnode.edges.grpc_inference import CallerAccess, InferenceServicer
from meshnode.edges.grpc_service import node_services
from meshnode.model.loading import load_model
from meshnode.rpc.channel import Channel, open_channel
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import EngineLimits, Executor, serve_executor
from meshnode.services.pipeline import Pipeline
from meshnode.services.pipeline.records import HopRecorder
from meshnode.services.tokens import OPERATOR
from meshnode.services.wallet.charging import Charged
from meshnode.services.wallet.serving import Serving
from meshnode.supervise import Drain

LIMITS = EngineLimits(max_batch=8, max_queue=8)
RATE = Rate(per_second=1e6, burst=1e6)
"""Never reached."""


def known(secret: str) -> TokenRecord:
    """Authenticate the operator, Alice, and one who only reads, each by the name as secret."""
    if secret == "reader":
        return TokenRecord(secret, secret, "", 0, scopes=(Scope.READ,))
    if secret not in (OPERATOR, "alice"):
        raise Unauthorized
    return TokenRecord(secret, secret, "", 0)


def no_ledger() -> Charged:
    """Charge as a node would that has no ledger."""
    raise Unavailable("no ledger")


@dataclass
class Node:
    """A running gRPC node: its port, its executor, its drain, and a channel to it."""

    port: int
    executor: Executor
    drain: Drain
    channel: Channel

    @property
    def stub(self) -> NodeServiceStub:
        """A stub of this project's own client, on the node's channel."""
        return NodeServiceStub(self.channel)


def caller_access(
    source: Executor | Pipeline,
    rate: Rate = RATE,
    free_to: str = "loopback",
) -> CallerAccess:
    """Serve callers without a token, and the operator, for nothing."""
    return CallerAccess(
        source=source,
        serving=Serving(source, no_ledger),
        authenticate=known,
        limits=RateLimits(per_address=RateLimit(rate), per_token=RateLimit(rate)),
        currency="MESH",
        free_to=free_to,
    )


@asynccontextmanager
async def grpc_node(
    directory: Path,
    limits: EngineLimits = LIMITS,
    rate: Rate = RATE,
    free_to: str = "loopback",
) -> AsyncIterator[Node]:
    """Serve the model in ``directory`` on a free port."""
    model = load_model(directory, threads=1)
    drain = Drain()
    async with trio.open_nursery() as nursery:
        executor = await nursery.start(partial(serve_executor, model, limits))
        services = node_services(
            [
                InferenceServicer(
                    access=caller_access(executor, rate, free_to), drain=drain, hops=HopRecorder()
                )
            ],
            drain,
        )
        serve = partial(serve_grpc, services, "127.0.0.1", 0, traffic=TrafficMeter())
        _, port = await nursery.start(serve)
        async with open_channel("127.0.0.1", port, traffic=TrafficMeter()) as channel:
            yield Node(port, executor, drain, channel)
        nursery.cancel_scope.cancel()
