"""Nodes that prove and validate, on real ports, over one real solo chain."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import trio

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.domain.chain.profile import Proving
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.peers import Peer
from meshnode.domain.proofs.statements import (
    Signed,
    WorkOrder,
    read_order,
    sign_order,
    sign_proof,
    tensor_hash,
)
from meshnode.edges.grpc_pipeline import PipelineServicer
from meshnode.edges.grpc_proofs import ProofsServicer
from meshnode.edges.grpc_service import node_services
from meshnode.model.files import open_files
from meshnode.model.loading import load_model
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import Executor, serve_executor
from meshnode.services.ledger import Ledger
from meshnode.services.ledger.asking import ask
from meshnode.services.peers import PeerBook
from meshnode.services.proofs.gossip import statement
from meshnode.services.proofs.orders import OrderingPool
from meshnode.services.proofs.prover import ProofPolicy
from meshnode.services.proofs.recompute import Recomputation, RecomputedWork
from meshnode.services.proofs.service import Proofs, serve_proofs
from meshnode.services.shards.holder import Holder, serve_holder
from meshnode.services.shards.members import TrainingMembers
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall
from meshnode.services.shards.relay import ShardRelay
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.shards.training_service import serve_training
from meshnode.services.signer.signer import Signer
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, PROFILE, UNIT, Actor, actor, genesis
from spec_tests.services.ledger.ledgers import KEY, SOON_S, account, running_ledger
from spec_tests.services.shards.holders import (
    HOLDER_LIMITS,
    LIMITS,
    TRAINING_LIMITS,
    at,
    states,
    until_free,
)
from spec_tests.services.signer.signers import running_signer

MALLORY = actor("mallory")
NEVER = ProofPolicy(enabled=False)
"""For nodes whose test makes the claims itself."""
MODEL_HASH = "ab" * 32
LAYERS, WIDTH = 4, 64
PROVING = Proving(reward=10_000, penalty=1500, budget=1_000_000, open_blocks=60, open_proofs=16)
START = encode(
    genesis_document(
        genesis(
            profile=replace(PROFILE, proving=PROVING),
            validators=(
                GenesisValidator(ALICE.key, KEY.public_key, 8 * UNIT, 1_000_000),
                GenesisValidator(CAROL.key, CAROL.consensus_key, 3 * UNIT, 1_000_000),
            ),
            accounts=((BOB.key, 1_000_000), (MALLORY.key, 1_000_000)),
        )
    )
)
"""Alice makes the blocks, Carol has a quarter of the power, Bob and Mallory have money."""
CONSENSUS = {ALICE: KEY.public_key, CAROL: CAROL.consensus_key}

Observer = Callable[[ForwardCall, ForwardAnswer], None]


def peer_at(node_id: str, host: str, grpc_port: int) -> Peer:
    """Return a peer whose gRPC operations are called at this port."""
    return Peer(
        node_id=node_id,
        host=host,
        port=grpc_port - GRPC_PORT_OFFSET,
        role="worker",
        layers=(),
        total_layers=LAYERS,
        model_hash=MODEL_HASH,
        latency_ms=1.0,
        connected_since=0.0,
    )


@dataclass
class Book:
    """Stands in for the peer book: by default, one book that all nodes share."""

    nodes: dict[str, Peer] = field(default_factory=dict)

    def peers(self) -> list[Peer]:
        return list(self.nodes.values())

    def get(self, node_id: str) -> Peer | None:
        return self.nodes.get(node_id)

    def knows(self, host: str, grpc_port: int) -> bool:
        return any((at.host, at.grpc_port) == (host, grpc_port) for at in self.nodes.values())

    @property
    def as_peer_book(self) -> PeerBook:
        """Return this object, typed as the peer book that a service requires."""
        return cast(PeerBook, self)


@dataclass
class ProofNode:
    """The parts of a node that do work and prove it."""

    actor: Actor
    key: NodeKey
    port: int
    layers: tuple[int, ...]
    executor: Executor
    proofs: Proofs
    pool: ChannelPool
    ordering: OrderingPool
    observed: list[tuple[ForwardCall, ForwardAnswer]]
    ledger: Ledger

    async def balance(self) -> int:
        return int((await self.query("/account", public_key=self.key.public_key))["balance"])

    async def staked(self) -> int:
        return int((await self.query("/stake", public_key=self.key.public_key))["amount"])

    async def query(self, path: str, **options: Json) -> dict[str, Any]:
        return await ask(self.ledger, path, options)

    async def gossip_proof(self, to: ProofNode, signed: Signed, ttl: int = 1) -> Any:
        stub = await self.pool.stub("127.0.0.1", to.port)
        message = pb.GossipProofRequest(
            proof=statement(signed), sender_id=self.key.node_id, ttl=ttl
        )
        return await stub.GossipProof(message)

    async def gossip_vote(self, to: ProofNode, signed: Signed, ttl: int = 1) -> Any:
        stub = await self.pool.stub("127.0.0.1", to.port)
        message = pb.ValidationVoteRequest(
            vote=statement(signed), sender_id=self.key.node_id, ttl=ttl
        )
        return await stub.GossipValidationVote(message)


@dataclass
class Network:
    """A chain, and the nodes that run over it."""

    ledger: Ledger
    directory: Path
    folder: Path
    """Parent of the signers' journal folders."""
    signers: dict[str, Signer] = field(default_factory=dict)
    book: Book = field(default_factory=Book)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def node(self, who: Actor, layers: Sequence[int], **options: Any) -> ProofNode:
        return await self.stack.enter_async_context(proof_node(self, who, layers, **options))

    async def counts(self) -> dict[str, Any]:
        return dict(json.loads((await self.ledger.query("/proofs")).value))

    async def totals(self) -> tuple[int, int, int]:
        """Return the number of open proofs, the number verified, and the atoms paid."""
        value = await self.counts()
        return len(value["open"]), value["verified"], value["paid"]

    async def until(self, open_proofs: int, verified: int, submitted: int = 1) -> None:
        """Wait for exactly these open and verified counts, and at least ``submitted`` proofs."""
        with trio.fail_after(SOON_S):
            while True:
                value = await self.counts()
                found = len(value["open"]), value["verified"]
                if found == (open_proofs, verified) and value["submitted"] >= submitted:
                    return
                with trio.move_on_after(0.1):
                    await self.ledger.wait_beyond(self.ledger.height)

    async def stake(self, who: Actor, amount: int = 100_000) -> None:
        await self.send(who, "stake", amount=amount, duration_days=1)

    async def send(self, who: Actor, kind: str, **fields: Json) -> str:
        return str(await (await self.signer(who)).send(kind, fields))

    async def signer(self, who: Actor) -> Signer:
        """Return the account's only signer, which tests and nodes of ``who`` share."""
        if who.key not in self.signers:
            folder = self.folder / who.key[:16]
            signer = running_signer(self.ledger, key_from_seed(who.seed), folder)
            self.signers[who.key] = await self.stack.enter_async_context(signer)
        return self.signers[who.key]

    async def balance(self, who: Actor) -> int:
        return int((await account(self.ledger, who))["balance"])


