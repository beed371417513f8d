"""Amounts (decision 0082) are converted exactly from JSON into atoms and back."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.amounts import MAX_ATOMS, parse_amount, read_amount, text, units
from meshnode.domain.errors import InvalidRequest
from meshnode.wire import json

EXACT_BELOW = 2**33 * 1_000_000


def read(literal: str) -> int:
    return read_amount(json.loads(literal.encode(), exact=True), "amount")


@pytest.mark.parametrize(
    ("literal", "atoms"),
    [
        ("1", 1_000_000),
        ("0.1", 100_000),
        ("1e-6", 1),
        ("1E+2", 100_000_000),
        ("0.000001", 1),
        ("1.000000000", 1_000_000),
        ("0.10000000000000000000000", 100_000),
        ("10.50", 10_500_000),
        ("1152921504606.846976", 2**60),
        ("123456789012.123457", 123_456_789_012_123_457),
    ],
)
def test_a_number_is_read_exactly(literal: str, atoms: int) -> None:
    assert read(literal) == atoms


@pytest.mark.parametrize("literal", ["0.0000001", "1.0000001", "1e-7", "0.1000000000000000055"])
def test_a_seventh_decimal_is_refused(literal: str) -> None:
    with pytest.raises(InvalidRequest, match="at most 6 decimals"):
        read(literal)


@pytest.mark.parametrize(
    "literal", ["0", "-0.0", "-1", "-1e-6", "1152921504606.846977", "1e13", "1e300", "-1e300"]
)
def test_out_of_range_is_refused(literal: str) -> None:
    with pytest.raises(InvalidRequest, match=r"must be from 0\.000001 to 1152921504606\.846976"):
        read(literal)


@pytest.mark.parametrize("literal", ["true", "false", '"1"', "null", "[1]", "{}"])
def test_only_numbers_are_amounts(literal: str) -> None:
    with pytest.raises(InvalidRequest, match="amount: must be a number"):
        read(literal)


@pytest.mark.parametrize("value", [0.1, float("nan"), Decimal("NaN"), Decimal("Infinity")])
def test_numbers_without_their_decimal_text_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest):
        read_amount(value, "amount")


@pytest.mark.parametrize("literal", ["1e-99999999999999999999", "0e99999999999999999999", "1e309"])
def test_an_absurd_exponent_is_refused(literal: str) -> None:
    with pytest.raises(InvalidRequest, match="body: has a number"):
        read(literal)


@given(st.integers(1, MAX_ATOMS))
def test_text_and_atoms_are_the_same_amount(atoms: int) -> None:
    assert read(text(atoms)) == atoms
    assert parse_amount(text(atoms), "fund") == atoms
    assert text(-atoms) == "-" + text(atoms)


@given(st.integers(1, EXACT_BELOW))
def test_amounts_in_answers_are_read_as_the_same_atoms(atoms: int) -> None:
    assert read(json.dumps(units(atoms)).decode()) == atoms


@given(st.integers(-(10**30), 10**30), st.integers(-40, 20))
def test_every_literal_is_exact_or_refused(digits: int, exponent: int) -> None:
    literal = f"{digits}e{exponent}"
    exact = Fraction(literal) * 10**6
    try:
        assert read(literal) == exact
    except InvalidRequest:
        assert not 1 <= exact <= MAX_ATOMS or exact.denominator != 1


@pytest.mark.parametrize(
    "words", ["", ".", "1_0", "1e3", "NaN", "-1", "0", "\u0661", "1.0000001", "x"]
)
def test_malformed_amounts_are_refused(words: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_amount(words, "fund")
