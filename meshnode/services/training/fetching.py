"""Fetching the checkpoint of other nodes, whatever its size (interface 2.3; decision 0191).

A checkpoint that fits a message comes by GetCheckpoint. A larger one comes in pieces by GetWeights,
from several holders at once; each tensor is checked against the hash that most nodes report, and
kept on the disk, so a fetch that was cut off goes on where it stopped.

Invariants: a tensor comes from one holder, so a wrong one condemns that holder alone; a holder that
fails is not asked again in the same fetch; nothing is used that was not checked.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import safetensors.torch
import torch
import trio
from torch import Tensor

from meshnode.datadir import make_private, write_private
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.units import MEBIBYTE
from meshnode.model.anchor_pieces import (
    CONTENTS,
    Contents,
    Unit,
    anchor_of,
    check_tensor,
    piece_in,
    read_contents,
    units_of,
)
from meshnode.model.checkpoint import FIELD, largest, read_anchor
from meshnode.model.documents import ModelUnreadable
from meshnode.model.trained_model import Anchor
from meshnode.model.transfer import read_tensors
from meshnode.rpc.errors import CallFailed
from meshnode.rpc.node_grpc import NodeServiceStub
from meshnode.services.gradient_values import Shapes
from meshnode.wire import node_pb2 as pb
from meshnode.wire.frames import unframe

log = logging.getLogger(__name__)

MAX_HOLDERS = 4
"""Holders that are asked at once. Each answer takes up to 64 MiB of memory."""
PULLS = 4
"""Tensors that one holder is asked for at once, if all are small."""
SMALL_BYTES = 16 << 20
"""A tensor up to this size is small: four of them take no more memory than a large piece."""
MAX_REASON_CHARS = 200
"""How much of a peer's text is logged."""
SHOWN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class CheckpointHolder:
    """A peer that reports the weights as kept."""

    name: str
    """Its address, for the log."""
    momentum_hash: str
    connect: Callable[[], Awaitable[NodeServiceStub]]
    node_id: str = ""


class AnchorFetcher(Protocol):
    """Fetches the weights of other nodes."""

    async def fetch(
        self, weights: WeightsVersion, holders: Sequence[CheckpointHolder]
    ) -> Anchor | None:
        """The checked anchor; None if the holders did not deliver all of it."""


def agreed_momentum(holders: Sequence[CheckpointHolder]) -> tuple[str, list[CheckpointHolder]]:
    """The hash of the outer momentum that most holders report, and these holders."""
    # One liar among the holders must not decide about the momentum.
    counts = Counter(holder.momentum_hash for holder in holders)
    momentum = min(counts, key=lambda one: (-counts[one], one))
    return momentum, [holder for holder in holders if holder.momentum_hash == momentum]


