"""Interface 4.1, "Bodies are JSON": bodies that parsers may read differently are refused."""

import json as stdlib_json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.wire import json
from meshnode.wire.sse import encode_event

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read_back(value: object) -> None:
    try:
        written = json.dumps(value)
    except UnicodeEncodeError:
        return  # a key with a lone surrogate is not valid text
    assert json.loads(written) == value
    assert stdlib_json.loads(written) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    refused = None
    try:
        json.loads(data)
    except InvalidRequest as error:
        refused = error
    assert refused is None or (refused.field == "body" and len(refused.reason) < 200)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1,}', "line 1, column"),
        (b"{'a': 1}", "line 1, column 2"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": "\x01"}', "control character"),
        (b'{"a": "b', "Unterminated string (line 1, column 7)"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": Infinity}', "Infinity"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1, "a": 2}', "same key twice"),
        (b'{"x": {"a": 1, "\\u0061": 2}}', "same key twice"),
        (b'{"a": 1e400}', "too large"),
        (b'{"a": -1e400}', "too large"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "more than 64"),
        (b'{"a": 0.' + b"9" * 100_000 + b"}", "more than 64"),
        (b'{"a": 1e' + b"9" * 100_000 + b"}", "more than 64"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b"[" * 1_000_000, "deeper than 32"),
        (b'{"a":' * 100_000, "deeper than 32"),
        (b"[" + b"1," * 10_000 + b"1]", "more than 10000"),
        (b"[" + b"{}," * 4000 + b"1]", "more than 10000"),
        (b"]" * 20_000, "more than 10000"),
        (b'""' * 20_000, "more than 10000"),
        (b"01", "Extra data"),
        (b"+1", "line 1, column 1"),
        (b".5", "line 1, column 1"),
        (b"1.", "Extra data"),
        (b"0x10", "Extra data"),
        (b"/* */ {}", "line 1, column 1"),
        (b"\x0b{}", "line 1, column 1"),
        (b"nul", "line 1, column 1"),
    ],
)
def test_what_is_not_strict_json_is_refused_in_a_short_line(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        json.loads(text)
    assert reason in caught.value.reason
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_brackets_in_strings_are_not_depth() -> None:
    assert json.loads(b'{"a": "' + b"[" * 1000 + b'\\"{"}') == {"a": "[" * 1000 + '"{'}
    assert json.loads(b"[" * 32 + b"]" * 32)


def test_what_is_in_a_string_does_not_count() -> None:
    prompt = 'she said, "[yes]: {no}", ' * 10_000
    assert json.loads(stdlib_json.dumps({"prompt": prompt}).encode()) == {"prompt": prompt}


def test_many_brackets_side_by_side_are_not_depth() -> None:
    assert json.loads(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


def test_small_numbers_become_zero_and_64_digits_are_enough() -> None:
    assert json.loads(b"1e-999") == 0.0
    assert json.loads(b"9" * 64) == int("9" * 64)


@pytest.mark.parametrize(
    "hostile",
    [
        b'"' + b'\\"' * 500_000,
        b'"' * 1_000_001,
        b'{"' + b"\\" * 1_000_001,
        b"[" + b"[]," * 300_000,
        b"{" + b'"a":' * 200_000,
    ],
    ids=["escapes", "quotes", "backslashes", "pairs", "keys"],
)
def test_a_hostile_megabyte_is_refused_in_linear_time(hostile: bytes) -> None:
    started = time.process_time()
    with pytest.raises(InvalidRequest):
        json.loads(hostile)
    # A quadratic parser would take minutes; a linear one takes a tenth of a second.
    assert time.process_time() - started < 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_cannot_say_is_never_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json.dumps({"a": value})


def test_text_is_written_as_utf8_in_the_given_order() -> None:
    assert json.dumps({"b": "é漢", "a": [1, 2.5]}) == '{"b":"é漢","a":[1,2.5]}'.encode()


@given(st.text(st.characters(codec="utf-8")))
def test_an_event_is_one_data_line_and_a_blank_one(text: str) -> None:
    event = encode_event({"token": text, "index": 0})
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert not {b"\n", b"\r"} & {event[:-2][i : i + 1] for i in range(len(event) - 2)}
    assert stdlib_json.loads(event[6:]) == {"token": text, "index": 0}
