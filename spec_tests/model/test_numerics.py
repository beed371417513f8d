"""The numeric class of a node."""

import pytest
import torch

from meshnode.model.kernels.library import library
from meshnode.model.numerics import numeric_class


def test_formats_have_classes_of_their_own_and_keep_them() -> None:
    classes = {dtype: numeric_class(dtype) for dtype in ("float32", "bfloat16", "int8")}
    assert len({text.rpartition("-")[2] for text in classes.values()}) == 3
    numeric_class.cache_clear()
    assert classes == {dtype: numeric_class(dtype) for dtype in classes}


def test_the_compiled_kernels_have_one_class_with_any_number_of_threads() -> None:
    if library(torch.get_num_threads()) is None:
        pytest.skip("no kernels: see the log for the reason")
    before, threads = numeric_class("int8"), torch.get_num_threads()
    numeric_class.cache_clear()
    torch.set_num_threads(threads + 1)
    try:
        assert numeric_class("int8") == before
    finally:
        torch.set_num_threads(threads)
