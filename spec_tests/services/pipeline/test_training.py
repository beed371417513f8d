"""A training step over several nodes has the loss and the gradients of one."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
from torch.nn import functional

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
    Unavailable,
)
from meshnode.model.loading import load_model
from meshnode.model.training import Batch, InnerTrainer, cross_entropy, inner_recipe
from meshnode.rpc.errors import CallRefused, Code
from meshnode.services.pipeline.routes import Routes
from meshnode.services.pipeline.training import TrainingDriver
from meshnode.services.shards.stepping import square_in
from spec_tests.model.small_models import random_tokens
from spec_tests.services.pipeline.pipelines import (
    NUM_LAYERS,
    Cluster,
    Holder,
    cluster,
    small_model,
    spans,
    start_member,
)

TOKENS = random_tokens(2, 12)
LABELS = torch.cat([TOKENS[:, 1:], torch.full((2, 1), -100)], dim=1)
DRIVER = 13
"""The number of the driver's key."""
SESSION = "5e551011" * 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


def of_one_process(directory: Path) -> tuple[float, list[torch.Tensor]]:
    """Return the loss, and the gradients of the layers in order."""
    decoder = load_model(directory, trainable=True).decoder
    logits = decoder(TOKENS)
    loss = functional.cross_entropy(logits.flatten(0, 1), LABELS.flatten(), ignore_index=-100)
    torch.autograd.backward([loss])
    gradients = [p.grad for layer in decoder.layers for p in layer.parameters()]
    return float(loss.detach()), [gradient for gradient in gradients if gradient is not None]


async def driver_of(
    nodes: Cluster, own: range, round_steps: int = 500
) -> tuple[TrainingDriver, Holder]:
    """Return a driver, and the holder of its own layers, which other holders can call."""
    mine = await start_member(nodes.nursery, nodes.directory, own, DRIVER, nodes.book, nodes.pool)
    nodes.book.peers.append(mine.peer)
    driver = TrainingDriver(
        training=mine.training,
        held=own,
        routes=Routes(nodes.book.as_peer_book, own.stop, NUM_LAYERS),
        pool=nodes.pool,
        address=lambda: f"127.0.0.1:{mine.relay.port}",
        round_steps=lambda: round_steps,
    )
    return driver, mine


def layer_gradients(found: Any, own: range) -> list[torch.Tensor]:
    """Return the layers' gradients in order, without those of embedding and head."""
    assert found is not None
    return [gradient for name, gradient in found.items() if ".layers." in f".{name}"]


@pytest.mark.parametrize("cuts", [(2, 4), (1, 4), (3,)], ids=str)
async def test_gradients_are_those_of_one_process(directory: Path, cuts: tuple[int, ...]) -> None:
    wanted_loss, wanted = of_one_process(directory)
    own, *rest = spans(*cuts)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)
        loss = await driver.step(SESSION, TOKENS, LABELS)
        assert loss == pytest.approx(wanted_loss, abs=1e-5)
        found: list[torch.Tensor] = []
        for holder in (mine, *nodes.holders):
            found += layer_gradients(holder.training.gradients(SESSION), holder.layers)
        assert len(found) == len(wanted)
        for got, expected in zip(found, wanted, strict=True):
            assert (got - expected).abs().max() < 1e-5
        # Reading the gradients removed them, so two more steps add up to twice those of one.
        for _ in range(2):
            await driver.step(SESSION, TOKENS, LABELS)
        (first, *_) = layer_gradients(mine.training.gradients(SESSION), own)
        assert (first - 2 * wanted[0]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (Code.UNAVAILABLE, Unavailable),
        (Code.UNIMPLEMENTED, Unavailable),
        (Code.INTERNAL, ComputationFailed),
    ],
)
async def test_a_step_that_fails_says_so(
    directory: Path, code: Code, failure: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    own, *rest = spans(2, 4)
    caplog.set_level(logging.INFO)
    async with cluster(directory, own, rest) as nodes:
        driver, _ = await driver_of(nodes, own)

        async def script(_: int) -> None:
            await trio.lowlevel.checkpoint()
            raise CallRefused(code, "for a test")

        nodes.holders[1].gate.script = script
        with pytest.raises(failure):
            await driver.step(SESSION, TOKENS, LABELS)
        # The log has the details that the client's error leaves out.
        assert f"{code.name}: for a test" in caplog.text


async def test_layers_without_a_holder(directory: Path) -> None:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest[:1]) as nodes:
        driver, _ = await driver_of(nodes, own)
        with pytest.raises(LayersUnavailable):
            await driver.step(SESSION, TOKENS, LABELS)


STEPS, RATE = 30, 3e-3


def curve_of_one_process(directory: Path, steps: int) -> list[float]:
    """Return the losses of ``steps`` AdamW steps on the same batch."""
    trainer = InnerTrainer(load_model(directory, trainable=True).decoder, inner_recipe(RATE))
    return [trainer.step(Batch(TOKENS, LABELS)).loss for _ in range(steps)]


