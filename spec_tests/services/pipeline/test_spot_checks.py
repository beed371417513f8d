"""Decision 0211: holders that answer plausible lies are found, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from meshnode.domain.chain.canonical import JsonLimits, parse
from meshnode.domain.chain.errors import InvalidSignature
from meshnode.domain.errors import FalseResults
from meshnode.domain.identity import key_from_seed
from meshnode.domain.reputation import FAULT_S, PROVEN_ANSWERS, Standing
from meshnode.domain.spot_checks import Blame, Contradiction, open_statement
from meshnode.services.pipeline.evidence import EVIDENCE_FILE, KEPT, Evidence, read_lines
from spec_tests.services.pipeline.simulated import CALL_S, SimulatedHolder, SimulatedNetwork

RATE = 1 / 32
TOKENS = 40
KEY = key_from_seed("5" * 64)


def always(positions: int) -> bool:
    return True


def liar(lies: Callable[[int], bool] = always, name: str = "liar") -> SimulatedHolder:
    """It is the quickest, and so gets every session until it is found out."""
    return SimulatedHolder(name, latency_ms=0.1, ms=1.0, lies=lies)


def honest(name: str) -> SimulatedHolder:
    return SimulatedHolder(name, latency_ms=5.0)


def network(*holders: SimulatedHolder, rate: float = RATE, seed: int = 1) -> SimulatedNetwork:
    made = SimulatedNetwork(*holders)
    made.checks.rate, made.checks.draw = rate, random.Random(seed).random
    return made


def prove(made: SimulatedNetwork, *holders: SimulatedHolder) -> None:
    """Let holders have answered well for long, as a patient liar does."""
    for holder in holders:
        for _ in range(PROVEN_ANSWERS):
            made.routes.reputation.of_called(holder.node_id).answered()


async def lies_until_found(made: SimulatedNetwork, bad: SimulatedHolder) -> tuple[int, int, int]:
    """Generate until the liar is distrusted: false logits taken, all logits, failed generations."""
    failed = generations = 0
    now = trio.current_time
    while made.routes.reputation.of(bad.node_id).standing(now()) is not Standing.DISTRUSTED:
        generations += 1
        try:
            await made.generate(TOKENS)
        except FalseResults:
            failed += 1
        assert generations < 1000
    return made.false, generations * TOKENS, failed


async def test_a_newcomer_that_lies_is_found_before_its_first_token(
    autojump_clock: object,
) -> None:
    bad = liar()
    made = network(bad, honest("one"), honest("two"))
    assert await lies_until_found(made, bad) == (0, TOKENS, 0)
    conduct = made.routes.reputation.of(bad.node_id)
    assert conduct.distrusted_until > trio.current_time() + 100 * FAULT_S
    # The others, who told the truth, are as trusted as before.
    assert made.routes.reputation.of(honest("one").node_id).faults == 0


@pytest.mark.parametrize(("every", "most"), [(1, 4 / RATE), (10, 4 / RATE)])
async def test_a_proven_liar_is_found_at_the_rate_of_checks(
    autojump_clock: object, every: int, most: float
) -> None:
    bad, others = liar(lambda positions: positions % every == 0), [honest("one"), honest("two")]
    made = network(bad, *others)
    prove(made, bad, *others)
    false, _, failed = await lies_until_found(made, bad)
    assert 0 < false < most
    # Tokens of that generation had been sent: it ends with an error, which costs nothing.
    assert failed == 1


async def test_nothing_is_computed_twice_without_a_rate(autojump_clock: object) -> None:
    bad, good = liar(), honest("one")
    made = network(bad, good, rate=0.0)
    made.checks.rate = 0.0
    bad.lies = lambda positions: False
    await made.generate_all(3)
    assert (len(bad.sessions), len(good.sessions)) == (3, 0)


async def test_a_lying_witness_harms_nobody_but_itself(autojump_clock: object) -> None:
    bad, good = honest("liar"), [liar(lambda positions: False, "one"), honest("two")]
    bad.lies, bad.latency_ms = always, 1.0
    made = network(*good, bad)
    await made.generate_all(4)
    assert made.false == 0
    assert made.routes.reputation.of(bad.node_id).faults
    assert not any(made.routes.reputation.of(each.node_id).faults for each in good)


async def test_a_newcomer_is_not_believed_against_a_proven_holder(autojump_clock: object) -> None:
    bad, good = honest("liar"), liar(lambda positions: False, "one")
    bad.lies = always
    made = network(good, bad, rate=1.0)
    prove(made, good)
    await made.generate()
    assert made.false == 0
    assert made.routes.reputation.of(bad.node_id).faults


async def test_two_newcomers_that_differ_shut_nobody_out(autojump_clock: object) -> None:
    bad, good = liar(), honest("one")
    made = network(bad, good)
    told: list[Contradiction] = []

    async def note(found: Contradiction) -> None:
        told.append(found)

    made.checks.told = note
    await made.generate()
    assert [found.blame for found in told] == [Blame.NOBODY]
    assert not made.routes.reputation.of(good.node_id).faults


async def test_a_witness_that_hangs_delays_one_answer(autojump_clock: object) -> None:
    good, bad = liar(lambda positions: False, "one"), SimulatedHolder("hangs", latency_ms=5.0)
    bad.hangs_after = 0
    made = network(good, bad, rate=1.0)
    assert await made.generate() < CALL_S
    assert (made.checks.agreed, len(bad.sessions)) == (0, 1)
    assert made.routes.reputation.of(bad.node_id).faults == 1


async def test_statements_are_signed_kept_and_bounded(
    autojump_clock: object, tmp_path: Path
) -> None:
    bad = liar()
    made = network(bad, honest("one"), honest("two"))
    evidence = Evidence(tmp_path, KEY.seed, lambda: 1234.0)
    made.checks.told = evidence.note
    await lies_until_found(made, bad)
    (line,) = (tmp_path / EVIDENCE_FILE).read_bytes().splitlines()
    statement = open_statement(parse(line, JsonLimits(16384, 8)))
    assert (statement.signer, statement.body["time"]) == (KEY.public_key, 1234)
    assert statement.body["blamed"] == [bad.node_id]
    with pytest.raises(InvalidSignature):
        open_statement(parse(line.replace(b"spot-check", b"spot-chock"), JsonLimits(16384, 8)))
    (tmp_path / EVIDENCE_FILE).write_bytes(b"{}\n" + (line + b"\n") * 2 * KEPT)
    assert read_lines(tmp_path / EVIDENCE_FILE) == [line] * KEPT