@asynccontextmanager
async def proof_network(folder: Path, directory: Path) -> AsyncIterator[Network]:
    """Run a solo chain; the test adds the nodes."""
    async with running_ledger(folder, document=START) as ledger:
        await ledger.wait_beyond(1)
        async with AsyncExitStack() as stack:
            yield Network(ledger, directory, folder / "signers", stack=stack)


@asynccontextmanager
async def proof_node(
    network: Network,
    who: Actor,
    layers: Sequence[int],
    *,
    policy: ProofPolicy | None = None,
    distort: Callable[[ForwardAnswer], ForwardAnswer] = lambda answer: answer,
    validates: bool = True,
    directory: Path | None = None,
    book: Book | None = None,
    recomputation: Any = None,
) -> AsyncIterator[ProofNode]:
    """Run a node; ``distort`` changes its answers before it proves them, as a liar would.

    ``book`` holds the peers that it knows: by default, all nodes.
    """
    key, ledger = key_from_seed(who.seed), network.ledger
    signer = await network.signer(who)
    directory = directory or network.directory
    model = load_model(directory, layers, threads=1)
    drain, observed = Drain(), list[tuple[ForwardCall, ForwardAnswer]]()
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, model, LIMITS)
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        proofs = Proofs(
            key=key,
            models=lambda: frozenset({MODEL_HASH}),
            num_layers=LAYERS,
            find_ledger=lambda: ledger,
            find_signer=lambda: signer,
            consensus_key=lambda: CONSENSUS.get(who, who.consensus_key) if validates else "",
            book=(network.book if book is None else book).as_peer_book,
            pool=pool,
            recomputation=recomputation or Recomputation(executor, lambda _: open_files(directory)),
            policy=policy or ProofPolicy(every_s=0.0),
        )

        def observe(call: ForwardCall, answer: ForwardAnswer) -> None:
            observed.append((call, answer))
            proofs.observe(call, distort(answer))

        holder: Holder = await nursery.start(
            partial(
                serve_holder,
                executor,
                HOLDER_LIMITS,
                accepting=lambda: not drain.draining,
                observe=observe,
            )
        )
        training: ShardTrainer = await nursery.start(
            partial(
                serve_training,
                executor,
                partial(load_model, directory, model.card.layers, trainable=True),
                TRAINING_LIMITS,
                enabled=lambda: False,
                pool=pool,
                peers=network.book.as_peer_book,
                members=TrainingMembers(key, network.book.as_peer_book),
            )
        )
        ordering = OrderingPool(
            pool,
            key=key,
            served=lambda: MODEL_HASH,
            chain_id=lambda: ledger.chain_id,
            peers=network.book.peers,
        )
        relay = ShardRelay(
            node_id=key.node_id,
            holder=holder,
            held=model.card.layers,
            num_layers=LAYERS,
            pool=ordering,
            peers=network.book.as_peer_book,
        )
        parts = [
            PipelineServicer(holder=holder, relay=relay, training=training, held=model.card.layers),
            ProofsServicer(proofs),
        ]
        serve = partial(serve_grpc, node_services(parts, drain), "127.0.0.1", 0)
        _, port = await nursery.start(partial(serve, traffic=TrafficMeter()))
        network.book.nodes[key.node_id] = peer_at(key.node_id, "127.0.0.1", port)
        await nursery.start(serve_proofs, proofs)
        yield ProofNode(
            who, key, port, model.card.layers, executor, proofs, pool, ordering, observed, ledger
        )
        del network.book.nodes[key.node_id]
        holder.close_all()
        with trio.fail_after(120):
            await until_free(executor)
        nursery.cancel_scope.cancel()


