"""Decision 0222: what holders of some layers do in a round, crashes between all steps included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.domain.training.position import Position
from meshnode.model.decoder import Decoder
from meshnode.model.diloco import Rule, aggregate, scales_of
from meshnode.model.feedback import contribute
from meshnode.model.loading import load_model
from meshnode.model.manifest import parts_of
from meshnode.model.naming import EMBEDDING
from meshnode.model.outer_step import STEPS, step_of
from meshnode.model.trained_model import Anchor, hash_of
from meshnode.model.weights import checkpoint_tensors, checkpoint_views
from meshnode.services.gradient_values import PackedGradients, packed, unpacked
from meshnode.services.pipeline.exchange import version_of
from meshnode.services.shards.exchange import LayerExchange
from meshnode.services.shards.exchange_files import ExchangeFiles, original_layers
from meshnode.services.shards.layer_versions import Compute, LayerVersions
from meshnode.services.shards.trained_layers import TrainedLayers
from meshnode.wire import node_pb2 as pb
from meshnode.wire.gradients import KEPT, Format, Packing
from spec_tests.model.small_models import make_model

Result = TypeVar("Result")
SPLIT = (range(1), range(1, 4))
FIRST, SECOND = "1a" * 16, "2b" * 16
WEIGHTS = [0.25, 1.0]
"""Of this pipeline's contributions and the others'."""
MINE, THEIRS = "c3" * 32, "d4" * 32


@pytest.fixture(scope="module", params=[False, True], ids=["own-head", "tied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model", tied_head=request.param)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tied") / "model", tied_head=True)


class Trainer:
    """Stands in for the shard trainer: a decoder, and steps that change all of it."""

    def __init__(self, model: Path, held: range, layers: TrainedLayers) -> None:
        self.versions = LayerVersions(layers)
        self.steps = 0
        self._decoder = load_model(model, held, trainable=True).decoder
        self.versions.restore(self._decoder)

    @property
    def position(self) -> Position:
        return self.versions.position

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[tuple[Decoder, Compute]]:
        async def compute(function: Callable[[], Result]) -> Result:
            return function()

        yield self._decoder, compute

    def replaced(self, *, moments: bool) -> None:
        """Nothing: there is no optimizer."""

    @torch.no_grad()
    def learn(self, seed: int) -> None:
        for name, view in sorted(checkpoint_views(self._decoder).items()):
            view.sub_(moves(name, tuple(view.shape), seed))
        self.steps += 1
        self.versions.stepped()


def moves(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed + len(name))
    return torch.randn(shape, generator=random) * 0.01


class Holder:
    """A holder that can be killed between two commands."""

    def __init__(self, model: Path, folder: Path, held: range) -> None:
        self._model, self._folder, self._held = model, folder, held
        self.start()

    def start(self) -> None:
        config = load_model(self._model, self._held).config
        self.shapes = {name: part.shape for name, part in parts_of(config, self._held).items()}
        layers = TrainedLayers(self._folder, "m", self._held)
        self.trainer = Trainer(self._model, self._held, layers)
        original = partial(original_layers, self._model, self._held)
        self.exchange = LayerExchange(
            self.trainer,  # type: ignore[arg-type]
            ExchangeFiles(self._folder, layers, self.shapes, original),
            self.shapes,
            tied=EMBEDDING if config.tied_head and EMBEDDING in self.shapes else "",
        )

    async def do(self, action: str, **fields: object) -> pb.LayerAnswer:
        return await self.exchange.answer(pb.LayerCommand(action=action, **fields))  # type: ignore[arg-type]


class Killed(Exception):
    """The test ends a round here."""


class Pipeline:
    """Two holders and a driver that goes on from what it has noted, as the rounds do."""

    def __init__(self, model: Path, folder: Path, packing: Packing) -> None:
        self.holders = [Holder(model, folder / str(n), held) for n, held in enumerate(SPLIT)]
        self.packing = packing
        self.version = WeightsVersion(0, "")
        self.feedback = ""
        self.contributed: dict[str, bytes] = {}
        """What the driver has on its disk of the present round."""
        self.kill_at = -1
        self._commands = 0

    async def all(self, action: str, **fields: object) -> list[pb.LayerAnswer]:
        answers = []
        for holder in self.holders:
            self._commands += 1
            if self._commands == self.kill_at:
                raise Killed
            answers.append(await holder.do(action, **fields))
            assert not answers[-1].missing
        return answers

    async def round(self, number: int, others: Mapping[str, bytes], seed: int) -> None:
        version = str(version_of(self.version))
        await self.all("restore", version=version)
        if not self.contributed:
            for holder in self.holders:
                holder.trainer.learn(seed)
            frames = await self._parts(version)
            await self.all("name", name=FIRST, feedback=MINE[:16] + f"{number:016x}")
            self.contributed = frames
        sets = [self.contributed, others]
        whole = [PackedGradients(one, self._shapes()) for one in sets]
        for name, one in zip((MINE, THEIRS), sets, strict=True):
            for holder in self.holders:
                part = {tensor: one[tensor] for tensor in holder.shapes}
                assert not (await holder.do("offer", name=name, layer_gradients=part)).missing
        answers = await self.all(
            "apply",
            version=version,
            name=SECOND,
            digests=[MINE, THEIRS],
            scales=scales_of(whole, WEIGHTS),
            weights=WEIGHTS,
            step=STEPS.index(step_of(whole)),
        )
        facts = {one.name: one.sha256 for answer in answers for one in answer.tensors}
        model_hash = f"{number:064x}" if not facts else facts[sorted(facts)[0]]
        kept = WeightsVersion(number, model_hash)
        await self.all("keep", version=str(version_of(kept)), source=version, name=SECOND)
        self.version, self.contributed = kept, {}
        self.feedback = MINE[:16] + f"{number:016x}"

    async def _parts(self, version: str) -> dict[str, bytes]:
        first, last = self.holders
        told = {
            "version": version,
            "name": FIRST,
            "feedback": self.feedback,
            "format": self.packing.kind,
            "kept": self.packing.kept if self.packing.kept != KEPT else 0,
            "parameters": 10**9,
        }
        frames = dict((await last.do("part", **told)).layer_gradients)
        twice = (
            {first.exchange.tied: frames.pop(first.exchange.tied)} if EMBEDDING in frames else {}
        )
        frames.update((await first.do("part", layer_gradients=twice, **told)).layer_gradients)
        return frames

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {**self.holders[0].shapes, **self.holders[1].shapes}

    async def weights(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for holder in self.holders:
            async with holder.trainer.paused() as (decoder, _):
                for name, tensor in checkpoint_tensors(decoder).items():
                    assert found.setdefault(name, tensor).equal(tensor)
        return found


def expected(
    model: Path, packing: Packing, seeds: list[int], others: Sequence[Mapping[str, bytes]]
) -> Anchor:
    """The same rounds, as plain arithmetic over the whole model."""
    weights = checkpoint_tensors(load_model(model, trainable=True).decoder)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    anchor, feedback = Anchor.of(weights, {}), dict[str, Tensor]()
    for seed, other in zip(seeds, others, strict=True):
        learned = {
            name: anchor.weights[name] - (anchor.weights[name] - moves(name, shape, seed))
            for name, shape in shapes.items()
        }

        def encode(name: str, tensor: Tensor) -> tuple[bytes, object]:
            data = packed(tensor, packing)
            return data, unpacked(data, shapes[name], name)

        frames, feedback = contribute(learned, feedback, encode)  # type: ignore[arg-type]
        sets = [PackedGradients(frames, shapes), PackedGradients(other, shapes)]
        combined = aggregate(Rule.TRIMMED_MEAN, sets, weights=WEIGHTS)
        moved = step_of(sets).apply(anchor.weights, anchor.velocity, combined, sets)
        anchor = Anchor.of(*moved)
    return anchor


def others_of(model: Path, packing: Packing, seed: int) -> dict[str, bytes]:
    """Another node's contribution."""
    weights = checkpoint_tensors(load_model(model, trainable=True).decoder)
    return {n: packed(moves(n, tuple(t.shape), seed), packing) for n, t in weights.items()}