class CheckpointFetcher:
    """Fetches checkpoints of one model."""

    def __init__(self, shapes: Shapes, folder: Path, *, whole: int, call_s: float) -> None:
        """``folder`` keeps what has come. Up to ``whole`` bytes one message is asked for.

        ``call_s`` is the deadline of one call.
        """
        self.received = 0
        """Bytes of the present fetch that are here."""
        self.total = 0
        """Bytes of the present fetch; 0 between fetches."""
        self._shapes = shapes
        self._folder = folder
        self._whole = whole
        self._call_s = call_s

    async def fetch(
        self, weights: WeightsVersion, holders: Sequence[CheckpointHolder]
    ) -> Anchor | None:
        """The checked anchor; None if the holders did not deliver all of it."""
        if not holders:
            return None
        momentum, agreed = agreed_momentum(holders)
        if largest(self._shapes, momentum=bool(momentum)) <= self._whole:
            anchor = await self.whole_from(weights, momentum, agreed)
            # A pipeline has no checkpoint in one message, however small.
            if anchor is not None:
                return anchor
        try:
            return await self._in_pieces(weights, momentum, agreed)
        finally:
            self.total = 0

    async def whole_from(
        self, weights: WeightsVersion, momentum: str, holders: Sequence[CheckpointHolder]
    ) -> Anchor | None:
        """The checked anchor in one message; None if no holder gives it so."""
        request = pb.GetCheckpointRequest(
            model_hash=weights.model_hash, min_version=weights.version
        )
        for holder in holders:
            try:
                with trio.fail_after(self._call_s):
                    answer = await (await holder.connect()).GetCheckpoint(request)
                    if not answer.success:
                        raise InvalidRequest(FIELD, answer.error_message[:MAX_REASON_CHARS])
                    read = partial(self._read, answer.checkpoint_data, weights, momentum)
                    return await trio.to_thread.run_sync(read)
            except (CallFailed, trio.TooSlowError, InvalidRequest) as error:
                log.warning("no checkpoint from %s: %s", holder.name, error)
        return None

    def _read(self, data: bytes, weights: WeightsVersion, momentum: str) -> Anchor:
        most = largest(self._shapes, momentum=bool(momentum))
        anchor = read_anchor(unframe(data, most, FIELD), self._shapes, weights.model_hash)
        if anchor.momentum_hash != momentum:
            raise InvalidRequest(FIELD, "has another momentum than its holders report")
        return anchor

    async def _in_pieces(
        self, weights: WeightsVersion, momentum: str, holders: Sequence[CheckpointHolder]
    ) -> Anchor | None:
        contents, willing = await self.contents(weights, momentum, holders)
        tensors = await self.pieces(weights, momentum, contents, willing) if contents else None
        return None if tensors is None else anchor_of(tensors, weights, momentum)

    async def pieces(
        self,
        weights: WeightsVersion,
        momentum: str,
        contents: Contents,
        willing: Sequence[CheckpointHolder],
    ) -> dict[str, Tensor] | None:
        """The checked tensors of these contents; None if the holders did not deliver all."""
        home = self._folder / f"{weights.version}-{weights.model_hash[:16]}-{momentum[:16]}"
        await trio.to_thread.run_sync(self._prepare, home)
        kept = await trio.to_thread.run_sync(_kept, home, contents)
        missing = deque(sorted(contents.tensors.keys() - kept))
        sizes = {name: 4 * torch.Size(f.shape).numel() for name, f in contents.tensors.items()}
        self.total, self.received = sum(sizes.values()), sum(sizes[name] for name in kept)

        pulls = PULLS if max(sizes.values()) <= SMALL_BYTES else 1
        failed: set[CheckpointHolder] = set()

        async def pull(holder: CheckpointHolder) -> None:
            while missing and holder not in failed:
                name = missing.popleft()
                try:
                    tensor = await self._tensor(holder, weights, contents, name)
                except (CallFailed, trio.TooSlowError, ModelUnreadable) as error:
                    log.warning("no %s from %s: %s", name, holder.name, error)
                    missing.append(name)
                    failed.add(holder)
                    return
                await trio.to_thread.run_sync(_keep, home, name, tensor)
                self.received += sizes[name]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._show, weights)
            # Others may have finished before a holder failed, so they are asked again for the rest.
            while missing and (able := [one for one in willing if one not in failed]):
                async with trio.open_nursery() as pulling:
                    for holder in able[:MAX_HOLDERS] * pulls:
                        pulling.start_soon(pull, holder)
            nursery.cancel_scope.cancel()
        if missing:
            return None
        tensors = await trio.to_thread.run_sync(_assemble, home, contents)
        await trio.to_thread.run_sync(shutil.rmtree, home)
        return tensors

    async def contents(
        self, weights: WeightsVersion, momentum: str, holders: Sequence[CheckpointHolder]
    ) -> tuple[Contents | None, list[CheckpointHolder]]:
        """The contents, and the holders that did not refuse them."""
        for position, holder in enumerate(holders):
            try:
                data = await self._unit(holder, Unit(weights, CONTENTS))
                read = partial(read_contents, data, self._shapes, weights.model_hash, momentum)
                return await trio.to_thread.run_sync(read), list(holders[position:])
            except (CallFailed, trio.TooSlowError, ModelUnreadable) as error:
                log.warning("no checkpoint from %s: %s", holder.name, error)
        return None, []

    async def _tensor(
        self, holder: CheckpointHolder, weights: WeightsVersion, contents: Contents, name: str
    ) -> Tensor:
        shape = contents.tensors[name].shape
        pieces = []
        for unit in units_of(weights, name, shape):
            data = await self._unit(holder, unit)
            pieces.append(await trio.to_thread.run_sync(piece_in, data, unit, shape))

        def checked() -> Tensor:
            tensor = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
            check_tensor(contents, name, tensor)
            return tensor

        return await trio.to_thread.run_sync(checked)

    async def _unit(self, holder: CheckpointHolder, unit: Unit) -> bytes:
        with trio.fail_after(self._call_s):
            stub = await holder.connect()
            answer = await stub.GetWeights(pb.WeightRequest(shard_range=str(unit)))
        data: bytes = answer.weights_data
        return data

    async def _show(self, weights: WeightsVersion) -> None:
        while True:
            await trio.sleep(SHOWN_EVERY_S)
            log.info(
                "fetching version %d: %d of %d MiB",
                weights.version,
                self.received // MEBIBYTE,
                self.total // MEBIBYTE,
            )

    def _prepare(self, home: Path) -> None:
        """Create the folder of a fetch, and drop what came of others."""
        make_private(self._folder)
        for other in self._folder.iterdir():
            if other != home:
                shutil.rmtree(other)
        make_private(home)


def _file(home: Path, name: str) -> Path:
    return home / f"{name}.safetensors"


def _keep(home: Path, name: str, tensor: Tensor) -> None:
    write_private(_file(home, name), safetensors.torch.save({name: tensor.contiguous()}))


def _kept(home: Path, contents: Contents) -> set[str]:
    """The tensors that came before, checked again."""
    found = set()
    for name in contents.tensors:
        try:
            check_tensor(contents, name, read_tensors(_file(home, name).read_bytes())[name])
        except (OSError, KeyError, ModelUnreadable):
            continue
        found.add(name)
    return found


def _assemble(home: Path, contents: Contents) -> dict[str, Tensor]:
    return {name: read_tensors(_file(home, name).read_bytes())[name] for name in contents.tensors}
