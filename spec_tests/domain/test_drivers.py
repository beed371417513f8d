"""design: which driver a request is passed on to (decision 0218)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.drivers import KnownDriver, choose_driver
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.forwarded_rules import MAX_END_TOKENS, validate_forwarded
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.reputation import Standing

DRIVERS = st.lists(
    st.builds(
        KnownDriver,
        node_id=st.text("0123456789abcdef", min_size=4, max_size=4),
        host=st.just("192.0.2.1"),
        grpc_port=st.just(9000),
        layers=st.just((0,)),
        latency_ms=st.floats(0, 1e3),
        load=st.integers(0, 5),
        standing=st.sampled_from(Standing),
        current=st.booleans(),
    ),
    unique_by=lambda driver: driver.node_id,
    max_size=6,
)


@given(DRIVERS, st.randoms())
def test_the_choice_does_not_depend_on_the_order(
    drivers: list[KnownDriver], chance: object
) -> None:
    shuffled = list(drivers)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose_driver(drivers) == choose_driver(shuffled)


@given(DRIVERS)
def test_every_driver_is_found_in_the_end(drivers: list[KnownDriver]) -> None:
    """Whoever excludes what was tried asks each one once, the distrusted ones last."""
    tried: list[KnownDriver] = []
    while (driver := choose_driver(drivers, {each.node_id for each in tried})) is not None:
        tried.append(driver)
    assert sorted(tried, key=lambda each: each.node_id) == sorted(
        drivers, key=lambda each: each.node_id
    )
    standings = [each.standing is Standing.DISTRUSTED for each in tried]
    assert standings == sorted(standings)


def test_what_counts_first() -> None:
    near = KnownDriver("aa", "192.0.2.1", 9000, (0,), latency_ms=1.0)
    far = replace(near, node_id="bb", latency_ms=90.0)
    assert choose_driver([far, near]) == near
    assert choose_driver([far, replace(near, load=1)]) == far
    assert choose_driver([replace(far, load=9), replace(near, current=False)]) == replace(
        far, load=9
    )
    assert choose_driver([replace(near, standing=Standing.DISTRUSTED), far]) == far
    assert choose_driver([replace(near, standing=Standing.NEWCOMER), far]) is not far


REQUEST = GenerationRequest("words")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt": ""},
        {"seed": -(2**63)},
        {"frequency_penalty": -2.0, "presence_penalty": 2.0},
        {"logprobs": 20},
        {"json_schema": "{}"},
        {"end_tokens": frozenset(range(MAX_END_TOKENS))},
    ],
    ids=str,
)
def test_what_either_interface_takes_is_taken(changes: dict[str, object]) -> None:
    validate_forwarded(replace(REQUEST, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "x" * (2**20 + 1)},
        {"max_tokens": 0},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"top_k": -1},
        {"stop": ("",)},
        {"frequency_penalty": 2.1},
        {"presence_penalty": float("nan")},
        {"logprobs": 21},
        {"logprobs": -1},
        {"json_schema": "x" * (2**20 + 1)},
        {"end_tokens": frozenset(range(MAX_END_TOKENS + 1))},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_the_ranges_are_those_of_clients(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        validate_forwarded(replace(REQUEST, **changes))  # type: ignore[arg-type]
