"""The parts of the gRPC port and of the HTTP port, which serve clients (interface 4.1 to 4.3)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshnode import __version__
from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.events import LiveEvents
from meshnode.assembly.monitoring import node_monitor
from meshnode.assembly.network import NetworkHandles
from meshnode.assembly.peers import peers_check
from meshnode.config import Config
from meshnode.domain.amounts import units
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.proofs import rewards_of
from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import ModelCard
from meshnode.domain.metering import HttpMeter, RewardFigures, TrafficMeter
from meshnode.domain.peers import role_of_claim
from meshnode.domain.ratelimit import RateLimits
from meshnode.domain.sites import listed_names
from meshnode.domain.units import SECOND_NS
from meshnode.edges import (
    http_artifacts,
    http_events,
    http_index,
    http_legacy,
    http_monitoring,
    http_native,
    http_node,
    http_openai,
    http_page,
    http_peers,
    http_proofs,
    http_rpc,
    http_training,
    http_wallet,
    http_work,
)
from meshnode.edges.grpc_chain import ChainServicer
from meshnode.edges.grpc_dht import DhtServicer
from meshnode.edges.grpc_inference import CallerAccess, InferenceServicer
from meshnode.edges.grpc_peers import PeersServicer
from meshnode.edges.grpc_pipeline import PipelineServicer
from meshnode.edges.grpc_proofs import ProofsServicer
from meshnode.edges.grpc_service import node_services
from meshnode.edges.grpc_training import TrainingServicer
from meshnode.edges.grpc_weights import WeightsServicer
from meshnode.edges.http_node import NodeApi, NodeFacts
from meshnode.http.access import Access
from meshnode.http.app import ApiApp, native_app, node_app, openai_app
from meshnode.http.cors import Cors, listed_origins
from meshnode.http.dispatch import Dispatcher
from meshnode.http.native import NativeGate
from meshnode.http.page_files import page_files
from meshnode.http.routes import Route, add_late_routes, add_routes
from meshnode.http.site_guard import SiteGuard
from meshnode.http.websocket import Websocket
from meshnode.logs import recent_records
from meshnode.model.files import PACKAGED
from meshnode.rpc.line_server import line_service
from meshnode.rpc.stubs import Service
from meshnode.services.chat import ChatPrompts
from meshnode.services.events.feed import Audience
from meshnode.services.executor import Executor
from meshnode.services.forwarding import Forwarding
from meshnode.services.health import Health
from meshnode.services.ledger.asking import ChainLedger, ask
from meshnode.services.model_source import ModelSource
from meshnode.services.settings import Settings
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.charging import Charged
from meshnode.services.wallet.serving import Serving
from meshnode.supervise import Drain

if TYPE_CHECKING:
    from meshnode.services.tracing import Tracing

NODE_ROUTES: tuple[Route[Any], ...] = (
    *http_node.ROUTES,
    *http_wallet.ROUTES,
    *http_peers.ROUTES,
    *http_proofs.ROUTES,
    *http_training.ROUTES,
    *http_monitoring.ROUTES,
    *http_events.ROUTES,
    *http_page.ROUTES,
)
NATIVE_ROUTES: tuple[Route[Any], ...] = (
    *http_native.ROUTES,
    *http_rpc.ROUTES,
    *http_work.ROUTES,
    *http_artifacts.ROUTES,
    *http_legacy.ROUTES,
)
OPENAI_ROUTES: tuple[Route[Any], ...] = http_openai.ROUTES
"""The OpenAPI document describes these, the tables above, and the routes of ``http_index``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDependencies:
    """The handles that the edges use."""

    config: Config
    settings: Settings
    facts: NodeFacts
    tokens: TokenStore
    rates: RateLimits
    """What clients of both ports may ask."""
    source: ModelSource
    executor: Executor
    chat: ChatPrompts
    network: NetworkHandles
    slot: ChainSlot
    health: Health
    traffic: TrafficMeter
    drain: Drain
    live: LiveEvents
    tracing: Tracing | None = None
    """Records spans, where that is wanted."""


