"""What faces clients: the parts of the gRPC port and of the HTTP port (document, 4.1 to 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from meshnode import __version__
from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.network import Network
from meshnode.config import Config
from meshnode.domain.amounts import units
from meshnode.domain.errors import Unavailable
from meshnode.domain.metering import RewardFigures, TrafficMeter
from meshnode.edges import (
    http_artifacts,
    http_legacy,
    http_native,
    http_node,
    http_peers,
    http_proofs,
    http_rpc,
    http_training,
    http_wallet,
    http_work,
)
from meshnode.edges.grpc_chain import ChainService
from meshnode.edges.grpc_dht import DhtService
from meshnode.edges.grpc_inference import InferenceService
from meshnode.edges.grpc_peers import PeersService
from meshnode.edges.grpc_pipeline import PipelineService
from meshnode.edges.grpc_proofs import ProofsService
from meshnode.edges.grpc_service import node_services
from meshnode.edges.grpc_training import TrainingService
from meshnode.edges.grpc_weights import WeightsService
from meshnode.edges.http_node import NodeApi, NodeFacts, node_access
from meshnode.http.access import Access
from meshnode.http.app import QuartTrio, make_app
from meshnode.http.native import NativeGate
from meshnode.http.routes import add_late_routes, add_routes
from meshnode.rpc.stubs import Service
from meshnode.services.executor import Executor
from meshnode.services.health import Health
from meshnode.services.model_source import ModelSource
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.charging import Charged
from meshnode.services.wallet.serving import Serving
from meshnode.supervise import Drain


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeNeeds:
    """Whom the edges ask."""

    config: Config
    settings: Settings
    facts: NodeFacts
    tokens: TokenStore
    source: ModelSource
    executor: Executor
    network: Network
    slot: ChainSlot
    health: Health
    traffic: TrafficMeter
    drain: Drain


def grpc_services(needs: EdgeNeeds) -> list[Service]:
    """Everything that the gRPC port serves."""
    network, drain = needs.network, needs.drain
    parts = [
        InferenceService(executor=needs.executor, drain=drain, pipeline=network.pipeline),
        DhtService(network.dht),
        PeersService(book=network.book, drain=drain, training=network.training.status),
        PipelineService(
            holder=network.holder,
            chain=network.chain,
            training=network.shard_training,
            held=tuple(needs.source.held),
        ),
        WeightsService(network.weights),
        TrainingService(training=network.training, checkpoints=network.checkpoints),
        ProofsService(network.proofs),
        ChainService(needs.slot.ledger),
    ]
    return node_services(parts, drain)


def http_app(needs: EdgeNeeds) -> QuartTrio:
    """Everything that the HTTP port serves."""
    config, network, slot = needs.config, needs.network, needs.slot
    access = node_access(needs.tokens, config.limits)
    gate = NativeGate(config.limits.native_requests_per_minute)
    app = make_app(access=access, max_body_bytes=config.limits.max_body_bytes, native=gate)

    def charged() -> Charged:
        return Charged(network.pipeline, slot.require().wallet, config.price_per_token_atoms)

    async def rewards() -> RewardFigures:
        return await earned_rewards(slot)

    node = NodeApi(
        facts=needs.facts,
        settings=needs.settings,
        executor=needs.executor,
        health=needs.health,
        traffic=needs.traffic,
        drain=needs.drain,
        serving=Serving(network.pipeline, charged),
        peer_count=lambda: len(network.book),
        training=network.training.figures,
        rewards=rewards,
    )
    add_routes(app, node, http_node.ROUTES, access)
    peers = http_peers.PeersApi(
        book=network.book,
        parameters=needs.executor.card.parameters,
        training=network.training.figures,
    )
    add_routes(app, peers, http_peers.ROUTES, access)
    add_routes(app, http_training.TrainingApi(network.training), http_training.ROUTES, access)
    _add_chain_routes(app, access, needs, gate)
    return app


def _add_chain_routes(app: QuartTrio, access: Access, needs: EdgeNeeds, gate: NativeGate) -> None:
    """The wallet, and the public native API."""
    slot = needs.slot
    reference = Path(needs.config.reference_dir) if needs.config.reference_dir else None

    def wallet() -> http_wallet.WalletApi:
        return http_wallet.WalletApi(wallet=slot.require().wallet, drain=needs.drain)

    def proofs() -> http_proofs.ProofsApi:
        chain = slot.require()
        return http_proofs.ProofsApi(account=chain.account, index=chain.index)

    def native() -> http_native.NativeApi:
        return http_native.NativeApi(slot.require().reader)

    def rpc() -> http_rpc.RpcApi:
        return http_rpc.RpcApi(slot.require().calls, gate)

    def work() -> http_work.WorkApi:
        return http_work.WorkApi(slot.require().sponsor)

    def artifacts() -> http_artifacts.ArtifactsApi:
        return http_artifacts.ArtifactsApi(slot.require().artifacts)

    def legacy() -> http_legacy.LegacyApi:
        # The way in is shown whether or not there is a chain yet.
        ledger = slot.chain.ledger if slot.chain else None
        chain_id, sha256 = (ledger.chain_id, ledger.genesis_sha256) if ledger else ("", "")
        return http_legacy.LegacyApi(chain_id, sha256, __version__, reference)

    add_late_routes(app, wallet, http_wallet.ROUTES, access)
    add_late_routes(app, proofs, http_proofs.ROUTES, access)
    add_late_routes(app, native, http_native.ROUTES, access)
    add_late_routes(app, rpc, http_rpc.ROUTES, access)
    add_late_routes(app, work, http_work.ROUTES, access)
    add_late_routes(app, artifacts, http_artifacts.ROUTES, access)
    add_late_routes(app, legacy, http_legacy.ROUTES, access)


async def earned_rewards(slot: ChainSlot) -> RewardFigures:
    """What the node's own account has earned on the chain, in whole units; zero while unknown."""
    if slot.chain is None:
        return RewardFigures()
    key, index = slot.chain.account, slot.chain.index
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        today = await index.earned(key, int(midnight.timestamp()) * 10**9)
        total = await index.earned(key, 0)
    except Unavailable:
        # The index may fail by itself (decisions/0078): all other figures are there all the same.
        return RewardFigures()
    return RewardFigures(earned_today=units(today), earned_total=units(total), pending=0.0)
