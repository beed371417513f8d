"""A node that holds layers and does harm: ``python -m tools.siege.bad_holder FAULT ARGUMENT...``.

It is a real node, which the arguments start as the command line would, so others find it, verify it
and choose it like any other. Only its answers to messages of a pipeline are those of an attacker.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from meshnode import cli
from meshnode.edges.grpc_pipeline import PipelineServicer
from meshnode.rpc.errors import CallRefused, Code
from meshnode.wire.tensors import pack_floats, unpack_floats
from tools.siege.attack import Target
from tools.siege.http1 import ask, request
from tools.siege.place import HTTP_PORT, connect, end

SLOW_S = 4.0
HANGS_S = 3600.0
KNOWN_WITHIN_S = 120.0
LOOK_EVERY_S = 0.5
LIES_ONCE_IN = 10
"""Of so many answers of a holder that lies rarely, one is false on average."""
FAVOURITE = 7
"""The token that a liar makes the driver choose."""

Fault = Callable[[], Awaitable[None]]


async def refuse() -> None:
    """Answer as if the driver had made a mistake."""
    raise CallRefused(Code.INVALID_ARGUMENT, "no")


async def dawdle() -> None:
    """Take so long that the call's deadline is just met."""
    await trio.sleep(SLOW_S)


async def hang() -> None:
    """Never answer."""
    await trio.sleep(HANGS_S)


FAULTS: dict[str, Fault] = {
    "refuse": refuse,
    "dawdle": dawdle,
    "hang": hang,
    "lie": trio.lowlevel.checkpoint,
    "lie-rarely": trio.lowlevel.checkpoint,
}
"""What a bad holder does before it answers."""


def falsify(answer: Any) -> Any:
    """Raise one logit of the last position, so that the text is the attacker's."""
    if answer.logits:
        values = unpack_floats(answer.logits, answer.logits_shape, "logits").copy()
        values[..., FAVOURITE] += 50.0
        answer.logits = pack_floats(values)
    return answer


def lies(fault: str) -> bool:
    """Whether the next answer is to be false."""
    return fault == "lie" or (fault == "lie-rarely" and random.randrange(LIES_ONCE_IN) == 0)


def main(fault: str, *arguments: str) -> None:
    """Run the node."""
    harm = FAULTS[fault]
    forward, relayed = PipelineServicer.PipelineForward, PipelineServicer.SwarmForward

    async def bad_forward(servicer: PipelineServicer, message: Any) -> Any:
        await harm()
        answer = await forward(servicer, message)
        return falsify(answer) if lies(fault) else answer

    async def bad_relayed(servicer: PipelineServicer, message: Any) -> Any:
        await harm()
        answer = await relayed(servicer, message)
        return falsify(answer) if lies(fault) else answer

    setattr(PipelineServicer, "PipelineForward", bad_forward)  # noqa: B010 - a method
    setattr(PipelineServicer, "SwarmForward", bad_relayed)  # noqa: B010 - a method
    sys.exit(cli.main(arguments))


@asynccontextmanager
async def bad_holders(
    target: Target, sources: Sequence[str], fault: str, layers: str
) -> AsyncIterator[None]:
    """Run one at each address, which the target knows as a peer when the block begins."""
    processes = []
    with tempfile.TemporaryDirectory(prefix="siege-bad-") as folder:
        try:
            before = {peer["id"] for peer in await _peers(target)}
            for source in sources:
                command = [sys.executable, "-m", "tools.siege.bad_holder", fault]
                command += ["--host", source, "--port", str(HTTP_PORT), "--layers", layers]
                command += ["--tracker", f"http://{target.host}:{target.http_port}"]
                command += ["--data-dir", str(Path(folder) / source)]
                processes.append(_start(command))
            with trio.fail_after(KNOWN_WITHIN_S):
                await _known(target, sources, before)
            yield
        finally:
            for process in processes:
                end(process)


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a node. Its log goes with the attacker's; standard output is for the siege."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)


async def _known(target: Target, sources: Sequence[str], before: Collection[str]) -> None:
    """Wait until all of these addresses have peers whose ids are not those of ``before``."""
    missing = set(sources)
    while missing:
        await trio.sleep(LOOK_EVERY_S)
        for peer in await _peers(target):
            if peer["id"] not in before:
                missing.discard(peer["address"].rpartition(":")[0])


async def _peers(target: Target) -> list[dict[str, Any]]:
    async with await connect(target.host, target.http_port, target.host) as stream:
        answer = await ask(stream, request("GET", "/api/v1/peers", token=target.token))
        peers: list[dict[str, Any]] = answer.json["peers"]
        return peers


if __name__ == "__main__":
    main(*sys.argv[1:])
