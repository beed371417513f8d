"""Interface 4.3, gossip of proofs between nodes: forwarding, limits, and policy."""

import json
import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing

from meshnode.domain.proofs.statements import Signed, read_order
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.proofs import gossip as gossip_module
from meshnode.services.proofs.chain import OpenProof
from meshnode.services.proofs.gossip import FANOUT, ProofGossip
from meshnode.services.proofs.prover import ProofPolicy
from meshnode.services.proofs.recompute import RecomputedWork
from meshnode.services.shards.decoding import ORDER
from meshnode.wire import node_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, CAROL
from spec_tests.services.ledger.ledgers import eventually
from spec_tests.services.proofs.provers import (
    MALLORY,
    NEVER,
    Book,
    Network,
    ProofNode,
    ask_for_work,
    forge,
    order_for,
    over_a_chain,
    peer_at,
    some_states,
    work_of,
)
from spec_tests.services.shards.holders import at, states

pytestmark = pytest.mark.wire


async def claimed_order(network: Network, bob: ProofNode) -> Signed:
    """Put a claim by Bob on the chain, and return its proof, which no node has received yet."""
    order = order_for(ALICE, BOB, network.ledger.chain_id, WORK, 2, time.time_ns())
    claim = order[0].claim
    await network.send(BOB, "prove", work_kind="forward", layer=2, statement=claim)
    return forge(BOB, order, WORK).signed


_STATES = some_states().tobytes()
WORK = RecomputedWork((1, 5, 64), _STATES, (1, 1, 320), bytes(4 * 320))


@over_a_chain
async def test_a_proof_goes_as_far_as_its_ttl_and_is_passed_on_once(network: Network) -> None:
    books = {who: Book() for who in (ALICE, BOB, CAROL)}
    alice, bob, carol = [
        await network.node(who, [0, 1], policy=NEVER, validates=False, book=books[who])
        for who in (ALICE, BOB, CAROL)
    ]
    at = network.book.nodes
    # Alice knows Bob and Carol; Bob and Carol know nobody.
    books[ALICE].nodes = {node.key.node_id: at[node.key.node_id] for node in (bob, carol)}
    await network.stake(BOB)
    near, far = await claimed_order(network, bob), await claimed_order(network, bob)
    for signed, ttl in ((near, 1), (far, 2), (far, 8)):
        answer = await bob.gossip_proof(alice, signed, ttl)
        assert answer.accepted, answer.reason
        assert answer.proof_id in alice.proofs.gossip.known
    await eventually(lambda: carol.proofs.gossip.known)
    (known,) = carol.proofs.gossip.known.values()
    assert known.signed == far
    # It was not sent back to the node that it came from.
    assert not bob.proofs.gossip.known


