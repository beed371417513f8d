"""How long a generation waits for its path, and when it leaves one that is slow (decision 0134)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.reputation import Standing
from meshnode.domain.routing import SLOW_MS, SLOW_TIMES

if TYPE_CHECKING:
    from meshnode.services.pipeline.remote import PathMessage
    from meshnode.services.pipeline.routes import RemoteHop, Routes

PATIENCE = 1 / 4
"""Part of the call's deadline that one position gets at least."""
PATIENT_TIMES = 10
"""How much longer than usual a position may take before another holder is asked."""
PREFILL_SPEED = 8
"""How many positions of a prompt are taken to cost as much as one that is generated."""
LOOK_AGAIN_S = 0.5
"""Seconds after which a generation on a slow path looks for another one again: all holders are
looked at, of whom there may be thousands."""
MAX_LEFT = 2
"""Paths that one generation leaves because they are slow."""


@dataclass(frozen=True, slots=True)
class SlowHop:
    """A hop that is worth leaving."""

    hop: RemoteHop
    before: Sequence[RemoteHop]
    """Those that passed messages on to it, which may be the slow ones."""
    position_ms: float
    other_ms: float


class Pace:
    """The pace of one generation's path. Times are in milliseconds, if their names say so."""

    def __init__(self, routes: Routes, call_s: float) -> None:
        """``call_s`` is the deadline of a call."""
        self.patience_s = math.inf
        """How long a position may take before another holder is asked."""
        self.impatient = True
        """Whether it is the holders that are slow, as far as is known."""
        self.left: set[str] = set()
        """Nodes that were left because they are slow."""
        self._routes = routes
        self._call_s = call_s
        self._doubted = False
        self._position_ms: list[float] = []
        """Time of a position in each of the latest two calls on this path."""
        self._look_at = -math.inf

    def begin(self, hops: Sequence[RemoteHop], excluded: set[str]) -> None:
        """A path was taken."""
        self.patience_s = self._patience(hops, excluded)
        self._doubted = self.patience_s < math.inf and self._doubts(hops, excluded)
        self._position_ms = []
        self._look_at = -math.inf

    def first_s(self, positions: int) -> float:
        """How long the first message on the path may take, which has so many positions."""
        return self.patience_s * max(1.0, positions / PREFILL_SPEED) if self._doubted else math.inf

    def note(self, took_ms: float, message: PathMessage) -> None:
        """A message was answered."""
        each_ms = took_ms / max(1, message.seq / PREFILL_SPEED)
        self._position_ms = [*self._position_ms[-1:], each_ms]

    def _patience(self, hops: Sequence[RemoteHop], excluded: set[str]) -> float:
        routes = self._routes
        usual_ms = routes.usual_ms(hops) if self.impatient else None
        if usual_ms is None:
            return math.inf
        replaceable = any(routes.choose(excluded | {hop.node_id}) for hop in hops)
        if not replaceable:
            return math.inf
        return max(PATIENCE * self._call_s, PATIENT_TIMES * usual_ms / 1e3)

    def _doubts(self, hops: Sequence[RemoteHop], excluded: set[str]) -> bool:
        """Whether holders of the path are not proven, and those that could replace them are."""
        routes = self._routes
        unproven = {hop.node_id for hop in hops if routes.worst_standing([hop]) > Standing.PROVEN}
        others = routes.choose(excluded | unproven) if unproven else None
        return others is not None and routes.worst_standing(others) is Standing.PROVEN

    def slow_hop(
        self,
        hops: Sequence[RemoteHop],
        took_ms: Sequence[float],
        excluded: set[str],
        *,
        relay: bool,
        worth: Callable[[float, float], bool],
    ) -> SlowHop | None:
        """The slowest hop, if ``worth`` leaving for what a position takes there and elsewhere.

        Looks at most every ``LOOK_AGAIN_S``; None in between.
        """
        position_ms = min(self._position_ms, default=0.0)
        if len(self._position_ms) < 2 or len(self.left) >= MAX_LEFT or position_ms < SLOW_MS:
            return None
        now = trio.current_time()
        if now < self._look_at:
            return None
        self._look_at = now + LOOK_AGAIN_S
        place = max(range(len(hops)), key=lambda place: took_ms[place])
        unknown_ms = PATIENCE * self._call_s * 1e3 / SLOW_TIMES
        other_ms = self._routes.alternative_ms(excluded | {hops[place].node_id}, unknown_ms)
        if other_ms is None or not worth(position_ms, other_ms):
            return None
        return SlowHop(hops[place], hops[:place] if relay else (), position_ms, other_ms)
