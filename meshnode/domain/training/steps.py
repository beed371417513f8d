"""Signed training messages of a pipeline, and whose steps a holder takes (interface 2.3).

Terms: the *driver* holds the model's first layer and decides about steps; a *holder* has some of
the other layers. A holder's *round* is a random name that it gives out: a message counts in that
round alone, with a *number* above those that its driver has used there. A driver is *senior* to
those that have driven this holder later, or never (decision 0137).

===========  ==================================================  =================================
driver       a message of                                        next
===========  ==================================================  =================================
(none)       any member                                          its sender drives
some         the driver                                          the same drives
some         a senior of the driver                              the senior drives
some         another member, the driver silent for ``IDLE_S``    the other drives
some         another member                                      refused
===========  ==================================================  =================================

A command about what is served is about no step: any member may give it, and nobody's place as the
driver changes by it (decision 0247).

Invariants: a message counts once, at one holder, in one round; what is refused changes nothing; a
driver has at most BURST messages at once and PER_SECOND on average.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.ratelimit import Rate, RateLimit

MESSAGE_DOMAIN = "meshnode/training-message/v1"
GRADIENT_DOMAIN = "meshnode/training-gradient/v1"
IDLE_S = 60.0
"""A driver takes a step every few seconds, even of a large model."""
PER_SECOND, BURST = 50.0, 100.0
"""Steps over several nodes take tens of milliseconds each, even of a small model."""
ROUND_MESSAGES = 10_000
"""After so many a new round begins, so that recorded messages are worthless from then on."""
MAX_DRIVERS = 64
"""Drivers that a holder remembers. Seniors are kept."""
MAX_NUMBER = 2**53


@dataclass(frozen=True, slots=True)
class Turn:
    """A round, and the number of a message in it. The empty round is nobody's."""

    round_id: str = ""
    number: int = 0

    @property
    def next(self) -> Turn:
        """The turn of the next message."""
        return replace(self, number=self.number + 1)


class RoundOver(MeshnodeError):
    """A message is of another round, or its number is not above those used before.

    Its driver may sign it again with the number that follows ``latest``.
    """

    def __init__(self, message: str, latest: Turn) -> None:
        super().__init__(message)
        self.latest = latest


class NotTheDriver(MeshnodeError):
    """Another member drives this holder now."""

    def __init__(self) -> None:
        super().__init__("this node trains with another driver now")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatement:
    """What the driver signs of a message that trains."""

    driver: str
    """Node ids are 40 hex characters."""
    holder: str
    turn: Turn
    update: bool
    """Whether the message steps; otherwise its gradients are only added up."""
    session_id: str
    request_id: str
    source_shard: int
    target_shard: int
    sender_url: str
    shape: tuple[int, ...]
    states: bytes
    labels: bytes
    place: str = ""
    """Where the pipeline is (decision 0201); drivers of earlier versions do not say it."""

    def encode(self) -> bytes:
        """The bytes that are signed."""
        return _encode(
            MESSAGE_DOMAIN,
            driver=self.driver,
            holder=self.holder,
            round=self.turn.round_id,
            number=self.turn.number,
            update=self.update,
            session_id=self.session_id,
            request_id=self.request_id,
            source_shard=self.source_shard,
            target_shard=self.target_shard,
            sender_url=self.sender_url,
            hidden_shape=self.shape,
            hidden_states=hashlib.sha256(self.states).hexdigest(),
            training_labels=hashlib.sha256(self.labels).hexdigest(),
            **({"place": self.place} if self.place else {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStatement:
    """What a holder signs of the gradients that it sends to the holder before it.

    They use up a graph, so they count once without a number; ``target_shard`` tells the graphs of
    one message at several holders apart.
    """

    sender: str
    session_id: str
    request_id: str
    target_shard: int
    shape: tuple[int, ...]
    gradients: bytes
    square: str

    def encode(self) -> bytes:
        """The bytes that are signed."""
        return _encode(
            GRADIENT_DOMAIN,
            sender=self.sender,
            session_id=self.session_id,
            request_id=self.request_id,
            target_shard=self.target_shard,
            grad_shape=self.shape,
            grad_output=hashlib.sha256(self.gradients).hexdigest(),
            gradient_square=self.square,
        )


class StepRounds:
    """The drivers of one holder, and its present round. Times are seconds of a monotonic clock."""

    def __init__(self, new_round: Callable[[], str]) -> None:
        """``new_round`` gives a name that cannot be guessed, another one each time."""
        self._new_round = new_round
        self._seniority: list[str] = []
        self._driver = ""
        self._taken_at = 0.0
        self._rate = RateLimit(Rate(PER_SECOND, BURST), MAX_DRIVERS)
        self.renew()

    def renew(self) -> None:
        """Begin a new round: messages that were signed for the present one count no more."""
        self.round_id = self._new_round()
        self._numbers: dict[str, int] = {}
        self._left = ROUND_MESSAGES

    @property
    def driver(self) -> str:
        """The node id of the present driver, or of the last one; empty before the first."""
        return self._driver

    def latest(self, driver: str) -> Turn:
        """The present round, and the number that ``driver`` has used last in it, or 0."""
        return Turn(self.round_id, self._numbers.get(driver, 0))

    def check(self, driver: str, turn: Turn, now: float, *, drives: bool = True) -> None:
        """Raise RoundOver or NotTheDriver if a member's message does not count.

        Whoever does not want to be the driver with it need not be.
        """
        # Another driver must be refused without a new round: it has nothing to sign again for.
        if drives and self._driver not in ("", driver) and not self._gives_way(driver, now):
            raise NotTheDriver
        if turn.round_id != self.round_id:
            raise RoundOver("training round unknown or over", self.latest(driver))
        if not self._numbers.get(driver, 0) < turn.number <= MAX_NUMBER:
            raise RoundOver("this training message was taken before", self.latest(driver))

    def take(self, driver: str, turn: Turn, now: float, *, drives: bool = True) -> None:
        """Count a message whose signature was verified. Raises RateLimited, and like ``check``."""
        self.check(driver, turn, now, drives=drives)
        self._rate.check(driver, now)
        if drives:
            self._driver, self._taken_at = driver, now
        if drives and driver not in self._seniority:
            del self._seniority[MAX_DRIVERS - 1 :]
            self._seniority.append(driver)
        self._numbers[driver] = turn.number
        self._left -= 1
        if self._left <= 0 or len(self._numbers) > MAX_DRIVERS:
            self.renew()

    def _gives_way(self, other: str, now: float) -> bool:
        """Whether the present driver makes way for another member."""
        if now - self._taken_at >= IDLE_S:
            return True
        if other not in self._seniority:
            return False
        return self._seniority.index(other) < self._seniority.index(self._driver)


def _encode(domain: str, **fields: object) -> bytes:
    return json.dumps({"domain": domain, **fields}, sort_keys=True, separators=(",", ":")).encode()
