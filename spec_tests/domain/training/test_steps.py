"""Decision 0137: whose messages a holder takes, and in which round."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from meshnode.domain.errors import RateLimited
from meshnode.domain.training.steps import (
    BURST,
    IDLE_S,
    MAX_DRIVERS,
    ROUND_MESSAGES,
    GradientStatement,
    NotTheDriver,
    RoundOver,
    StepRounds,
    StepStatement,
    Turn,
)


def rounds() -> StepRounds:
    names = itertools.count()
    return StepRounds(lambda: f"round {next(names)}")


def turn(holder: StepRounds, driver: str) -> Turn:
    return holder.latest(driver).next


def test_a_message_counts_once_and_in_its_round() -> None:
    holder = rounds()
    first = turn(holder, "a")
    holder.take("a", first, 0.0)
    for wrong in (first, Turn(first.round_id, 0), Turn(first.round_id, 2**54), Turn("", 9)):
        with pytest.raises(RoundOver) as caught:
            holder.check("a", wrong, 1.0)
        # The driver learns how to sign it again.
        assert caught.value.latest == first
    holder.take("a", Turn(first.round_id, 7), 1.0)
    holder.renew()
    with pytest.raises(RoundOver):
        holder.take("a", Turn(first.round_id, 8), 2.0)
    holder.take("a", turn(holder, "a"), 2.0)


def test_another_member_drives_only_when_the_driver_is_silent() -> None:
    holder = rounds()
    holder.take("a", turn(holder, "a"), 0.0)
    with pytest.raises(NotTheDriver):
        holder.take("b", turn(holder, "b"), IDLE_S - 1)
    holder.take("b", turn(holder, "b"), IDLE_S)
    assert holder.driver == "b"
    # The senior comes back at once, and keeps the holder.
    holder.take("a", turn(holder, "a"), IDLE_S + 1)
    with pytest.raises(NotTheDriver):
        holder.take("b", turn(holder, "b"), IDLE_S + 2)
    assert holder.driver == "a"


def test_a_command_about_serving_makes_nobody_the_driver() -> None:
    holder = rounds()
    holder.take("a", turn(holder, "a"), 0.0, drives=False)
    assert holder.driver == ""
    holder.take("b", turn(holder, "b"), 1.0)
    # Neither beside another driver, nor as a senior of it.
    first = turn(holder, "a")
    holder.take("a", first, 2.0, drives=False)
    assert holder.driver == "b"
    with pytest.raises(NotTheDriver):
        holder.take("a", first.next, 3.0)
    with pytest.raises(RoundOver):
        holder.take("a", first, 4.0, drives=False)
    # A driver's silence is measured by what it drives with.
    holder.take("b", turn(holder, "b"), IDLE_S, drives=False)
    holder.take("a", first.next, IDLE_S + 1.0)
    assert holder.driver == "a"


def test_what_is_refused_changes_nothing() -> None:
    holder = rounds()
    for _ in range(int(BURST)):
        holder.take("a", turn(holder, "a"), 0.0)
    before = holder.latest("a")
    with pytest.raises(RateLimited):
        holder.take("a", before.next, 0.0)
    assert holder.latest("a") == before
    holder.take("a", before.next, 1.0)


def test_rounds_and_drivers_are_bounded() -> None:
    holder = rounds()
    first = holder.round_id
    for number in range(ROUND_MESSAGES):
        holder.take("a", turn(holder, "a"), float(number))
    assert holder.round_id != first
    now = float(ROUND_MESSAGES)
    for number in range(2 * MAX_DRIVERS):
        now += IDLE_S
        holder.take(f"stranger {number}", turn(holder, f"stranger {number}"), now)
    # Those who drove first are remembered.
    holder.take("a", turn(holder, "a"), now + 1)
    assert holder.driver == "a"


def test_statements_cover_everything_that_a_step_is_computed_from() -> None:
    step = StepStatement(
        driver="d",
        holder="h",
        turn=Turn("r", 1),
        update=True,
        session_id="s",
        request_id="q",
        source_shard=0,
        target_shard=2,
        sender_url="u",
        shape=(1, 4, 64),
        states=b"x",
        labels=b"y",
    )
    changes: tuple[dict[str, Any], ...] = (
        {"driver": "e"}, {"holder": "i"}, {"turn": Turn("r", 2)}, {"turn": Turn("q", 1)},
        {"update": False}, {"session_id": "t"}, {"request_id": "p"}, {"source_shard": 1},
        {"target_shard": 3}, {"sender_url": "v"}, {"shape": (1, 64, 4)}, {"states": b"z"},
        {"labels": b""},
    )  # fmt: skip
    every = {step.encode(), *(replace(step, **change).encode() for change in changes)}
    assert len(every) == 1 + len(changes)
    gradient = GradientStatement(
        sender="d",
        session_id="s",
        request_id="q",
        target_shard=2,
        shape=(1, 4, 64),
        gradients=b"x",
        square="1.0",
    )
    changes = (
        {"sender": "e"}, {"session_id": "t"}, {"request_id": "p"}, {"target_shard": 3},
        {"shape": (4, 1, 64)}, {"gradients": b"z"}, {"square": "2.0"},
    )  # fmt: skip
    every = {gradient.encode(), *(replace(gradient, **change).encode() for change in changes)}
    assert len(every) == 1 + len(changes)
