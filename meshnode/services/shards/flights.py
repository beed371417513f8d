"""Messages of one session that were sent ahead of each other's answers (decision 0230).

Terms: a driver that *sends ahead* does not wait for an answer before it sends the positions that
follow. An *epoch* is a run of such messages, each of which begins where the one before it ends;
the driver begins a new epoch when it has guessed wrong, at the first position that was wrong. A
message's *flight* is its epoch, and the position at which that epoch began.

Invariants: messages of an epoch are computed in the order of their positions, however they arrive;
once a message of a later epoch has arrived, none of an earlier one is begun; at most
``SESSION_MESSAGES`` wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import trio

from meshnode.domain.errors import InvalidRequest, RateLimited
from meshnode.services.shards.messages import SessionBehind

SESSION_MESSAGES = 8
"""Messages of one session that may wait here, which peers are told (``NodeCapacity``)."""
BEGIN_S = 1.0
"""How long a message waits for the one that opens its session, which may have been overtaken."""
MAX_EPOCH = 1 << 40


@dataclass(frozen=True, slots=True)
class Flight:
    """Where a message belongs among those that were sent ahead."""

    epoch: int
    begin: int
    """The position at which the epoch began."""

    def __str__(self) -> str:
        """The value of the metadata."""
        return f"{self.epoch}:{self.begin}"

    @classmethod
    def read(cls, text: str, name: str) -> Flight:
        """The inverse of ``str``. Raises InvalidRequest, which ``name`` names."""
        parts = text.split(":")
        valid = len(parts) == 2 and all(
            each.isascii() and each.isdigit() and len(each) <= 13 for each in parts
        )
        if not valid or max(map(int, parts)) > MAX_EPOCH:
            raise InvalidRequest(name, "must be an epoch and a position")
        return cls(int(parts[0]), int(parts[1]))


class MessageSuperseded(SessionBehind):
    """A message of a later epoch has arrived: nobody waits for the answer to this one."""

    def __init__(self) -> None:
        super().__init__(None, "session superseded: a later message has taken its place")


class FlightOrder:
    """Lets the messages of one session pass in the order of their positions."""

    def __init__(self) -> None:
        self.waiting = 0
        self._epoch = -1
        self._reached = 0
        """Positions that were computed and that the latest epoch goes on from."""
        self._ended = False
        self._changed = trio.Event()

    async def wait_turn(self, flight: Flight, start: int, *, begun: bool) -> None:
        """Wait until the positions before ``start`` have been computed in this epoch.

        ``begun`` says whether the session is open. Raises MessageSuperseded, SessionBehind when the
        session ends meanwhile or does not begin, and RateLimited when too many messages wait.
        """
        if flight.epoch > self._epoch:
            self._epoch, self._reached = flight.epoch, min(self._reached, flight.begin)
            self._notify()
        if self.waiting >= SESSION_MESSAGES:
            raise RateLimited(1, "too many messages of one session at once")
        self.waiting += 1
        try:
            with trio.move_on_after(math.inf if begun else BEGIN_S) as scope:
                while not self._ended and flight.epoch == self._epoch and start > self._reached:
                    if self._reached:
                        scope.deadline = math.inf
                    await self._changed.wait()
        finally:
            self.waiting -= 1
        if flight.epoch != self._epoch:
            raise MessageSuperseded
        if self._ended or start > self._reached:
            raise SessionBehind(None)

    def validate_current(self, flight: Flight) -> None:
        """Raises MessageSuperseded if a later epoch has begun."""
        if flight.epoch != self._epoch:
            raise MessageSuperseded

    def computed(self, flight: Flight | None, stop: int) -> None:
        """Note that the positions before ``stop`` have been computed."""
        if flight is None or flight.epoch == self._epoch:
            self._reached = stop
            self._notify()

    def end(self) -> None:
        """The session has ended: those that wait need not."""
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