@pytest.mark.parametrize(
    "packing", [Packing(Format.SPARSE), Packing(Format.SPARSE, 2048), Packing(Format.INT8)]
)
async def test_two_rounds_over_two_holders_are_those_of_the_whole_model(
    model: Path, tmp_path: Path, packing: Packing
) -> None:
    pipeline = Pipeline(model, tmp_path, packing)
    others = [others_of(model, packing, seed) for seed in (31, 32)]
    await pipeline.round(1, others[0], 11)
    await pipeline.round(2, others[1], 12)
    if pipeline.holders[0].exchange.tied:
        # Two holders have learned about one matrix, each of which leaves something unsent.
        wanted = expected(model, packing, [11, 12], others).weights
        found = await pipeline.weights()
        del wanted[EMBEDDING], found[EMBEDDING]
        assert hash_of(found) == hash_of(wanted)
    else:
        whole = expected(model, packing, [11, 12], others)
        assert hash_of(await pipeline.weights()) == whole.model_hash


@pytest.mark.parametrize("kill_at", range(1, 9))
async def test_a_kill_between_any_two_commands_loses_no_round_and_counts_nothing_twice(
    tied: Path, tmp_path: Path, kill_at: int
) -> None:
    packing = Packing(Format.SPARSE)
    others = [others_of(tied, packing, seed) for seed in (31, 32)]
    whole = Pipeline(tied, tmp_path / "whole", packing)
    killed = Pipeline(tied, tmp_path / "killed", packing)
    for pipeline in (whole, killed):
        await pipeline.round(1, others[0], 11)
    killed._commands, killed.kill_at = 0, kill_at
    with pytest.raises(Killed):
        await killed.round(2, others[1], 12)
    for holder in killed.holders:
        holder.start()
    killed.kill_at = -1
    await killed.round(2, others[1], 12)
    await whole.round(2, others[1], 12)
    assert hash_of(await killed.weights()) == hash_of(await whole.weights())
    # What was left unsent is fed back once.
    for pipeline in (whole, killed):
        await pipeline.round(3, others[0], 13)
    assert hash_of(await killed.weights()) == hash_of(await whole.weights())


