"""The adapter's decoder agrees with the node's, its update with autograd; tensors as JSON."""

import base64
import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import meshnode
from meshnode.domain.chain.canonical import digest
from meshnode.model.adapter import (
    Adapter,
    InvalidTensor,
    read_tensor,
    seeded_normal,
    sequence_loss,
    tensor_document,
    update,
)
from meshnode.model.decoder import Decoder
from meshnode.model.documents import ModelUnreadable
from meshnode.model.exact import product
from meshnode.model.exact_decoder import ExactCache, ExactDecoder, frequencies
from meshnode.model.families import QWEN2
from meshnode.model.rope import Rope, RopeKind
from spec_tests.model.small_models import random_tokens, small_config


def random_decoder(seed: int = 0, **changes: Any) -> Decoder:
    decoder = Decoder(small_config(**changes))
    decoder.init_weights(torch.Generator().manual_seed(seed))
    for name, parameter in decoder.named_parameters():
        if name.endswith("bias"):
            noise = seeded_normal(name, seed, parameter.numel()) * 0.3
            parameter.data.copy_(torch.from_numpy(noise.astype(np.float32)))
    return decoder


SHAPES: list[dict[str, Any]] = [
    {},
    {"tied_head": True, "num_kv_heads": 1},
    {"num_kv_heads": 4, "attention_bias": True, "mlp_bias": True},
    {"architecture": QWEN2, "head_dim": 8},
    {
        "rope": Rope(
            kind=RopeKind.LLAMA3,
            factor=8.0,
            trained_context=64,
            low_frequency_factor=1.0,
            high_frequency_factor=4.0,
        )
    },
    {"rope": Rope(kind=RopeKind.LINEAR, factor=4.0)},
]


@pytest.mark.parametrize("changes", SHAPES, ids=lambda c: "-".join(c) or "plain")
def test_the_exact_decoder_computes_the_nodes_model(changes: dict[str, Any]) -> None:
    decoder = random_decoder(**changes)
    exact = ExactDecoder(decoder, 64)
    tokens = random_tokens(1, 40)
    with torch.no_grad():
        expected = decoder(tokens)[0].numpy()
    features = exact.features(tokens[0].tolist())
    logits = product(features.astype(np.float64), exact.head)
    assert np.abs(logits - expected).max() < 2e-3 * np.abs(expected).max()


EXACT = ExactDecoder(random_decoder(3), 64)
TOKENS = random_tokens(1, 30, seed=5)[0].tolist()


@given(st.lists(st.integers(1, 29), max_size=6, unique=True))
def test_a_rows_features_do_not_depend_on_the_cuts(cuts: list[int]) -> None:
    past, rows = ExactCache(), []
    edges = [0, *sorted(cuts), len(TOKENS)]
    for start, stop in itertools.pairwise(edges):
        rows.append(EXACT.features(TOKENS[start:stop], past))
    assert np.array_equal(np.concatenate(rows), EXACT.features(TOKENS))


def test_a_model_that_cannot_be_executed_is_refused() -> None:
    with pytest.raises(ModelUnreadable, match="only a part"):
        ExactDecoder(Decoder(small_config(), range(2)), 64)
    with pytest.raises(ModelUnreadable, match="yarn"):
        frequencies(Rope(kind=RopeKind.YARN, factor=2.0), 16)
    broken = random_decoder()
    assert broken.norm is not None
    broken.norm.weight.data.fill_(math.inf)
    with pytest.raises(ArithmeticError, match="not finite"):
        ExactDecoder(broken, 64).features([1, 2])
    with pytest.raises(ValueError, match="room for 64"):
        EXACT.features([1] * 65)


