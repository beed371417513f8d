"""The parts that decide without a network: JSON, types, times, events, wire fields, paths."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance import messages, sse
from conformance.catalogue import MessageRule
from conformance.checks.config import flat, nested
from conformance.checks.mixed_searches import Listing
from conformance.secrecy import Redactor
from conformance.shapes import is_path, lookup
from conformance.strictjson import TYPES, NotJson, parse
from conformance.target import BadConfiguration, make_target
from conformance.times import date_fault, timestamp_fault

GOOD_TIMES = [
    "2026-01-01T12:00:00Z", "2026-01-01T12:00:00+00:00", "2026-01-01T12:00:00.123456789Z",
    "2026-01-01T12:00:00", "20260101T120000Z", "2026-01-01 12:00:00Z", "2026-01-01T12:00Z",
    "2026-01-01t12:00:00z", "2026-01-01T12:00:00-00:00", "2016-12-31T23:59:60Z",
    "2026-01-01T12:00:00,5Z", "2026-01-01T12Z",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD_TIMES)
def test_every_spelling_of_iso_8601_in_utc_is_a_timestamp(text: str) -> None:
    assert timestamp_fault(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-01", "12:00:00Z", "1767268800", "2026-13-01T12:00:00Z",
     "2026-01-01T12:00:00+01:00", "2026-01-01T25:00:00Z", "Thu, 01 Jan 2026 12:00:00 GMT"],
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
    assert timestamp_fault(text) is not None


@given(st.dates())
def test_dates_are_what_iso_writes(day: Any) -> None:
    assert date_fault(day.isoformat()) is None


@pytest.mark.parametrize("text", ["2026-02-30", "01.01.2026", "2026-1-1", "20260101", ""])
def test_other_dates_are_refused(text: str) -> None:
    assert date_fault(text) is not None


@pytest.mark.parametrize(
    ("kind", "text", "fits"),
    [
        ("int", "1", True), ("int", "1.0", True), ("int", "1e2", True), ("int", "1.5", False),
        ("int", "true", False), ("int", '"1"', False), ("int", "null", False),
        ("int", "1" + "0" * 400, True), ("number", "1", True), ("number", "0.5", True),
        ("number", "false", False), ("number", "1e999", False), ("bool", "true", True),
        ("bool", "1", False), ("string", '""', True), ("string", "null", False),
        ("ints", "[]", True), ("ints", "[1, 2.0]", True), ("ints", "[true]", False),
        ("object", "[]", False), ("array", "{}", False),
    ],
)  # fmt: skip
def test_documented_types(kind: str, text: str, fits: bool) -> None:
    assert TYPES[kind](parse(text.encode()).value) is fits


@pytest.mark.parametrize(
    "data", [b"NaN", b'{"a": Infinity}', b"\xff", b"", b"{'a': 1}", b"[" * 9999]
)
def test_what_is_not_json(data: bytes) -> None:
    with pytest.raises(NotJson):
        parse(data)


def test_keys_that_occur_twice_are_named() -> None:
    parsed = parse(b'{"a": {"b": 1, "b": 2}, "c": 3}')
    assert parsed.repeated_keys == ("b",)
    assert parsed.value == {"a": {"b": 2}, "c": 3}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])


@given(st.lists(_JSON, min_size=1, max_size=5), _NEWLINES, st.booleans(), st.booleans())
def test_events_survive_every_framing(
    values: list[Any], newline: str, space: bool, comments: bool
) -> None:
    frames = [
        f"{': hello' + newline if comments else ''}data:{' ' if space else ''}"
        f"{json.dumps(value)}{newline}{newline}"
        for value in values
    ]
    stream = sse.read("".join(frames).encode())
    assert [event.value for event in stream.events] == values
    assert (stream.fault, stream.ended) == (None, True)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read_as_events(data: bytes) -> None:
    sse.read(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_no_message(data: bytes) -> None:
    try:
        fields = messages.wire_fields(data)
    except messages.BadMessage:
        return
    assert all(field.number > 0 for field in fields)


@given(
    st.binary(max_size=20), st.text(max_size=20), st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
)  # fmt: skip
def test_the_wire_is_read_as_protobuf_writes_it(
    data: bytes, text: str, number: int, loss: float, shape: list[int]
) -> None:
    message = messages.make(
        "PipelineForwardResponse", logits=data, request_id=text, loss=loss, hidden_shape=shape
    )
    rules = {
        1: MessageRule("", "", 1, "string"), 8: MessageRule("", "", 8, "bytes"),
        10: MessageRule("", "", 10, "double"), 5: MessageRule("", "", 5, "int64", repeated=True),
    }  # fmt: skip
    for field in messages.wire_fields(message.SerializeToString()):
        assert messages.field_fault(rules[field.number], field) is None
        if field.number == 10:
            assert isinstance(field.value, bytes)
            assert struct.unpack("<d", field.value)[0] == loss


def test_paths_reach_into_arrays_and_choose_entries() -> None:
    document = {"list": [{"type": "a", "x": {"y": 1}}, {"type": "b", "x": {"y": 2}}, 7], "n": None}
    assert lookup(document, "list[].x.y") == [1, 2]
    assert lookup(document, "list[type=b].x.y") == [2]
    assert lookup(document, "n.x") == []
    assert lookup(document, "n") == [None]
    assert lookup([], "n") == []


@given(st.dictionaries(st.sampled_from(["a.b", "a.c", "d.e.f", "g"]), st.integers(), min_size=1))
def test_changes_are_nested_and_flattened_again(changes: dict[str, int]) -> None:
    assert flat(nested(changes)) == changes


@given(st.text('abc$/"\\ +é', min_size=8), st.text(max_size=20))
def test_no_form_of_a_secret_is_left(secret: str, around: str) -> None:
    from urllib.parse import quote, quote_plus

    redactor = Redactor({"TOKEN": secret})
    forms = secret, quote(secret), quote(secret, safe=""), quote_plus(secret)
    for form in (*forms, json.dumps(secret)[1:-1]):
        assert form not in redactor.text("<" + form + ">").replace("$TOKEN", "")
    value = redactor.value({"a": [around, secret]})
    assert value["a"][1] == "$TOKEN"


def test_a_short_secret_is_hidden_as_a_word_and_the_report_stays_readable() -> None:
    redactor = Redactor({"TOKEN": "dev"})
    assert redactor.text("Bearer dev, develop, 'dev'") == "Bearer $TOKEN, develop, '$TOKEN'"


def test_a_node_that_lists_itself_too_leaves_nobody_out() -> None:
    near, between, home = bytes(19) + b"\x01", bytes(19) + b"\x02", b"\xff" * 20
    nodes: dict[bytes, Any] = {near: None, home: None}
    reply: Any = None
    assert Listing(reply, nodes, home).without({near, between}, bytes(20), room=2) == set()
    assert Listing(reply, nodes).without({near, between}, bytes(20), room=2) == {between}


def test_a_secret_is_hidden_with_its_letters_exchanged() -> None:
    assert Redactor({"TOKEN": "Tok-A-1234"}).text("no tOK-a-1234 here") == "no $TOKEN here"


@pytest.mark.parametrize("path", ["height", "blocks[].height", "a.b[name=x].c"])
def test_a_path_has_keys_and_what_entries_have(path: str) -> None:
    assert is_path(path)


@pytest.mark.parametrize("path", ["", "[].height", "blocks[]", "a..b", "a.[0].b"])
def test_what_is_no_path_is_refused_before_a_run(path: str) -> None:
    assert not is_path(path)
    with pytest.raises(BadConfiguration, match="is no path"):
        make_target({"url": "http://127.0.0.1:1", "field_map": {"/api/blocks height": path}})
