"""Stop strings are found wherever tokens split them; characters are never cut."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshnode.domain.textstream import TextStream


def run(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[list[str], bool]:
    stream = TextStream(stop)
    texts = []
    for piece in pieces:
        texts.append(stream.push(piece))
        if stream.stopped:
            return texts, True
    texts.append(stream.finish())
    return texts, stream.stopped


def expected(text: str, stop: tuple[str, ...]) -> tuple[str, bool]:
    """A naive model: the stop string completed first wins, and the longest one on a tie."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stop if text[:end].endswith(s)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


def splits(data: bytes) -> list[list[bytes]]:
    """Every way to cut ``data`` into pieces."""
    ways = []
    for marks in itertools.product([False, True], repeat=max(0, len(data) - 1)):
        cuts = [0, *(i + 1 for i, mark in enumerate(marks) if mark), len(data)]
        ways.append([data[a:b] for a, b in itertools.pairwise(cuts)])
    return ways


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("aaab", ("aab",)),
        ("aaaaab", ("aab", "ab")),
        ("abababc", ("ababc",)),
        ("xabcdy", ("abcd", "bc")),
        ("xabcdy", ("bcd", "abcd")),
        ("no stop", ("stopped",)),
        ("ab", ("abc", "b!")),
        ("é東🙂!", ("東🙂",)),
        ("é東🙂", ("🙂!",)),
        ("\n\nUser:", ("\nUser:", "\n\n")),
    ],
)
def test_every_split_of_the_bytes_gives_the_same_text(text: str, stop: tuple[str, ...]) -> None:
    wanted, stopped = expected(text, stop)
    for pieces in splits(text.encode()):
        texts, ended = run(pieces, stop)
        assert "".join(texts) == wanted
        assert ended == stopped


ALPHABET = st.sampled_from("ab\né🙂")
TEXTS = st.text(ALPHABET, max_size=12)
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=3).map(tuple)


@given(TEXTS, STOPS, st.lists(st.integers(0, 50), max_size=12))
@example("aaab", ("aab",), [1, 2, 3])
def test_nothing_of_a_stop_string_is_emitted_and_nothing_before_it_lost(
    text: str, stop: tuple[str, ...], cuts: list[int]
) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    texts, stopped = run(pieces, stop)
    assert ("".join(texts), stopped) == expected(text, stop)
    so_far = ""
    for emitted in texts:
        emitted.encode()  # whole characters, or this raises
        so_far += emitted
        assert not any(s in so_far for s in stop)


@given(st.binary(max_size=20), STOPS, st.lists(st.integers(1, 19), max_size=6))
def test_invalid_utf_8_becomes_replacement_characters(
    data: bytes, stop: tuple[str, ...], cuts: list[int]
) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    texts, stopped = run([data[a:b] for a, b in itertools.pairwise(edges)], stop)
    assert ("".join(texts), stopped) == expected(data.decode(errors="replace"), stop)


def test_text_is_withheld_only_while_it_may_still_be_a_stop_string() -> None:
    stream = TextStream(("END",))
    assert stream.push(b"an EN") == "an "
    assert stream.push(b"EN") == "EN"
    assert stream.push(b"X") == "ENX"
    assert stream.push(b"EN") == ""
    assert stream.finish() == "EN"


def test_a_character_waits_for_its_last_byte() -> None:
    stream = TextStream()
    assert [stream.push(bytes([b])) for b in "🙂".encode()] == ["", "", "", "🙂"]
    assert stream.push("🙂".encode()[:3]) == ""
    assert stream.finish() == "\ufffd"


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(("b",))
    assert stream.push(b"abc") == "a"
    assert stream.stopped
    assert stream.push(b"more") == ""
    assert stream.finish() == ""
