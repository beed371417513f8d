"""Which service each figure of ``/metrics`` comes from (decision 0170)."""

from __future__ import annotations

from meshnode import __version__
from meshnode.assembly.chain import ChainSlot
from meshnode.assembly.network import NetworkHandles
from meshnode.domain.metering import HttpMeter, TrafficMeter
from meshnode.services.executor import Executor
from meshnode.services.health import Health
from meshnode.services.monitoring import ChainFigures, Monitor, Monitored
from meshnode.services.pipeline import Pipeline


def node_monitor(
    *,
    executor: Executor,
    network: NetworkHandles,
    slot: ChainSlot,
    health: Health,
    traffic: TrafficMeter,
    http: HttpMeter,
) -> Monitor:
    """The monitor of a node's services."""
    generations = network.generations

    def chain() -> ChainFigures | None:
        if slot.chain is None:
            return None
        ledger = slot.chain.ledger
        return ChainFigures(ledger.height, ledger.time_ns, slot.chain.wallet.meter)

    return Monitor(
        Monitored(
            version=__version__,
            model=executor.card.name,
            executor=executor,
            driven=lambda: generations.queued if isinstance(generations, Pipeline) else 0,
            hops=network.hops,
            traffic=traffic,
            http=http,
            health=health,
            book=network.book,
            contacts=lambda: len(network.dht.contacts()),
            training=network.training.figures,
            trains=lambda: network.training.enabled,
            chain=chain,
        )
    )
