"""One real node passes the conformance suite, all effects allowed: no MUST is violated or open.

``nox -s judge`` does more: two nodes, mutants, variants. This test is quick enough for every run.
"""

from __future__ import annotations

import pytest

from conformance.catalogue import Effect, Level, Profile
from conformance.ended import Run
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Standing
from spec_tests.processes.nodes import running_node


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with running_node(tmp_path_factory.mktemp("conformance") / "node") as node:
        target = Target(
            f"http://127.0.0.1:{node.port}",
            profiles=frozenset(Profile),
            grpc=f"127.0.0.1:{node.port + 1000}",
            token=node.token,
            allow=frozenset(Effect),
            budget=20.0,
            # A machine that runs other tests too is slow, and speed is not judged here.
            timeout_s=30.0,
            examples=4,
            burst_s=1.0,
        )
        return Runner(target, parallel=2, shuffle=True).run()


def test_no_must_is_violated_or_open(run: Run) -> None:
    assert run.faults == {}
    wrong = {
        item.requirement.id: item.reason
        for item in run.results
        if item.requirement.level is Level.MUST
        and item.standing in (Standing.VIOLATED, Standing.INCONCLUSIVE)
    }
    assert wrong == {}


def test_no_should_is_violated(run: Run) -> None:
    wrong = {
        item.requirement.id: item.reason
        for item in run.results
        if item.standing is Standing.VIOLATED
    }
    assert wrong == {}


def test_most_is_proved_and_nothing_is_left_behind(run: Run) -> None:
    assert sum(item.standing is Standing.PROVED for item in run.results) > 400
    assert run.residue == []
