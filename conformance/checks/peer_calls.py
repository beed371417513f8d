"""Interface 1, 2.3 and 8: the node comes to the peer that it is told; what its calls look like."""

import time

from conformance import messages
from conformance.checks.peering import shown, stimulate, watched
from conformance.compiled import grpc
from conformance.context import Context
from conformance.findings import Skipped
from conformance.grpcwire import GrpcClient
from conformance.httpwire import Unanswered
from conformance.peer import requests
from conformance.peer.peer import Peer
from conformance.peer.watch import DHT, PEER
from conformance.registry import requirement
from conformance.target import GRPC_PORT_OFFSET

POOL = "LIM-006"
READ_S = 1.0


@requirement("CL-PORT-001", POOL, *requests.PROVES)
def peer_watch(context: Context) -> None:
    """Wait for the node, and judge every call; an inference makes it use its peers."""
    peer = context.peer
    with watched(context) as scene:
        if not peer.came():
            for where in _misdirected(peer):
                context.fails("CL-PORT-001", f"gRPC was spoken to the HTTP port{where}")
            raise Skipped(
                f"no call came within {peer.patience.first_s:g} s: is {peer.url} the node's peer?"
            )
        context.holds("CL-PORT-001", *shown(peer.watch.calls[:1]))
        stimulate(context)
        peer.wait(lambda: False, peer.patience.settle_s)
        most = f"{_most_at_once(peer)} connections to one peer"
        context.observe(POOL, most, *shown(scene.calls[:1]))


def _misdirected(peer: Peer) -> list[str]:
    """Return where else gRPC was spoken; what has just begun may not have been read yet."""
    taps = {", and to no other": peer.posts[PEER].http}
    taps |= {f" plus {offset}, and not plus 1000": tap for offset, tap in peer.beside.items()}
    ends = time.monotonic() + READ_S
    while True:
        found = [where for where, tap in taps.items() if any(link.http2 for link in tap.links)]
        if found or time.monotonic() > ends:
            return found
        time.sleep(READ_S / 20)


def _most_at_once(peer: Peer) -> int:
    changes = []
    for link in peer.links:
        changes.append((link.opened_at, 1))
        if link.closed_at is not None:
            changes.append((link.closed_at, -1))
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


@requirement("CL-DHT-004", *requests.PROVES)
def peer_calls_back(context: Context) -> None:
    """Ping the node at the address that it gives for itself."""
    peer = context.peer
    with watched(context):
        peer.came()
        asked = [call for call in peer.watch.calls if call.operation in DHT and call.message]
        if not asked:
            raise Skipped("the node makes no call of the DHT")
        call = asked[-1]
        sender = getattr(call.message, "sender")  # noqa: B009 - the message's type is not known
        found = []
        for port in (sender.port, sender.port + GRPC_PORT_OFFSET):
            ident = _ping(context, call.caller, port)
            if ident == sender.node_id:
                context.holds("CL-DHT-004", *shown([call]))
                return
            found.append(f"{ident.hex() if ident else 'nobody'} at port {port}")
        context.fails("CL-DHT-004", f"{call.caller} has {' and '.join(found)}", *shown([call]))


def _ping(context: Context, host: str, port: int) -> bytes | None:
    journal = context.peer.watch.journal
    if journal is None or not 0 < port < 65536:
        return None
    client = GrpcClient(f"{host}:{port}", journal, timeout_s=context.target.timeout_s)
    client.check = "peer-calls-back"
    me = messages.make("DHTNodeInfo", node_id=context.peer.ident, ip=context.peer.setup.host,
                       port=context.peer.posts[PEER].port)  # fmt: skip
    try:
        reply = client.call("DHTPing", messages.make("DHTPingRequest", sender=me))
        return bytes(messages.parse("DHTPingResponse", reply.body).responder.node_id)
    except (Unanswered, messages.BadMessage, grpc.RpcError):
        return None
    finally:
        client.close()
