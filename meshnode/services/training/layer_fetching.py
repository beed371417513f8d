"""A holder of some layers fetches these from other nodes (interface 2.3; decisions 0191, 0222)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.position import version_in
from meshnode.model.anchor_pieces import Contents, check_tensor, momentum_of, tensors_of
from meshnode.model.checkpoint import VELOCITY, largest
from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import TensorFacts
from meshnode.services.gradient_values import Shapes
from meshnode.services.peers import PeerBook
from meshnode.services.shards.exchange import facts_in
from meshnode.services.stub_pool import StubPool
from meshnode.services.training.fetching import CheckpointFetcher, CheckpointHolder
from meshnode.wire import node_pb2 as pb

SMALL_BYTES = 16 << 20
"""A checkpoint up to this size comes as a whole, which takes one call."""
MAX_NODES = 64
"""Nodes that a command may name. Four of them are asked at once."""
_HASH = re.compile(r"[0-9a-f]{64}")


class LayerFetcher:
    """Fetches what a driver's command names."""

    def __init__(
        self,
        shapes: Shapes,
        model: Shapes,
        folder: Path,
        book: PeerBook,
        pool: StubPool,
        call_s: float,
    ) -> None:
        """``shapes`` are those of the held layers' tensors, ``model`` those of all.

        Only peers of ``book`` are asked.
        """
        self._shapes = shapes
        self._small = largest(model, momentum=True) <= SMALL_BYTES
        self._whole = CheckpointFetcher(model, folder, whole=0, call_s=call_s)
        self._book = book
        self._pool = pool
        self._fetcher = CheckpointFetcher(shapes, folder, whole=0, call_s=call_s)

    async def fetch(self, command: pb.LayerCommand) -> Mapping[str, Tensor] | None:
        """The checked tensors; None if the nodes do not give them. Raises InvalidRequest."""
        version = version_in(command.version)
        if _HASH.fullmatch(command.model_hash) is None:
            raise InvalidRequest("model_hash", "must be 64 lowercase hex characters")
        weights = WeightsVersion(version.number, command.model_hash)
        contents = Contents(self._facts(command))
        holders = [
            CheckpointHolder(
                peer.address, "", partial(self._pool.stub, peer.host, peer.grpc_port), peer.node_id
            )
            for node_id in command.nodes[:MAX_NODES]
            if (peer := self._book.get(node_id)) is not None
        ]
        moving = any(name.startswith(VELOCITY) for name in contents.tensors)
        if self._small and (found := await self._of_whole(command, weights, contents, holders)):
            return found
        return await self._fetcher.pieces(weights, "0" * moving, contents, holders)

    async def _of_whole(
        self,
        command: pb.LayerCommand,
        weights: WeightsVersion,
        contents: Contents,
        holders: list[CheckpointHolder],
    ) -> Mapping[str, Tensor] | None:
        """These layers' tensors of a checkpoint that comes in one message."""
        momentum = momentum_of(facts_in(list(command.tensors)))
        anchor = await self._whole.whole_from(weights, momentum, holders)
        if anchor is None:
            return None
        tensors = tensors_of(anchor)
        found = {name: tensors[name] for name in contents.tensors if name in tensors}
        try:
            for name, tensor in found.items():
                check_tensor(contents, name, tensor)
        except ModelUnreadable:
            return None
        return found if len(found) == len(contents.tensors) else None

    def _facts(self, command: pb.LayerCommand) -> dict[str, TensorFacts]:
        """What the command says of the tensors that are held here. Raises InvalidRequest."""
        told = {one.name: one for one in command.tensors}
        names = list(self._shapes)
        if any(VELOCITY + name in told for name in names):
            names += [VELOCITY + name for name in names]
        facts = {}
        for name in names:
            shape = self._shapes[name.removeprefix(VELOCITY)]
            if name not in told or tuple(told[name].shape) != shape:
                raise InvalidRequest("tensors", f"{name} is missing or has another shape")
            facts[name] = TensorFacts(name, shape, told[name].sha256)
        return facts