@pytest.mark.parametrize(("scale", "clipped"), [(0.1, False), (0.5, True)])
def test_the_update_is_that_of_autograd(scale: float, clipped: bool) -> None:
    decoder = random_decoder(1)
    exact = ExactDecoder(decoder, 64)
    tokens = random_tokens(1, 64, seed=2)[0].tolist()
    features = exact.features(tokens)
    size = decoder.config.hidden_size
    start = Adapter(
        (seeded_normal("a", 1, 4 * size) * scale).astype(np.float32).reshape(4, size),
        (seeded_normal("b", 1, 4 * size) * scale).astype(np.float32).reshape(size, 4),
    )
    a = torch.tensor(start.a, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(start.b, dtype=torch.float64, requires_grad=True)
    hidden = torch.tensor(features, dtype=torch.float64)
    assert decoder.head is not None
    head = decoder.head.weight.detach().double()
    logits = (hidden + (hidden @ a.T) @ b.T) @ head.T
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(tokens[1:]))
    torch.autograd.backward([loss])
    norm = torch.nn.utils.clip_grad_norm_([a, b], 1.0)
    assert bool(norm > 1) is clipped

    assert a.grad is not None
    assert b.grad is not None
    done = update(start, exact.head, features, tokens)
    assert done.loss == pytest.approx(loss.item(), abs=1e-6)
    assert done.loss == sequence_loss(start, exact.head, features, tokens)
    assert np.abs(done.adapter.a - (a - 0.02 * a.grad).detach().numpy()).max() < 1e-6
    assert np.abs(done.adapter.b - (b - 0.02 * b.grad).detach().numpy()).max() < 1e-6
    # A second update gives the same result, since no state is kept between updates.
    again = update(copy.deepcopy(start), exact.head, features.copy(), tokens)
    assert (again.adapter, again.gradient_root) == (done.adapter, done.gradient_root)


def test_the_first_adapter_changes_nothing_and_is_the_same_everywhere() -> None:
    adapter = Adapter.initial(128)
    assert adapter.a.shape == (4, 128)
    assert 0.009 < adapter.a.std() < 0.011
    assert not adapter.b.any()
    assert adapter.root == "dc0bb8093d6f38b91046e3efd93ae6ac2321edfb41eb0a3d9696380ca73a9a0d"
    features = EXACT.features(TOKENS)
    plain = product(features.astype(np.float64), EXACT.head)
    assert np.array_equal(Adapter.initial(64).logits(features, EXACT.head), plain)


def test_tensors_travel_as_json() -> None:
    tensor = np.array([[1.5, -2.0], [0.1, 3e-39]], np.float32)
    document = tensor_document(tensor)
    assert document == {"shape": [2, 2], "data": base64.b64encode(tensor.tobytes()).decode()}
    assert np.array_equal(read_tensor(document, (2, 2)), tensor)
    adapter = Adapter.initial(8)
    assert Adapter.read(adapter.document(), 8) == adapter
    assert adapter.root == digest(adapter.document())


GOOD = tensor_document(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**GOOD, "more": 1},
        {**GOOD, "shape": [4]},
        {**GOOD, "shape": [2, True]},
        {**GOOD, "shape": "22"},
        {**GOOD, "data": 5},
        {**GOOD, "data": "AAAA"},
        {**GOOD, "data": "!" * 24},
        {**GOOD, "data": "=" * 24},
        {**GOOD, "data": base64.b64encode(bytes(18)).decode()},
        tensor_document(np.array([[np.nan, 0], [0, 0]], np.float32)),
        tensor_document(np.array([[np.inf, 0], [0, 0]], np.float32)),
    ],
)
def test_malformed_tensors_are_refused(document: Any) -> None:
    with pytest.raises(InvalidTensor):
        read_tensor(document, (2, 2))
    with pytest.raises(InvalidTensor):
        Adapter.read({"a": document, "b": document}, 2)
    with pytest.raises(InvalidTensor):
        Adapter.read(document, 2)


def test_the_generator_is_a_normal_distribution() -> None:
    values = seeded_normal("test", 7, 20_001)
    assert len(values) == 20_001
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    assert abs((values > 1.0).mean() - 0.1587) < 0.01
    assert not np.array_equal(values[:9], seeded_normal("test", 8, 9))


def test_the_package_has_the_corpus_that_the_tool_writes() -> None:
    from tools.chain_dataset import TARGET, corpus, written

    package = Path(meshnode.__file__).parent
    assert package / "assets" / "dataset" / "corpus.json" == TARGET
    assert TARGET.read_bytes() == written(corpus())
    assert TARGET.stat().st_size < 1 << 20