def grpc_services(needs: EdgeDependencies) -> list[Service]:
    """Everything that the gRPC port serves."""
    network, drain = needs.network, needs.drain
    takes = needs.config.pipeline.forward and not isinstance(network.generations, Forwarding)
    access = CallerAccess(
        source=network.generations,
        driving=network.generations if takes else None,
        by_peer=peers_check(needs.facts.node_id, network.book).by_peer,
        serving=_serving(needs),
        authenticate=needs.tokens.authenticate,
        limits=needs.rates,
        currency=needs.facts.currency,
        free_to=needs.config.free_inference,
    )
    parts = [
        InferenceServicer(access=access, drain=drain, hops=network.hops),
        DhtServicer(network.dht),
        PeersServicer(book=network.book, drain=drain, training=network.training.status),
        PipelineServicer(
            holder=network.holder,
            relay=network.relay,
            training=network.shard_training,
            exchange=network.exchange,
            held=tuple(needs.source.held),
            short_cuts=network.hops.short_cuts,
        ),
        WeightsServicer(network.weights, network.checkpoints),
        TrainingServicer(training=network.training, checkpoints=network.checkpoints),
        ProofsServicer(network.proofs),
        ChainServicer(needs.slot.ledger),
    ]
    services = node_services(parts, drain)
    if needs.tracing is not None:
        from meshnode.services.tracing import trace_calls

        trace_calls(services, needs.tracing)
    # Last, since it takes the operations as they are now.
    return [*services, line_service(services[:1], needs.traffic)]


def http_app(needs: EdgeDependencies) -> Dispatcher:
    """Everything that the HTTP port serves."""
    access = Access(needs.tokens.authenticate, needs.rates, _guard(needs.config))
    meter = HttpMeter()
    events = http_events.EventsApi(
        feed=needs.live.feed, access=access, names=listed_names(needs.config.host_names)
    )
    return Dispatcher(
        node=_node_app(needs, meter, access, events),
        native=_native_app(needs, meter),
        openai=_openai_app(needs, meter, access),
        websocket=Websocket(events.open, access.count_address, needs.config.log_requests),
    )


