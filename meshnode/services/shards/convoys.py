"""Messages of several sessions that are computed together, at a holder (decision 0213).

Terms: a driver names with each message of a *convoy* the convoy, and how many messages it has. The
first of them that come here wait for the others, for a part of the time of a step: a step for the
first one alone would take nearly as long as one for all.

Invariants: a message waits only for messages of its own owner, and no longer than the patience;
at most ``MAX_CONVOYS`` are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from meshnode.domain.convoys import ConvoyName
from meshnode.domain.errors import InvalidRequest
from meshnode.rpc.metadata import CONVOY
from meshnode.services.shards.messages import ForwardCall

MAX_CONVOYS = 64
"""More than the sessions here can form at a time. Of more, none waits."""
MAX_SIZE = 1024
MAX_NAME = 32
"""Characters."""
SHORTEST_S, LONGEST_S = 0.002, 0.05
"""Bounds on the patience."""
STEP_SHARE = 0.5
"""The patience, as a share of the time of a step."""
FORGOTTEN_S = 1.0
"""Messages that come so much later than the first belong to no convoy any more."""


@dataclass(frozen=True, slots=True)
class ConvoyPart:
    """What a message says of its convoy."""

    name: str
    size: int

    def __str__(self) -> str:
        """The value of the metadata."""
        return f"{self.name}:{self.size}"

    @classmethod
    def read(cls, text: str, name: str) -> ConvoyPart:
        """The inverse of ``str``. Raises InvalidRequest, which ``name`` names."""
        convoy, _, size = text.partition(":")
        valid = convoy.isascii() and convoy.isalnum() and len(convoy) <= MAX_NAME
        if not (valid and size.isascii() and size.isdigit() and len(size) <= 4):
            raise InvalidRequest(name, "must be a name and a number of messages")
        if not 1 <= int(size) <= MAX_SIZE:
            raise InvalidRequest(name, f"must have 1 to {MAX_SIZE} messages")
        return cls(convoy, int(size))


@dataclass(slots=True, eq=False)
class _Gathering:
    since: float
    here: int = 0
    complete: trio.Event = field(default_factory=trio.Event)


class Gatherings:
    """The convoys whose messages are coming in."""

    def __init__(self, step_s: Callable[[], float]) -> None:
        """``step_s`` tells how long a step takes, in seconds."""
        self._step_s = step_s
        self._gatherings: OrderedDict[ConvoyName, _Gathering] = OrderedDict()

    def __len__(self) -> int:
        """How many convoys are remembered."""
        return len(self._gatherings)

    async def wait(self, call: ForwardCall, positions: int) -> ConvoyName | None:
        """Wait until all messages of a convoy are here, or for as long as that pays.

        None at once for a message that belongs to none, as those of several ``positions`` do not.
        Raises InvalidRequest.
        """
        if not call.convoy or positions > 1:
            return None
        part = ConvoyPart.read(call.convoy, CONVOY)
        name = ConvoyName(call.owner, part.name)
        now = trio.current_time()
        self._forget(now)
        if name not in self._gatherings:
            if len(self._gatherings) >= MAX_CONVOYS:
                return name
            self._gatherings[name] = _Gathering(now)
        gathering = self._gatherings[name]
        gathering.here += 1
        if gathering.here >= part.size:
            del self._gatherings[name]
            gathering.complete.set()
        patience_s = min(max(SHORTEST_S, STEP_SHARE * self._step_s()), LONGEST_S)
        with trio.move_on_at(gathering.since + patience_s):
            # All go on in the same turn of the event loop, so that one step computes them.
            await gathering.complete.wait()
        gathering.complete.set()
        return name

    def _forget(self, now: float) -> None:
        while self._gatherings:
            name, oldest = next(iter(self._gatherings.items()))
            if now - oldest.since < FORGOTTEN_S:
                return
            del self._gatherings[name]
