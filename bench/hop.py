"""The cost of a hop between two nodes of a pipeline, beside a hop by grpcio.

``python -m bench.hop`` takes a minute. A *hop* is one ``PipelineForward`` of the hidden state of
one token, [1, 1, 768] in float32, minus the time that it waits for the holder's four layers and
spends in them. It goes over a line (decision 0263), as in a pipeline, and as a call by itself, as
to nodes without lines. In ``bench.grpc`` there are no layers and calls follow one another at once;
here, as in a pipeline, each call comes after a computation that has emptied the caches. The peer
(``bench.grpcio_holder``) has the same layers, engine and threads behind grpcio's asyncio server,
and grpcio's blocking client.
"""

from __future__ import annotations

import secrets
import statistics
import time
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import grpc
import numpy as np
import trio

from bench.grpc import CALL_S, METHOD
from bench.grpcio_holder import COMPUTE_MS, grpcio_holder
from bench.node_process import RunningNode, running_node
from bench.random_model import CONFIG, THREADS, random_model
from bench.table import BenchRow, in_turn, latency_row
from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.metering import TrafficMeter
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats

ROUNDS = 5
HOPS = 100
FIRST, LAST = 4, 7
MOST_MS = 1.5
MOST_BYTES = 64 * 1024


def run() -> list[BenchRow]:
    """Measure ours and the peer in turn."""
    with random_model() as directory, ExitStack() as stack:
        model = str(directory)
        holder = stack.enter_context(running_node(model, THREADS, "--layers", f"{FIRST}-{LAST}"))
        port = stack.enter_context(grpcio_holder(model, range(FIRST, LAST + 1)))
        *ours, theirs = in_turn(
            ROUNDS,
            lambda: trio.run(partial(hop_ms, holder, line=True)),
            lambda: trio.run(partial(hop_ms, holder, line=False)),
            lambda: peer_hop_ms(port),
        )
    (mine, alone), its = map(statistics.median, ours), statistics.median(theirs)
    return [
        BenchRow("one hop between computations, vs grpcio", mine, its, its / mine, None, "ms"),
        latency_row("the same, against its limit", ours[0], MOST_MS, "ms"),
        BenchRow("the same by itself, vs grpcio", alone, its, its / alone, None, "ms"),
    ]


async def hop_ms(holder: RunningNode, *, line: bool) -> float:
    """Return the median of ``HOPS`` hops, from our client to our node."""
    parts = urlsplit(holder.url)
    request, samples = _request(), []
    async with trio.open_nursery() as nursery:
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        stub = await pool.stub(parts.hostname or "", (parts.port or 0) + GRPC_PORT_OFFSET)
        for _ in range(HOPS):
            began = time.perf_counter()
            answer = await stub.PipelineForward.ask(request, most_bytes=MOST_BYTES, line=line)
            elapsed_ms = (time.perf_counter() - began) * 1e3
            inside = (float(answer.metadata[key]) for key in ("queue-ms", COMPUTE_MS))
            samples.append(elapsed_ms - sum(inside))
        close = pb.PipelineForwardRequest(session_id=request.session_id, target_shard=FIRST)
        await stub.PipelineForward(close)
        nursery.cancel_scope.cancel()
    return statistics.median(samples)


def peer_hop_ms(port: int) -> float:
    """Return the same from grpcio's client to its server, which keeps one session."""
    request, samples = _request(), []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            METHOD,
            pb.PipelineForwardRequest.SerializeToString,
            pb.PipelineForwardResponse.FromString,
        )
        for _ in range(HOPS):
            began = time.perf_counter()
            _, ended = call.with_call(request, timeout=CALL_S)
            elapsed_ms = (time.perf_counter() - began) * 1e3
            inside = dict(ended.trailing_metadata())
            samples.append(elapsed_ms - float(inside[COMPUTE_MS]))
    return statistics.median(samples)


def _request() -> pb.PipelineForwardRequest:
    """Make a request for one position of a new session."""
    shape = (1, 1, CONFIG.hidden_size)
    states = np.random.default_rng(0).standard_normal(shape, np.float32)
    return pb.PipelineForwardRequest(
        session_id=secrets.token_hex(16),
        hidden_states=pack_floats(states),
        hidden_shape=shape,
        use_cache=True,
        target_shard=FIRST,
    )


def main() -> None:
    """Measure and print."""
    from bench.__main__ import print_table

    print_table({"hop": run()})


if __name__ == "__main__":
    main()
