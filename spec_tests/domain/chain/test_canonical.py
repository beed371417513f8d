"""Canonical JSON: one value, one byte string; and a parser that every node agrees on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import Json, JsonLimits, digest, encode, parse
from meshnode.domain.chain.errors import (
    DuplicateKey,
    MalformedJson,
    NonFiniteNumber,
    NumberOutOfRange,
    TooDeep,
    TooLarge,
    TooManyValues,
    UnpairedSurrogate,
)

LIMITS = JsonLimits(size=100_000)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_parsing_undoes_encoding(value: Any) -> None:
    data = encode(value)
    assert parse(data, LIMITS) == value
    assert encode(parse(data, LIMITS)) == data


@given(values)
def test_white_space_and_key_order_do_not_matter(value: Any) -> None:
    spread = json.dumps(value, indent=1, ensure_ascii=False).encode()
    assert digest(parse(spread, LIMITS)) == digest(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ("é/\x7f\n\t\x00", b'"\\u00e9/\\u007f\\n\\t\\u0000"'),
        ("\U0001f600", b'"\\ud83d\\ude00"'),
        ({"é": 0, "z": 0, "\U00010000": 0, "\uffff": 0}, None),
        (-0.0, b"-0.0"),
        (0.02, b"0.02"),
    ],
)
def test_bytes(value: Any, expected: bytes | None) -> None:
    # Keys are in code point order, where UTF-16 order would put the astral one before U+FFFF.
    in_order = b'{"z":0,"\\u00e9":0,"\\uffff":0,"\\ud800\\udc00":0}'
    assert encode(value) == (in_order if expected is None else expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_numbers_that_are_not_finite_cannot_be_encoded(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(value)


def test_the_number_of_values_is_bounded_where_that_is_asked_for() -> None:
    bounded = JsonLimits(size=100_000, tokens=10)
    assert parse(b"[1,2,3,4,5,6,7,8,9]", bounded) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(TooManyValues):
        parse(b"[1,2,3,4,5,6,7,8,9,10]", bounded)
    with pytest.raises(TooManyValues):
        parse(b'{"":[],"a":{},"b":[]}', bounded)
    assert len(str(parse(b"[" + b"1," * 30_000 + b"1]", JsonLimits(size=100_000)))) > 60_000


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b'{"a":1,"a":1}', DuplicateKey),
        (b'[{"a":{"b":1,"\\u0062":2}}]', DuplicateKey),
        (b"NaN", NonFiniteNumber),
        (b"[-Infinity]", NonFiniteNumber),
        (b"1e999", NonFiniteNumber),
        (b"1" * 21, NumberOutOfRange),
        (b"1" * 5000, NumberOutOfRange),
        (b'"\\ud800"', UnpairedSurrogate),
        (b'{"\\udc00":1}', UnpairedSurrogate),
        (b"[" * 33 + b"]" * 33, TooDeep),
        (b"[" * 90_000, TooDeep),
        (b" " * 100_001, TooLarge),
        (b"\xff", MalformedJson),
        (b'"\xed\xa0\x80"', MalformedJson),
        (b"\xef\xbb\xbf1", MalformedJson),
        ("1".encode("utf-16"), MalformedJson),
        (b"", MalformedJson),
        (b"1 2", MalformedJson),
        (b"'a'", MalformedJson),
        (b"[1,]", MalformedJson),
        (b"01", MalformedJson),
        (b'"\n"', MalformedJson),
    ],
)
def test_refusals(data: bytes, refusal: type[Exception]) -> None:
    with pytest.raises(refusal) as caught:
        parse(data, LIMITS)
    assert type(caught.value) is refusal


def test_fractions_are_refused_where_everything_is_counted() -> None:
    for data in (b"1.0", b"1e3", b"[0.5]"):
        with pytest.raises(NumberOutOfRange):
            parse(data, JsonLimits(100, fractions=False))


def test_brackets_in_strings_do_not_nest() -> None:
    value: list[Json] = ['[{"' * 100, "\\" * 7 + '"' + "[" * 100]
    assert parse(encode(value), JsonLimits(10_000, depth=1)) == value


def test_a_long_string_without_an_end_is_looked_at_once() -> None:
    # This would take hours in quadratic time.
    with pytest.raises(MalformedJson):
        parse(b'"\\' * 2_000_000, JsonLimits(size=1 << 23))


def test_the_limits_of_the_interpreter_do_not_matter() -> None:
    # A low recursion limit and another limit on digits change nothing.
    program = str(Path(__file__).with_name("narrow_interpreter.py"))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "NumberOutOfRange", "TooDeep"]


@given(st.binary(max_size=200) | st.text(alphabet='[]{}",:\\u0d8e1.-', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = parse(data, LIMITS)
    except MalformedJson:
        return
    assert parse(encode(value), LIMITS) == value
