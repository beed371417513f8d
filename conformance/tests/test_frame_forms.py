"""The frames that a gradient is sent in: each is read by the library that others use."""

import lz4.frame
from hypothesis import given
from hypothesis import strategies as st

from conformance.checks.frame_forms import MOST, forms_of


@given(st.binary(min_size=1, max_size=600) | st.integers(1, MOST).map(bytes))
def test_each_form_has_the_same_content(content: bytes) -> None:
    read = {what: lz4.frame.decompress(frame) for what, frame in forms_of(content)}
    assert len(read) >= 5
    assert set(read.values()) == {content}


def test_zeros_are_compressed_too() -> None:
    frames = dict(forms_of(bytes(256)))
    assert len(frames["a compressed block"]) < 64
    assert len(set(frames.values())) == len(frames) == 7


def test_what_is_too_large_has_no_other_form() -> None:
    assert list(forms_of(bytes(MOST + 1))) == []
