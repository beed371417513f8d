"""Decision 0132: clients in a closed loop beside one with requests without end, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

import pytest

from meshnode.domain.batching import EngineLimits, Scheduler
from meshnode.domain.shares import Requester, Standing

ATTACKER = Requester(Standing.PAYING, "attacker")
CLIENTS = [Requester(Standing.PAYING, f"client {number}") for number in range(8)]
PROMPT, TOKENS, LONG = 4, 12, 400
STEP_S, ROW_S, POSITION_S = 0.0012, 0.00045, 0.00012
"""What a step takes, and each row and each position of a prompt in it."""
SECONDS = 2.0


class Outcome(NamedTuple):
    """What happened in a second."""

    requests: float
    """Of the clients."""
    suspended: float


def served(away_s: float, attacks: int, *, seamless: bool) -> Outcome:
    """Each of the clients' requests comes ``away_s`` after the answer before."""
    scheduler: Scheduler[int] = Scheduler(EngineLimits(), seamless=seamless)
    ids = itertools.count()
    coming = [(0.0, next(ids), who) for who in [*CLIENTS, *[ATTACKER] * attacks]]
    open_: dict[int, tuple[Requester, int]] = {}
    now, done, suspended = 0.0, 0, 0

    def spend(keys: list[int], seconds: float) -> None:
        scheduler.spend([open_[key][0] for key in keys], seconds)
        for key in keys:
            requester, left = open_[key]
            open_[key] = requester, left - 1

    while now < SECONDS:
        while coming and coming[0][0] <= now:
            requester = heapq.heappop(coming)[2]
            key = next(ids)
            assert scheduler.submit(key, PROMPT, 1, requester, now)
            open_[key] = requester, LONG if requester is ATTACKER else TOKENS
        while (victim := scheduler.victim(now)) is not None:
            computed = LONG - open_[victim][1]
            suspended += 1
            scheduler.suspend(victim, PROMPT + computed, PROMPT, now)
        scheduler.admit(now)
        if scheduler.idle:
            now = coming[0][0]
            continue
        scheduler.turn(now)
        chunks = scheduler.next_chunks()
        if chunks:
            positions = sum(chunk.stop - chunk.start for chunk in chunks)
            took = STEP_S + POSITION_S * positions
            now += took
            spend([chunk.key for chunk in chunks], took)
            for chunk in chunks:
                scheduler.prefilled(chunk, now)
        if decoding := scheduler.decoding():
            took = STEP_S + ROW_S * len(decoding)
            now += took
            spend(decoding, took)
        for key in [key for key, (_, left) in open_.items() if left <= 0]:
            requester, _ = open_.pop(key)
            scheduler.leave(key)
            done += requester is not ATTACKER
            heapq.heappush(coming, (now + away_s, next(ids), requester))
    return Outcome(done / SECONDS, suspended / SECONDS)


@pytest.mark.parametrize("seamless", [True, False])
@pytest.mark.parametrize("away_s", [0.005, 0.05])
def test_one_account_with_requests_without_end_costs_others_about_a_fifth(
    away_s: float, seamless: bool
) -> None:
    undisturbed, _ = served(away_s, 0, seamless=seamless)
    disturbed, suspended = served(away_s, 60, seamless=seamless)
    assert disturbed >= 0.78 * undisturbed
    # Nobody gives up a place for a client that had one a moment ago.
    assert suspended <= 0.05 * disturbed