@over_a_chain
async def test_every_refusal_has_a_reason_and_leaves_nothing(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    signed = await claimed_order(network, bob)
    unknown = order_for(ALICE, BOB, network.ledger.chain_id, WORK, 2, 1)
    other = order_for(ALICE, BOB, "another-chain", WORK, 2, 1)
    cases = [
        (signed, -1, "ttl: must be between 0 and 8"),
        (signed, 9, "ttl: must be between 0 and 8"),
        (replace(signed, signature=b""), 1, "proof: "),
        (replace(signed, public_key=bytes.fromhex(CAROL.key)), 1, "proof: Signature"),
        (replace(signed, body=b"{}"), 1, "proof: "),
        (replace(signed, body=b"[" * 5000), 1, "proof: "),
        (forge(BOB, unknown, WORK).signed, 1, "proof: the chain has no such open proof"),
        (forge(BOB, other, WORK).signed, 1, "chain_id: is that of another chain"),
    ]
    for statement, ttl, reason in cases:
        answer = await bob.gossip_proof(alice, statement, ttl)
        assert not answer.accepted
        assert answer.reason.startswith(reason), (answer.reason, reason)
    stub = await bob.pool.stub("127.0.0.1", alice.port)
    message = pb.GossipProofRequest(sender_id="x" * 200, ttl=1)
    assert (await stub.GossipProof(message)).reason.startswith("sender_id")
    message = pb.GossipProofRequest(sender_id="x" * 20_000, ttl=1)
    with pytest.raises(CallFailed) as refused:
        await stub.GossipProof(message)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    vote = await stub.GossipValidationVote(pb.ValidationVoteRequest(ttl=1))
    assert (vote.accepted, vote.reason.startswith("vote: ")) == (False, True)
    assert not alice.proofs.gossip.known


@over_a_chain
async def test_two_statements_of_one_claim_are_not_both_taken(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=NEVER)
    await network.stake(BOB)
    order = order_for(ALICE, BOB, network.ledger.chain_id, WORK, 2, time.time_ns())
    await network.send(BOB, "prove", work_kind="forward", layer=2, statement=order[0].claim)
    first, second = forge(BOB, order, WORK).signed, forge(BOB, order, WORK, last_layer=2).signed
    assert (await bob.gossip_proof(alice, first)).accepted
    again = await bob.gossip_proof(alice, second)
    assert not again.accepted
    assert again.reason == "proof: a different proof of this claim is already known"
    # Nor is a stranger's own statement accepted next to it, even with Bob's order.
    stranger = await bob.gossip_proof(alice, forge(MALLORY, order, WORK).signed)
    assert not stranger.accepted


@over_a_chain
async def test_one_claim_at_a_time_as_the_policy_says(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=ProofPolicy(every_s=3600.0))
    await network.stake(BOB)
    for seed in range(5):
        await ask_for_work(alice, bob, seed)
    await network.until(1, 0)
    assert len(bob.observed) == 5
    assert (await network.counts())["submitted"] == 1


@over_a_chain
async def test_invalid_orders_do_not_use_up_the_time_for_a_claim(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3], policy=ProofPolicy(every_s=3600.0, look_again_s=0.0))
    await network.stake(BOB)
    values = some_states()
    message = pb.PipelineForwardRequest(
        session_id="x", request_id="x", use_cache=True, position_ids=at(0, 5), **states(values, 2)
    )
    stub = await alice.pool.stub("127.0.0.1", bob.port)
    assert (await stub.PipelineForward(message, metadata={ORDER: "no order"})).success
    await eventually(lambda: "order: " in bob.proofs.prover.trouble)
    await ask_for_work(alice, bob)
    await network.until(1, 0)


@over_a_chain
async def test_a_claim_that_is_new_is_not_forgotten_for_an_answer_that_is_old(
    network: Network,
) -> None:
    alice = await network.node(ALICE, [0, 1])
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    chain = bob.proofs.chain
    asked, answered, open_proofs = trio.Event(), trio.Event(), chain.open_proofs

    async def slow_once() -> dict[str, OpenProof]:
        found = await open_proofs()
        if not asked.is_set():
            asked.set()
            await answered.wait()
        return found

    chain.open_proofs = slow_once  # type: ignore[method-assign]
    with trio.fail_after(120):
        await asked.wait()
    await ask_for_work(alice, bob)
    await eventually(lambda: bob.proofs.gossip.known)
    (name,) = bob.proofs.gossip.known
    answered.set()
    await trio.testing.wait_all_tasks_blocked()
    assert bob.proofs.prover.give(name) is not None
    assert name in bob.proofs.gossip.known
    await network.until(0, 1)


@over_a_chain
async def test_only_ordered_beginnings_of_sessions_are_claimed(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2, 3])
    await network.stake(BOB)
    await ask_for_work(alice, bob)
    await network.until(1, 0)
    call, answer = bob.observed[-1]
    observe = bob.proofs.observe
    observe(replace(call, order=""), answer)
    observe(replace(call, positions=(3).to_bytes(8, "little")), answer)
    observe(replace(call, positions=b""), answer)
    observe(replace(call, past=(b"x",)), answer)
    observe(replace(call, decode_from=0), answer)
    # These orders are checked further, one after another, and refused.
    mallory = order_for(ALICE, MALLORY, network.ledger.chain_id, work_of(bob), 2, time.time_ns())
    own = order_for(BOB, BOB, network.ledger.chain_id, work_of(bob), 2, time.time_ns())
    hour = 3600 * 10**9
    old, early = (
        order_for(ALICE, BOB, network.ledger.chain_id, work_of(bob), 2, time.time_ns() + shift)
        for shift in (-hour, hour)
    )
    for order, reason in (
        (mallory, "for another node"),
        (old, "too old"),
        (own, "this node itself"),
        # Claiming it would waste the fee: validators check the time.
        (early, "in the future"),
    ):
        text = forge_text(order)
        observe(replace(call, order=text), answer)
        await eventually(lambda reason=reason: reason in bob.proofs.prover.trouble)
    observe(replace(call, data=call.data[:-4] + b"\0\0\0\0"), answer)
    await eventually(lambda: "for other inputs" in bob.proofs.prover.trouble)
    observe(replace(call, order="no order"), answer)
    await eventually(lambda: "order: " in bob.proofs.prover.trouble)
    assert (await network.counts())["submitted"] == 1


