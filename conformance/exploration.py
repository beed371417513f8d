"""Many generated inputs, or sequences of steps, from which the smallest violations are kept.

Invariants: for each requirement the smallest input that broke it is kept, whichever requirement
Hypothesis is shrinking for; a time-out or an empty budget ends an exploration, since Hypothesis
must not repeat it; shrinking sends at most twice as much again as the exploration did.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, strategies
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from conformance.httpwire import Unanswered
from conformance.verdict import Finding, Ruling

if TYPE_CHECKING:
    from conformance.context import Context

T = TypeVar("T")
# Long enough to store, overwrite and find again; a failing sequence is shortened afterwards.
STEPS = 12


class Skipped(Exception):
    """The check cannot go on; what it has not ruled on is not exercised, for this reason."""


class _Counterexample(Exception):
    """Tells Hypothesis that an input showed a violation, so that it looks for a smaller one."""


class Exploration:
    """What all inputs of one exploration have shown."""

    def __init__(self, context: "Context", examples: int) -> None:
        """`examples` bounds the inputs."""
        self._context = context
        self.examples = examples
        self._runs = 0
        self._held: dict[str, Finding] = {}
        self._other: list[Finding] = []
        self._broken: dict[str, tuple[int, Finding]] = {}
        self._stopped: list[Exception] = []

    def begin(self) -> bool:
        """Count one more input; give whether it may be sent at all."""
        if self._stopped or self._runs >= 3 * self.examples:
            return False
        self._runs += 1
        return True

    @property
    def going(self) -> bool:
        """Tell whether nothing has ended the exploration."""
        return not self._stopped

    def attempt(self, size: int, body: Callable[[], None], trail: tuple[int, ...] = ()) -> None:
        """Run `body` and keep what it finds; raise for Hypothesis where something is broken.

        `trail` holds the exchanges that led to this one: they belong to a violation.
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
            # Of two alike the later one: Hypothesis goes from the first to the simplest.
            if known is None or size <= known[0]:
                shown = tuple(dict.fromkeys((*trail, *finding.exchanges)))
                self._broken[ident] = (size, replace(finding, exchanges=shown))
            return True
        else:
            self._other.append(finding)
        return False

    def run(self, test: Callable[[hypothesis.settings], None]) -> None:
        """Run Hypothesis, then hand over the findings; raise what ended the exploration."""
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
        # What broke is kept. Flaky means that a live target did not do it again.
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
    context: "Context",
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
    """A state machine whose rules send something: each calls `step` with what it does."""

    def __init__(self, exploration: Exploration, context: "Context") -> None:
        """Begin a new sequence."""
        super().__init__()
        self._exploration = exploration
        self.context = context
        self._sends = exploration.begin()
        self._steps = 0
        self._trail: tuple[int, ...] = ()

    def step(self, body: Callable[[], None]) -> None:
        """Do one step of the sequence, unless the exploration has ended."""
        if not self._sends or not self._exploration.going:
            return
        self._steps += 1
        before = self.context.exchanges_made
        try:
            self._exploration.attempt(self._steps, body, self._trail)
        finally:
            self._trail += tuple(range(before + 1, self.context.exchanges_made + 1))


def explore_sequences(
    context: "Context",
    machine: Callable[[Exploration, "Context"], Sequence],
    *,
    examples: int | None = None,
) -> None:
    """Run generated sequences of the machine's rules."""
    exploration = Exploration(context, examples or context.target.examples)

    def begin() -> Sequence:
        return machine(exploration, context)

    # Hypothesis takes any function that makes a machine, and the seed from it; it asks for a class
    # in its annotations only.
    factory: Any = hypothesis.seed(context.target.seed)(begin)
    exploration.run(lambda settings: run_state_machine_as_test(factory, settings=settings))
