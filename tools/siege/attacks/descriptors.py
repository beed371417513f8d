"""Takes the descriptors of a node with ``ulimit -n 1024`` by silent connections to both ports."""

from __future__ import annotations

from collections.abc import Sequence

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold_idle

HTTP, GRPC = 900, 128


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Hold the connections, and open others for those that the node closes."""
    crowds = [
        Crowd(target.host, target.grpc_port, GRPC),
        Crowd(target.host, target.http_port, HTTP),
    ]
    await hold_idle(crowds, sources)


ATTACK = Attack(
    "128 silent gRPC and 900 silent HTTP connections, with ulimit -n 1024",
    attack,
    point=1,
    files=1024,
)
