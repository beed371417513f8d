"""What is unstaked waits for its date, in all balances of a run."""

import json
from itertools import count
from typing import Any

import pytest

from conformance.editions import DRAFT
from conformance.findings import Findings
from conformance.httprequest import bearer
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.passive.balances import BALANCE, SEND
from conformance.passive.cooling import EARLY, IDS, UNSTAKE, Cooling
from conformance.verdict import Ruling

ACCOUNT = bearer("second")


class Told:
    """Answers of a target in turn, a second apart."""

    def __init__(self) -> None:
        self.found, self.cooling = Findings("told", IDS, DRAFT), Cooling()
        self.clock = count()

    def _judge(self, asked: tuple[str, str], document: Any) -> None:
        at = next(self.clock)
        exchange = Exchange(at + 1, "told", "http", float(at), 500.0, {"url": ""}, {}, None, "")
        answer = Answer(200, (), json.dumps(document).encode(), exchange)
        self.cooling.judge(self.found, asked, ACCOUNT, answer)

    def balance(self, pending: float) -> None:
        """Read the balance."""
        self._judge(("GET", BALANCE), {"balances": {"pending": pending}})

    def unstake(self, amount: float, days: int = 7) -> None:
        """Unstake something."""
        result = {"amount": amount, "cooldown_days": days}
        self._judge(("POST", UNSTAKE), {"success": True, "unstake": result})

    def send(self) -> None:
        """Send something."""
        self._judge(("POST", SEND), {})

    def ruled(self) -> list[Ruling]:
        """Return the rulings."""
        assert {one.requirement for one in self.found.findings} <= {EARLY}
        return [one.ruling for one in self.found.findings]


@pytest.fixture
def told() -> Told:
    """Two unstakes that are shown as pending beside what was pending before."""
    told = Told()
    told.balance(1.0)
    told.unstake(2.0)
    told.balance(3.0)
    told.unstake(3.0)
    told.balance(6.0)
    return told


def test_what_waits_is_as_it_has_to_be(told: Told) -> None:
    told.send()
    # What was pending before may have been settled.
    told.balance(5.0)
    assert set(told.ruled()) == {Ruling.HOLDS}


def test_what_is_free_before_its_date_is_named_if_it_stays_so(told: Told) -> None:
    told.send()
    told.balance(3.0)
    assert Ruling.FAILS not in told.ruled()
    told.balance(3.0)
    assert told.ruled()[-1] is Ruling.FAILS


def test_a_balance_that_lags_is_not_named(told: Told) -> None:
    for pending in (3.0, 5.0, 3.0, 5.0):
        told.balance(pending)
    assert Ruling.FAILS not in told.ruled()


@pytest.mark.parametrize("shown", [0.0, 1.0, 2.5])
def test_a_target_that_shows_it_elsewhere_is_not_judged(shown: float) -> None:
    told = Told()
    told.balance(1.0)
    for _ in range(4):
        told.unstake(2.0)
        told.balance(shown)
        told.balance(0.0)
    assert told.ruled() == []


def test_two_at_the_same_moment_are_pending_together() -> None:
    told = Told()
    told.balance(1.0)
    for amount in (2.0, 3.0):
        told.unstake(amount)
        told.unstake(amount)
        told.balance(1.0 + 2 * 2.0 if amount == 2.0 else 11.0)
    told.balance(4.0)
    told.balance(4.0)
    assert told.ruled()[-1] is Ruling.FAILS


def test_what_is_free_at_once_does_not_wait(told: Told) -> None:
    told.unstake(5.0, days=0)
    told.balance(5.0)
    told.balance(5.0)
    assert Ruling.FAILS not in told.ruled()
