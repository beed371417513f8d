"""Credentials of nodes: decision 0164."""

import pytest

from meshnode.domain.identity import key_from_seed
from meshnode.domain.peer_session import (
    LASTS_S,
    MAX_KNOWN,
    RENEWED_S,
    CallerCheck,
    Credentials,
    make_credential,
    read_credential,
)

KEY, OTHER = key_from_seed("11" * 32), key_from_seed("22" * 32)
HERE, ELSEWHERE = "aa" * 20, "bb" * 20
NOW = 1_800_000_000.0


def test_a_credential_names_its_signer_to_its_receiver_for_its_time() -> None:
    text = make_credential(KEY, HERE, NOW)
    assert read_credential(text, HERE, NOW) == KEY.node_id
    assert read_credential(text, HERE, NOW + LASTS_S - 1) == KEY.node_id
    assert read_credential(text, HERE, NOW + LASTS_S) == ""
    assert read_credential(text, ELSEWHERE, NOW) != KEY.node_id
    longer = f"{int(NOW) + LASTS_S + 5}:{text.partition(':')[2]}"
    assert read_credential(longer, HERE, NOW) != KEY.node_id


@pytest.mark.parametrize("text", ["", ":", "1800000300:", "x:00", "1800000300:" + "zz" * 65])
def test_what_is_no_credential_names_nobody(text: str) -> None:
    assert read_credential(text, HERE, NOW) == ""


def test_one_made_to_be_kept_is_not_taken() -> None:
    assert read_credential(make_credential(KEY, HERE, NOW + 86_400), HERE, NOW) == ""


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def test_a_node_makes_one_for_many_calls() -> None:
    clock = Clock()
    made = Credentials(KEY, clock)
    first = made.for_node(HERE)
    clock.now += RENEWED_S - 1
    assert made.for_node(HERE) == first
    assert made.for_node(ELSEWHERE) != first
    clock.now += 2
    assert made.for_node(HERE) != first
    assert made.for_node("") == ""


def test_peers_are_told_from_strangers() -> None:
    clock, peers = Clock(), {KEY.node_id}
    check = CallerCheck(HERE, peers.__contains__, clock)
    mine, theirs = make_credential(KEY, HERE, NOW), make_credential(OTHER, HERE, NOW)
    assert check.by_peer(mine, "10.0.0.1")
    assert check.by_peer(mine, "10.0.0.1")
    # Overheard on the way, and used from elsewhere.
    assert not check.by_peer(mine, "10.6.6.6")
    assert not check.by_peer(theirs, "10.0.0.1")
    assert not check.by_peer("", "10.0.0.1")
    assert not check.by_peer("9" * 1000, "10.0.0.1")
    peers.clear()
    assert not check.by_peer(mine, "10.0.0.1")
    peers.add(KEY.node_id)
    clock.now += LASTS_S
    assert not check.by_peer(mine, "10.0.0.1")


def test_what_is_remembered_is_bounded() -> None:
    check = CallerCheck(HERE, lambda node_id: True, Clock())
    for number in range(MAX_KNOWN + 5):
        check.by_peer(f"{int(NOW) + 1}:{number}", "10.0.0.1")
    assert len(check._known) == MAX_KNOWN