def _node_app(
    needs: EdgeDependencies, meter: HttpMeter, access: Access, events: http_events.EventsApi
) -> ApiApp:
    """The node API."""
    config, network, slot = needs.config, needs.network, needs.slot
    cors = Cors(listed_origins(config.cors_origins))
    bytes_limit, logs = config.limits.max_body_bytes, config.log_requests
    app = node_app(access, bytes_limit, log_requests=logs, cors=cors)
    app.meter, app.tracer = meter, needs.tracing

    async def rewards() -> RewardFigures:
        return await earned_rewards(slot)

    node = NodeApi(
        facts=needs.facts,
        settings=needs.settings,
        executor=needs.executor,
        health=needs.health,
        traffic=needs.traffic,
        drain=needs.drain,
        serving=_serving(needs),
        hops=network.hops,
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
    add_routes(
        app,
        http_training.TrainingApi(network.training, network.versions, needs.traffic),
        http_training.ROUTES,
        access,
    )
    _add_money_routes(app, access, needs)
    monitor = node_monitor(
        executor=needs.executor,
        network=network,
        slot=slot,
        health=needs.health,
        traffic=needs.traffic,
        http=meter,
    )
    monitoring = http_monitoring.MonitoringApi(monitor, access, config.public_metrics)
    add_routes(app, monitoring, http_monitoring.ROUTES, access)
    add_routes(app, events, http_events.ROUTES, access)
    page = http_page.PageApi(page_files(), recent_records)
    add_routes(app, page, http_page.ROUTES, access)
    index = http_index.IndexApi.of(needs.facts.version, NODE_ROUTES, NATIVE_ROUTES, OPENAI_ROUTES)
    add_routes(app, index, http_index.ROUTES, access)
    return app


def _openai_app(needs: EdgeDependencies, meter: HttpMeter, access: Access) -> ApiApp:
    """OpenAI's interface."""
    config, card = needs.config, needs.executor.card
    cors = Cors(listed_origins(config.cors_origins))
    bytes_limit, logs = config.limits.max_body_bytes, config.log_requests
    app = openai_app(access, bytes_limit, log_requests=logs, cors=cors)
    app.meter, app.tracer = meter, needs.tracing
    api = http_openai.OpenaiApi(
        name=served_name(config, card),
        context_length=card.context_length,
        versions=needs.executor.versions,
        serving=_serving(needs),
        chat=needs.chat,
        drain=needs.drain,
        started_at=int(time.time()),
    )
    add_routes(app, api, http_openai.ROUTES, access)
    return app


def served_name(config: Config, card: ModelCard) -> str:
    """The model's name for clients: a packaged one's is that under which it was asked for."""
    return config.model if config.model in PACKAGED else card.name


def _guard(config: Config) -> SiteGuard:
    """What browsers may send for other sites' pages."""
    origins = listed_origins(config.cors_origins)
    return SiteGuard(config.host, listed_names(config.host_names), origins)


def _serving(needs: EdgeDependencies) -> Serving:
    """Opens generations that the accounts of bearer tokens pay for."""
    generations, price = needs.network.generations, needs.config.price_per_token_atoms

    def told(token_id: str, atoms: int, generation_id: str) -> None:
        data = {"token_id": token_id, "atoms": str(atoms), "generation": generation_id}
        needs.live.feed.publish("charge", data, Audience.ACCOUNT, token_id)

    def charged() -> Charged:
        return Charged(generations, needs.slot.require().wallet, price, told)

    return Serving(generations, charged)


def _add_money_routes(app: ApiApp, access: Access, needs: EdgeDependencies) -> None:
    """The wallet and the proofs, once there is a chain."""
    slot = needs.slot

    def wallet() -> http_wallet.WalletApi:
        chain = slot.require()
        return http_wallet.WalletApi(
            wallet=chain.wallet, drain=needs.drain, account=chain.account, claimed_role=claimed_role
        )

    def claimed_role(layer: int, *, own: bool) -> str:
        held, total = needs.source.held, needs.source.config.num_layers
        return role_of_claim(layer, held if own else range(0), total)

    def proofs() -> http_proofs.ProofsApi:
        chain = slot.require()
        return http_proofs.ProofsApi(account=chain.account, index=chain.index)

    add_late_routes(app, wallet, http_wallet.ROUTES, access)
    add_late_routes(app, proofs, http_proofs.ROUTES, access)


def _native_app(needs: EdgeDependencies, meter: HttpMeter) -> ApiApp:
    """The public native API, and the routes that are kept from its older editions."""
    slot, limits = needs.slot, needs.config.limits
    reference = Path(needs.config.reference_dir) if needs.config.reference_dir else None
    gate = NativeGate(limits.native_requests_per_minute)
    guard = SiteGuard(needs.config.host, listed_names(needs.config.host_names))
    app = native_app(gate, limits.max_body_bytes, log_requests=needs.config.log_requests)
    app.meter = meter

    def native() -> http_native.NativeApi:
        return http_native.NativeApi(slot.require().reader)

    def rpc() -> http_rpc.RpcApi:
        return http_rpc.RpcApi(slot.require().calls, gate, guard)

    def work() -> http_work.WorkApi:
        return http_work.WorkApi(slot.require().sponsor)

    def artifacts() -> http_artifacts.ArtifactsApi:
        return http_artifacts.ArtifactsApi(slot.require().artifacts)

    def legacy() -> http_legacy.LegacyApi:
        # The page about joining is served whether or not there is a chain yet.
        ledger = slot.chain.ledger if slot.chain else None
        chain_id, sha256 = (ledger.chain_id, ledger.genesis_sha256) if ledger else ("", "")
        return http_legacy.LegacyApi(chain_id, sha256, __version__, reference)

    add_late_routes(app, native, http_native.ROUTES)
    add_late_routes(app, rpc, http_rpc.ROUTES)
    add_late_routes(app, work, http_work.ROUTES)
    add_late_routes(app, artifacts, http_artifacts.ROUTES)
    add_late_routes(app, legacy, http_legacy.ROUTES)
    return app


async def earned_rewards(slot: ChainSlot) -> RewardFigures:
    """What the node's own account has earned on the chain, in whole units; zero while unknown.

    ``pending`` is what its open claims would pay if all were verified now.
    """
    if slot.chain is None:
        return RewardFigures()
    key, index = slot.chain.account, slot.chain.index
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        today = await index.earned(key, int(midnight.timestamp()) * SECOND_NS)
        total = await index.earned(key, 0)
        pending = await pending_rewards(slot.chain.ledger, key)
    except (Unavailable, Rejected):
        # If only the index fails (decision 0078), all other figures are still answered.
        return RewardFigures()
    return RewardFigures(
        earned_today=units(today), earned_total=units(total), pending=units(pending)
    )


async def pending_rewards(ledger: ChainLedger, account: str) -> int:
    """Atoms that the open claims of ``account`` would pay if they were verified now."""
    proofs = await ask(ledger, "/proofs")
    claims = sum(entry["owner"] == account for entry in proofs["open"])
    if not claims:
        return 0
    stake = await ask(ledger, "/stake", {"public_key": account})
    return rewards_of(claims, stake["amount"], proofs["paid"], ledger.genesis.profile)