def forge_text(order: tuple[object, dict[str, Any]]) -> str:
    return json.dumps(order[1], sort_keys=True, separators=(",", ":"))


@over_a_chain
async def test_a_route_has_an_order_for_every_hop(network: Network) -> None:
    alice = await network.node(ALICE, [0, 1], validates=False)
    bob = await network.node(BOB, [2], policy=NEVER)
    carol = await network.node(CAROL, [3], policy=NEVER)
    stub = await alice.ordering.stub("127.0.0.1", bob.port)
    values = some_states()
    route = [
        pb.SwarmHop(
            node_id=node.key.node_id,
            address=f"127.0.0.1:{node.port}",
            first_layer=node.layers[0],
            last_layer=node.layers[-1],
        )
        for node in (bob, carol)
    ]
    answer = await stub.SwarmForward(
        pb.SwarmForwardRequest(
            session_id="s",
            request_id="r",
            use_cache=True,
            hidden_states=values.tobytes(),
            hidden_shape=values.shape,
            position_ids=np.arange(5, dtype="<i8").tobytes(),
            route=route,
        )
    )
    assert answer.success, answer.error_message
    for node, requester in ((bob, ALICE), (carol, BOB)):
        ((call, _),) = node.observed
        order, _ = read_order(call.order)
        assert (order.requester, order.holder) == (requester.key, node.key.node_id)
        assert order.first_layer == node.layers[0]


@dataclass
class Tellable:
    """A pool whose peers accept everything; it counts the calls to each host."""

    told: Counter[str] = field(default_factory=Counter)
    most_bytes: int | None = None

    async def stub(self, host: str, grpc_port: int) -> "Tellable":
        await trio.lowlevel.checkpoint()
        self.told[host] += 1
        return self

    async def GossipProof(  # noqa: N802
        self, message: pb.GossipProofRequest, *, most_bytes: int | None = None
    ) -> pb.GossipProofResponse:
        await trio.lowlevel.checkpoint()
        self.most_bytes = most_bytes
        return pb.GossipProofResponse(accepted=True)


class Silent:
    """A pool whose peers never answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.all_asked = trio.Event()

    async def stub(self, host: str, port: int) -> None:
        self.asked += 1
        if self.asked == FANOUT:
            self.all_asked.set()
        await trio.sleep_forever()


async def test_silent_peers_do_not_keep_a_message_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gossip_module, "SEND_S", math.inf)
    pool, peers = Silent(), [peer_at(f"{n:040x}", f"peer-{n}", 1) for n in range(FANOUT)]
    gossip = ProofGossip(None, pool, lambda: peers, models=frozenset, num_layers=4, node_id="")  # type: ignore[arg-type]
    gossip.spread_proof(Signed(b"proof", b"key", b"signature"), 4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossip.run)
        with trio.fail_after(60):
            await pool.all_asked.wait()
        nursery.cancel_scope.cancel()
    assert pool.asked == FANOUT


async def test_who_repeats_itself_is_heard_by_all_peers() -> None:
    pool, peers = Tellable(), [peer_at(f"{n:040x}", f"peer-{n}", 1) for n in range(5 * FANOUT)]
    gossip = ProofGossip(None, pool, lambda: peers, models=frozenset, num_layers=4, node_id="")  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gossip.run)
        for _ in range(400):
            gossip.spread_proof(Signed(b"", b"", b""), 1)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert pool.told.keys() == {peer.host for peer in peers}
    assert pool.told.total() == 400 * FANOUT
    # An answer is one sentence, so the call must limit what a peer can send.
    assert pool.most_bytes is not None
    assert pool.most_bytes <= 64 * 1024
