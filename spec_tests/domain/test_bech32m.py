"""Bech32m against the vectors of BIP-350, and the errors that its checksum must detect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain import bech32m
from meshnode.domain.bech32m import ALPHABET, InvalidText, decode, encode, split

VALID = [
    "A1LQFN3A",
    "a1lqfn3a",
    "an83characterlonghumanreadablepartthatcontainsthetheexcludedcharactersbioandnumber11sg7hg6",
    "abcdef1l7aum6echk45nj3s0wdvt2fg8x9yrzpqzd3ryx",
    "11llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllludsr8",
    "split1checkupstagehandshakeupstreamerranterredcaperredlc445v",
    "?1v759aa",
]
INVALID = [
    "\x201xj0phk",
    "\x7f1g6xzxy",
    "\x801vctc34",
    "an84characterslonghumanreadablepartthatcontainsthetheexcludedcharactersbioandnumber11d6pts4",
    "qyrz8wqd2c9m",
    "1qyrz8wqd2c9m",
    "y1b0jsk6g",
    "lt1igcx5c0",
    "in1muywd",
    "mm1crxm3i",
    "au1s5cgom",
    "M1VUXWEZ",
    "16plkw9",
    "1p2gdwpf",
]
BECH32_WITHOUT_M = "a12uel5l"
PAY_TO_TAPROOT = "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"
PROGRAM = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"


@pytest.mark.parametrize("text", VALID)
def test_published_text_is_read(text: str) -> None:
    prefix, groups = split(text)
    assert prefix == text.lower().rpartition("1")[0]
    assert len(groups) == len(text) - len(prefix) - 7


@pytest.mark.parametrize("text", [*INVALID, BECH32_WITHOUT_M, "a1LQFN3A"])
def test_published_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidText):
        split(text)


def test_the_bytes_of_a_published_address() -> None:
    prefix, (version, *groups) = split(PAY_TO_TAPROOT)
    assert (prefix, version) == ("bc", 1)
    assert bytes(bech32m._regroup(groups, 5, 8, pad=False)).hex() == PROGRAM


@given(st.from_regex("[a-z]{1,10}", fullmatch=True), st.binary(max_size=40))
def test_what_is_written_is_read(prefix: str, data: bytes) -> None:
    text = encode(prefix, data)
    assert decode(text) == decode(text.upper()) == (prefix, data)


@given(st.binary(min_size=33, max_size=33), st.data())
def test_up_to_four_wrong_characters_are_found(data: bytes, draw: st.DataObject) -> None:
    text = encode("mesh", data)
    places = st.lists(st.integers(5, len(text) - 1), min_size=1, max_size=4, unique=True)
    wrong = list(text)
    for place in draw.draw(places):
        others = ALPHABET.replace(text[place], "")
        wrong[place] = draw.draw(st.sampled_from(others))
    with pytest.raises(InvalidText, match="checksum"):
        decode("".join(wrong))


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        prefix, data = decode(text)
    except InvalidText:
        return
    assert encode(prefix, data) == text.lower()


@pytest.mark.parametrize("groups", [[0], [0, 0, 0], [31, 31]])
def test_bits_that_are_left_over_are_refused(groups: list[int]) -> None:
    """A surplus group or non-zero padding is refused, so that bytes have one spelling only."""
    with pytest.raises(InvalidText, match="left over"):
        bech32m._regroup(groups, 5, 8, pad=False)
