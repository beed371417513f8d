"""What is kept of prompts: whose it is, how much, and what leaves first (decision 0158)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.prefixes import LEAST, MAX_ENTRIES, Prefixes
from meshnode.domain.shares import ANYBODY, Requester, Standing

ALICE = Requester(Standing.PAYING, "alice")
BOB = Requester(Standing.PAYING, "bob")
CHAT = list(range(100))


def test_a_prompt_that_begins_alike_hits() -> None:
    prefixes: Prefixes[str] = Prefixes()
    prefixes.keep(ALICE, CHAT, "chat", 10)
    found = prefixes.find(ALICE, [*CHAT, 7, 8])
    assert found is not None
    assert (found[0].cache, found[1]) == ("chat", 100)
    found = prefixes.find(ALICE, [*CHAT[:50], 999, *CHAT[51:]])
    assert found is not None
    assert found[1] == 50
    assert prefixes.find(ALICE, CHAT[: LEAST - 1]) is None
    assert prefixes.find(ALICE, CHAT[1:]) is None
    assert (prefixes.queried, prefixes.hit) == (102 + 100 + LEAST - 1 + 99, 150)


def test_nobody_hits_what_was_computed_for_somebody_else() -> None:
    prefixes: Prefixes[str] = Prefixes()
    prefixes.keep(ALICE, CHAT, "chat", 10)
    assert prefixes.find(BOB, CHAT) is None
    # Callers without a token may share an address.
    for nobody in (ANYBODY, Requester(Standing.FREE, "10.0.0.1"), Requester(Standing.PAYING)):
        prefixes.keep(nobody, CHAT, "theirs", 10)
        assert prefixes.find(nobody, CHAT) is None
    assert len(prefixes) == 1


def test_the_next_turn_of_a_chat_replaces_the_last() -> None:
    prefixes: Prefixes[str] = Prefixes()
    prefixes.keep(ALICE, CHAT, "first", 10)
    prefixes.keep(ALICE, [*CHAT, 1, 2], "second", 12)
    assert (len(prefixes), prefixes.nbytes) == (1, 12)
    prefixes.keep(ALICE, CHAT, "again", 10)
    prefixes.keep(ALICE, CHAT[: LEAST - 1], "short", 1)
    assert (len(prefixes), prefixes.nbytes) == (1, 12)


def test_what_was_used_longest_ago_leaves_first() -> None:
    prefixes: Prefixes[int] = Prefixes()
    for number in range(3):
        prefixes.keep(ALICE, [number, *CHAT], number, 10)
    found = prefixes.find(ALICE, [0, *CHAT])
    prefixes.shrink(20)
    assert found is not None
    assert prefixes.holds(found[0])
    assert prefixes.find(ALICE, [1, *CHAT]) is None
    prefixes.shrink(9)
    assert (len(prefixes), prefixes.nbytes) == (0, 0)
    assert not prefixes.holds(found[0])
    for number in range(MAX_ENTRIES + 5):
        prefixes.keep(ALICE, [number, *CHAT], number, 1)
    assert len(prefixes) == prefixes.nbytes == MAX_ENTRIES


tokens = st.lists(st.integers(0, 2), min_size=LEAST, max_size=40)


@given(st.lists(tokens, max_size=6), tokens)
def test_a_hit_is_the_longest_common_beginning(kept: list[list[int]], prompt: list[int]) -> None:
    prefixes: Prefixes[int] = Prefixes()
    for one in kept:
        prefixes.keep(ALICE, one, 0, len(one))
    found = prefixes.find(ALICE, prompt)
    common = [
        next((i for i, (a, b) in enumerate(zip(one, prompt, strict=False)) if a != b), None)
        for one in kept
    ]
    lengths = [
        min(len(one), len(prompt)) if at is None else at
        for one, at in zip(kept, common, strict=True)
    ]
    longest = max(lengths, default=0)
    assert (0 if found is None else found[1]) == (longest if longest >= LEAST else 0)
