"""What an encoded message holds is counted before it is parsed (decision 0130)."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from meshnode.wire import node_pb2 as pb
from meshnode.wire.scan import Malformed, MessageLimits, TooMany, is_excessive, scan

MIB = 1024 * 1024
FEW = MessageLimits(100 * MIB, 50, 4096)
MANY = MessageLimits(100 * MIB, 1 << 30, 1 << 30)

EMPTY_HOP, EMPTY_STOP, EMPTY_GRADIENT = b"\x42\0", b"\x3a\0", b"\x3a\0"
HIDDEN_SHAPE = b"\x22"
SESSION_ID = b"\x0a"


def sized(tag: bytes, content: bytes) -> bytes:
    length, out = len(content), bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return tag + bytes([*out, length]) + content


def entries(message: Any) -> int:
    """The entries of a parsed message, at any depth; a map's entry has one field at least."""
    count = 0
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            count += 2 * len(value)
        elif field.message_type is not None:
            each = value if field.is_repeated else [value]
            count += len(each) + sum(map(entries, each))
        else:
            count += len(value) if field.is_repeated else 1
    return count


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (pb.SwarmForwardRequest, EMPTY_HOP * 51),
        (pb.InferenceRequest, EMPTY_STOP * 51),
        (pb.GossipGradientRequest, EMPTY_GRADIENT * 51),
        (pb.GossipGradientRequest, sized(b"\x3a", b"\x0a\0\x12\0") * 18),
        (pb.PipelineForwardRequest, sized(HIDDEN_SHAPE, bytes(51))),
        (pb.PipelineForwardRequest, sized(HIDDEN_SHAPE, bytes(10 * MIB))),
        (pb.PipelineForwardRequest, b"\x20\1" * 51),
        (pb.PipelineForwardRequest, b"\xf8\x07\1" * 51),
        (pb.PipelineForwardRequest, b"\xfb\x07\xfc\x07" * 26),
        (pb.PipelineForwardRequest, b"\xfb\x07" * 51),
        (pb.PipelineForwardRequest, sized(SESSION_ID, bytes(5000))),
        (pb.PipelineForwardRequest, sized(b"\xfa\x07", bytes(5000))),
        (pb.SwarmForwardRequest, sized(b"\x42", sized(b"\x12", bytes(5000)))),
        (pb.DHTFindNodeResponse, sized(b"\x12", b"\x18\1" * 26) * 2),
    ],
)
def test_what_would_take_much_memory_is_refused(kind: type[Message], data: bytes) -> None:
    with pytest.raises(TooMany):
        scan(data, kind, FEW)
    assert scan(b"", kind, FEW) == []


def test_tensors_count_nothing() -> None:
    message = pb.PipelineForwardRequest(
        session_id="s",
        hidden_states=bytes(9 * MIB),
        hidden_shape=[1, 2, 3],
        past_key_values=[bytes(MIB)] * 20,
    )
    data = message.SerializeToString()
    begins = scan(data, pb.PipelineForwardRequest, FEW)
    assert len(begins) == 23
    parsed = pb.PipelineForwardRequest()
    for first, last in zip(begins, [*begins[1:], len(data)], strict=True):
        parsed.MergeFromString(data[first:last])
    assert parsed == message


def test_numbers_in_a_packed_field_are_counted_by_their_last_bytes() -> None:
    data = pb.PipelineForwardRequest(hidden_shape=[-1] * 49).SerializeToString()
    assert len(data) > 490
    assert scan(data, pb.PipelineForwardRequest, FEW) == [0]


@given(
    st.builds(
        pb.SwarmStatusResponse,
        node_id=st.text(max_size=3),
        layers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
        capacity=st.builds(pb.NodeCapacity, kv_used=st.integers(0, 9)),
        peers=st.lists(
            st.builds(pb.SwarmPeer, latency_ms=st.floats(), layers=st.lists(st.integers(0, 200)))
        ),
    )
)
def test_no_entry_is_missed(message: pb.SwarmStatusResponse) -> None:
    data = message.SerializeToString()
    count = entries(message)
    scan(data, pb.SwarmStatusResponse, MANY)
    if count:
        with pytest.raises(TooMany):
            scan(data, pb.SwarmStatusResponse, MessageLimits(0, count - 1, 1 << 30))


KINDS = (pb.SwarmStatusResponse, pb.GossipGradientRequest, pb.PipelineForwardResponse)
TAGS = st.sampled_from([n << 3 | kind for n in range(1, 10) for kind in range(8)])
PARTS = st.one_of(st.binary(max_size=3), TAGS.map(lambda tag: bytes([tag, 1, 0])))


@given(st.sampled_from(KINDS), st.lists(PARTS, max_size=12).map(b"".join))
def test_whatever_protobuf_can_parse_can_be_scanned(kind: type[Message], data: bytes) -> None:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return
    scan(data, kind, MANY)
    count = entries(message)
    if count:
        with pytest.raises(TooMany):
            scan(data, kind, MessageLimits(0, count - 1, 1 << 30))


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\5abc", b"\x80" * 12, b"\x08" + b"\x80" * 11, b"\x0c", b"\x0b", b"\x0f",
     b"\x0d\0\0\0", b"\x09\0\0\0\0\0\0\0", sized(b"\x42", b"\x0a")],
)  # fmt: skip
def test_what_is_cut_off_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        scan(data, pb.SwarmForwardRequest, MANY)
    with pytest.raises(DecodeError):
        pb.SwarmForwardRequest.FromString(data)


@given(
    st.sampled_from(KINDS), st.lists(PARTS, max_size=12).map(b"".join), st.integers(0, 8), st.data()
)
def test_a_message_within_its_limits_is_never_refused_while_it_arrives(
    kind: type[Message], data: bytes, most: int, draw: st.DataObject
) -> None:
    limits = MessageLimits(MIB, most, 1 << 30)
    begin = data[: draw.draw(st.integers(0, len(data)))]
    if is_excessive(begin, len(data), kind, limits):
        with pytest.raises((TooMany, Malformed)):
            scan(data, kind, limits)


def test_entries_that_have_arrived_are_enough() -> None:
    assert is_excessive(EMPTY_HOP * 51, 90 * MIB, pb.SwarmForwardRequest, FEW)
    assert not is_excessive(EMPTY_HOP * 49, 90 * MIB, pb.SwarmForwardRequest, FEW)
    tensor = sized(b"\x1a", bytes(9 * MIB))
    for arrived in (1, 5, MIB, len(tensor)):
        assert not is_excessive(tensor[:arrived], len(tensor), pb.PipelineForwardRequest, FEW)
