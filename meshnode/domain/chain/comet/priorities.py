"""Whose turn it is to propose: CometBFT's proposer priorities (spec "Proposer selection").

All engines of a chain must agree about them, and an engine that begins with blocks of the solo
engine cannot ask anybody. Each block, every validator gains its power; the one with the most
proposes, and pays the power of all. Numbers are Go's 64-bit integers: division by a positive number
truncates toward zero, except where the average is taken, which is rounded down.

Invariant: no two priorities are further apart than WINDOW times the power of all, and their average
is about zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meshnode.domain.chain.comet.validators import CometValidator, validator_set

WINDOW = 2


@dataclass(slots=True)
class RankedSet:
    """A set of validators with their priorities, by consensus key, and the last proposer."""

    powers: dict[str, int] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    proposer: str = ""

    @classmethod
    def of_genesis(cls, validators: Iterable[CometValidator]) -> RankedSet:
        """The set that signs the first block."""
        ranked = cls()
        ranked.update({one.consensus_key: one.power for one in validators})
        ranked.advance()
        return ranked

    @property
    def validators(self) -> tuple[CometValidator, ...]:
        """The validators, in the order of a header's hash."""
        return validator_set(self.powers)

    def copy(self) -> RankedSet:
        """An independent copy."""
        return RankedSet(dict(self.powers), dict(self.priorities), self.proposer)

    def follow(self, powers: Mapping[str, int]) -> RankedSet:
        """The next height's set, in which these keys have power."""
        following = self.copy()
        changes = {key: power for key, power in powers.items() if self.powers.get(key) != power}
        gone = {key: 0 for key in self.powers if key not in powers}
        if changes or gone:
            following.update({**changes, **gone})
        following.advance()
        return following

    def update(self, changes: Mapping[str, int]) -> None:
        """Apply new powers; a power of 0 removes a validator."""
        joined = {key: power for key, power in changes.items() if power}
        # Who joins begins behind everybody, so that leaving and joining gains nothing.
        total = sum({**self.powers, **joined}.values())
        for key, power in joined.items():
            self.priorities.setdefault(key, -(total + (total >> 3)))
            self.powers[key] = power
        for key, power in changes.items():
            if not power:
                self.powers.pop(key, None)
                self.priorities.pop(key, None)
        self._scale()
        self._center()

    def advance(self) -> None:
        """Give every validator its power, and have the first of them propose."""
        self._scale()
        self._center()
        for key, power in self.powers.items():
            self.priorities[key] += power
        addresses = {one.consensus_key: one.address for one in self.validators}
        self.proposer = min(self.powers, key=lambda key: (-self.priorities[key], addresses[key]))
        self.priorities[self.proposer] -= sum(self.powers.values())

    def _scale(self) -> None:
        window = WINDOW * sum(self.powers.values())
        spread = max(self.priorities.values()) - min(self.priorities.values())
        if window <= 0 or spread <= window:
            return
        ratio = (spread + window - 1) // window
        for key, priority in self.priorities.items():
            self.priorities[key] = priority // ratio if priority >= 0 else -(-priority // ratio)

    def _center(self) -> None:
        average = sum(self.priorities.values()) // len(self.priorities)
        for key in self.priorities:
            self.priorities[key] -= average
