"""Messages and header blocks from any bytes: gRPC over HTTP/2, and the limit of interface 8."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.rpc.errors import Code
from meshnode.rpc.framing import FIRST_LOOK, LOOK_AGAIN, FramingError, MessageReader, prefix
from meshnode.rpc.headers import (
    BadHead,
    RequestHead,
    ResponseEnd,
    ResponseHead,
    parse_request,
    parse_response,
    parse_trailers,
    sent_timeout,
)
from meshnode.rpc.limits import ByteCount

LIMIT = 1000


def read_all(reader: MessageReader, pieces: list[bytes]) -> tuple[list[bytes], FramingError | None]:
    messages = []
    for piece in pieces:
        reader.feed(piece)
        while reader.ready:
            try:
                messages.append(bytes(reader.take()))
            except FramingError as error:
                return messages, error
    return messages, None


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(st.binary(max_size=LIMIT), max_size=8), st.lists(st.integers(0, 9000)))
def test_messages_are_the_same_whatever_the_split(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(prefix(message) + message for message in messages)
    reader = MessageReader(LIMIT)
    assert read_all(reader, cut(data, cuts)) == (messages, None)
    assert not reader.partial


@given(st.binary(min_size=1, max_size=LIMIT), st.data())
def test_a_missing_end_is_noticed(message: bytes, data: st.DataObject) -> None:
    whole = prefix(message) + message
    reader = MessageReader(LIMIT)
    reader.feed(whole[: data.draw(st.integers(1, len(whole) - 1))])
    assert reader.partial
    assert not reader.ready


def test_a_message_is_judged_while_it_arrives() -> None:
    seen: list[tuple[int, int]] = []

    def is_excessive(begin: bytearray, size: int) -> bool:
        seen.append((len(begin), size))
        return len(seen) == 3

    size = 100 * FIRST_LOOK
    reader = MessageReader(size, is_excessive=is_excessive)
    reader.feed(prefix(b"a") + b"a" + struct.pack(">BI", 0, size))
    assert reader.take() == b"a"
    while not reader.ready:
        reader.feed(b"x" * 1000)
    assert [length for _, length in seen] == [size] * 3
    assert seen[0][0] < FIRST_LOOK + 1000
    assert seen[2][0] < LOOK_AGAIN**2 * (FIRST_LOOK + 2000)
    with pytest.raises(FramingError) as refusal:
        reader.take()
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert len(reader._buffer) == 0


@given(st.lists(st.binary(max_size=50), max_size=3), st.integers(LIMIT + 1, 2**32 - 1))
def test_a_message_over_the_limit_is_found_by_its_prefix(good: list[bytes], size: int) -> None:
    data = b"".join(prefix(message) + message for message in good) + struct.pack(">BI", 0, size)
    reader = MessageReader(LIMIT)
    messages, error = read_all(reader, [data])
    assert messages == good
    assert error is not None
    assert error.code is Code.RESOURCE_EXHAUSTED
    reader.feed(b"x" * 100_000)
    assert len(reader._buffer) == 0, "bytes behind a problem are dropped"


def test_a_message_at_the_limit_is_taken() -> None:
    message = b"x" * LIMIT
    assert read_all(MessageReader(LIMIT), [prefix(message) + message]) == ([message], None)


@pytest.mark.parametrize(
    ("flags", "encoding", "code"),
    [
        (1, "gzip", Code.UNIMPLEMENTED),
        (1, "identity", Code.INTERNAL),
        (2, "identity", Code.INTERNAL),
        (255, "gzip", Code.INTERNAL),
    ],
)
def test_unknown_flags_and_encodings_are_refused(flags: int, encoding: str, code: Code) -> None:
    _, error = read_all(MessageReader(LIMIT, encoding), [struct.pack(">BI", flags, 3) + b"abc"])
    assert error is not None
    assert error.code is code


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_give_messages_or_a_problem(pieces: list[bytes]) -> None:
    reader = MessageReader(LIMIT)
    read_all(reader, pieces)
    assert len(reader._buffer) <= sum(map(len, pieces))


GOOD = {
    ":method": "POST",
    ":path": "/node.NodeService/DHTPing",
    "content-type": "application/grpc",
    "te": "trailers",
}


def request(**changes: str) -> RequestHead | BadHead:
    fields = GOOD | {name.replace("_", "-"): value for name, value in changes.items()}
    return parse_request(fields.items())


def test_a_request_names_service_and_operation() -> None:
    assert request() == RequestHead("node.NodeService", "DHTPing", None, "identity")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("99999999n", 0.099999999)],
)
def test_units_of_the_timeout(text: str, seconds: float) -> None:
    head = request(grpc_timeout=text)
    assert isinstance(head, RequestHead)
    assert head.timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "-1S", "1.5S", "123456789S", "1s", " 1S", "1_0S"])
def test_malformed_timeouts(text: str) -> None:
    head = request(grpc_timeout=text)
    assert isinstance(head, BadHead)
    assert head.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "kind",
    ["application/grpc", "application/grpc+proto", "application/grpc;v=1", "Application/gRPC"],
)
def test_content_types_of_grpc(kind: str) -> None:
    assert isinstance(request(content_type=kind), RequestHead)


@pytest.mark.parametrize(
    "kind", ["", "application/json", "application/grpc-web", "application/grpc+json", "text/html"]
)
def test_other_content_types_are_415(kind: str) -> None:
    head = request(content_type=kind)
    assert isinstance(head, BadHead)
    assert head.http_status == 415


def test_other_methods_are_405() -> None:
    head = parse_request((GOOD | {":method": "GET"}).items())
    assert isinstance(head, BadHead)
    assert head.http_status == 405


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/", "//b", "/a/b/c", "a/b", "*"])
def test_other_paths_are_unimplemented(path: str) -> None:
    head = parse_request((GOOD | {":path": path}).items())
    assert isinstance(head, BadHead)
    assert head.http_status == 200
    assert head.code is Code.UNIMPLEMENTED


text = st.text(max_size=20)
names = st.sampled_from([*GOOD, "grpc-timeout", "grpc-status", "grpc-message", ":status"]) | text


@given(st.lists(st.tuples(names, text)))
def test_any_header_block_gives_a_head_or_a_refusal(block: list[tuple[str, str]]) -> None:
    assert isinstance(parse_request(block), RequestHead | BadHead)
    assert isinstance(parse_response(block, ended=False), ResponseHead | ResponseEnd)
    assert isinstance(parse_response(block, ended=True), ResponseEnd)
    assert isinstance(parse_trailers(block), ResponseEnd)


def test_a_status_message_is_percent_decoded() -> None:
    end = parse_trailers([("grpc-status", "5"), ("grpc-message", "no%20l%C3%A4yer %ff")])
    assert end == ResponseEnd(Code.NOT_FOUND, "no läyer �")


@pytest.mark.parametrize(
    ("http", "code"),
    [
        ("401", Code.UNAUTHENTICATED),
        ("404", Code.UNIMPLEMENTED),
        ("503", Code.UNAVAILABLE),
        ("418", Code.UNKNOWN),
    ],
)
def test_http_statuses_become_codes(http: str, code: Code) -> None:
    end = parse_response([(":status", http)], ended=True)
    assert isinstance(end, ResponseEnd)
    assert end.code is code


@given(st.floats(min_value=1e-6, max_value=1e7))
def test_a_sent_timeout_has_at_most_eight_digits_and_is_not_shorter(seconds: float) -> None:
    sent = sent_timeout(seconds)
    units = sent.total_seconds() if sent.microseconds == 0 else sent.total_seconds() * 1e6
    assert round(units) < 10**8
    assert seconds - 1e-6 <= sent.total_seconds() <= seconds * 1.1 + 1


@given(st.lists(st.integers(0, 50)))
def test_held_bytes_never_exceed_the_capacity(sizes: list[int]) -> None:
    count = ByteCount(100)
    taken = [size for size in sizes if count.take(size)]
    assert count.held == sum(taken) <= 100
    for size in taken:
        count.give(size)
    assert count.held == 0
