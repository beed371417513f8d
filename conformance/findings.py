"""What a check records while it runs: its findings, each with the exchanges that show it.

Invariant: a check rules only on the requirements that it declares.
"""

from conformance.grpcwire import Reply
from conformance.httpwire import Answer, Unanswered
from conformance.journal import Exchange
from conformance.verdict import Finding, Ruling

# Anything that shows a finding: each of these belongs to one exchange.
Shown = Answer | Reply | Exchange | Unanswered


# How the reason begins with which a check that would spend is skipped.
USED_UP = "the budget of"


class Skipped(Exception):
    """The check cannot continue; what it has not ruled on is not exercised, for this reason."""


class Undeclared(Exception):
    """A check ruled on a requirement that it does not declare: a fault of the suite."""


class Findings:
    """The findings of one check."""

    def __init__(self, check: str, proves: frozenset[str], edition: int) -> None:
        """`proves` holds the ids of the requirements that the check may rule on.

        `edition` is that of the run.
        """
        self._check = check
        self._proves = proves
        self.findings: list[Finding] = []
        self.edition = edition

    def _find(self, ruling: Ruling, ident: str, message: str, shown: tuple[Shown, ...]) -> None:
        if ident not in self._proves:
            raise Undeclared(f"{self._check} ruled on {ident}")
        numbers = tuple(_exchange(item).number for item in shown)
        self.findings.append(Finding(ident, ruling, message, numbers, self._check))

    def holds(self, ident: str, *shown: Shown) -> None:
        """Record that the requirement holds in these exchanges."""
        self._find(Ruling.HOLDS, ident, "", shown)

    def fails(self, ident: str, why: str, *shown: Shown) -> None:
        """Record that these exchanges violate the requirement."""
        self._find(Ruling.FAILS, ident, why, shown)

    def unclear(self, ident: str, why: str, *shown: Shown) -> None:
        """Record that these exchanges neither prove nor disprove the requirement."""
        self._find(Ruling.UNCLEAR, ident, why, shown)

    def wrong(self, ident: str, why: str, *shown: Shown) -> None:
        """Record a complete answer that is wrong; edition 1 left it open, so that it still does."""
        if self.edition == 1:
            self.unclear(ident, why, *shown)
        else:
            self.fails(ident, why, *shown)

    def observe(self, ident: str, what: str, *shown: Shown) -> None:
        """Record something that is neither right nor wrong."""
        self._find(Ruling.OBSERVED, ident, what, shown)

    def judge(self, ident: str, held: bool, why: str, *shown: Shown) -> bool:
        """Record that the requirement holds or, for the reason `why`, fails; return `held`."""
        if held:
            self.holds(ident, *shown)
        else:
            self.fails(ident, why, *shown)
        return held

    def may_rule_on(self, ident: str) -> bool:
        """Return whether the check declares the requirement."""
        return ident in self._proves

    def ruled_on(self) -> set[str]:
        """Return the ids of the requirements that have any finding."""
        return {finding.requirement for finding in self.findings}


def _exchange(shown: Shown) -> Exchange:
    return shown if isinstance(shown, Exchange) else shown.exchange
