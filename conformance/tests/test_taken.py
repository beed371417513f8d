"""What all answers of a run say together of money that is taken, and of routes that stay away."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from conformance.editions import DRAFT
from conformance.findings import Findings
from conformance.httprequest import Credential, bearer
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.passive import PROVES, judge_answer, memory, taken
from conformance.passive.balances import API, BALANCE, INFERENCE, SEND
from conformance.verdict import Ruling

ACCOUNT, ELSE = bearer("second"), bearer("first")
COST, FEE, AMOUNT = 0.25, 0.5, 2.0


class Told:
    """Answers of a target in turn, a second apart, and what is found in them."""

    def __init__(self, idents: frozenset[str]) -> None:
        self.found = Findings("told", idents, DRAFT)
        self.taken, self.memory = taken.Taken(), memory.Memory()
        self.clock: Iterator[int] = count()

    def answer(self, document: Any, status: int = 200) -> Answer:
        """Make an answer."""
        at = next(self.clock)
        exchange = Exchange(at + 1, "told", "http", float(at), 500.0, {"url": ""}, {}, None, "")
        return Answer(status, (), json.dumps(document).encode(), exchange)

    def balance(self, available: float, times: int = 2) -> None:
        """Read the balance, as often as says that it stands still."""
        for _ in range(times):
            shown = self.answer({"address": "second", "balances": {"available": available}})
            self._judge(("GET", BALANCE), ACCOUNT, None, shown)

    def generate(self, by: Credential = ACCOUNT) -> None:
        """Generate."""
        self._judge(("POST", INFERENCE), by, {}, self.answer({"cost": {"amount": COST}}))

    def send(self, to: Any = "first") -> None:
        """Send to the first account, or to an address that nobody is known to have."""
        result = {"from": "second", "to": to, "fee": FEE}
        body = {"to": to, "amount": AMOUNT}
        self._judge(("POST", SEND), ACCOUNT, body, self.answer(result))

    def _judge(self, asked: tuple[str, str], by: Credential, body: Any, answer: Answer) -> None:
        self.taken.judge(self.found, asked, by, body, answer, operator=by is ELSE)

    def ruled(self, ident: str) -> list[Ruling]:
        """Return the rulings on a requirement."""
        return [one.ruling for one in self.found.findings if one.requirement == ident]


@pytest.fixture
def told() -> Told:
    told = Told(taken.IDS | {memory.LASTS})
    told.taken.addresses.add("first")
    return told


def generations(told: Told, costs: list[float]) -> None:
    """Generate, and show a balance that so much is taken from each time."""
    left = 100.0
    told.balance(left)
    for cost in costs:
        told.generate()
        left -= cost
        told.balance(left)


def test_what_a_result_names_as_its_cost_is_taken(told: Told) -> None:
    generations(told, [COST, COST, COST])
    assert told.ruled(taken.CHARGED) == [Ruling.HOLDS] * 3


@pytest.mark.parametrize("odd", [0.0, 2 * COST])
def test_a_charge_that_is_left_out_or_made_twice_now_and_then_is_named(
    told: Told, odd: float
) -> None:
    generations(told, [COST, odd, COST, COST])
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)
    generations(told, [odd, COST])
    # It may still be taken, with a block.
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)
    generations(told, [COST] * 5)
    assert Ruling.FAILS in told.ruled(taken.CHARGED)


def test_what_is_taken_with_the_next_block_is_no_finding(told: Told) -> None:
    generations(told, [0.0, 0.0, 0.0])
    told.balance(100 - 3 * COST)
    generations(told, [COST] * 9)
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)


def test_what_is_taken_beside_another_operation_is_taken_late(told: Told) -> None:
    for _ in range(4):
        told.balance(100)
        told.generate()
        told.balance(100)
        told.send()
        told.balance(100 - COST - AMOUNT - FEE)
    generations(told, [COST] * 9)
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)


def test_free_generations_are_named_where_transfers_are_taken_at_once(told: Told) -> None:
    generations(told, [0.0] * 4)
    for _ in range(6):
        told.balance(100)
        told.send()
        told.balance(100 - AMOUNT - FEE)
    assert Ruling.FAILS in told.ruled(taken.CHARGED)


def test_nothing_is_concluded_where_charges_come_late(told: Told) -> None:
    told.balance(100)
    told.generate()
    told.balance(100)
    told.balance(100 - COST)
    generations(told, [0.0, 0.0, 0.0, 0.0])
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)


def test_nothing_is_concluded_beside_what_others_do_and_what_comes_in(told: Told) -> None:
    for more in (0.0, 0.01, 7.0):
        told.balance(100)
        told.generate()
        told.generate(by=ELSE)
        told.balance(100 + more)
        told.generate()
        told.balance(100 + 2 * more)
    # A balance that does not stand still behind it.
    for _ in range(4):
        told.balance(100)
        told.generate()
        told.balance(100, times=1)
        told.send()
    assert Ruling.FAILS not in told.ruled(taken.CHARGED)


def test_transfers_that_take_nothing_now_and_then_are_named(told: Told) -> None:
    for took in (AMOUNT + FEE, 0, AMOUNT + FEE, 0, 0, *[AMOUNT + FEE] * 5):
        assert Ruling.FAILS not in told.ruled(taken.TRANSFERRED)
        told.balance(100)
        told.send()
        told.balance(100 - took)
    assert told.ruled(taken.TRANSFERRED)[-1] is Ruling.FAILS


def test_what_goes_to_nobody_may_come_back(told: Told) -> None:
    for took in (0, 0, 0, 0):
        told.balance(100)
        told.send(to="nobody")
        told.balance(100 - took)
    for _ in range(9):
        told.balance(100)
        told.send()
        told.balance(100 - AMOUNT - FEE)
    assert Ruling.FAILS not in told.ruled(taken.TRANSFERRED)


def test_a_receiver_of_any_type_is_no_fault_of_the_suite(told: Told) -> None:
    told.balance(100)
    for to in ({"a": 1}, ["first"], None, 7):
        told.send(to=to)
    told.balance(100)


def test_a_route_that_fails_from_some_moment_on_is_named_if_others_are_served(told: Told) -> None:
    def read(path: str, status: int) -> None:
        told.memory.judge_served(told.found, API + path, told.answer({}, status))

    def fails() -> bool:
        return Ruling.FAILS in told.ruled(memory.LASTS)

    for _ in range(6):
        # It never was served.
        read("/peers", 503)
    read("/network", 200)
    for _ in range(6):
        read("/network", 503)
    # Nothing else was served meanwhile, so that the node may be down.
    assert not fails()
    read("/status", 200)
    read("/network", 503)
    assert fails()


@pytest.mark.parametrize(
    "message",
    [
        "Fatal error: Uncaught TypeError in /srv/a.php:112\nStack trace:\n#0 /srv/b.php(8): f()",
        "TypeError: x\n    at Object.send (/srv/node/wallet.js:12:3)",
        "java.lang.IllegalStateException: no\n\tat org.node.Wallet.send(Wallet.java:40)",
        'File "/srv/node/wallet.py", line 12, in send',
        "thread 'main' panicked at src/main.rs:1:2\nstack backtrace:\n",
        "goroutine 34 [running]:\nmain.main()",
        "/srv/node/wallet.rb:12:in `send'",
    ],
)
def test_traces_of_several_languages_are_named_and_plain_words_are_not(message: str) -> None:
    found = Findings("told", PROVES, DRAFT)
    for text in (message, "the amount has to be above 0 (at most 10)", "#0 is no account"):
        error = {"error": {"code": "INVALID_REQUEST", "message": text, "details": {}}}
        judge_answer(found, Told(frozenset()).answer(error, 400))
    rulings = [one.ruling for one in found.findings if one.requirement == "NA-ERR-014"]
    assert rulings == [Ruling.FAILS, Ruling.HOLDS, Ruling.HOLDS]
