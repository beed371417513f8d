"""The branch that trains, in rounds or in a pipeline (interface 1 and 4.3)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from meshnode.assembly.dependencies import NetworkDependencies
from meshnode.assembly.shards import TRAINING_FOLDER
from meshnode.assembly.versions import serve_setting
from meshnode.config import Config
from meshnode.domain.errors import InvalidRequest, StartupError, Unavailable
from meshnode.domain.routing import longest_run
from meshnode.domain.training.serving import BETTER, OFF
from meshnode.model.data import TokenData
from meshnode.model.dataset import SEQUENCE_LENGTH, make_dataset
from meshnode.model.files import TOKENIZER_FILE
from meshnode.model.manifest import parts_of
from meshnode.model.trained_model import TrainedModel
from meshnode.services.dht.handle import Dht
from meshnode.services.peers import Kin, PeerBook
from meshnode.services.pipeline.exchange import PipelineLayers
from meshnode.services.pipeline.routes import Routes
from meshnode.services.pipeline.training import TrainingDriver
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.kept_graphs import TrainingLimits
from meshnode.services.shards.training import ShardTrainer
from meshnode.services.training.footprint import TrainingShape
from meshnode.services.training.gossip import GradientGossip
from meshnode.services.training.memory import TrainingMemory
from meshnode.services.training.part import PipelinePart
from meshnode.services.training.trainable import PipelineRounds
from meshnode.services.training.trainer import TrainingService, serve_training
from meshnode.services.work.execution import Execution
from meshnode.supervise import Restarts, Supervisor

CHAIN_TEXT = "chain"
"""For ``training_text``: the chain's data set. A folder of that name is ``./chain``."""
ASK_FOR_TEXT = (
    "training_text is not set: name a folder of text, or chain for the chain's data set, "
    "in the configuration file or as MESHNODE_TRAINING_TEXT"
)
ROW_TOKENS = 129
"""Tokens of a sequence from a folder of text: 128 inputs, each with its target."""


async def start_training(
    nursery: trio.Nursery,
    run: Supervisor,
    needs: NetworkDependencies,
    *,
    book: PeerBook,
    driver: TrainingDriver | None,
    shard_trainer: ShardTrainer,
    exchange: LayerExchange | None,
    memory: TrainingMemory,
) -> TrainingService:
    """Start training. It may fail, for want of disk or memory, without stopping inference."""
    layers = None
    if driver is not None and exchange is not None and needs.config.training.exchange:
        layers = own_rounds(needs, driver=driver, exchange=exchange, book=book)
    part = None if layers else own_part(needs, driver=driver, shard_trainer=shard_trainer)
    training = TrainingService(
        key=needs.key,
        settings=needs.settings,
        gossip=GradientGossip(book, needs.pool, needs.timings.training),
        load=lambda: (TrainedModel(needs.source.directory), training_data(needs)),
        folder=Path(needs.config.data_dir) / TRAINING_FOLDER,
        timings=needs.timings.training,
        part=part,
        freed=memory.freed,
        origin="" if layers else needs.source.manifest.weights_hash,
        layers=layers,
    )
    memory.users.append(lambda: training.loaded)
    memory.stays = lambda: training.anchor_bytes
    serve = partial(serve_training, training)
    await nursery.start(partial(run, restarts=Restarts()), "training", serve)
    return training


async def start_training_memory(
    nursery: trio.Nursery, run: Supervisor, needs: NetworkDependencies
) -> TrainingMemory:
    """Count the memory of training. Raises StartupError if training is on and does not fit."""
    text = needs.config.training_text not in ("", CHAIN_TEXT)
    shape = TrainingShape(
        config=needs.source.config,
        held=needs.source.held,
        sequence=ROW_TOKENS - 1 if text else SEQUENCE_LENGTH,
        graph_bytes=TrainingLimits().graph_bytes,
    )
    memory = TrainingMemory(needs.settings, needs.executor, shape)
    reads = 0 in needs.source.held
    needs.settings.checks.append(partial(require_text, reads=reads))
    try:
        require_text(needs.settings.current, reads=reads)
        memory.check(needs.settings.current)
    except InvalidRequest as error:
        raise StartupError(str(error)) from None
    await nursery.start(partial(run, restarts=Restarts()), "training memory", memory.keep)
    return memory


