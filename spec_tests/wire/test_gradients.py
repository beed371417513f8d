"""Pseudo-gradients as bytes: what is kept, what is refused, and bytes to compare with."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.wire.gradients import (
    BYTES,
    KEPT,
    LARGEST,
    MOST_KEPT,
    Format,
    SparseValues,
    pack_float32,
    pack_int8,
    pack_sparse,
    packing_of,
    unpack_gradient,
)
from meshnode.wire.tensors import Floats

SHAPES = [(1,), (3,), (64, 64), (4096,), (4097,), (100, 333), (3, 5, 700)]


def random_values(shape: tuple[int, ...], seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def read(data: bytes, shape: tuple[int, ...]) -> Floats:
    values = unpack_gradient(data, shape, "g")
    return values.dense() if isinstance(values, SparseValues) else values


def test_the_bytes_of_the_decision() -> None:
    """The example of decision 0190, by which another implementation can check itself."""
    values = np.array([[0.5, -4.0, 0.25, 1.0], [0.0, 3.0, -0.125, 2.0]], np.float32)
    data = pack_sparse(values, block=4, kept=2)
    assert data.hex() == (
        "6d6e6731" "02" "02" "0400" "0200" "0000" "02000000" "04000000"
        "803f8040" "00404040"
        "013000" "013000"
        "13"
    )  # fmt: skip
    assert read(data, (2, 4)).tolist() == [[0, -4.0, 0, 1.0], [0, 3.0, 0, 2.0]]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_of_each_block_are_kept(shape: tuple[int, ...]) -> None:
    values = random_values(shape)
    sparse = unpack_gradient(pack_sparse(values), shape, "g")
    assert isinstance(sparse, SparseValues)
    flat, at = values.reshape(-1), 0
    for first in range(0, flat.size, 4096):
        block = flat[first : first + 4096]
        most = math.ceil(block.size / 64)
        kept = sparse.indices[at : at + most] - first
        assert set(kept) == set(np.argsort(-np.abs(block))[:most])
        sent = sparse.values[at : at + most]
        assert (np.sign(sent) == np.sign(block[kept])).all()
        # Two magnitudes: the error is below half of what is sent.
        assert np.linalg.norm(sent - block[kept]) < 0.5 * np.linalg.norm(block[kept])
        at += most
    assert at == len(sparse.indices)


def test_what_a_parameter_takes() -> None:
    values = random_values((1024, 1024))
    assert len(pack_sparse(values)) / values.size == pytest.approx(BYTES[Format.SPARSE], rel=1e-3)
    assert len(pack_int8(values)) / values.size == pytest.approx(BYTES[Format.INT8], rel=1e-3)
    assert BYTES[Format.SPARSE] * 125e6 < 4 * 2**20
    assert BYTES[Format.SPARSE] * 1e9 < 30 * 2**20


def test_a_model_that_fits_is_sent_whole() -> None:
    assert packing_of("auto", 2_000_000).kind is Format.INT8
    assert packing_of("auto", 5_000_000).kind is Format.SPARSE
    assert packing_of("float32", 5_000_000).kind is Format.FLOAT32


def test_a_small_model_sends_more_of_itself() -> None:
    assert packing_of("sparse", 2_000_000).kept == MOST_KEPT
    assert packing_of("auto", 1_000_000_000).kept == KEPT
    for parameters in (10_000_000, 30_000_000, 135_000_000):
        packing = packing_of("auto", parameters)
        assert 3.5 * 2**20 < packing.bytes_of(parameters) <= 4 * 2**20


@pytest.mark.parametrize("parameters", [2_000_000, 135_000_000, 3_000_000_000])
@pytest.mark.parametrize("most_bytes", [0.5, 1.3 * 2**20, 4 * 2**20, 100 * 2**20])
def test_a_bound_holds_unless_it_is_below_one_value_of_each_block(
    parameters: int, most_bytes: float
) -> None:
    packing, usual = packing_of("auto", parameters, most_bytes), packing_of("auto", parameters)
    assert packing.bytes_of(parameters) <= usual.bytes_of(parameters)
    assert packing.kept == 1 or packing.bytes_of(parameters) <= most_bytes
    # What is sent has the size that was promised.
    values = random_values((64 * 4096,))
    if packing.kind is Format.SPARSE:
        sent = len(pack_sparse(values, kept=packing.kept))
        assert sent == pytest.approx(packing.bytes_of(values.size), rel=0.02, abs=16)


@pytest.mark.parametrize("parameters", [3_600_000_000, 3_800_000_000, 70_000_000_000])
def test_a_model_of_any_size_fits_one_message(parameters: int) -> None:
    packing = packing_of("auto", parameters)
    assert 0.9 * LARGEST < packing.bytes_of(parameters) <= LARGEST
    assert packing.kept == {3_600_000_000: 64, 3_800_000_000: 61, 70_000_000_000: 1}[parameters]


def test_a_format_that_was_asked_for_is_kept_beyond_a_bound() -> None:
    assert packing_of("float32", 5_000_000, 1000).kind is Format.FLOAT32
    assert packing_of("auto", 2_000_000, 2**20).kind is Format.SPARSE


@pytest.mark.parametrize("shape", SHAPES)
def test_the_other_formats(shape: tuple[int, ...]) -> None:
    values = random_values(shape)
    assert (read(pack_float32(values), shape) == values).all()
    headed = struct.pack("<4sBBHHH", b"mng1", 0, len(shape), 0, 0, 0)
    headed += np.array(shape, "<u4").tobytes()
    assert (read(headed + pack_float32(values), shape) == values).all()
    error = np.abs(read(pack_int8(values), shape) - values).max()
    assert error <= np.abs(values).max() / 127 / 2 * 1.001


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=40), st.integers(1, 8)
)
def test_any_values_can_be_sent(numbers: list[float], block: int) -> None:
    values = np.array(numbers, np.float32)
    for kept in range(1, block + 1):
        sparse = read(pack_sparse(values, block, kept), values.shape)
        # The sum of what is sent and what is left is what was there, so nothing is made up.
        assert np.isfinite(sparse).all()
        assert np.isfinite(values - sparse).all()
    assert np.isfinite(read(pack_int8(values, block), values.shape)).all()


def test_zeros() -> None:
    for packed in (pack_sparse, pack_int8, pack_float32):
        assert not read(packed(np.zeros(5000, np.float32)), (5000,)).any()


GOOD = pack_sparse(random_values((5000,)))
HEADER = 16


def changed(at: int, value: int, data: bytes = GOOD) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no header"),
        (b"mng1", "no header"),
        (b"mng2" + GOOD[4:], "no header"),
        (changed(4, 3), "unknown format"),
        (changed(5, 2), "shape"),
        (changed(5, 255), "shape"),
        (changed(6, 1), "header"),
        (changed(8, 0), "header"),
        (changed(10, 1), "header"),
        (changed(12, 0), "shape"),
        (GOOD[:-1], "do not fit"),
        (GOOD + b"\0", "do not fit"),
        # NaN, and a lower magnitude above the higher one.
        (GOOD[:HEADER] + b"\xc0\x7f\xc0\x7f" + GOOD[HEADER + 4 :], "magnitudes"),
        (GOOD[:HEADER] + b"\x00\x40\x80\x3f" + GOOD[HEADER + 4 :], "magnitudes"),
        (GOOD[:HEADER] + b"\x00\x80\x80\x3f" + GOOD[HEADER + 4 :], "magnitudes"),
        # The first index is repeated.
        (GOOD[: HEADER + 8] + b"\x01\x10\x00" + GOOD[HEADER + 11 :], "indices"),
    ],
)
def test_what_is_malformed_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refusal:
        unpack_gradient(data, (5000,), "layer_gradients[w]")
    assert "layer_gradients[w]" in str(refusal.value)


def test_an_index_beyond_the_last_block_is_refused() -> None:
    data = pack_sparse(random_values((3,)))
    with pytest.raises(InvalidRequest, match="indices"):
        unpack_gradient(data[:20] + b"\x03\x00" + data[22:], (3,), "g")
    with pytest.raises(InvalidRequest, match="not zero"):
        unpack_gradient(data[:22] + bytes([data[22] | 0x80]), (3,), "g")


def test_int8_out_of_range_is_refused() -> None:
    data = pack_int8(np.ones(3, np.float32))
    for bad in (data[:-1] + b"\x80", data[:16] + b"\0\0\xc0\x7f" + data[20:], data[:-1]):
        with pytest.raises(InvalidRequest):
            unpack_gradient(bad, (3,), "g")


@given(st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes) -> None:
    for body in (data, GOOD[:HEADER] + data, pack_int8(np.ones(40, np.float32))[:16] + data):
        with pytest.raises(InvalidRequest):
            unpack_gradient(body, (41,), "g")
