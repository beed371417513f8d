"""What a driver does about each status, and how long it waits (interface 7.3 and 8)."""

from __future__ import annotations

import tracemalloc

import pytest

from meshnode.domain.errors import ComputationFailed, InvalidRequest, RateLimited, Unavailable
from meshnode.rpc.errors import Code
from meshnode.services.pipeline.policy import (
    CALL_DIRECTLY,
    LOST,
    MAX_WORDS,
    HopFailed,
    Reaction,
    backoff_s,
    parse_failure,
    refused_outcome,
)


def failed(code: Code, place: int = 1, *, lost: bool = False, relayed: bool = False) -> HopFailed:
    return HopFailed(place, "ab" * 20, code, "for\na test", lost=lost, relayed=relayed)


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (Code.UNAVAILABLE, Reaction(suspect=True)),
        (Code.DEADLINE_EXCEEDED, Reaction(suspect=True)),
        (Code.RESOURCE_EXHAUSTED, Reaction()),
        (Code.NOT_FOUND, Reaction(bar=True)),
        (Code.INVALID_ARGUMENT, Reaction(bar=True, refused=True)),
        (Code.INTERNAL, Reaction()),
        (Code.PERMISSION_DENIED, Reaction(bar=True)),
        (Code.UNIMPLEMENTED, Reaction(bar=True)),
    ],
)
def test_each_status_has_its_reaction(code: Code, reaction: Reaction) -> None:
    assert failed(code).reaction == reaction


@pytest.mark.parametrize("code", [Code.UNIMPLEMENTED, Code.PERMISSION_DENIED])
def test_a_hop_that_cannot_be_relayed_to_is_called_directly(code: Code) -> None:
    assert failed(code, 0, relayed=True).reaction == CALL_DIRECTLY


def test_invalid_states_in_a_relayed_call_are_somebodys() -> None:
    assert failed(Code.INVALID_ARGUMENT, 1, relayed=True).reaction == CALL_DIRECTLY
    # The first hop's states come from the driver itself.
    assert failed(Code.INVALID_ARGUMENT, 0, relayed=True).reaction.refused


def test_what_one_holder_refuses_may_be_its_own_fault() -> None:
    assert type(refused_outcome(1)) is ComputationFailed
    assert type(refused_outcome(2)) is InvalidRequest


def test_a_lost_session_is_no_reason_to_leave() -> None:
    assert failed(Code.UNAVAILABLE, lost=True).reaction == LOST


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.UNAVAILABLE, Unavailable),
        (Code.DEADLINE_EXCEEDED, Unavailable),
        (Code.NOT_FOUND, Unavailable),
        (Code.RESOURCE_EXHAUSTED, RateLimited),
        (Code.INTERNAL, ComputationFailed),
        (Code.INVALID_ARGUMENT, ComputationFailed),
    ],
)
def test_each_status_of_a_hop_becomes_one_error_for_the_client(
    code: Code, outcome: type[Exception]
) -> None:
    assert type(failed(code).outcome()) is outcome


@pytest.mark.parametrize(
    ("message", "code", "lost"),
    [
        ("session unknown or behind: not here", Code.UNAVAILABLE, True),
        ("NOT_FOUND: layer 4 is not held here", Code.NOT_FOUND, False),
        ("DEADLINE_EXCEEDED", Code.DEADLINE_EXCEEDED, False),
        ("the computation failed", Code.INTERNAL, False),
        ("OK: nothing is wrong", Code.INTERNAL, False),
        ("SOMETHING_ELSE: x", Code.INTERNAL, False),
        ("", Code.INTERNAL, False),
    ],
)
def test_codes_in_words(message: str, code: Code, lost: bool) -> None:
    assert parse_failure(message) == (code, lost)


def test_waits_double_up_to_two_seconds() -> None:
    waits = [backoff_s(rounds) for rounds in range(1, 8)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_peers_words_are_one_short_line() -> None:
    failure = HopFailed(0, "ab" * 20, Code.INTERNAL, "a\nb\r\n" + "x" * 10_000)
    assert "\n" not in str(failure)
    assert len(str(failure)) < 300


def test_a_peers_long_message_costs_little_to_shorten() -> None:
    message = "a " * 1_000_000
    tracemalloc.start()
    try:
        failure = HopFailed(0, "1" * 40, Code.INTERNAL, message)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failure.message == message[:MAX_WORDS]
    assert most < len(message)
