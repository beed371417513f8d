"""Explores generated inputs, or sequences of steps, and keeps the smallest violations.

Invariants: for each requirement the smallest input that violates it is kept, whichever requirement
Hypothesis is shrinking for; a time-out or an exhausted budget ends an exploration, so that
Hypothesis does not repeat it; at most three times as many inputs are sent as were asked for,
shrinking included.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, strategies
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import Unanswered
from conformance.verdict import Finding, Ruling

T = TypeVar("T")
# Enough steps to store, overwrite and find again; a failing sequence is shrunk afterwards.
STEPS = 12


class _Counterexample(Exception):
    """Makes Hypothesis look for a smaller input that shows a violation."""


class Exploration:
    """What the inputs of one exploration have shown so far."""

    def __init__(self, context: Context, examples: int) -> None:
        """`examples` is the number of inputs before any shrinking."""
        self._context = context
        self.examples = examples
        self._runs = 0
        self._held: dict[str, Finding] = {}
        self._other: list[Finding] = []
        self._broken: dict[str, tuple[int, Finding]] = {}
        self._stopped: list[Exception] = []

    def begin(self) -> bool:
        """Count one more input; return whether it may be sent."""
        if self._stopped or self._runs >= 3 * self.examples:
            return False
        self._runs += 1
        return True

    @property
    def going(self) -> bool:
        """Return whether nothing has ended the exploration."""
        return not self._stopped

    def attempt(self, size: int, body: Callable[[], None], trail: tuple[int, ...] = ()) -> None:
        """Run `body` and keep its findings; raise for Hypothesis if something is violated.

        `trail` holds the numbers of the exchanges before it, which are part of a violation.
        """
        with self._collecting() as found:
            try:
                body()
            except (Unanswered, Skipped) as reason:
                self._stopped.append(reason)
        failed = [self._keep(finding, size, trail) for finding in found]
        if any(failed) and self.going:
            raise _Counterexample

    def _keep(self, finding: Finding, size: int, trail: tuple[int, ...]) -> bool:
        ident = finding.requirement
        if finding.ruling is Ruling.HOLDS:
            self._held.setdefault(ident, finding)
        elif finding.ruling is Ruling.FAILS:
            known = self._broken.get(ident)
            # Of two equal sizes the later one is kept, since Hypothesis moves to simpler inputs.
            if known is None or size <= known[0]:
                shown = tuple(dict.fromkeys((*trail, *finding.exchanges)))
                self._broken[ident] = (size, replace(finding, exchanges=shown))
            return True
        else:
            self._other.append(finding)
        return False

    def run(self, test: Callable[[hypothesis.settings], None]) -> None:
        """Run Hypothesis, add the findings to the context, and raise what ended the exploration."""
        configured = hypothesis.settings(
            max_examples=self.examples,
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=hypothesis.Verbosity.quiet,
        )
        # The violations have been kept. Flaky means that the live target did not repeat one.
        with suppress(_Counterexample, hypothesis.errors.Flaky):
            test(configured)
        smallest = [finding for _, finding in self._broken.values()]
        self._context.findings += [*self._held.values(), *smallest, *self._other]
        if self._stopped:
            raise self._stopped[0]

    @contextmanager
    def _collecting(self) -> Iterator[list[Finding]]:
        outer, self._context.findings = self._context.findings, []
        try:
            yield self._context.findings
        finally:
            self._context.findings = outer


def explore(
    context: Context,
    inputs: strategies.SearchStrategy[T],
    body: Callable[[T], None],
    *,
    examples: int | None = None,
) -> None:
    """Run `body` on generated inputs."""
    exploration = Exploration(context, examples or context.target.examples)

    def example(value: T) -> None:
        if exploration.begin():
            exploration.attempt(len(repr(value)), lambda: body(value))

    seeded = hypothesis.seed(context.target.seed)
    exploration.run(lambda settings: seeded(settings(hypothesis.given(inputs)(example)))())


class Sequence(RuleBasedStateMachine):
    """A state machine whose rules send requests; each rule passes its action to `step`."""

    def __init__(self, exploration: Exploration, context: Context) -> None:
        """Begin a new sequence."""
        super().__init__()
        self._exploration = exploration
        self.context = context
        self._sends = exploration.begin()
        self._steps = 0
        self._trail: tuple[int, ...] = ()

    def step(self, body: Callable[[], None]) -> None:
        """Run one step of the sequence, unless the exploration has ended."""
        if not self._sends or not self._exploration.going:
            return
        self._steps += 1
        before = self.context.exchanges_made
        try:
            self._exploration.attempt(self._steps, body, self._trail)
        finally:
            self._trail += tuple(range(before + 1, self.context.exchanges_made + 1))


def explore_sequences(
    context: Context,
    machine: Callable[[Exploration, Context], Sequence],
    *,
    examples: int | None = None,
) -> None:
    """Run generated sequences of the machine's rules."""
    exploration = Exploration(context, examples or context.target.examples)

    def begin() -> Sequence:
        return machine(exploration, context)

    # At runtime Hypothesis accepts any function that makes a machine, and reads the seed from it;
    # only its annotations require a class.
    factory: Any = hypothesis.seed(context.target.seed)(begin)
    exploration.run(lambda settings: run_state_machine_as_test(factory, settings=settings))
