"""The ledger and its services: index, wallet, provider, sponsor, gateway (interface 4.2).

Terms: a node without a tracker starts a chain of its own, or goes on with it; one with a tracker
follows the tracker's chain. The chain *comes up* when its ledger has a genesis and a model; a
follower that cannot reach its tracker yet serves everything else in the meantime.

Invariants: other parts get the chain from a :class:`ChainSlot`, which raises Unavailable until it
has come up; a ledger that fails ends the node.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.blocks import ledger_service, require_solo_chain
from meshnode.config import Config
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.genesis import Genesis, parse_genesis
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.chain_settings import COMETBFT
from meshnode.domain.errors import StartupError, Unavailable, public_reason
from meshnode.domain.work import WorkNetwork
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import locate_model
from meshnode.rpc.pool import ChannelPool
from meshnode.services.artifacts import Artifacts
from meshnode.services.engine.history import has_engine
from meshnode.services.gateway.reader import DefaultProvider as ProviderFacts
from meshnode.services.gateway.reader import NativeReader
from meshnode.services.gateway.rpc_calls import RpcCalls
from meshnode.services.index.indexer import Index, serve_indexer
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.clock import NodeClock
from meshnode.services.ledger.genesis import (
    ChainNotReached,
    chain_profile,
    load_given_genesis,
    load_or_create_genesis,
    load_or_fetch_genesis,
    stored_manifest,
)
from meshnode.services.ledger.handle import Ledger
from meshnode.services.ledger.source import TrackerSource
from meshnode.services.ledger.validator_key import ValidatorKey, load_or_create_validator_key
from meshnode.services.signer.signer import Signer, serve_signer
from meshnode.services.wallet.service import Wallet
from meshnode.services.wallet.settlement import serve_wallet
from meshnode.services.work.chain_model import chain_directory, looks_like
from meshnode.services.work.execution import ANOTHER_MODEL, Execution, load_execution
from meshnode.services.work.provider import Provider, serve_provider
from meshnode.services.work.sponsor import Sponsor
from meshnode.services.work.sponsoring import serve_sponsor
from meshnode.supervise import Drain, Restarts, Supervisor

log = logging.getLogger(__name__)

CHAIN_FOLDER = "execution"
"""The folder for adapters and the data set."""
TRY_AGAIN_S = 5.0
PATIENCE_S = 3.0
"""How long the start waits for the node's own chain; a long history takes longer to open."""
LARGE_BYTES = 64 << 20
"""Of weights. Whoever starts a larger model has waited for it, and does not wait for the chain."""
MIRRORED = ("model.safetensors", "tokenizer.json", "config.json")
"""Files of the chain's model that ``/artifacts`` serves."""


class CannotExecute(StartupError):
    """This node does not compute as the chain does, so its state would differ from the others'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHandles:
    """Handles of a chain that has come up."""

    account: str
    """The node's own public key."""
    consensus_key: str
    """The key of the node's validator, with or without power."""
    ledger: Ledger
    execution: Execution
    index: Index
    signer: Signer
    wallet: Wallet
    sponsor: Sponsor
    reader: NativeReader
    calls: RpcCalls
    artifacts: Artifacts


class ChainSlot:
    """Holds the chain's handles, once it has come up."""

    def __init__(self) -> None:
        """Begin without a chain."""
        self.chain: ChainHandles | None = None
        self.trouble = "the chain has not come up yet"
        self.bootstrap_peers: Callable[[], Sequence[str]] = tuple
        """URLs of nodes through which another one can join; known once the peers are served."""

    def require(self) -> ChainHandles:
        """The chain. Raises Unavailable while there is none."""
        if self.chain is None:
            raise Unavailable(self.trouble)
        return self.chain

    @property
    def weight_bytes(self) -> int:
        """Bytes of the second copy of the weights, for the chain's exact arithmetic."""
        return self.chain.execution.weight_bytes if self.chain else 0

    def ledger(self) -> Ledger:
        """The chain's ledger. Raises Unavailable while there is no chain."""
        return self.require().ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainDependencies:
    """What the chain and its services depend on."""

    config: Config
    keys: Keystore
    served: Path
    """The directory of the model that the node serves."""
    pool: ChannelPool
    drain: Drain
    clock: NodeClock
    patience_s: float = PATIENCE_S
    """How long the start waits."""


