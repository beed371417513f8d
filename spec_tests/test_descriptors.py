"""A node raises its limit of open files, and shares it out to connections, less a reserve."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.descriptors import MAX_GRPC, MAX_HTTP, MAX_PEERS, MIN_DESCRIPTORS, RESERVE, share_out


@given(limit=st.integers(MIN_DESCRIPTORS, 1 << 20))
def test_the_reserve_is_never_given_away(limit: int) -> None:
    budget = share_out(limit)
    assert budget.http + budget.grpc + budget.peers <= limit - RESERVE
    assert min(budget.http, budget.grpc, budget.peers) >= 25


def test_much_is_enough() -> None:
    budget = share_out(1 << 20)
    assert (budget.http, budget.grpc, budget.peers) == (MAX_HTTP, MAX_GRPC, MAX_PEERS)


def test_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 256"):
        share_out(MIN_DESCRIPTORS - 1)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    hard = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    program = "from meshnode.descriptors import raise_limit; print(raise_limit())"
    limits = f"ulimit -Sn 300 && ulimit -Hn {hard}"
    done = subprocess.run(
        ["sh", "-c", f'{limits} && exec "$0" -c "$1"', sys.executable, program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == hard