def some_states(positions: int = 5, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return random hidden states ``[1, positions, WIDTH]``."""
    random = np.random.default_rng(seed)
    return random.standard_normal((1, positions, WIDTH), dtype=np.float32)


async def ask_for_work(
    requester: ProofNode, holder: ProofNode, seed: int = 0
) -> pb.PipelineForwardResponse:
    """Have a holder run its layers on the start of a session, as a driver does."""
    stub = await requester.ordering.stub("127.0.0.1", holder.port)
    values = some_states(seed=seed)
    answer = await stub.PipelineForward(
        pb.PipelineForwardRequest(
            session_id=secrets.token_hex(8),
            request_id=secrets.token_hex(16),
            use_cache=True,
            position_ids=at(0, values.shape[1]),
            **states(values, holder.layers[0]),
        )
    )
    assert answer.success, answer.error_message
    return answer


@dataclass(frozen=True)
class Forged:
    """A claim that a test makes without the node's own prover."""

    order: WorkOrder
    envelope: dict[str, Json]
    signed: Signed
    work: RecomputedWork


def order_for(
    requester: Actor, holder: Actor, chain_id: str, work: RecomputedWork, layer: int, time_ns: int
) -> tuple[WorkOrder, dict[str, Json]]:
    """Return an order signed by ``requester``, and its envelope."""
    order = WorkOrder(
        chain_id=chain_id,
        requester=requester.key,
        holder=key_from_seed(holder.seed).node_id,
        request_id=secrets.token_hex(16),
        model_hash=MODEL_HASH,
        first_layer=layer,
        input_hash=tensor_hash(work.input_shape, work.inputs),
        time_ns=time_ns,
    )
    return read_order(sign_order(order, key_from_seed(requester.seed)))


def forge(
    prover: Actor,
    order: tuple[WorkOrder, dict[str, Json]],
    work: RecomputedWork,
    last_layer: int = LAYERS - 1,
) -> Forged:
    """Sign a proof by ``prover``, even when the order names another holder."""
    output_hash = tensor_hash(work.output_shape, work.outputs)
    key = key_from_seed(prover.seed)
    signed = sign_proof(order[1], last_layer, output_hash, order[0].time_ns, key)
    return Forged(order[0], order[1], signed, work)


def work_of(node: ProofNode, place: int = -1) -> RecomputedWork:
    """Return the input and output of the node's last call, or of the call at ``place``."""
    call, answer = node.observed[place]
    return RecomputedWork(tuple(call.shape), call.data, tuple(answer.shape), answer.data)


def over_a_chain(test: Callable[[Network], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run a test in a network of its own, in the test's own task."""

    async def run(tmp_path: Path, directory: Path) -> None:
        async with proof_network(tmp_path / "chain", directory) as network:
            await test(network)

    run.__name__ = test.__name__
    return run
