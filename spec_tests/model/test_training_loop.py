"""The inner training loop: its schedule, its update, its loss, and stopping and resuming."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from meshnode.model.config import DecoderConfig
from meshnode.model.decoder import Decoder
from meshnode.model.training import (
    IGNORED,
    Batch,
    InnerTrainer,
    Recipe,
    TrainingStateMismatch,
    cross_entropy,
    evaluate,
)

VOCAB = 24
RECIPE = Recipe(learning_rate=5e-3, warmup_steps=3, total_steps=20)


def tiny_decoder(seed: int = 0) -> Decoder:
    config = DecoderConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        context_length=32,
        tied_head=True,
    )
    model = Decoder(config)
    model.init_weights(torch.Generator().manual_seed(seed))
    return model


def batch_of(seed: int, rows: int = 3, length: int = 8) -> Batch:
    tokens = torch.randint(VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    return Batch(tokens[:, :-1].clone(), tokens[:, 1:].clone())


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


@given(
    warmup=st.integers(0, 50),
    span=st.integers(1, 500),
    step=st.integers(0, 1000),
    final=st.floats(0, 1),
)
def test_rate_rises_to_the_top_and_then_falls_to_the_final_fraction(
    warmup: int, span: int, step: int, final: float
) -> None:
    recipe = Recipe(
        learning_rate=1.0, warmup_steps=warmup, total_steps=warmup + span, final_fraction=final
    )
    if step + 1 < warmup:
        assert 0 < recipe.rate(step) < recipe.rate(step + 1) <= 1
    elif step >= warmup:
        assert recipe.rate(step) >= recipe.rate(step + 1) >= final - 1e-12
    assert recipe.rate(warmup) == pytest.approx(1.0)
    assert recipe.rate(warmup + span) == pytest.approx(final)


def test_without_an_end_the_rate_stays_at_the_top_after_the_warm_up() -> None:
    recipe = Recipe(learning_rate=1e-4, warmup_steps=4)
    assert [recipe.rate(step) for step in (0, 1, 3, 4, 10**6)] == pytest.approx(
        [2.5e-5, 5e-5, 1e-4, 1e-4, 1e-4]
    )


@given(
    warmup=st.integers(0, 20),
    plateau=st.integers(0, 50),
    decay=st.integers(1, 50),
    longer=st.integers(0, 50),
)
def test_before_its_decay_a_run_does_not_depend_on_how_long_it_will_be(
    warmup: int, plateau: int, decay: int, longer: int
) -> None:
    short = Recipe(
        learning_rate=1.0,
        warmup_steps=warmup,
        decay_steps=decay,
        total_steps=warmup + plateau + decay,
    )
    long = replace(short, total_steps=warmup + plateau + decay + longer)
    for step in range(warmup + plateau):
        assert short.rate(step) == long.rate(step)
    assert short.rate(short.decay_start) == 1.0
    later = replace(short, first_step=1000)
    assert later.rate(1000 + warmup + plateau) == 1.0
    assert later.rate(1000) == short.rate(0)
    assert short.rate(short.decay_start + decay) == pytest.approx(short.final_fraction)


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"clip_norm": 0.0},
        {"weight_decay": -0.1},
        {"warmup_steps": -1},
        {"warmup_steps": 9, "total_steps": 8},
        {"decay_steps": -1, "total_steps": 8},
        {"warmup_steps": 5, "decay_steps": 5, "total_steps": 8},
    ],
)
def test_impossible_recipes_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Recipe(**changes)  # type: ignore[arg-type]


def test_the_update_is_adamw_with_clipping_and_decay_of_matrices_only() -> None:
    model = tiny_decoder()
    recipe = Recipe(learning_rate=3e-3, warmup_steps=2, clip_norm=0.05)
    trainer = InnerTrainer(model, recipe)
    reference = copy.deepcopy(model)
    first = {name: torch.zeros_like(p) for name, p in reference.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in reference.named_parameters()}
    for step in range(4):
        batch = batch_of(step)
        report = trainer.step(batch)
        reference.zero_grad()
        torch.autograd.backward([cross_entropy(reference(batch.inputs), batch.targets)])
        gradients = {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}
        norm = torch.sqrt(sum((g.double() ** 2).sum() for g in gradients.values()))  # type: ignore[arg-type]
        assert report.gradient_norm == pytest.approx(float(norm), rel=1e-5)
        assert report.gradient_norm > recipe.clip_norm
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                gradient = gradients[name] * (recipe.clip_norm / norm)
                first[name].lerp_(gradient, 0.1)
                second[name].mul_(0.95).addcmul_(gradient, gradient, value=0.05)
                if parameter.dim() > 1:
                    parameter.mul_(1 - recipe.rate(step) * recipe.weight_decay)
                mean = first[name] / (1 - 0.9 ** (step + 1))
                scale = (second[name] / (1 - 0.95 ** (step + 1))).sqrt() + recipe.epsilon
                parameter.sub_(recipe.rate(step) * mean / scale)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, dict(reference.named_parameters())[name])


def test_a_step_reports_the_loss_before_it_and_counts_only_what_counts() -> None:
    model = tiny_decoder()
    batch = batch_of(1)
    batch.targets[0, :5] = IGNORED
    expected = evaluate(model, [batch])
    report = InnerTrainer(model, RECIPE).step(batch)
    assert report.loss == pytest.approx(expected.loss, rel=1e-6)
    assert report.tokens == expected.tokens == 3 * 8 - 5
    assert report.step == 0
    assert report.learning_rate == pytest.approx(RECIPE.learning_rate / 3)


def test_ignored_targets_have_no_gradient() -> None:
    logits = torch.randn(1, 4, VOCAB, generator=torch.Generator().manual_seed(1))
    logits.requires_grad_()
    targets = torch.tensor([[3, IGNORED, 5, IGNORED]])
    torch.autograd.backward([cross_entropy(logits, targets)])
    assert logits.grad is not None
    assert logits.grad[0, [1, 3]].abs().sum() == 0
    assert (logits.grad[0, [0, 2]].abs().sum(-1) > 0).all()


def test_evaluation_weighs_positions_and_not_batches() -> None:
    model = tiny_decoder()
    large, small = batch_of(1, rows=4), batch_of(2, rows=1)
    small.targets[0, 2:] = IGNORED
    together, one, other = (evaluate(model, b) for b in ([large, small], [large], [small]))
    assert together.tokens == 34
    assert together.loss == pytest.approx((one.loss * 32 + other.loss * 2) / 34)
    assert together.perplexity == pytest.approx(2.718281828**together.loss)


def test_evaluation_changes_nothing_and_refuses_to_measure_nothing() -> None:
    model = tiny_decoder()
    before = weights(model)
    evaluate(model, [batch_of(1)])
    assert_same(before, weights(model))
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(model, [])


def test_the_same_run_twice_gives_the_same_bits() -> None:
    runs = []
    for _ in range(2):
        trainer = InnerTrainer(tiny_decoder(), RECIPE)
        for step in range(6):
            trainer.step(batch_of(step))
        runs.append(trainer.state())
    assert_same(*runs)


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_run_restored_from_a_file_goes_on_as_if_it_had_never_stopped(
    tmp_path: Path, stop: int
) -> None:
    whole = InnerTrainer(tiny_decoder(), RECIPE)
    for step in range(stop):
        whole.step(batch_of(step))
    # safetensors accepts only plain tensors that share no memory.
    save_file(whole.state(), tmp_path / "state.safetensors")
    for step in range(stop, 8):
        whole.step(batch_of(step))

    resumed = InnerTrainer(tiny_decoder(seed=99), RECIPE)
    resumed.restore(load_file(tmp_path / "state.safetensors"))
    assert resumed.step_count == stop
    reports = [resumed.step(batch_of(step)) for step in range(stop, 8)]
    assert [report.step for report in reports] == list(range(stop, 8))
    assert_same(whole.state(), resumed.state())


def test_a_state_is_a_copy_and_lists_tied_weights_once() -> None:
    trainer = InnerTrainer(tiny_decoder(), RECIPE)
    before = trainer.state()
    kept = {name: tensor.clone() for name, tensor in before.items()}
    trainer.step(batch_of(0))
    assert_same(before, kept)
    assert "weight.embedding.weight" in before
    assert "weight.head.weight" not in before


def _without(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name != "moment1.norm.weight"}


def _with(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"weight.other": torch.zeros(1)}


def _reshaped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"weight.norm.weight": torch.zeros(17)}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without, "moment1.norm.weight is missing"),
        (_with, "weight.other is unknown"),
        (_reshaped, r"weight.norm.weight has shape \[17\]"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    spoil: object, message: str
) -> None:
    assert callable(spoil)
    trainer = InnerTrainer(tiny_decoder(), RECIPE)
    trainer.step(batch_of(0))
    before = trainer.state()
    other = InnerTrainer(tiny_decoder(seed=5), RECIPE)
    with pytest.raises(TrainingStateMismatch, match=message):
        trainer.restore(spoil(other.state()))
    assert_same(before, trainer.state())


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    model = tiny_decoder()
    broken = False

    def forward(inputs: Tensor) -> Tensor:
        logits: Tensor = model(inputs)
        return logits * float("nan") if broken else logits

    trainer = InnerTrainer(model, RECIPE, forward)
    trainer.step(batch_of(0))
    before = trainer.state()
    broken = True
    with pytest.raises(FloatingPointError, match="step 1"):
        trainer.step(batch_of(1))
    assert_same(before, trainer.state())
    broken = False
    assert trainer.step(batch_of(1)).step == 1


def test_a_small_decoder_learns_to_continue_a_pattern() -> None:
    model = tiny_decoder()
    trainer = InnerTrainer(model, Recipe(learning_rate=1e-2, warmup_steps=5, total_steps=120))
    starts = torch.arange(VOCAB)[:, None]
    tokens = (starts + 5 * torch.arange(9)) % VOCAB
    batch = Batch(tokens[:, :-1], tokens[:, 1:])
    untrained = evaluate(model, [batch]).loss
    for _ in range(120):
        trainer.step(batch)
    assert untrained > 3
    assert evaluate(model, [batch]).loss < 0.1
