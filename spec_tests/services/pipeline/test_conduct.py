"""design: a driver remembers what its holders did, in virtual time (decision 0134)."""

from __future__ import annotations

import pytest
import trio

from meshnode.domain.errors import ComputationFailed, InvalidRequest
from meshnode.domain.reputation import FAULT_S, PROVEN_ANSWERS, TRIAL_SHARE
from meshnode.rpc.errors import Code
from spec_tests.services.pipeline.simulated import (
    CALL_S,
    FIRST,
    NORMAL_MS,
    PROMPT,
    TOTAL,
    SimulatedHolder,
    SimulatedNetwork,
    sessions,
)

MIDDLE = 4
NORMAL_S = 40 * NORMAL_MS / 1e3
"""A generation at an honest holder."""


def honest(name: str = "honest", **options: object) -> SimulatedHolder:
    return SimulatedHolder(name, latency_ms=5.0, **options)  # type: ignore[arg-type]


def liar(**options: object) -> SimulatedHolder:
    """A holder that wins by the latency of small calls until it has shown what it does."""
    return SimulatedHolder("liar", latency_ms=0.1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.UNKNOWN, Code.PERMISSION_DENIED])
async def test_a_holder_that_refuses_is_tried_once(autojump_clock: object, code: Code) -> None:
    bad, good = liar(refusal=code), honest()
    network = SimulatedNetwork(bad, good, relay=False)
    await network.generate_all(4)
    assert (bad.calls, len(good.sessions)) == (1, 4)


async def test_a_full_holder_is_asked_less_and_less(autojump_clock: object) -> None:
    bad, good = liar(refusal=Code.RESOURCE_EXHAUSTED), honest()
    network = SimulatedNetwork(bad, good)
    for _ in range(40):
        await network.generate(tokens=10)
    # 8 s of generations, and pauses of 0.5, 1, 2 and 4 s.
    assert bad.calls <= 5
    # It is no fault: with room again, the holder has its sessions again.
    bad.refusal = None
    await trio.sleep(FAULT_S)
    network.draw = 0.0
    await network.generate()
    assert max(bad.sessions.values()) > 0


async def test_a_hanging_holder_costs_one_deadline(autojump_clock: object) -> None:
    bad, good = liar(hangs_after=0), honest()
    times = await SimulatedNetwork(bad, good).generate_all(4)
    assert times[0] < 2 * CALL_S + NORMAL_S
    assert times[1:] == pytest.approx([NORMAL_S] * 3)


async def test_a_holder_that_begins_to_hang_is_left_sooner_than_at_its_deadline(
    autojump_clock: object,
) -> None:
    bad, good = liar(), honest()
    network = SimulatedNetwork(bad, good)
    await network.generate()
    bad.hangs_after = bad.calls + 20
    assert await network.generate() < CALL_S / 4 + 2 * NORMAL_S
    assert len(good.sessions) == 1


async def test_a_slow_holder_is_left_in_the_first_generation_and_then_avoided(
    autojump_clock: object,
) -> None:
    bad, good = liar(ms=4000.0), honest()
    times = await SimulatedNetwork(bad, good).generate_all(4)
    # It answers the prompt and one token; then what is left goes to the other.
    assert times[0] < 2 * 4.0 + 2 * NORMAL_S
    assert times[1:] == pytest.approx([NORMAL_S] * 3)
    assert bad.calls == 2


async def test_a_slow_holder_is_tried_again_after_a_while(autojump_clock: object) -> None:
    bad, good = liar(ms=400.0), honest()
    network = SimulatedNetwork(bad, good)
    await network.generate_all(6)
    calls, bad.ms = bad.calls, NORMAL_MS / 2
    await trio.sleep(3600.0)
    network.draw = 0.0
    for _ in range(8):
        await network.generate()
    assert bad.calls > calls + 2 * PROVEN_ANSWERS


