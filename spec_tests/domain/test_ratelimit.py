"""Interface 7.1, RATE_LIMITED: token buckets, which no client can reset for itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshnode.domain.errors import RateLimited
from meshnode.domain.ratelimit import Rate, RateLimit, address_key


def test_a_burst_passes_then_one_for_each_interval() -> None:
    limit = RateLimit(Rate(per_second=2, burst=3))
    assert [limit.wait("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limit.wait("a", 0.0) == pytest.approx(0.5)
    assert limit.wait("a", 0.4) == pytest.approx(0.1)
    assert limit.wait("a", 0.5) == 0.0
    assert limit.wait("a", 0.5) > 0.0
    assert limit.wait("b", 0.5) == 0.0


def test_a_refusal_costs_nothing() -> None:
    limit = RateLimit(Rate(per_second=1, burst=1))
    assert limit.wait("a", 0.0) == 0.0
    for _ in range(100):
        assert limit.wait("a", 0.5) == pytest.approx(0.5)
    assert limit.wait("a", 1.0) == 0.0


def test_retry_after_is_whole_seconds_and_enough() -> None:
    limit = RateLimit(Rate(per_second=0.4, burst=1))
    limit.check("a", 10.0)
    with pytest.raises(RateLimited) as caught:
        limit.check("a", 10.0)
    assert caught.value.retry_after == 3
    limit.check("a", 10.0 + caught.value.retry_after)


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.floats(0, 0.5), min_size=1, max_size=200),
)
def test_no_span_admits_more_than_burst_and_refill(
    per_second: float, burst: int, pauses: list[float]
) -> None:
    limit = RateLimit(Rate(per_second, burst))
    now, admitted = 100.0, []
    for pause in pauses:
        now += pause
        if limit.wait("a", now) == 0.0:
            admitted.append(now)
    for first, start in enumerate(admitted):
        for last in range(first, len(admitted)):
            allowed = burst + (admitted[last] - start) * per_second
            assert last - first + 1 <= allowed + 1e-3


def test_a_flood_of_other_keys_does_not_reset_a_bucket() -> None:
    limit = RateLimit(Rate(per_second=1, burst=20), max_keys=64)
    while limit.wait("attacker", 0.0) == 0.0:
        pass
    for number in range(10_000):
        limit.wait(f"other-{number}", 0.001)
    assert limit.keys_kept <= 64
    assert limit.wait("attacker", 0.001) > 0.0


def test_full_buckets_are_forgotten_first() -> None:
    limit = RateLimit(Rate(per_second=1, burst=1), max_keys=4)
    for number in range(3):
        limit.wait(f"idle-{number}", 0.0)
    limit.wait("busy", 9.5)
    limit.wait("new", 10.0)
    assert limit.keys_kept == 2
    assert limit.wait("busy", 10.0) == pytest.approx(0.5)


class Buckets(RuleBasedStateMachine):
    """A table that never evicts admits exactly as an explicit token bucket does."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = RateLimit(Rate(per_second=4, burst=3), max_keys=16)
        self.now = 0.0
        self.model: dict[str, tuple[float, float]] = {}

    @rule(seconds=st.integers(0, 40))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds / 16

    @rule(key=st.sampled_from("abcdef"))
    def request(self, key: str) -> None:
        places, at = self.model.get(key, (3.0, self.now))
        places = min(3.0, places + (self.now - at) * 4)
        admitted = places >= 1.0
        self.model[key] = (places - admitted, self.now)
        assert (self.limit.wait(key, self.now) == 0.0) is admitted

    @invariant()
    def the_table_is_bounded(self) -> None:
        assert self.limit.keys_kept <= 16


TestBuckets = Buckets.TestCase
TestBuckets.settings = settings(max_examples=40, stateful_step_count=60)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("local", "local"),
    ],
)
def test_an_ipv6_site_is_one_client(host: str, key: str) -> None:
    assert address_key(host) == key
