"""The convoys of a driver's generations (decision 0213). Terms as in ``domain.convoys``.

Invariant: a generation that is cancelled while it waits, or that ends, is waited for by nobody.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from meshnode.domain.convoys import Convoy, Station

if TYPE_CHECKING:
    from meshnode.services.pipeline.records import HopTime
    from meshnode.services.pipeline.routes import RemoteHop

NAME_BYTES = 8
"""Enough that a driver's convoys have different names."""

Stages = tuple[tuple[str, int, int], ...]
"""The remote hops of a path: node id, first and last layer."""


@dataclass(slots=True, eq=False)
class Traveller:
    """One generation, as the convoys know it."""

    stages: Stages = ()
    departed: trio.Event = field(default_factory=trio.Event)
    convoy: Convoy | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Ends the wait for a departure, so that it may be looked at again."""


class Convoys:
    """All convoys of a driver."""

    def __init__(self, *, enabled: bool = True) -> None:
        """Unless ``enabled``, each generation sends its positions by itself."""
        self._enabled = enabled
        self._stations: dict[Stages, Station[Traveller]] = {}
        self.departed = 0
        """Convoys of several sessions since the start."""

    async def depart(self, traveller: Traveller, path: Sequence[RemoteHop]) -> Convoy | None:
        """Wait until a convoy departs with the traveller's next position over ``path``.

        None if it goes alone.
        """
        stages = tuple((hop.node_id, hop.first, hop.last) for hop in path)
        if not self._enabled or not stages:
            self.leave(traveller)
            return None
        if traveller.stages != stages:
            self.leave(traveller)
            traveller.stages = stages
        station = self._stations.setdefault(stages, Station(1 + len(stages)))
        traveller.departed, traveller.convoy = trio.Event(), None
        station.arrive(traveller, trio.current_time())
        gone = False
        try:
            convoy = await self._wait(station, traveller)
            gone = True
        finally:
            if not gone:
                self.leave(traveller)
        return None if convoy is None or convoy.size == 1 else convoy

    def leave(self, traveller: Traveller) -> None:
        """The traveller has ended, or goes on alone or over another path."""
        station = self._stations.get(traveller.stages)
        if station is None:
            return
        station.leave(traveller, trio.current_time())
        if len(station):
            self._look(station)
        else:
            del self._stations[traveller.stages]
        traveller.stages = ()

    def measured(self, traveller: Traveller, own_ms: float, times: Sequence[HopTime]) -> None:
        """Note what a position has taken: ``own_ms`` at the driver, and ``times`` at the others."""
        station = self._stations.get(traveller.stages)
        if station is not None and len(times) == len(traveller.stages):
            compute_ms = [own_ms, *(each.compute_ms for each in times)]
            travel_ms = sum(compute_ms) + sum(each.network_ms for each in times)
            station.measured([each / 1e3 for each in compute_ms], travel_ms / 1e3)

    async def _wait(self, station: Station[Traveller], traveller: Traveller) -> Convoy | None:
        while not traveller.departed.is_set():
            self._look(station)
            first = station.waiting[:1] == [traveller]
            deadline = station.departs_at(trio.current_time()) if first else math.inf
            with trio.CancelScope(deadline=deadline) as traveller.scope:
                # All of a convoy go on in the same turn of the event loop, so that they are
                # computed in one step.
                await traveller.departed.wait()
        return traveller.convoy

    def _look(self, station: Station[Traveller]) -> None:
        """Let those depart who have waited for long enough; the first of the others looks again."""
        now = trio.current_time()
        while (departs_at := station.departs_at(now)) <= now:
            convoy, travellers = station.depart(secrets.token_hex(NAME_BYTES), now)
            self.departed += convoy.size > 1
            for traveller in travellers:
                traveller.convoy = convoy
                traveller.departed.set()
        for traveller in station.waiting[:1]:
            traveller.scope.deadline = departs_at
