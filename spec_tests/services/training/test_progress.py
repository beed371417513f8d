"""How long a node takes for what it does again and again."""

from __future__ import annotations

import math

import trio
from trio.testing import MockClock

from meshnode.services.training.progress import Recurring


async def test_what_recurs_is_expected_to_take_as_long_as_the_last_time(
    autojump_clock: MockClock,
) -> None:
    measuring = Recurring()
    assert measuring.left_s(trio.current_time()) == math.inf
    with measuring.running():
        await trio.sleep(20)
        assert measuring.left_s(trio.current_time()) == math.inf, "nothing is known yet"
    assert measuring.left_s(trio.current_time()) == math.inf, "it does not run"
    with measuring.running():
        assert measuring.left_s(trio.current_time()) == 20
        await trio.sleep(15)
        assert measuring.left_s(trio.current_time()) == 5
        await trio.sleep(15)
        assert measuring.left_s(trio.current_time()) == 0