def require_text(config: Config, *, reads: bool) -> None:
    """Raise InvalidRequest if training is on without a text (decision 0227).

    ``reads`` says whether this node reads the text: it has the first layer.
    """
    if reads and config.training.enabled and not config.training_text:
        raise InvalidRequest("training.enabled", ASK_FOR_TEXT)


def own_driver(
    needs: NetworkDependencies, *, dht: Dht, book: PeerBook, shard_trainer: ShardTrainer
) -> TrainingDriver | None:
    """What drives a pipeline; None unless this node holds the first layers, and not all."""
    held, total = needs.source.held, needs.source.config.num_layers
    if held.start or len(held) == total:
        return None

    def address() -> str:
        own = dht.own_address.best()
        if own is None:
            raise Unavailable("this node does not know its own address yet")
        return (
            f"[{own}]:{needs.config.grpc_port}" if ":" in own else f"{own}:{needs.config.grpc_port}"
        )

    return TrainingDriver(
        training=shard_trainer,
        held=held,
        routes=Routes(Kin(book), held.stop, total),
        pool=needs.pool,
        address=address,
        round_steps=lambda: needs.settings.current.training.diloco_steps,
        exchanges=needs.config.training.exchange,
        commands=serve_setting(needs.config) != OFF,
    )


def own_part(
    needs: NetworkDependencies, *, driver: TrainingDriver | None, shard_trainer: ShardTrainer
) -> PipelinePart | None:
    """This node's part in a pipeline that trains; None if it holds the whole model."""
    if len(needs.source.held) == needs.source.config.num_layers:
        return None
    return PipelinePart(
        settings=needs.settings,
        updates=shard_trainer,
        driver=driver,
        load=partial(training_data, needs),
        seed=int(needs.key.node_id[:8], 16),
        timings=needs.timings.training,
        measures=serve_setting(needs.config) == BETTER,
    )


def own_rounds(
    needs: NetworkDependencies, *, driver: TrainingDriver, exchange: LayerExchange, book: PeerBook
) -> PipelineRounds:
    """The pipeline that this node drives, as a replica in the rounds (decision 0222)."""
    source = needs.source

    def held_by(node_id: str) -> range:
        peer = book.get(node_id)
        return longest_run(peer.layers) if peer is not None else range(0)

    layers = PipelineLayers(
        driver,
        exchange,
        {name: part.shape for name, part in parts_of(source.config).items()},
        names=lambda held: parts_of(source.config, held).keys(),
        held_by=held_by,
        overlapping=lambda: {peer.node_id for n in source.held for peer in book.kin(n)},
    )
    return PipelineRounds(
        layers=layers,
        load=partial(training_data, needs),
        untrained=lambda: source.manifest.tensors,
        parameters=source.config.parameters,
        folder=Path(needs.config.data_dir) / TRAINING_FOLDER,
        timings=needs.timings.training,
        seed=int(needs.key.node_id[:8], 16),
    )


def training_data(needs: NetworkDependencies) -> TokenData:
    """The chain's text, or a folder that the operator named. Raises StartupError."""
    config, model = needs.config, needs.model
    if not config.training_text:
        raise StartupError(f"training: {ASK_FOR_TEXT}")
    if config.training_text == CHAIN_TEXT:
        if needs.slot.chain is None:
            raise StartupError("training: no data without a chain; set training_text to a folder")
        return text_of_chain(needs, needs.slot.chain.execution)
    end = min(model.eos_token_ids, default=None)
    length = min(ROW_TOKENS, model.card.context_length + 1)
    return TokenData.of_folder(Path(config.training_text), model.tokenizer, length, end)


def text_of_chain(needs: NetworkDependencies, execution: Execution) -> TokenData:
    """The chain's data set, or the text that ships, cut by the tokenizer of the served model.

    A data set has the token ids of the chain's tokenizer. Raises ModelUnreadable if the served
    model's tokenizer makes too few tokens of the text.
    """
    revision = needs.source.manifest.files.get(TOKENIZER_FILE, "")
    if execution.tokenizer_revision == revision:
        return execution.training_data()
    end = min(needs.model.eos_token_ids, default=None)
    dataset = make_dataset(needs.model.tokenizer, revision, end)
    return TokenData.of_sequences(dataset.train, dataset.validation)
