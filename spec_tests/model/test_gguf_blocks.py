"""Blocks that are taken over from a file are what would be made of their weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model.gguf_blocks import format_of, split, take_over
from meshnode.model.kernels.formats import Quantised, quantise

KINDS = ("Q8_0", "Q4_0", "Q4_1")
KINDS_OF_OTHERS = ("F32", "F16", "BF16", "Q5_0", "Q4_K", "Q6_K")


def require_same(found: Quantised, made: Quantised) -> None:
    assert found.format is made.format
    assert found.inputs == made.inputs
    assert torch.equal(found.quants, made.quants)
    assert torch.equal(found.scales, made.scales)
    if made.minima is None:
        assert found.minima is None
    else:
        assert found.minima is not None
        assert torch.equal(found.minima, made.minima)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_package_writes_is_taken_over(kind: str) -> None:
    weights = np.random.default_rng(3).normal(0, 0.1, (8, 96)).astype(np.float32)
    raw = quants.quantize(weights, Kind[kind])
    form = format_of(kind)
    assert form is not None
    found = take_over(raw, form)
    assert found is not None
    require_same(found, quantise(torch.from_numpy(quants.dequantize(raw, Kind[kind])), form))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_no_bytes_are_taken_over_as_anything_else(kind: str, data: st.DataObject) -> None:
    size = getattr(quants, kind).type_size
    numbers = st.sampled_from(
        [0, 1, 0x8001, 0x0400, 0x2E66, 0xAE66, 0x3C00, 0x7BFF, 0x7C00, 0xFE00]
    )
    head = b"".join(
        data.draw(st.one_of(numbers, st.integers(0, 0xFFFF))).to_bytes(2, "little")
        for _ in range(2 if kind == "Q4_1" else 1)
    )
    tail = data.draw(st.binary(min_size=size - len(head), max_size=size - len(head)))
    if data.draw(st.booleans()):
        # Both ends of the range, so that the block may be taken over.
        tail = (b"\x81\x7f" if kind == "Q8_0" else b"\xf0\x0f") + tail[2:]
    raw = np.frombuffer(head + tail, np.uint8).reshape(1, size)
    form = format_of(kind)
    assert form is not None
    found = take_over(raw, form)
    plain = split(raw.reshape(1, 1, -1), form)
    assert (plain is None) == (found is None)
    if found is not None and plain is not None:
        require_same(Quantised(form, found.inputs, *plain), found)
        with np.errstate(all="ignore"):
            floats = getattr(quants, kind).dequantize_blocks(raw)
        require_same(found, quantise(torch.from_numpy(floats), form))


@pytest.mark.parametrize("kind", KINDS_OF_OTHERS)
def test_other_types_are_no_format(kind: str) -> None:
    assert format_of(kind) is None
