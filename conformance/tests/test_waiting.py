"""Checks that wait: others go on meanwhile, and each undoes what it has changed."""

from collections.abc import Callable, Iterator

import pytest

from conformance.catalogue import Effect
from conformance.checks import counting, wallet
from conformance.context import Context, Service
from conformance.judging.toy.serving import Serving, toy_target
from conformance.registry import Check, Pauses
from conformance.run import Runner
from conformance.suite import checks
from conformance.waiting import Underway, Waiting

PAUSE_S = 0.02


class Told:
    """What has happened, in order, and checks that tell it."""

    def __init__(self) -> None:
        self.order = list[str]()

    def check(self, name: str, pauses: int) -> Underway:
        """Return a check that waits so many times."""

        def steps() -> Pauses:
            try:
                for at in range(pauses):
                    self.order.append(f"{name}{at}")
                    yield PAUSE_S
                self.order.append(f"{name} done")
            finally:
                self.order.append(f"{name} undone")

        return Underway(Check(name, lambda _: None, frozenset(), ""), _NO_CONTEXT, steps())


# Nothing of it is looked at.
_NO_CONTEXT = object.__new__(Context)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    def step(begun: Underway) -> bool:
        pause_s = next(begun.steps, None)
        begun.due_s += pause_s or 0.0
        return pause_s is not None

    made = Waiting(step)
    yield made
    made.close()


def test_one_goes_on_while_another_waits(waiting: Waiting) -> None:
    told = Told()
    waiting.start(told.check("a", 2))
    waiting.start(told.check("b", 1))
    assert told.order == ["a0", "b0"]
    waiting.finish()
    assert told.order[2:] == ["a1", "b done", "b undone", "a done", "a undone"]


def test_what_is_ended_while_it_waits_is_undone(waiting: Waiting) -> None:
    told = Told()
    waiting.start(told.check("a", 2))
    waiting.close()
    assert told.order == ["a0", "a undone"]
    waiting.finish()


def test_while_a_check_of_the_suite_waits_only_those_run_that_read(
    toy: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[tuple[str, set[str]]]()
    under_way = set[str]()
    step = Runner._step

    def watched(runner: Runner, one: Underway) -> bool:
        begun.append((one.check.name, under_way - {one.check.name}))
        goes_on = step(runner, one)
        (under_way.add if goes_on else under_way.discard)(one.check.name)
        return goes_on

    monkeypatch.setattr(Runner, "_step", watched)
    names = {"config-kept", "status-sane", "shape-layers", "config-partial", "config-sequence"}
    run = Runner(toy_target(toy), names=names).run()
    assert run.faults == {}
    assert {name for name, _ in begun} == names
    assert any(others for _, others in begun)
    all_checks = checks()
    changing = {
        name for name, others in begun
        if others and all_checks[name].effect is not Effect.READ and not all_checks[name].pauses
    }  # fmt: skip
    assert changing == set()


def test_waits_for_metrics_in_vain_get_shorter_until_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = list[float | None]()
    answers = iter([False] * 5 + [True, False])
    monkeypatch.setattr(wallet, "LISTED_WITHIN_S", 8.0)

    def eventually(_: Callable[[], bool], within_s: float | None = None) -> bool:
        waited.append(within_s)
        return next(answers)

    monkeypatch.setattr(counting, "eventually", eventually)
    context = object.__new__(Context)
    context.service = Service()
    for _ in range(7):
        counting.come_to(context, lambda: True)
    assert waited == [8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 8.0]
