"""Nodes that prove and validate, on real ports, over one real solo chain."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio
from support_chain import ALICE, BOB, CAROL, PROFILE, UNIT, Actor, actor, genesis
from support_ledger import KEY, SOON_S, account, running_ledger
from support_shards import HOLDER_LIMITS, LIMITS, TRAINING_LIMITS, at, states, until_free

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.genesis import GenesisValidator, genesis_document
from meshnode.domain.chain.profile import Proving
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.metering import TrafficMeter
from meshnode.domain.proofs.statements import (
    Order,
    Signed,
    read_order,
    sign_order,
    sign_proof,
    tensor_hash,
)
from meshnode.edges.grpc_pipeline import PipelineService
from meshnode.edges.grpc_proofs import ProofsService
from meshnode.edges.grpc_service import node_services
from meshnode.model.loading import load_model
from meshnode.rpc.pool import ChannelPool, serve_pool
from meshnode.rpc.server import serve_grpc
from meshnode.services.executor import Executor, serve_executor
from meshnode.services.ledger import Ledger
from meshnode.services.proofs.gossip import statement
from meshnode.services.proofs.orders import OrderingPool
from meshnode.services.proofs.prover import ProofPolicy
from meshnode.services.proofs.recompute import Recomputation, Work
from meshnode.services.proofs.service import Proofs, serve_proofs
from meshnode.services.shards.chain import Chain
from meshnode.services.shards.holder import Holder, serve_holder
from meshnode.services.shards.messages import ForwardAnswer, ForwardCall
from meshnode.services.shards.training import Training, serve_training
from meshnode.services.work.submission import Submitter, ask
from meshnode.supervise import Drain
from meshnode.wire import node_pb2 as pb

MALLORY = actor("mallory")
NEVER = ProofPolicy(enabled=False)
"""For those who make their claims themselves."""
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


@dataclass(frozen=True)
class At:
    """A peer."""

    node_id: str
    host: str
    grpc_port: int


@dataclass
class Book:
    """Stands in for the peer book: everybody knows everybody."""

    nodes: dict[str, At] = field(default_factory=dict)

    def peers(self) -> list[At]:
        return list(self.nodes.values())

    def get(self, node_id: str) -> At | None:
        return self.nodes.get(node_id)

    def knows(self, host: str, grpc_port: int) -> bool:
        return any((at.host, at.grpc_port) == (host, grpc_port) for at in self.nodes.values())


@dataclass
class ProofNode:
    """A node, as far as work and proofs go."""

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
    """A chain and nodes."""

    ledger: Ledger
    directory: Path
    book: Book = field(default_factory=Book)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def node(self, who: Actor, layers: Sequence[int], **options: Any) -> ProofNode:
        return await self.stack.enter_async_context(proof_node(self, who, layers, **options))

    async def counts(self) -> dict[str, Any]:
        return dict(json.loads((await self.ledger.query("/proofs")).value))

    async def totals(self) -> tuple[int, int, int]:
        """Open, verified, paid."""
        value = await self.counts()
        return len(value["open"]), value["verified"], value["paid"]

    async def until(self, open_proofs: int, verified: int, submitted: int = 1) -> None:
        """Wait until so many are open, so many were verified, and at least so many submitted."""
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
        return str(await Submitter(self.ledger, key_from_seed(who.seed)).send(kind, fields))

    async def balance(self, who: Actor) -> int:
        return int((await account(self.ledger, who))["balance"])


@asynccontextmanager
async def proof_network(folder: Path, directory: Path) -> AsyncIterator[Network]:
    """A solo chain; nodes are added by the test."""
    async with running_ledger(folder, document=START) as ledger:
        await ledger.wait_beyond(1)
        async with AsyncExitStack() as stack:
            yield Network(ledger, directory, stack=stack)


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
    """A node of a network. ``distort`` is what a liar makes of its answers before it proves.

    ``book`` is who it knows, everybody by default.
    """
    key, ledger = key_from_seed(who.seed), network.ledger
    directory = directory or network.directory
    model = load_model(directory, layers, threads=1)
    drain, observed = Drain(), list[tuple[ForwardCall, ForwardAnswer]]()
    async with trio.open_nursery() as nursery:
        executor: Executor = await nursery.start(serve_executor, model, LIMITS)
        pool: ChannelPool = await nursery.start(serve_pool, TrafficMeter())
        proofs = Proofs(
            key=key,
            model_hash=MODEL_HASH,
            num_layers=LAYERS,
            find_ledger=lambda: ledger,
            consensus_key=lambda: CONSENSUS.get(who, who.consensus_key) if validates else "",
            book=network.book if book is None else book,
            pool=pool,
            recomputation=recomputation or Recomputation(executor, directory),
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
        training: Training = await nursery.start(
            partial(
                serve_training,
                executor,
                partial(load_model, directory, model.card.layers, trainable=True),
                TRAINING_LIMITS,
                enabled=lambda: False,
                pool=pool,
                peers=network.book,
            )
        )
        ordering = OrderingPool(
            pool,
            key=key,
            model_hash=MODEL_HASH,
            chain_id=lambda: ledger.chain_id,
            peers=network.book.peers,
        )
        chain = Chain(
            node_id=key.node_id,
            holder=holder,
            held=model.card.layers,
            num_layers=LAYERS,
            pool=ordering,
            peers=network.book,
        )
        parts = [
            PipelineService(holder=holder, chain=chain, training=training, held=model.card.layers),
            ProofsService(proofs),
        ]
        serve = partial(serve_grpc, node_services(parts, drain), "127.0.0.1", 0)
        _, port = await nursery.start(partial(serve, traffic=TrafficMeter()))
        network.book.nodes[key.node_id] = At(key.node_id, "127.0.0.1", port)
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
    """Hidden states ``[1, positions, WIDTH]``."""
    random = np.random.default_rng(seed)
    return random.standard_normal((1, positions, WIDTH), dtype=np.float32)


async def ask_for_work(
    requester: ProofNode, holder: ProofNode, seed: int = 0
) -> pb.PipelineForwardResponse:
    """Have a holder run its layers on the beginning of a session, as a driver does."""
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
    """A claim that some code of a cheat's own makes."""

    order: Order
    envelope: dict[str, Json]
    signed: Signed
    work: Work


def order_for(
    requester: Actor, holder: Actor, chain_id: str, work: Work, layer: int, time_ns: int
) -> tuple[Order, dict[str, Json]]:
    """An order as a requester signs it."""
    order = Order(
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
    prover: Actor, order: tuple[Order, dict[str, Json]], work: Work, last_layer: int = LAYERS - 1
) -> Forged:
    """A proof by ``prover``, whoever the order is for."""
    output_hash = tensor_hash(work.output_shape, work.outputs)
    key = key_from_seed(prover.seed)
    signed = sign_proof(order[1], last_layer, output_hash, order[0].time_ns, key)
    return Forged(order[0], order[1], signed, work)


def work_of(node: ProofNode, place: int = -1) -> Work:
    """What a node was sent and has answered."""
    call, answer = node.observed[place]
    return Work(tuple(call.shape), call.data, tuple(answer.shape), answer.data)


def over_a_chain(test: Callable[[Network], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run a test in a network of its own; all of it in the test's own task."""

    async def run(tmp_path: Path, directory: Path) -> None:
        async with proof_network(tmp_path / "chain", directory) as network:
            await test(network)

    run.__name__ = test.__name__
    return run