async def serve_chain(
    slot: ChainSlot,
    run: Supervisor,
    needs: ChainDependencies,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Bring the chain up in ``slot`` and keep it until cancelled.

    The node's own chain has come up when this service has started, unless it takes long; the chain
    of a follower may take longer. Raises StartupError for files that cannot be trusted, and
    ServiceFailed when the ledger has failed.
    """
    start = _OneStart(task_status, needs.patience_s)
    async with trio.open_nursery() as nursery:
        if needs.config.tracker_url:
            start.now()
        nursery.start_soon(start.later)
        found = await _find(slot, needs)
        if found is not None:
            slot.chain = await _bring_up(nursery, run, needs, found, slot)
            ledger = slot.chain.ledger
            log.info("chain %s at block %d", ledger.chain_id, ledger.height)
        start.now()
        await trio.sleep_forever()


class _OneStart:
    """Reports the start once: when asked to, and after ``patience_s`` at the latest."""

    def __init__(self, task_status: trio.TaskStatus[None], patience_s: float) -> None:
        self._task_status = task_status
        self._patience_s = patience_s
        self._done = False

    def now(self) -> None:
        if not self._done:
            self._done = True
            self._task_status.started()

    async def later(self) -> None:
        await trio.sleep(self._patience_s)
        if not self._done:
            log.info("the chain is still coming up; everything else is served meanwhile")
        self.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The chain that was found, and its execution profile."""

    genesis: bytes
    execution: Execution
    directory: Path
    """The directory of the chain's model."""
    validator: ValidatorKey
    source: TrackerSource | None


async def _find(slot: ChainSlot, needs: ChainDependencies) -> _Found | None:
    """The chain to bring up; None if this node can have none. Retries while it is out of reach."""
    tracker_url, node_id = needs.config.tracker_url, needs.keys.node_key.node_id
    source = None
    if tracker_url:
        source = TrackerSource(tracker_url, needs.pool, node_id, needs.config.tls_ca)
    while True:
        try:
            return await _look(needs, source)
        except (ModelUnreadable, CannotExecute) as error:
            if needs.config.chain.model and isinstance(error, ModelUnreadable):
                # The operator chose this model, and only the operator can choose another.
                raise StartupError(f"--chain-model: {error}") from None
            # A chain's arithmetic is exact and slow, so not every model can be a chain's.
            log.warning("no chain with its model: %s; inference is served without a ledger", error)
            slot.trouble = f"no chain with its model: {public_reason(error)}"
            return None
        except ChainNotReached as error:
            if slot.trouble != str(error):
                log.warning("the chain cannot be followed yet: %s", error)
            slot.trouble = str(error)
            if source is not None:
                # The tracker may have answered with something that is not a chain.
                source.try_next()
            await trio.sleep(TRY_AGAIN_S)


async def _look(needs: ChainDependencies, source: TrackerSource | None) -> _Found:
    config, key = needs.config, needs.keys.node_key
    data_dir = Path(config.data_dir)
    validator = await trio.to_thread.run_sync(load_or_create_validator_key, data_dir)
    if source is not None:
        genesis = await load_or_fetch_genesis(data_dir, source, config.genesis_sha256)
        named = parse_genesis(genesis).manifest
        directory = await _directory(needs, named)
        if not await trio.to_thread.run_sync(looks_like, directory, named):
            raise CannotExecute(ANOTHER_MODEL)
        execution = await _execution_of(parse_genesis(genesis), source, data_dir, directory)
    else:
        given, chain = config.chain.genesis, config.chain
        find = partial(chain_profile, data_dir, config.network_profile, given)
        profile = await trio.to_thread.run_sync(find)
        manifest = await trio.to_thread.run_sync(stored_manifest, data_dir, given)
        directory = await _directory(needs, manifest)
        execution = await _execution(data_dir, directory, profile)
        facts = execution.genesis_facts()
        if chain.engine == COMETBFT and (given or has_engine(data_dir)):
            make = partial(load_given_genesis, data_dir, given, facts)
        else:
            require_solo_chain(data_dir, chain.engine)
            make = partial(
                load_or_create_genesis, data_dir, key.public_key, validator, facts, profile
            )
        genesis = await trio.to_thread.run_sync(make)
    mismatch = execution.mismatch(parse_genesis(genesis).manifest)
    if mismatch:
        raise CannotExecute(mismatch)
    return _Found(
        genesis=genesis,
        execution=execution,
        directory=directory,
        validator=validator,
        source=source,
    )


async def _directory(needs: ChainDependencies, manifest: Mapping[str, Json] | None) -> Path:
    """The directory of the chain's model (decision 0155)."""
    name, folder = needs.config.chain.model, Path(needs.config.data_dir) / CHAIN_FOLDER
    chosen = locate_model(name) if name else None
    choose = partial(chain_directory, chosen, needs.served, manifest, folder)
    return await trio.to_thread.run_sync(choose)


async def _bring_up(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: ChainDependencies,
    found: _Found,
    slot: ChainSlot,
) -> ChainHandles:
    config, keys = needs.config, needs.keys
    data_dir, key = Path(config.data_dir), needs.keys.node_key
    execution, validator, source = found.execution, found.validator, found.source
    serve_blocks = ledger_service(
        config, keys, needs.clock, found.genesis, execution, validator, source
    )
    ledger: Ledger = await nursery.start(run, "ledger", serve_blocks)
    # The ledger goes on when these services fail; a restart goes on with the same handles.
    restarting = partial(run, restarts=Restarts())
    index = Index(ledger, data_dir)
    await nursery.start(restarting, "indexer", partial(serve_indexer, index))
    signer: Signer = await nursery.start(
        run, "signer", partial(serve_signer, ledger, keys, data_dir)
    )
    serve = partial(serve_wallet, ledger, index, keys, signer, data_dir, config.settle_every_s)
    wallet: Wallet = await nursery.start(run, "wallet", serve)
    provider = Provider(ledger, execution, signer)
    await nursery.start(restarting, "provider", partial(serve_provider, provider))
    profile, tasks = ledger.genesis.profile, config.sponsor_tasks
    network = WorkNetwork(profile.work_domain, ledger.chain_id)
    sponsor = Sponsor(execution, key if tasks else None, network)
    sponsoring = partial(serve_sponsor, sponsor, ledger, signer, data_dir, tasks=tasks)
    await nursery.start(restarting, "sponsor", sponsoring)
    draining = lambda: needs.drain.draining  # noqa: E731 - asked at each request
    reader = NativeReader(
        ledger=ledger,
        execution=execution,
        index=index,
        node_id=key.node_id,
        bootstrap_peers=lambda: slot.bootstrap_peers(),
        provider=ProviderFacts(key.public_key, lambda: provider.online),
        draining=draining,
    )
    artifacts = await _mirror(nursery, needs, ledger, found)
    return ChainHandles(
        account=key.public_key,
        consensus_key=validator.public_key,
        ledger=ledger,
        execution=execution,
        index=index,
        signer=signer,
        wallet=wallet,
        sponsor=sponsor,
        reader=reader,
        calls=RpcCalls(
            ledger,
            key.node_id,
            validator.public_key,
            draining,
            address=f"{config.host}:{config.port}",
            weights=reader.adapter,
        ),
        artifacts=artifacts,
    )


async def _execution(
    data_dir: Path, directory: Path, profile: NetworkProfile, dataset: bytes | None = None
) -> Execution:
    load = partial(load_execution, directory, data_dir / CHAIN_FOLDER, profile, dataset)
    return await trio.to_thread.run_sync(load)


async def _execution_of(
    genesis: Genesis, source: TrackerSource, data_dir: Path, directory: Path
) -> Execution:
    """The execution of a chain that others started, with its data set."""
    execution = await _execution(data_dir, directory, genesis.profile)
    wanted = genesis.manifest.get("dataset_sha256")
    if execution.dataset_sha256 == wanted:
        return execution
    try:
        dataset = await source.dataset()
    except Unavailable as error:
        raise ChainNotReached(f"no data set of the chain from {source.name}: {error}") from None
    if hashlib.sha256(dataset).hexdigest() != wanted:
        raise ChainNotReached(f"the data set of {source.name} is not the chain's")
    return await _execution(data_dir, directory, genesis.profile, dataset)


async def _mirror(
    nursery: trio.Nursery, needs: ChainDependencies, ledger: Ledger, found: _Found
) -> Artifacts:
    """The artifacts to serve: the chain's documents and model, and the operator's own."""
    artifacts = Artifacts()
    artifacts.add("genesis.json", ledger.genesis_bytes)
    artifacts.add("dataset.json", found.execution.dataset_bytes)
    if needs.config.artifacts_dir:
        await artifacts.take_in_manifest(Path(needs.config.artifacts_dir))
    files = [found.directory / name for name in MIRRORED]
    # In the background, because hashing a large model takes long.
    nursery.start_soon(artifacts.take_in_all, [path for path in files if path.exists()])
    return artifacts
