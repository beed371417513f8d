"""How many tokens a driver guesses, and which quotations it guesses (decision 0230).

Terms: a *proposal* is a token that is sent through the layers before it is known to be right; a
*pass* sends some positions and brings their logits back. A proposal is *accepted* if the request's
sampler chooses it from these logits, so that what is generated never depends on proposals. The
*depth* is how many proposals are ahead of the latest token.

Invariants: nothing here reads a clock; with equal inputs the rules give equal depths; a depth above
0 is chosen only when it is expected to be faster than none by ``WORTH``; no figure that says that
guesses do not pay is believed for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 32
"""Positions beyond it are hardly ever right, and each costs time at every holder."""
WORTH = 1.1
"""Gain that is expected before anything is guessed, since figures are never exact."""
LOOKUP_SIZES = (4, 3, 2)
"""Tokens that a quotation must have in common with the end of the text, longest first."""
_NEW = 0.2
"""Weight of the newest time of a pass."""
_EVIDENCE = 8.0
"""Proposals whose outcome counts as much as the prior; older ones fade beyond this many times 4."""
EXTRA_SHARE = 0.05
"""The cost of a further position as a share of a pass of one, until it has been measured."""
TRIED_DEPTH = 4
"""The depth of a trial, and of all guesses while their cost is not known."""
FORGOTTEN_AFTER, FORGOTTEN_LATEST = 128, 1024
"""Passes without guesses after which their cost is measured anew: at first, and at most."""


class PassCosts:
    """What a pass takes, in milliseconds, by the number of its positions."""

    def __init__(self) -> None:
        self.one_ms: float | None = None
        """A pass of one position; None until one has been measured."""
        self.extra_ms: float | None = None
        """Each further position."""

    def measured(self, positions: int, took_ms: float) -> None:
        """Note a pass that had nothing in flight before it."""
        if positions == 1:
            self.one_ms = _mean(self.one_ms, took_ms)
        elif self.one_ms is not None:
            extra_ms = max(0.0, took_ms - self.one_ms) / (positions - 1)
            self.extra_ms = _mean(self.extra_ms, extra_ms)
            # A network that became quicker would otherwise show in no figure.
            self.one_ms = min(self.one_ms, took_ms)

    def forget(self) -> None:
        """Believe nothing of what a further position takes until it is measured again."""
        self.extra_ms = None

    def of(self, positions: int) -> float:
        """What a pass is expected to take. Raises ValueError before one was measured."""
        if self.one_ms is None:
            raise ValueError("no pass has been measured")
        extra_ms = EXTRA_SHARE * self.one_ms if self.extra_ms is None else self.extra_ms
        return self.one_ms + extra_ms * (positions - 1)


class Forgetting:
    """When the cost of guesses is not believed any more, since nothing measures it.

    A time of trouble, which shows in that cost, would otherwise end all guesses for good. Each time
    that they turn out not to pay it is believed for twice as long.
    """

    def __init__(self) -> None:
        self._passes = 0
        self._patience = FORGOTTEN_AFTER

    def guessed(self) -> None:
        """A pass had guesses, which pay by what is known."""
        self._passes, self._patience = 0, FORGOTTEN_AFTER

    def unguessed(self) -> bool:
        """A pass had no guesses. Whether what they cost is to be forgotten."""
        self._passes += 1
        if self._passes < self._patience:
            return False
        self._passes, self._patience = 0, min(2 * self._patience, FORGOTTEN_LATEST)
        return True


@dataclass(slots=True)
class Acceptance:
    """How many of a source's proposals are accepted."""

    prior: float = 0.5
    accepted: float = 0.0
    refused: float = 0.0

    def seen(self, *, accepted: bool) -> None:
        """Note the outcome of a proposal; those behind a refused one have none."""
        if self.accepted + self.refused >= 4 * _EVIDENCE:
            self.accepted *= 0.75
            self.refused *= 0.75
        if accepted:
            self.accepted += 1.0
        else:
            self.refused += 1.0

    @property
    def rate(self) -> float:
        """The probability that a proposal is accepted if those before it were."""
        total = _EVIDENCE / 4 + self.accepted + self.refused
        return (self.prior * _EVIDENCE / 4 + self.accepted) / total


def expected_tokens(depth: int, rate: float) -> float:
    """Tokens that a pass with so many proposals gives: the accepted ones, and one more."""
    if rate >= 1.0:
        return depth + 1.0
    return float((1.0 - rate ** (depth + 1)) / (1.0 - rate))


def best_depth(costs: PassCosts, rate: float, proposal_ms: float = 0.0) -> int:
    """The depth with the most tokens a second; 0 unless it is faster than none by ``WORTH``.

    ``proposal_ms`` is what making a proposal takes. It is at most ``TRIED_DEPTH`` while the cost of
    a further position is not known.
    """
    if costs.one_ms is None:
        return 0
    best, speed = 0, WORTH / costs.of(1)
    deepest = TRIED_DEPTH if costs.extra_ms is None else MAX_DEPTH
    for depth in range(1, deepest + 1):
        took_ms = costs.of(1 + depth) + depth * proposal_ms
        found = expected_tokens(depth, rate) / took_ms
        if found > speed:
            best, speed = depth, found
    return best


@dataclass(slots=True)
class Lookup:
    """Finds where the end of a text stands in it before, and what followed there."""

    tokens: list[int] = field(default_factory=list)
    _follows: dict[tuple[int, ...], int] = field(default_factory=dict)
    """For the tokens of a quotation, the latest place after them."""

    def add(self, token: int) -> None:
        """Append a token to the text."""
        stop = len(self.tokens)
        for size in LOOKUP_SIZES:
            if stop >= size:
                self._follows[tuple(self.tokens[stop - size :])] = stop
        self.tokens.append(token)

    def propose(self, ahead: Sequence[int], count: int) -> list[int]:
        """At most ``count`` tokens that may follow the text and ``ahead``."""
        tail = [*self.tokens[-LOOKUP_SIZES[0] :], *ahead][-LOOKUP_SIZES[0] :]
        found: list[int] = []
        while len(found) < count:
            place = self._place(tail)
            if place is None:
                break
            # A quotation that reaches the end of the text is looked up once more from there.
            taken = self.tokens[place : place + count - len(found)]
            found += taken
            tail = [*tail, *taken][-LOOKUP_SIZES[0] :]
        return found

    def _place(self, tail: Sequence[int]) -> int | None:
        for size in LOOKUP_SIZES:
            if len(tail) >= size:
                place = self._follows.get(tuple(tail[-size:]))
                if place is not None:
                    return place
        return None


def _mean(known: float | None, newest: float) -> float:
    return newest if known is None else (1 - _NEW) * known + _NEW * newest
