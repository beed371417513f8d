"""Frames of the ABCI socket: any cut of the bytes gives the same messages, and all are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.services.abci.frames import FrameReader, InvalidFrame, frame


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 400), max_size=20))
def test_messages_survive_any_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(frame, messages))
    reader, found = FrameReader(), list[bytes]()
    for size in [*cuts, len(data)]:
        found += reader.feed(data[:size])
        data = data[size:]
    assert found == messages
    assert reader.is_empty


def test_lengths_are_varints_as_in_protobuf() -> None:
    assert frame(b"\x12\x00") == b"\x02\x12\x00"
    assert frame(b"x" * 300)[:2] == b"\xac\x02"


def test_a_message_above_the_bound_is_refused_before_it_arrives() -> None:
    reader = FrameReader(max_bytes=300)
    assert list(reader.feed(frame(b"x" * 300))) == [b"x" * 300]
    with pytest.raises(InvalidFrame):
        list(reader.feed(frame(b"x" * 301)[:2]))


def test_a_length_that_does_not_end_is_refused() -> None:
    with pytest.raises(InvalidFrame):
        list(FrameReader().feed(b"\xff" * 5))


@given(st.binary(max_size=40))
def test_any_bytes_give_messages_or_a_refusal(data: bytes) -> None:
    try:
        found = list(FrameReader(max_bytes=1000).feed(data))
    except InvalidFrame:
        return
    assert b"".join(map(frame, found)) == data[: len(b"".join(map(frame, found)))] or found
