"""Who makes the blocks of the node's chain: this node, the node that it follows, or CometBFT."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from meshnode.config import Config
from meshnode.domain.chain.genesis import parse_genesis
from meshnode.domain.chain_settings import SOLO, ChainConfig
from meshnode.domain.errors import StartupError
from meshnode.services.engine.history import has_engine
from meshnode.services.engine.home import EngineSettings, StateSync
from meshnode.services.engine.home import node_key as engine_key
from meshnode.services.engine.program import find_program
from meshnode.services.engine.service import EngineSetup, serve_ordered_ledger
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.clock import NodeClock
from meshnode.services.ledger.service import serve_ledger
from meshnode.services.ledger.source import TrackerSource
from meshnode.services.ledger.validator_key import ValidatorKey
from meshnode.services.work.execution import Execution
from meshnode.supervise import Service

ENGINE_PORT_OFFSET = 2000
"""From the HTTP port to the one where the engine listens for others, without a setting."""

MIN_TRUST_S = 3600
"""The shortest time for which a block is trusted, where bonds are exposed for even less. Otherwise
it is two thirds of that time: whoever signed the block can still be punished for another one."""


def require_solo_chain(data_dir: Path, engine: str) -> None:
    """Raise StartupError when the solo engine is to go on with a chain that is under CometBFT."""
    if engine == SOLO and has_engine(data_dir):
        raise StartupError(
            f"the chain in {data_dir} is under CometBFT and stays there: "
            'start with chain.engine = "cometbft" (MESHNODE_CHAIN_ENGINE)'
        )


def state_sync(chain: ChainConfig, genesis: bytes) -> StateSync | None:
    """How a new node's engine begins, if not with all blocks. Raises StartupError."""
    if not chain.state_sync and not chain.trust:
        return None
    if not chain.state_sync or not chain.trust:
        raise StartupError("chain.state_sync and chain.trust are set together, or not at all")
    servers = tuple(dict.fromkeys(url.rstrip("/") for url in chain.state_sync.split(",")))
    if len(servers) < 2:
        raise StartupError("chain.state_sync: name two nodes or more, so that they are compared")
    height, _, found = chain.trust.partition(":")
    exposed_s = parse_genesis(genesis).profile.params.evidence_seconds
    trust_s = max(MIN_TRUST_S, exposed_s * 2 // 3)
    return StateSync(servers, int(height), found, trust_s)


def ledger_service(
    config: Config,
    keys: Keystore,
    clock: NodeClock,
    genesis: bytes,
    execution: Execution,
    validator: ValidatorKey,
    source: TrackerSource | None,
) -> Service:
    """The ledger with what makes its blocks. Raises StartupError without the engine's program."""
    data_dir = Path(config.data_dir)
    if source is not None or config.chain.engine == SOLO:
        serve = partial(serve_ledger, data_dir, genesis, execution)
        return partial(serve, validator, source, clock=clock)
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = config.chain.p2p or f"{host}:{config.port + ENGINE_PORT_OFFSET}"
    setup = EngineSetup(
        program=find_program(),
        validator=validator,
        node_key=engine_key(keys.node_key.seed),
        settings=EngineSettings(
            address, config.chain.peers, state_sync=state_sync(config.chain, genesis)
        ),
        snapshot_every=config.chain.snapshot_every,
        authorities=config.tls_ca,
    )
    serve_ordered = partial(serve_ordered_ledger, data_dir, genesis, execution, setup)
    return partial(serve_ordered, clock_ns=clock.date_ns)
