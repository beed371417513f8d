"""Checkpoints that exceed a message: pieces from several holders, liars, and fetches cut off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.training.agreement import WeightsVersion
from meshnode.model import anchor_pieces
from meshnode.model.anchor_pieces import CONTENTS, Contents, Unit, read_piece
from meshnode.model.trained_model import Anchor, hash_of
from meshnode.model.transfer import FIELD
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.training.fetching import CheckpointFetcher, CheckpointHolder
from meshnode.wire import node_pb2 as pb
from spec_tests.services.training.trainers import TIMINGS, agreed, training_nodes, wait_for

WEIGHTS = {
    "a": torch.arange(12.0).reshape(4, 3),
    "b": torch.tensor([1.0, -2.0]),
    "c": torch.ones(2, 2),
}
VELOCITY = {name: tensor * 0.5 for name, tensor in WEIGHTS.items()}
SHAPES = {name: tuple(tensor.shape) for name, tensor in WEIGHTS.items()}
ANCHOR = Anchor.of(WEIGHTS, VELOCITY)
KEPT = WeightsVersion(7, ANCHOR.model_hash)

Answer = Callable[[Unit], bytes]


def honest(unit: Unit, anchor: Anchor = ANCHOR) -> bytes:
    if unit.weights != KEPT:
        raise CallFailed(Code.INVALID_ARGUMENT, f"{FIELD}: at another version")
    return Contents.of(anchor).document() if unit.name == CONTENTS else read_piece(anchor, unit)


def lying(name: str) -> Answer:
    def answer(unit: Unit) -> bytes:
        if unit.name != name:
            return honest(unit)
        other = {key: tensor + 1 for key, tensor in WEIGHTS.items()}
        return read_piece(Anchor.of(other, {k: v + 1 for k, v in VELOCITY.items()}), unit)

    return answer


class FakeHolder:
    """A node that answers GetWeights, and notes what it was asked for."""

    def __init__(self, answer: Answer = honest) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def GetWeights(self, request: pb.WeightRequest) -> pb.WeightResponse:  # noqa: N802
        unit = Unit.parse(request.shard_range)
        assert unit
        self.asked.append(unit.name)
        return pb.WeightResponse(weights_data=self._answer(unit))

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest) -> pb.GetCheckpointResponse:  # noqa: N802
        return pb.GetCheckpointResponse(error_message="no " * 10_000)

    def named(self, name: str, momentum: str = ANCHOR.momentum_hash) -> CheckpointHolder:
        async def connect() -> FakeHolder:
            return self

        return CheckpointHolder(name, momentum, connect)  # type: ignore[arg-type]


def fetcher(folder: Path) -> CheckpointFetcher:
    return CheckpointFetcher(SHAPES, folder / "fetched", whole=0, call_s=60.0)


def same(anchor: Anchor | None) -> bool:
    assert anchor
    return (hash_of(anchor.weights), hash_of(anchor.velocity)) == (
        ANCHOR.model_hash,
        ANCHOR.momentum_hash,
    )


async def test_several_holders_share_a_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchor_pieces, "MAX_BYTES", 24)
    one, other = FakeHolder(), FakeHolder()
    fetching = fetcher(tmp_path)
    assert same(await fetching.fetch(KEPT, [one.named("one"), other.named("other")]))
    assert one.asked.count(CONTENTS) + other.asked.count(CONTENTS) == 1
    # Two rows of three floats fit 24 bytes.
    assert (one.asked + other.asked).count("a") == 2
    assert set(one.asked + other.asked) == {CONTENTS, *WEIGHTS, *(f"velocity.{n}" for n in WEIGHTS)}
    assert fetching.total == 0
    assert not list((tmp_path / "fetched").iterdir())


@pytest.mark.parametrize("name", ["a", "velocity.b", CONTENTS])
async def test_a_holder_that_lies_is_left_for_an_honest_one(tmp_path: Path, name: str) -> None:
    liar = FakeHolder(lying(name) if name != CONTENTS else lambda unit: b'{"format": "x"}')
    assert await fetcher(tmp_path).fetch(KEPT, [liar.named("liar")]) is None
    friend = FakeHolder()
    assert same(await fetcher(tmp_path).fetch(KEPT, [liar.named("liar"), friend.named("friend")]))


async def test_one_liar_does_not_decide_about_the_momentum(tmp_path: Path) -> None:
    liar = FakeHolder(lambda unit: honest(unit, Anchor.of(WEIGHTS, WEIGHTS)))
    holders = [liar.named("liar", hash_of(WEIGHTS)), *(FakeHolder().named(n) for n in "xy")]
    assert same(await fetcher(tmp_path).fetch(KEPT, holders))
    assert not liar.asked


async def test_a_fetch_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    def tired(unit: Unit) -> bytes:
        if len(first.asked) > 4:
            raise CallFailed(Code.UNAVAILABLE, "gone")
        return honest(unit)

    first, second = FakeHolder(tired), FakeHolder()
    assert await fetcher(tmp_path).fetch(KEPT, [first.named("first")]) is None
    kept = sorted(path.stem for path in (tmp_path / "fetched").rglob("*.safetensors"))
    assert len(kept) == 3
    # One of the files is damaged in the meantime, and is fetched again.
    next((tmp_path / "fetched").rglob(f"{kept[0]}.safetensors")).write_bytes(b"rubbish")
    assert same(await fetcher(tmp_path).fetch(KEPT, [second.named("second")]))
    assert sorted(second.asked[1:]) == sorted(
        {*WEIGHTS, *(f"velocity.{n}" for n in WEIGHTS)} - set(kept[1:])
    )


async def test_what_came_of_other_weights_is_dropped(tmp_path: Path) -> None:
    stale = tmp_path / "fetched" / "3-abc-"
    stale.mkdir(parents=True)
    (stale / "a.safetensors").write_bytes(b"x")
    assert same(await fetcher(tmp_path).fetch(KEPT, [FakeHolder().named("one")]))
    assert not stale.exists()


async def test_there_may_be_no_momentum(tmp_path: Path) -> None:
    still = Anchor.of(WEIGHTS, {})
    holder = FakeHolder(lambda unit: honest(unit, still))
    anchor = await fetcher(tmp_path).fetch(KEPT, [holder.named("one", "")])
    assert anchor == replace(still, weights=anchor.weights if anchor else {})
    assert await fetcher(tmp_path).fetch(KEPT, [FakeHolder().named("one", "")]) is None


async def test_a_peers_error_text_does_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = CheckpointFetcher(SHAPES, tmp_path, whole=1 << 30, call_s=60.0)
    # What the holder does not give as a whole it may give in pieces, as a pipeline does.
    assert same(await whole.fetch(KEPT, [FakeHolder().named("one")]))
    assert "no no no" in caplog.text
    assert len(caplog.text) < 1000


def test_units_are_read_as_they_are_written() -> None:
    for unit in (Unit(KEPT, CONTENTS), Unit(KEPT, "a.b", (3, 9))):
        assert Unit.parse(str(unit)) == unit
    for text in ("4-7", "model.embed_tokens.weight[0:5]", "7:abc:a", f"{KEPT.version}::a", ""):
        assert Unit.parse(text) is None
    with pytest.raises(InvalidRequest, match="rows 0 to 4"):
        read_piece(ANCHOR, Unit(KEPT, "a", (2, 5)))
    with pytest.raises(InvalidRequest, match="no x"):
        read_piece(ANCHOR, Unit(KEPT, "x"))


async def test_a_late_joiner_gets_its_weights_in_pieces(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    in_pieces = CheckpointFetcher._in_pieces

    async def watched(
        fetching: CheckpointFetcher, weights: WeightsVersion, *rest: object
    ) -> Anchor | None:
        asked.append(weights.version)
        return await in_pieces(fetching, weights, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointFetcher, "_in_pieces", watched)
    async with training_nodes(model, tmp_path, 3) as (nodes, nursery):
        for node in nodes:
            node.timings = replace(TIMINGS, whole_bytes=0)
        await nursery.start(nodes[0].run)
        await nursery.start(nodes[1].run)
        await wait_for(lambda: agreed(nodes[:2], 2))
        await nursery.start(nodes[2].run)
        await wait_for(lambda: bool(asked))
        await wait_for(lambda: agreed(nodes, 4))
