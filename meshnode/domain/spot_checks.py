"""Results of holders that are computed a second time elsewhere (interface 4.3; decision 0211).

Terms: a *spot check* compares the logits of one position with those of a *witness*: another path,
of the same numeric class, on which the same hidden states were computed. A *contradiction* is a
check whose two results differ by a bit. A third path, if there is one, decides who is *blamed*.

Invariants: a path is blamed only for what another one contradicts; of two paths alone, the one
whose holders have earned less trust is blamed, and nobody if they are alike, because otherwise one
liar could shut out the only other holder; a statement about it is signed by whoever checked, and
bounded in size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import Envelope, open_envelope, sign_envelope
from meshnode.domain.reputation import PROVEN_ANSWERS, Standing

DOMAIN = "meshnode-spot-check-v1"
"""Signed in each statement, so that no other signature can pass for one."""
NEWCOMERS_ANSWERS = 4
"""A newcomer's answers are checked with the share of this number in its answers so far."""
MAX_HOLDERS = 64


class Blame(Enum):
    """Which of two paths gave a false result."""

    CHECKED = "checked"
    WITNESS = "witness"
    NOBODY = "nobody"
    """Nobody can tell."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one path gave: the holders that differ from the other path's, and a digest."""

    holders: tuple[str, ...]
    digest: str
    """SHA-256 of the logits, hexadecimal."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two results for the same position."""

    checked: Result
    witness: Result
    third: Result | None
    blame: Blame
    first: int
    last: int
    """The layers, both included."""
    positions: int
    states: str
    """SHA-256 of the hidden states that all of them were given, hexadecimal."""
    numeric_class: str

    @property
    def blamed(self) -> tuple[str, ...]:
        """The ids of the holders that are blamed."""
        if self.blame is Blame.NOBODY:
            return ()
        return (self.checked if self.blame is Blame.CHECKED else self.witness).holders


def share_to_check(rate: float, standing: Standing, answers: int) -> float:
    """The part of the positions of a holder to check: at least ``rate``, and more of a newcomer's.

    ``answers`` is what it has answered since its last fault. Nothing is checked at a rate of 0.
    """
    if rate <= 0.0 or (standing is Standing.PROVEN and answers >= PROVEN_ANSWERS):
        return max(0.0, rate)
    return max(rate, min(1.0, NEWCOMERS_ANSWERS / max(1, answers)))


def find_blame(
    checked: bytes, witness: bytes, third: bytes | None, standings: tuple[Standing, Standing]
) -> Blame:
    """Who is blamed for two results that differ; ``standings`` are the worst on each path."""
    if third is not None and third in (checked, witness):
        return Blame.WITNESS if third == checked else Blame.CHECKED
    of_checked, of_witness = standings
    if of_checked == of_witness:
        return Blame.NOBODY
    return Blame.WITNESS if of_checked < of_witness else Blame.CHECKED


def sign_contradiction(found: Contradiction, seed: str, time_s: int) -> dict[str, Json]:
    """A statement about a contradiction, signed with the key of ``seed``, for others to read."""
    results = {"checked": found.checked, "witness": found.witness, "third": found.third}
    body: dict[str, Json] = {
        "domain": DOMAIN,
        "time": time_s,
        "layers": [found.first, found.last],
        "positions": found.positions,
        "states": found.states,
        "numeric_class": found.numeric_class,
        "results": {
            name: {"holders": _few(result.holders), "logits": result.digest}
            for name, result in results.items()
            if result is not None
        },
        "blamed": _few(found.blamed),
    }
    return sign_envelope(body, seed)


def open_statement(value: Json) -> Envelope:
    """Check the signature of a statement. Raises what ``open_envelope`` raises, and ValueError.

    It shows who says so, and not that it is so: holders do not sign their results. Whoever reads it
    may give the blamed holder to a check of its own.
    """
    envelope = open_envelope(value)
    if envelope.body.get("domain") != DOMAIN:
        raise ValueError("not a statement about a spot check")
    return envelope


def _few(holders: Sequence[str]) -> list[Json]:
    return list(holders[:MAX_HOLDERS])