async def test_steps_over_three_nodes_lower_the_loss_as_one_process_does(directory: Path) -> None:
    wanted = curve_of_one_process(directory, STEPS)
    assert wanted[-1] < wanted[0] / 2
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)
        everybody = (mine, *nodes.holders)
        for holder in everybody:
            holder.training.learning_rate = lambda: RATE
        found = [await driver.step(SESSION, TOKENS, LABELS, update=True) for _ in range(STEPS)]
        for got, expected in zip(found, wanted, strict=True):
            assert got == pytest.approx(expected, abs=1e-3)
        for holder in everybody:
            assert holder.training.steps == STEPS
            # The updates consumed the gradients, so that none counts twice.
            assert holder.training.gradients(SESSION) is None
            assert holder.training.bytes_in_use == 0


async def test_an_update_uses_what_the_steps_before_it_added_up(directory: Path) -> None:
    decoder = load_model(directory, trainable=True).decoder
    trainer = InnerTrainer(decoder, inner_recipe(RATE))
    gradients = []
    for _ in range(2):
        loss = cross_entropy(decoder(TOKENS), LABELS)
        gradients.append(torch.autograd.grad([loss], list(decoder.parameters())))
    names = [name for name, _ in decoder.named_parameters()]
    total = {name: a + b for name, a, b in zip(names, *gradients, strict=True)}
    norm = torch.stack([g.norm() for g in total.values()]).norm()
    trainer.update(total, float(norm))
    wanted = float(cross_entropy(decoder(TOKENS), LABELS).detach())
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)
        for holder in (mine, *nodes.holders):
            holder.training.learning_rate = lambda: RATE
        await driver.step(SESSION, TOKENS, LABELS)
        await driver.step(SESSION, TOKENS, LABELS, update=True)
        assert await driver.step(SESSION, TOKENS, LABELS) == pytest.approx(wanted, abs=1e-3)


async def test_a_graph_made_before_a_step_is_of_no_use_after_it(directory: Path) -> None:
    async with cluster(directory, spans(2)[0], spans(2)[1:]) as nodes:
        driver, mine = await driver_of(nodes, spans(2)[0])
        [last] = nodes.holders
        entered, go_on = trio.Event(), trio.Event()

        async def script(number: int) -> None:
            if number == 0:
                entered.set()
                await go_on.wait()

        last.gate.script = script
        async with trio.open_nursery() as nursery:

            async def other_session() -> None:
                with pytest.raises((ComputationFailed, Unavailable)):
                    await driver.step("other" * 8, TOKENS, LABELS)

            nursery.start_soon(other_session)
            await entered.wait()
            last.gate.script = None
            await driver.step(SESSION, TOKENS, LABELS, update=True)
            go_on.set()
        assert mine.training.steps == last.training.steps == 1
        assert mine.training.bytes_in_use == 0
        await driver.step(SESSION, TOKENS, LABELS, update=True)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1e31", "x", "1" * 40])
def test_a_sum_of_squares_is_one(text: str) -> None:
    with pytest.raises(InvalidRequest):
        square_in(text)
    assert square_in("2.5") == 2.5


@pytest.mark.parametrize("loss", [math.nan, math.inf, -1.0], ids=str)
async def test_a_loss_that_is_not_a_number_is_a_failure(directory: Path, loss: float) -> None:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)

        async def script(_: int) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"success": True, "is_final": True, "loss": loss}

        nodes.holders[1].gate.script = script
        with pytest.raises(ComputationFailed):
            await driver.step(SESSION, TOKENS, LABELS, update=True)
        assert driver.nodes == 0
        assert mine.training.bytes_in_use == 0


async def test_a_holder_that_tells_a_loss_and_sends_nothing_back_has_not_trained(
    directory: Path,
) -> None:
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)

        async def script(_: int) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"success": True, "is_final": True, "loss": 1.0}

        nodes.holders[1].gate.script = script
        with pytest.raises(Unavailable):
            await driver.step(SESSION, TOKENS, LABELS, update=True)
        assert driver.nodes == mine.training.steps == 0


async def test_a_step_that_failed_is_not_taken_later(directory: Path) -> None:
    """Gradients that arrive after the driver has given up change no weights."""
    own, *rest = spans(2, 4)
    async with cluster(directory, own, rest) as nodes:
        driver, mine = await driver_of(nodes, own)
        middle, last = nodes.holders
        back, go_on, ended = trio.Event(), trio.Event(), trio.Event()
        original = middle.training.backward

        async def backward(message: Any, square: float = 0.0) -> float:
            back.set()
            with trio.CancelScope(shield=True):
                await go_on.wait()
                try:
                    square_sum: float = await original(message, square)
                finally:
                    ended.set()
            return square_sum

        middle.training.backward = backward  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(driver.step, SESSION, TOKENS, LABELS, update=True))
            await back.wait()
            nursery.cancel_scope.cancel()
        left = mine.training.bytes_in_use
        go_on.set()
        await ended.wait()
        assert left == 0
        assert mine.training.steps == middle.training.steps == last.training.steps == 0


async def test_a_holder_that_answers_too_much_is_not_heard_out(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, *rest = spans(2, 4)
    caplog.set_level(logging.INFO)
    async with cluster(directory, own, rest) as nodes:
        driver, _ = await driver_of(nodes, own)

        async def script(_: int) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            return {"success": True, "hidden_states": bytes(1 << 20), "hidden_shape": [2, 12, 64]}

        nodes.holders[0].gate.script = script
        with pytest.raises(Unavailable):
            await driver.step(SESSION, TOKENS, LABELS)
        assert "is larger than the limit" in caplog.text
