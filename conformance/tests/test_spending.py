"""What ends a run's spending, and streams that do not end."""

from dataclasses import replace

import pytest

from conformance.checks import stream
from conformance.judging.hooks import on
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import COST
from conformance.judging.toy.serving import Serving, toy_target
from conformance.run import Runner
from conformance.verdict import Standing

INFERENCE = "/api/v1/inference"
CHARGED = "NA-WALLET-046"
ATOMS = 1_000_000


def in_atoms(response: Response) -> None:
    """Name the cost in atoms."""
    if response.json:
        response.json["cost"]["amount"] *= ATOMS


def standings(toy: Serving, budget: float) -> tuple[dict[str, Standing], float]:
    target = replace(toy_target(toy), budget=budget, examples=4)
    run = Runner(target, names={"shape-balance", "money-charged"}).run()
    assert run.faults == {}
    return {item.requirement.id: item.standing for item in run.results}, run.spent


def test_a_cost_in_another_unit_is_no_spending_and_is_named(toy: Serving) -> None:
    toy.node.http_hook = on(INFERENCE, in_atoms, "POST")
    found, spent = standings(toy, budget=COST * ATOMS / 2)
    assert found[CHARGED] is Standing.VIOLATED
    assert 0 < spent < COST * ATOMS / 2


def test_a_cost_that_is_taken_ends_the_spending(toy: Serving) -> None:
    found, spent = standings(toy, budget=COST / 2)
    assert spent == pytest.approx(COST)
    assert found[CHARGED] is not Standing.VIOLATED


def test_a_stream_whose_connection_stays_open_is_named(
    toy: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(asked: Asked, response: Response) -> None:
        if asked.path == INFERENCE and response.events is not None:
            response.held_s = 0.4

    monkeypatch.setattr(stream, "ENDS_WITHIN_S", 0.2)
    target = replace(toy_target(toy), examples=3)
    sound = toy.node.http_hook
    for hook, standing in ((held, Standing.VIOLATED), (sound, Standing.PROVED)):
        toy.node.http_hook = hook
        run = Runner(target, only=("NA-SSE-022",)).run()
        found = {item.requirement.id: item.standing for item in run.results}
        assert (run.faults, found["NA-SSE-022"]) == ({}, standing)
