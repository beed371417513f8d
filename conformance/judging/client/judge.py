"""A run of the peer's checks against a toy client, in the toy's own time."""

from collections.abc import Container, Iterator
from contextlib import contextmanager

from conformance import messages
from conformance.catalogue import Effect, Profile
from conformance.editions import CURRENT
from conformance.ended import Run
from conformance.judging.client.manners import Manners
from conformance.judging.client.node import MAKER, SIGNED, Known, ToyClient
from conformance.judging.client.world import World
from conformance.messagefile import MessageFile
from conformance.peer.peer import Outcome, Patience, Peer, Setup
from conformance.peer.watch import PEER
from conformance.run import Runner
from conformance.target import GRPC_PORT_OFFSET, Target

# Above the default of the common libraries, 4 MiB, and quick to send.
LARGE_BYTES = 5 * 1024 * 1024
TTL = 2
GRADIENT = messages.make(
    "GossipGradientRequest", node_id=MAKER.hex(), round_id=3, model_hash="a" * 64, timestamp=1.0,
    batch_size=1, loss=1.5, layer_gradients={"embedding": b"values"}, signature=SIGNED, ttl=TTL,
).SerializeToString()  # fmt: skip
PIPELINE = {"shard": 0, "hidden_shape": [1, 2, 8]}


@contextmanager
def company(manners: Manners) -> Iterator[tuple[Peer, ToyClient]]:
    """Run a peer and a toy that knows it."""
    world = World()
    setup = Setup(
        patience=Patience(first_s=15, settle_s=4, recover_s=15),
        time=world,
        large_bytes=LARGE_BYTES,
        sole=True,
        ident=MAKER,
        checkpoint=bytes(LARGE_BYTES),
    )
    with Peer(setup) as peer:
        told = Known("127.0.0.1", peer.posts[PEER].port)
        with ToyClient(told, world, manners) as toy:
            toy.answers_pings = lambda: not peer.posts[PEER].rpc.holds_acks
            world.due = toy.tick
            world.settled = lambda: _open_links(peer) == toy.connections

            def infer() -> Outcome:
                outcome = toy.infer()
                world.settle(peer.watch.noticed)
                return outcome

            peer.stimulus = infer
            yield peer, toy


def _open_links(peer: Peer) -> int:
    return sum(
        link.closed_at is None
        for post in peer.posts.values()
        for tap in (post.rpc, post.http)
        for link in tap.links
    )


def judge(manners: Manners, checks: Container[str] | None = None, *, edition: int = CURRENT) -> Run:
    """Judge a toy with these manners; `checks` holds the names of the checks to run."""
    with company(manners) as (peer, toy):
        target = Target(
            f"http://127.0.0.1:{toy.grpc_port - GRPC_PORT_OFFSET}",
            profiles=frozenset({Profile.PEER}),
            grpc=f"127.0.0.1:{toy.grpc_port}",
            gradient=MessageFile("gradient.bin", GRADIENT),
            pipeline=PIPELINE,
            allow=frozenset(Effect),
            timeout_s=60,
            edition=edition,
        )
        return Runner(target, names=checks, peer=peer).run()
