"""Weights between nodes: serving them, and fetching a model from peers (interface 4.3).

Terms: a *unit* is what one ``GetWeights`` asks for (``model.transfer``); a *source* is a node that
holds layers of the model. The tracker decides which model is fetched, unless the operator names the
model hash; every tensor and file is checked against that hash before it is used (decisions 0047,
0139).

Invariants: a tensor file in the folder is complete and was checked, so an interrupted fetch goes on
where it stopped; files are checked again at each start, since disks fail and people edit files; at
most ``MAX_READERS`` answers are built at a time.
"""

from __future__ import annotations

import logging
import math
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import safetensors.torch
import torch
import trio
from torch import Tensor

from meshnode.datadir import write_private
from meshnode.domain.errors import RateLimited, StartupError
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.node_id import NodeId
from meshnode.domain.kademlia.policy import ANYWHERE
from meshnode.domain.kademlia.refusals import DhtRefusal, NotAnAddress
from meshnode.model.config import DecoderConfig
from meshnode.model.documents import ModelUnreadable
from meshnode.model.files import CONFIG_FILE
from meshnode.model.manifest import FILES, MANIFEST_FILE, Manifest, parts_of, read_manifest
from meshnode.model.transfer import (
    MANIFEST,
    MAX_BYTES,
    WeightFiles,
    embedding_names,
    head_names,
    read_tensors,
)
from meshnode.model.weights import INDEX_FILE
from meshnode.rpc.errors import CallFailed, Code
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.wire import json
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MAX_READERS = 2
"""The most answers built at a time. Each holds a unit in memory and keeps the disk busy."""
MAX_WAITING = 8
CALL_S = 60.0
"""Deadline for one unit: 64 MiB in this time is 9 Mbit/s."""
ASK_S = 5.0
GIVE_UP_S = 120.0
"""The fetch ends after this long without a new tensor, or without an offer before the first. The
next start goes on where it stopped."""
MAX_PAUSE_S = 5.0
MAX_SOURCES = 64

Connect = Callable[[str, int], Awaitable[NodeServiceStub]]
"""A connected stub for a host and a gRPC port; raises CallFailed."""
Trackers = Sequence[tuple[str, int]]
"""Hosts and gRPC ports."""


_LAYER = re.compile(r"model\.layers\.(\d+)\.")


class WeightServer:
    """Serves this node's weights to other nodes."""

    def __init__(self, files: WeightFiles, model_hash: str) -> None:
        self.model_hash = model_hash
        self._files = files
        self._readers = trio.CapacityLimiter(MAX_READERS)

    async def read(self, unit: str) -> bytes:
        """A unit's bytes. Raises InvalidRequest, LayerNotHeld or RateLimited."""
        if self._readers.statistics().tasks_waiting >= MAX_WAITING:
            raise RateLimited(1, "too many nodes are fetching weights")
        return await trio.to_thread.run_sync(
            self._files.read, unit, limiter=self._readers, abandon_on_cancel=True
        )


