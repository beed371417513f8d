"""Decision 0247: what drivers need of a holder, and with which version it begins."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.training.claims import LEASE_S, MAX_DRIVERS, Choice, Claims

DRIVERS = st.sampled_from(["", "a", "b", "c"])
HASHES = st.sampled_from(["w", "x", "y", "z"])


def test_a_driver_changes_its_own_claim_alone() -> None:
    claims = Claims()
    claims.take("a", {"x", "w"}, 0.0)
    claims.take("b", {"y"}, 1.0)
    assert claims.needed(2.0) == {"w", "x", "y"}
    claims.take("a", {"x"}, 3.0)
    assert claims.needed(4.0) == {"x", "y"}
    assert claims.next_end(4.0) == LEASE_S + 1.0
    assert claims.needed(LEASE_S + 1.0) == {"x"}


def test_the_newest_choice_prevails_whoever_speaks_last() -> None:
    claims, old, new = Claims(), Choice(1, "f"), Choice(2, "a")
    claims.take("a", {"f"}, 0.0, old)
    assert claims.prevails("b", new, 0.0)
    claims.take("b", {"a"}, 0.0, new)
    assert not claims.prevails("a", old, 1.0)
    assert not claims.prevails("c", Choice(1, "g"), 1.0)
    # A claim without a choice leaves the one of before.
    claims.take("b", {"a", "f"}, 2.0)
    assert not claims.prevails("a", old, 3.0)
    # A driver that is gone, or that has gone back itself, holds nobody up.
    assert claims.prevails("a", old, LEASE_S + 2.0)
    claims.take("b", {"f"}, 4.0, Choice(0, "o"))
    assert claims.prevails("a", old, 5.0)


def test_of_equal_numbers_the_higher_hash_prevails_everywhere() -> None:
    one, other = Choice(3, "1"), Choice(3, "2")
    for order in ([("a", one), ("b", other)], [("b", other), ("a", one)]):
        claims = Claims()
        for driver, choice in order:
            claims.take(driver, {choice.model_hash}, 0.0, choice)
        assert not claims.prevails("a", one, 1.0)
        assert claims.prevails("b", other, 1.0)


def test_claims_are_bounded() -> None:
    claims = Claims()
    for number in range(3 * MAX_DRIVERS):
        claims.take(f"driver {number}", {f"{number}"}, float(number))
    assert len(claims.needed(100.0)) == MAX_DRIVERS
    assert claims.next_end(1e9) == float("inf")


class ClaimMachine(RuleBasedStateMachine):
    """Drivers say what they need in any order; a model of dictionaries knows what holds."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = Claims()
        self.now = 0.0
        self.said: dict[str, tuple[set[str], float]] = {}
        self.chosen: dict[str, Choice] = {}
        self.begun = Choice(0, "")

    @rule(driver=DRIVERS, hashes=st.sets(HASHES, max_size=3))
    def stages(self, driver: str, hashes: set[str]) -> None:
        self.claims.take(driver, hashes, self.now)
        self.said[driver] = hashes, self.now + LEASE_S

    @rule(driver=DRIVERS, number=st.integers(1, 3), model_hash=HASHES)
    def switches(self, driver: str, number: int, model_hash: str) -> None:
        choice = Choice(number, model_hash)
        self.claims.take(driver, {model_hash}, self.now, choice)
        self.said[driver] = {model_hash}, self.now + LEASE_S
        self.chosen[driver] = choice
        if self.claims.prevails(driver, choice, self.now):
            self.begun = choice

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def what_is_claimed_is_needed(self) -> None:
        live = {name for name, (_, until) in self.said.items() if until > self.now}
        wanted = {each for name in live for each in self.said[name][0]}
        assert self.claims.needed(self.now) == wanted

    @invariant()
    def every_order_of_telling_again_ends_with_the_same(self) -> None:
        """So two drivers that repeat themselves undo nothing."""
        live = [name for name, (_, until) in self.said.items() if until > self.now]
        choices = {name: self.chosen[name] for name in live if name in self.chosen}
        prevail = {c for name, c in choices.items() if self.claims.prevails(name, c, self.now)}
        assert prevail == ({max(choices.values())} if choices else set())


TestClaims = ClaimMachine.TestCase