def files_in(folder: Path) -> list[Path]:
    return list(folder.glob("*/*"))


async def test_what_does_not_fit_changes_nothing(model: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(model, tmp_path, Packing(Format.INT8))
    holder = pipeline.holders[1]
    before = hash_of(await pipeline.weights())
    one = {"version": "0", "name": SECOND, "digests": [MINE], "scales": [1.0]}
    bad: list[tuple[str, dict[str, object]]] = [
        ("", {}),
        ("jump", {}),
        ("restore", {"version": "1"}),
        ("part", {"version": "0", "name": FIRST, "format": 9, "parameters": 1}),
        ("part", {"version": "0", "name": "../x", "format": 1, "parameters": 1}),
        ("part", {"version": "0", "name": FIRST, "format": 1, "parameters": 0}),
        ("part", {"version": "0", "name": FIRST, "format": 2, "parameters": 9, "kept": 4097}),
        ("part", {"version": "0", "name": FIRST, "format": 2, "parameters": 9, "kept": -1}),
        ("offer", {"name": MINE, "layer_gradients": {"w": b""}}),
        ("offer", {"name": MINE, "layer_gradients": dict.fromkeys(holder.shapes, b"mng1")}),
        ("apply", {"version": "0", "name": SECOND}),
        ("apply", {"version": "0", "name": SECOND, "digests": [MINE], "scales": [2.0]}),
        ("apply", {**one, "weights": [0.0]}),
        ("apply", {**one, "weights": [1.5]}),
        ("apply", {**one, "weights": [float("nan")]}),
        ("apply", {**one, "weights": [1.0, 1.0]}),
        ("apply", {**one, "step": 4}),
        ("apply", {**one, "step": -1}),
        ("keep", {"version": "0", "name": SECOND}),
        ("piece", {"version": "0", "name": "model.norm.weight", "first_row": 9, "stop_row": 3}),
    ]
    for action, fields in bad:
        with pytest.raises(InvalidRequest):
            await holder.do(action, **fields)
    lacking: list[tuple[str, dict[str, object]]] = [
        ("restore", {"version": "3-5f0c9a7711d2e4b8"}),
        ("part", {"version": "3-5f0c9a7711d2e4b8", "name": FIRST, "format": 1, "parameters": 1}),
        ("name", {"name": FIRST, "feedback": MINE}),
        ("apply", {"version": "0", "name": SECOND, "digests": [MINE], "scales": [1.0]}),
        ("keep", {"version": "3-5f0c9a7711d2e4b8", "name": SECOND}),
        ("fetch", {"version": "3-5f0c9a7711d2e4b8", "name": SECOND}),
        ("piece", {"version": "0", "name": "no.such.tensor"}),
    ]
    for action, fields in lacking:
        assert (await holder.do(action, **fields)).missing
    assert hash_of(await pipeline.weights()) == before
    assert files_in(tmp_path) == []