@dataclass(frozen=True, slots=True)
class WeightSource:
    """A node that may have weights. ``contact`` is None for a tracker, which the operator named."""

    host: str
    grpc_port: int
    layers: frozenset[int]
    contact: Contact | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What a tracker reports: the model, and which nodes hold which layers of it."""

    manifest: Manifest
    config: DecoderConfig
    sources: tuple[WeightSource, ...]

    def coverage(self) -> list[int]:
        """The number of holders of each layer."""
        layers = range(self.config.num_layers)
        return [sum(layer in source.layers for source in self.sources) for layer in layers]


async def ask_coverage(connect: Connect, trackers: Trackers, num_layers: int) -> list[int]:
    """How many nodes hold each layer, by the first tracker that answers; zeros if none does."""
    for host, port in trackers:
        try:
            with trio.fail_after(ASK_S):
                stub = await connect(host, port)
                status = await stub.GetSwarmStatus(pb.SwarmStatusRequest())
        except (CallFailed, trio.TooSlowError) as error:
            log.warning("tracker %s:%d does not say who holds what: %s", host, port, error)
            continue
        held = [set(status.layers), *(set(peer.layers) for peer in status.peers)]
        return [sum(layer in layers for layers in held) for layer in range(num_layers)]
    return [0] * num_layers


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """The address of a peer, as a tracker reports it."""

    node_id: bytes
    ip: str
    port: int


def reported_info(peer: pb.SwarmPeer) -> ReportedNode:
    """The node that a ``SwarmPeer`` names. Raises a DhtRefusal when it names none."""
    host, _, port = peer.address.rpartition(":")
    try:
        return ReportedNode(bytes.fromhex(peer.node_id), host.strip("[]"), int(port))
    except ValueError:
        raise NotAnAddress from None


class Fetcher:
    """Fetches a model of the network into a folder."""

    def __init__(self, connect: Connect, own_id: NodeId, own_port: int, folder: Path) -> None:
        """``own_port`` is the HTTP port; each model gets a folder of its own under ``folder``."""
        self._connect = connect
        self._own_id = own_id
        self._ping = pb.DHTPingRequest(sender=pb.DHTNodeInfo(node_id=own_id, port=own_port))
        self._folder = folder

    def home(self, model_hash: str) -> Path:
        """The folder of a model."""
        return self._folder / model_hash

    async def offer(self, trackers: Trackers, pinned: str = "") -> Offer:
        """Ask for the network's model at the first tracker that answers, and store its manifest.

        ``pinned`` is the only model hash to accept, if not empty. Raises StartupError when no
        tracker answers in time, or when one serves another model.
        """
        reason = "no tracker is given"
        attempt = 0
        with trio.move_on_after(GIVE_UP_S):
            while trackers:
                for host, port in trackers:
                    try:
                        with trio.fail_after(CALL_S):
                            return await self._offer_of(host, port, pinned)
                    except (CallFailed, trio.TooSlowError, ModelUnreadable) as error:
                        reason = f"{host}:{port}: {str(error) or 'no answer'}"
                        log.warning("no model from %s", reason)
                attempt += 1
                await trio.sleep(_pause(attempt))
        raise StartupError(f"cannot learn of the network's model ({reason})")

    async def _offer_of(self, host: str, port: int, pinned: str) -> Offer:
        stub = await self._connect(host, port)
        manifest = read_manifest(await _unit(stub, MANIFEST))
        require_pinned(manifest, pinned, f"{host}:{port}")
        home = self._prepare(manifest)
        for name in FILES:
            if name in manifest.files:
                data = await _unit(stub, name)
                manifest.check_file(name, data)
                write_private(home / name, data)
            else:
                (home / name).unlink(missing_ok=True)
        config = DecoderConfig.read(home / CONFIG_FILE)
        _check_shapes(config, manifest)
        write_private(home / MANIFEST_FILE, json.dumps(manifest.document()))
        status = await stub.GetSwarmStatus(pb.SwarmStatusRequest())
        try:
            reporter = (await trio.socket.getaddrinfo(host, port))[0][4][0]
        except OSError as error:
            # The name was resolved a moment ago, so a retry is likely to succeed.
            raise CallFailed(Code.UNAVAILABLE, f"its name is not known: {error}") from None
        named = WeightSource(host, port, frozenset(status.layers))
        return Offer(manifest, config, (named, *self._reported_sources(status, str(reporter))))

    def _prepare(self, manifest: Manifest) -> Path:
        """The folder of a model. The weights that an earlier version fetched are taken over."""
        home, earlier = self.home(manifest.model_hash), self.home(manifest.weights_hash)
        if earlier.is_dir() and not home.exists():
            earlier.rename(home)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home

    def _reported_sources(
        self, status: pb.SwarmStatusResponse, reporter: str
    ) -> Iterator[WeightSource]:
        """The peers that a tracker reports, without those whose addresses are not admitted."""
        for peer in status.peers[:MAX_SOURCES]:
            try:
                contact = ANYWHERE.admit(reported_info(peer), self._own_id, reporter)
            except DhtRefusal as refusal:
                log.info("not asking a peer that %s reported: %s", reporter, refusal)
                continue
            yield WeightSource(contact.ip, contact.grpc_port, frozenset(peer.layers), contact)

    async def layers(
        self,
        offer: Offer,
        held: range,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        keep: bool = False,
    ) -> None:
        """Fetch every tensor of the layers ``held``, from any source that has it.

        ``progress`` gets the number of tensors that are here, and of all. With ``keep``, layers
        that were fetched before stay usable. Raises StartupError after GIVE_UP_S without a new
        tensor.
        """
        home = self.home(offer.manifest.model_hash)
        wanted = list(parts_of(offer.config, held))
        missing = deque(
            await trio.to_thread.run_sync(missing_tensors, home, offer.manifest, wanted)
        )
        deadline, attempt = trio.current_time() + GIVE_UP_S, 0
        while missing:
            progress(len(wanted) - len(missing), len(wanted))
            name = missing[0]
            tensor = await self._from_any(offer, name)
            if tensor is not None:
                await trio.to_thread.run_sync(partial(_keep, home, name, tensor))
                missing.popleft()
                deadline, attempt = trio.current_time() + GIVE_UP_S, 0
                continue
            if trio.current_time() > deadline:
                raise StartupError(f"no node of the network gives {name}; start again to go on")
            missing.rotate(-1)
            attempt += 1
            await trio.sleep(_pause(attempt))
        progress(len(wanted), len(wanted))
        names = parts_of(offer.config) if keep else wanted
        files = {name: _file(home, name) for name in names}
        # A tensor's file is complete if it is there.
        weight_map = {name: file.name for name, file in files.items() if file.exists()}
        write_private(home / INDEX_FILE, json.dumps({"weight_map": weight_map}))

    async def _from_any(self, offer: Offer, name: str) -> Tensor | None:
        """The tensor, checked, from the first source that has it."""
        holders = _layers_of(offer.config, name)
        sources = [source for source in offer.sources if holders & source.layers]
        # In random order, so that joining nodes do not all load the same source.
        for source in random.sample(sources, len(sources)):
            try:
                tensor = await self._from(source, offer, name)
                await trio.to_thread.run_sync(offer.manifest.check, name, tensor)
            except (CallFailed, trio.TooSlowError, ModelUnreadable) as error:
                log.warning("no %s from %s:%d: %s", name, source.host, source.grpc_port, error)
            else:
                return tensor
        return None

    async def _from(self, source: WeightSource, offer: Offer, name: str) -> Tensor:
        """Ask for a tensor, in several groups of rows if it is too large for one message."""
        shape = offer.manifest.tensors[name].shape
        rows = max(1, MAX_BYTES // (4 * math.prod(shape[1:])))
        pieces = []
        for first in range(0, shape[0], rows):
            stop = min(first + rows, shape[0])
            unit = name if stop - first == shape[0] else f"{name}[{first}:{stop}]"
            with trio.fail_after(CALL_S):
                data = await _unit(await self._reach(source), unit)
            tensors = read_tensors(data)
            if tensors.keys() != {name} or tuple(tensors[name].shape) != (stop - first, *shape[1:]):
                raise ModelUnreadable(f"a peer answered something else than {unit}")
            pieces.append(tensors[name])
        return torch.cat(pieces)

    async def _reach(self, source: WeightSource) -> NodeServiceStub:
        """A stub. A node that a tracker reported must prove its id before anything is fetched."""
        stub = await self._connect(source.host, source.grpc_port)
        if source.contact is not None:
            pong = await stub.DHTPing(self._ping)
            if pong.responder.node_id != source.contact.node_id:
                raise CallFailed(Code.UNAVAILABLE, "another node answers there")
        return stub


def require_pinned(manifest: Manifest, pinned: str, where: str) -> None:
    """Raise StartupError unless the model is the pinned one. Empty if any is accepted."""
    if pinned in ("", manifest.model_hash):
        return
    if pinned == manifest.weights_hash:
        # Earlier versions hashed the weights alone, so any tokenizer passed (decision 0139).
        raise StartupError(
            f"model_hash {pinned} stands for the weights alone; with the tokenizer and "
            f"configuration of {where} the model is {manifest.model_hash}: compare that with a "
            "node that you trust, then set it"
        )
    raise StartupError(f"{where} has another model than {pinned}: {manifest.model_hash}")


async def _unit(stub: NodeServiceStub, unit: str) -> bytes:
    answer = await stub.GetWeights(pb.WeightRequest(shard_range=unit))
    data: bytes = answer.weights_data
    return data


def _check_shapes(config: DecoderConfig, manifest: Manifest) -> None:
    shapes = {name: facts.shape for name, facts in manifest.tensors.items()}
    if shapes != {name: part.shape for name, part in parts_of(config).items()}:
        raise ModelUnreadable("the model's configuration and its manifest do not agree")


def _layers_of(config: DecoderConfig, name: str) -> frozenset[int]:
    """The layers whose holders have the tensor."""
    layer = _LAYER.match(name)
    if layer:
        return frozenset({int(layer[1])})
    if name in embedding_names(config):
        tied = {config.num_layers - 1} if config.tied_head else set()
        return frozenset({0} | tied)
    if name in head_names(config):
        return frozenset({config.num_layers - 1})
    return frozenset()


def missing_tensors(home: Path, manifest: Manifest, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are not in ``home``, or differ from the manifest. Blocks."""
    missing = []
    for name in names:
        try:
            tensor = read_tensors(_file(home, name).read_bytes())[name]
            manifest.check(name, tensor)
        except FileNotFoundError:
            missing.append(name)
        except (OSError, KeyError, ModelUnreadable) as error:
            log.warning("%s was damaged on the disk: %s", name, error)
            missing.append(name)
    return missing


def _file(home: Path, name: str) -> Path:
    return home / f"{name}.safetensors"


def _keep(home: Path, name: str, tensor: Tensor) -> None:
    write_private(_file(home, name), safetensors.torch.save({name: tensor.contiguous()}))


def _pause(attempt: int) -> float:
    return min(0.2 * 2.0 ** min(attempt, 16), MAX_PAUSE_S) * (0.5 + random.random() / 2)  # noqa: S311 - spreads attempts in time
