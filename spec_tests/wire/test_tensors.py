"""Decision 0032: tensors are read back as they were written, and hostile bytes are refused."""

import struct
import tracemalloc
from contextlib import suppress

import lz4.frame
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from meshnode.domain.errors import InvalidRequest
from meshnode.wire.frames import LZ4_MAGIC
from meshnode.wire.tensors import (
    all_ones,
    pack_floats,
    pack_integers,
    unpack_floats,
    unpack_integers,
)

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 17))
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
FLOATS = arrays(np.float32, SHAPES, elements=FINITE)


@given(values=FLOATS, compress=st.booleans())
def test_float32_is_read_back_to_the_bit(values: np.ndarray, compress: bool) -> None:
    data = pack_floats(values, compress=compress)
    back = unpack_floats(data, values.shape, "x")
    assert back.dtype == np.float32
    assert back.tobytes() == values.tobytes()


@given(values=FLOATS, compress=st.booleans())
def test_bfloat16_is_within_half_of_its_last_bit(values: np.ndarray, compress: bool) -> None:
    back = unpack_floats(pack_floats(values, half=True, compress=compress), values.shape, "x")
    # 8 bits of precision; the smallest numbers have a fixed step, and the largest saturate.
    error = np.abs(back.astype(np.float64) - values)
    assert (error <= np.maximum(np.abs(values.astype(np.float64)) * 2**-8, 2.0**-133)).all()
    again = pack_floats(back, half=True)
    assert unpack_floats(again, values.shape, "x").tobytes() == back.tobytes()


@given(values=arrays(np.int64, st.tuples(st.integers(1, 2), st.integers(1, 40))))
def test_integers_are_read_back(values: np.ndarray) -> None:
    for compress in (False, True):
        data = pack_integers(values, compress=compress)
        assert (unpack_integers(data, values.shape, "x") == values).all()


def test_a_tensor_that_begins_like_a_frame_is_compressed() -> None:
    (number,) = struct.unpack("<f", LZ4_MAGIC)
    values = np.array([[number, 1.5]], dtype=np.float32)
    data = pack_floats(values)
    assert data.startswith(LZ4_MAGIC)
    assert unpack_floats(data, (1, 2), "x").tobytes() == values.tobytes()


def test_it_is_compressed_only_where_that_is_smaller() -> None:
    zeros = np.zeros((1, 100, 100), dtype=np.float32)
    assert len(pack_floats(zeros, compress=True)) < 1000
    assert len(pack_floats(zeros)) == zeros.nbytes
    noise = np.random.default_rng(0).standard_normal((1, 10, 100)).astype(np.float32)
    assert len(pack_floats(noise, compress=True)) <= noise.nbytes


@given(data=st.binary(max_size=200), shape=SHAPES, framed=st.sampled_from([0, 1, 2]))
def test_any_bytes_are_a_tensor_or_refused(
    data: bytes, shape: tuple[int, ...], framed: int
) -> None:
    if framed:
        data = lz4.frame.compress(data) if framed == 1 else LZ4_MAGIC + data
    for unpack in (unpack_floats, unpack_integers):
        values = None
        with suppress(InvalidRequest):
            values = unpack(data, shape, "x")
        assert values is None or values.shape == shape


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", [False, True])
def test_numbers_that_are_not_finite_are_refused(bad: float, half: bool) -> None:
    values = np.array([0.0, bad], dtype=np.float32)
    data = values.tobytes()
    if half:
        data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    with pytest.raises(InvalidRequest, match="finite"):
        unpack_floats(data, (2,), "hidden_states")


@given(cut=st.integers(4, 400), extra=st.binary(min_size=1, max_size=20))
def test_a_frame_that_is_cut_or_followed_is_refused(cut: int, extra: bytes) -> None:
    values = np.arange(200, dtype=np.float32)
    frame = lz4.frame.compress(values.tobytes())
    if cut < len(frame):
        with pytest.raises(InvalidRequest):
            unpack_floats(frame[:cut], (200,), "x")
    with pytest.raises(InvalidRequest):
        unpack_floats(frame + extra, (200,), "x")


def test_a_bomb_is_not_unpacked() -> None:
    """A frame of 2 MiB that unpacks to 512 MiB is refused, and memory use stays low."""
    bomb = lz4.frame.compress(bytes(1 << 29), content_checksum=True)
    tracemalloc.start()
    try:
        for frame in (bomb, lz4.frame.compress(bytes(1 << 20), store_size=True)):
            with pytest.raises(InvalidRequest, match="more than"):
                unpack_floats(frame, (1, 10, 16), "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(lz4.frame.compress(bytes(640), store_size=True))
    frame[6:14] = struct.pack("<Q", 1 << 62)
    with pytest.raises(InvalidRequest):
        unpack_floats(bytes(frame), (1, 10, 16), "x")


@given(count=st.integers(0, 40), wide=st.booleans(), flip=st.integers(0, 400))
def test_masks_are_ones_of_either_width(count: int, wide: bool, flip: int) -> None:
    data = np.ones(count, dtype=np.int64 if wide else np.uint8).tobytes()
    assert all_ones(data, count)
    if data:
        changed = bytearray(data)
        changed[flip % len(data)] ^= 1
        assert not all_ones(bytes(changed), count)
        assert not all_ones(data[:-1], count)
