"""Exact arithmetic is accurate, and its bits do not depend on order, splitting or library."""

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshnode.model import exact
from meshnode.model.execution import PROFILE_VECTOR, profile_vector

finite = st.floats(-1e6, 1e6, allow_subnormal=False)


def matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


@given(st.floats(-79, 79))
def test_exp_is_the_exponential(value: float) -> None:
    assert exact.exp(np.array(value)) == pytest.approx(math.exp(value), rel=1e-13)


@given(st.floats(1e-12, 1e12))
def test_log_is_the_logarithm(value: float) -> None:
    assert exact.log(np.array(value)) == pytest.approx(math.log(value), rel=1e-13, abs=1e-14)


@given(st.floats(-2000, 2000))
def test_sine_and_cosine(angle: float) -> None:
    sine, cosine = exact.sine_cosine(np.array(angle))
    assert sine == pytest.approx(math.sin(angle), abs=1e-11)
    assert cosine == pytest.approx(math.cos(angle), abs=1e-11)


@given(st.lists(finite, min_size=1, max_size=40), st.integers(0, 2**32))
def test_a_product_is_the_sum_of_rational_numbers(values: list[float], seed: int) -> None:
    """Products are not rounded, so summation order, fused operations and threads do not matter."""
    bits = exact.bits_for(len(values))
    left = exact.fix(np.array([values]), bits)
    right = exact.fix(matrix(1, len(values), seed), bits)
    pairs = zip(left.integers[0].tolist(), right.integers[0].tolist(), strict=True)
    true = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
    assert abs(true) <= 2**53
    assert Fraction((left.integers @ right.integers.T).item()) == true


@given(st.integers(1, 400), st.integers(0, 2**32))
def test_a_product_is_near_and_ignores_the_order(length: int, seed: int) -> None:
    left, right = matrix(3, length, seed), matrix(5, length, seed + 1)
    result = exact.product(left, exact.fix(right, exact.bits_for(length)))
    assert np.abs(result - left @ right.T).max() < 2e-6 * length
    order = np.random.default_rng(seed).permutation(length)
    shuffled = exact.product(left[:, order], exact.fix(right[:, order], exact.bits_for(length)))
    assert np.array_equal(result, shuffled)


@given(st.integers(1, 300), st.integers(0, 2**32))
def test_a_sum_over_rows_is_near_the_true_one(length: int, seed: int) -> None:
    left, right = matrix(2, length, seed), matrix(length, 6, seed + 1)
    bits = exact.bits_for(6)
    result = exact.product_of_rows(left, exact.fix(right, bits), bits)
    assert np.abs(result - left @ right).max() < 2e-6 * length


def test_zero_and_tiny_rows_are_handled() -> None:
    rows = np.array([[0.0, 0.0], [1e-300, -1e-300], [5e-324, 0.0]])
    fixed = exact.fix(rows, 26)
    assert np.isfinite(fixed.integers).all()
    assert np.abs(fixed.integers * fixed.scale - rows).max() < 1e-120
    assert exact.mean_square(rows)[0] == 0


def test_shares_do_not_depend_on_what_is_not_seen() -> None:
    scores = matrix(4, 9, 1)
    seen = np.arange(9) <= np.arange(4)[:, None]
    alone = exact.exponential_weights(scores[:1, :1], 9, None).shares
    masked = exact.exponential_weights(scores, 9, seen).shares
    assert masked[0, 0] == alone[0, 0] == 1.0
    assert np.array_equal(
        masked[2, :3], exact.exponential_weights(scores[2:3, :3], 9, None).shares[0]
    )
    assert np.allclose(masked.sum(axis=-1), 1.0, atol=1e-12)
    assert not masked[0, 1:].any()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_vector_does_not_depend_on_torchs_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert profile_vector() == PROFILE_VECTOR
    finally:
        torch.set_num_threads(before)


@pytest.mark.process
@pytest.mark.parametrize(
    ("kernels", "threads"),
    [
        ("Prescott", 4),
        pytest.param("Haswell", 1, marks=pytest.mark.slow),
        pytest.param("SkylakeX", 2, marks=pytest.mark.slow),
    ],
)
def test_the_vector_does_not_depend_on_the_processor(kernels: str, threads: int) -> None:
    """OpenBLAS is set to kernels for other processors, where this processor can run them."""
    program = "from meshnode.model.execution import *; print(profile_vector() == PROFILE_VECTOR)"
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": kernels,
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "ATEN_CPU_CAPABILITY": "default",
    }
    if not _has_avx512():
        environment["OPENBLAS_CORETYPE"] = "Prescott"
    output = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert output.stdout == "True\n"


def _has_avx512() -> bool:
    return "avx512" in torch.backends.cpu.get_cpu_capability().lower()
