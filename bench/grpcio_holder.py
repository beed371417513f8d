"""The peer of ``bench.hop``: a holder behind grpcio's asyncio server, with our layers and engine.

``python -m bench.grpcio_holder MODEL FIRST LAST`` prints its port and serves one session until it
is terminated. It validates nothing, so that it measures only the transport and the hand-over to the
thread that computes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.grpc import serve_by_grpcio
from bench.random_model import CONFIG, THREADS
from meshnode.model.engine import Engine
from meshnode.model.loading import load_model
from meshnode.wire import node_pb2 as pb
from meshnode.wire.tensors import pack_floats, unpack_floats

COMPUTE_MS = "compute-ms"


async def serve(model: Path, layers: range) -> None:
    """Serve on a free port and print it."""
    decoder = load_model(model, layers=layers, threads=THREADS).decoder
    thread = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    engine = await loop.run_in_executor(thread, Engine, decoder, 1)
    shard = engine.shard(layers, CONFIG.context_length)

    async def forward(request: Any, context: Any) -> Any:
        states = unpack_floats(request.hidden_states, request.hidden_shape, "hidden_states")
        inputs = torch.from_numpy(states)
        began = time.perf_counter()
        output = await loop.run_in_executor(thread, engine.extend, shard, inputs)
        compute_ms = (time.perf_counter() - began) * 1e3
        if isinstance(output, Exception):
            raise output
        context.set_trailing_metadata(((COMPUTE_MS, f"{compute_ms:.3f}"),))
        return pb.PipelineForwardResponse(
            hidden_states=pack_floats(output.numpy()), hidden_shape=output.shape, success=True
        )

    await serve_by_grpcio(forward)


@contextmanager
def grpcio_holder(model: str, layers: range) -> Iterator[int]:
    """Run a holder in a process of its own and yield its port."""
    command = [sys.executable, "-m", "bench.grpcio_holder", model]
    command += [str(layers[0]), str(layers[-1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else 0)
        finally:
            process.terminate()


def main() -> None:
    """Serve the model and the layers that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    options = parser.parse_args()
    asyncio.run(serve(options.model, range(options.first, options.last + 1)))


if __name__ == "__main__":
    main()