async def test_without_another_holder_a_slow_one_is_kept(autojump_clock: object) -> None:
    only = liar(ms=4000.0)
    assert await SimulatedNetwork(only).generate(tokens=12) == pytest.approx(48.0)
    assert sessions(only) == [1]


async def test_a_generation_that_is_nearly_done_stays(autojump_clock: object) -> None:
    bad, good = liar(ms=60.0), honest()
    await SimulatedNetwork(bad, good).generate(tokens=3)
    assert sessions(bad, good) == [1, 0]


async def test_a_newcomer_gets_few_sessions_first(autojump_clock: object) -> None:
    old = honest()
    network = SimulatedNetwork(old)
    await network.generate_all(4)
    new = liar(ms=NORMAL_MS / 2)
    network.holders = (old, new)
    network.book.peers.append(SimulatedNetwork(new).book.peers[0])
    for network.draw in (0.99, 0.5, TRIAL_SHARE):
        await network.generate()
    assert sessions(new) == [0]
    network.draw = TRIAL_SHARE / 2
    for _ in range(4):
        await network.generate()
    # It is proven by now, and needs no draw.
    network.draw = 0.99
    before = len(new.sessions)
    await network.generate()
    assert (before, len(new.sessions)) == (4, 5)


async def test_a_newcomer_that_hangs_costs_less_than_a_deadline(autojump_clock: object) -> None:
    old = honest()
    network = SimulatedNetwork(old)
    await network.generate_all(4)
    new = liar(hangs_after=0)
    network.holders = (old, new)
    network.book.peers.append(SimulatedNetwork(new).book.peers[0])
    network.draw = 0.0
    patience_s = CALL_S / 4 * PROMPT / 8
    assert patience_s < await network.generate() < patience_s + 2 * NORMAL_S
    assert sessions(old, new) == [5, 1]


async def test_a_relay_that_blames_the_next_hop_is_found_out(autojump_clock: object) -> None:
    front, back = range(FIRST, MIDDLE), range(MIDDLE, TOTAL)
    bad = liar(layers=front, blames=Code.UNAVAILABLE)
    good = honest(layers=front)
    rest = [honest(name, layers=back) for name in ("b", "c")]
    network = SimulatedNetwork(bad, good, *rest)
    for _ in range(6):
        await network.generate()
    assert len(good.sessions) >= 5
    calls = bad.calls
    await network.generate_all(3)
    assert bad.calls == calls


async def test_a_relay_cannot_pass_its_own_slowness_on_for_long(autojump_clock: object) -> None:
    front, back = range(FIRST, MIDDLE), range(MIDDLE, TOTAL)
    bad = liar(layers=front, ms=2000.0, claims_ms=2000.0)
    good = honest(layers=front)
    rest = [honest(name, layers=back) for name in ("b", "c")]
    network = SimulatedNetwork(bad, good, *rest)
    await network.generate_all(2)
    times = await network.generate_all(3)
    assert max(times) == pytest.approx(2 * NORMAL_S)


async def test_states_of_a_bad_holder_are_not_the_fault_of_who_refuses_them(
    autojump_clock: object,
) -> None:
    """A relay says that the next hop refuses; called directly, that one accepts."""
    front, back = range(FIRST, MIDDLE), range(MIDDLE, TOTAL)
    bad = liar(layers=front, blames=Code.INVALID_ARGUMENT)
    good, rest = honest(layers=front), honest("b", layers=back)
    network = SimulatedNetwork(bad, good, rest)
    for _ in range(4):
        await network.generate()
    assert len(good.sessions) >= 2


@pytest.mark.parametrize(("count", "error"), [(1, ComputationFailed), (2, InvalidRequest)])
async def test_what_all_refuse_ends_at_once(
    autojump_clock: object, count: int, error: type[Exception]
) -> None:
    holders = [honest(f"h{number}", refusal=Code.INVALID_ARGUMENT) for number in range(count)]
    network = SimulatedNetwork(*holders)
    with pytest.raises(error):
        await network.generate()
    assert [holder.calls for holder in holders] == [1] * count
