"""Times of every hop: milliseconds of queue, computing and network (decision 0039).

Terms: a hop's *network* time is the time between its caller's sending and receiving, less the queue
and the computing of the hop itself and all three times of the hops after it. The driver is the
first hop.

Invariants: memory is bounded whatever the traffic: there are sums for each hop, the traces of the
latest generations, and one histogram for each figure.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from meshnode.domain.metering import TOKEN_S, Buckets, Histogram
from meshnode.domain.spot_checks import Contradiction
from meshnode.domain.traces import GenerationTrace
from meshnode.services.observing import UNOBSERVED, GenerationObserver, PathHop
from meshnode.services.pipeline.guessing import SharedFigures
from meshnode.services.pipeline.short_cuts import ShortCuts
from meshnode.wire import json

KEPT = 256
"""Traces kept, of the latest generations. A client asks for a trace as its answer ends."""

MIXED = "computed on nodes of different numeric classes: another path could give other tokens"
"""The note of an answer whose path left the driver's numeric class (decision 0152)."""


DISPUTED = "two nodes gave different results for this answer, and no third could tell which is true"
"""The note of an answer with an undecided check (decision 0211)."""


@dataclass(frozen=True, slots=True)
class HopTime:
    """The times of one step at one hop, which holds the layers ``first`` to ``last`` inclusive."""

    node_id: str
    first: int
    last: int
    queue_ms: float
    compute_ms: float
    network_ms: float

    @property
    def total_ms(self) -> float:
        """All three together."""
        return self.queue_ms + self.compute_ms + self.network_ms


@dataclass(slots=True)
class HopSum:
    """The summed times of all steps of a generation at one hop."""

    node_id: str
    first: int
    last: int
    steps: int = 0
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    network_ms: float = 0.0

    def add(self, time: HopTime) -> None:
        """Count one step."""
        self.steps += 1
        self.queue_ms += time.queue_ms
        self.compute_ms += time.compute_ms
        self.network_ms += time.network_ms


async def tell_nobody(found: Contradiction) -> None:
    """The default of :class:`SpotChecks`."""


@dataclass(slots=True)
class SpotChecks:
    """What all generations of a driver share of their checks (decision 0211)."""

    rate: float = 0.0
    """The part of the positions of proven holders that is checked."""
    numeric_class: str = ""
    told: Callable[[Contradiction], Awaitable[None]] = tell_nobody
    draw: Callable[[], float] = random.random
    agreed: int = 0
    """Checks in which both results were the same."""
    contradicted: int = 0
    impossible: int = 0
    """Checks without a witness: no other holder, or none that answered."""


class HopTrace:
    """The hops of one generation."""

    def __init__(self, generation_id: str, observer: GenerationObserver = UNOBSERVED) -> None:
        self.generation_id = generation_id
        self._observer = observer
        self.spans: GenerationTrace | None = None
        """Where the calls to holders are recorded one by one, if somebody does so."""
        self.paths = 0
        """How many paths it took: one unless a hop failed."""
        self.expected_ms: float | None = None
        """What a position was expected to take in the remote layers of the latest path."""
        self.failures: list[str] = []
        """The failures of hops, at most ``MAX_FAILURES``."""
        self.notes: list[str] = []
        """What the client should know about how the answer was made."""
        self._hops: dict[tuple[str, int, int], HopSum] = {}

    @property
    def hops(self) -> list[HopSum]:
        """The hops, in the order of their first use."""
        return list(self._hops.values())

    def add(self, times: Sequence[HopTime]) -> None:
        """Count one step of each hop."""
        for time in times:
            key = (time.node_id, time.first, time.last)
            if key not in self._hops and len(self._hops) >= MAX_HOPS:
                continue
            known = self._hops.setdefault(key, HopSum(*key))
            known.add(time)

    def add_sum(self, hop: HopSum) -> None:
        """Take over a hop of another node's trace."""
        if len(self._hops) < MAX_HOPS:
            self._hops[hop.node_id, hop.first, hop.last] = hop

    def took_path(
        self, hops: Sequence[PathHop], *, mixed: bool = False, expected_ms: float | None = None
    ) -> None:
        """Count a path, over these remote hops; ``mixed`` if their numeric classes differ.

        ``expected_ms`` is what a position is expected to take on it, if that is known.
        """
        self.paths += 1
        self.expected_ms = expected_ms
        if mixed and MIXED not in self.notes:
            self.notes.append(MIXED)
        self._observer.routed(self.generation_id, hops)

    def disputed(self) -> None:
        """Note that nobody could tell whether a result is true."""
        if DISPUTED not in self.notes:
            self.notes.append(DISPUTED)

    def failed(self, reason: str) -> None:
        """Note the reason of a hop's failure, unless there are many already."""
        self._observer.failed_over(self.generation_id, reason)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(reason)

    def fields(self) -> dict[str, object]:
        """The trace as JSON values, for the log and for the client."""
        known = {} if self.expected_ms is None else {"expected_ms": round(self.expected_ms, 3)}
        return {
            "id": self.generation_id,
            "paths": self.paths,
            **known,
            "hops": [
                {
                    "node_id": hop.node_id,
                    "layers": f"{hop.first}-{hop.last}",
                    "steps": hop.steps,
                    "queue_ms": round(hop.queue_ms, 3),
                    "compute_ms": round(hop.compute_ms, 3),
                    "network_ms": round(hop.network_ms, 3),
                }
                for hop in self.hops
            ],
        }

    def encode(self) -> str:
        """One line of JSON in ASCII, fit for a header."""
        return json.dumps(self.fields()).decode("ascii")


MAX_FAILURES = 16
MAX_HOPS = 32


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """Counts since the start, and times of one step at one hop in milliseconds."""

    generations: int
    failovers: int
    hop_queue_ms: float
    hop_compute_ms: float
    hop_network_ms: float
    hop_network_p99_ms: float


class HopRecorder:
    """Sums for ``/metrics``, and the traces of the latest generations."""

    def __init__(self) -> None:
        self.observer: GenerationObserver = UNOBSERVED
        """Is told of the paths of all generations."""
        self.failovers = 0
        self.speculation = SharedFigures()
        self.short_cuts = ShortCuts()
        """Answers that come straight from the last holder."""
        self.checks = SpotChecks()
        """The checks of results, and what they found."""
        self._generations = 0
        self._queue = Histogram()
        self._compute = Histogram()
        self._network = Histogram()
        self.seconds = {phase: Buckets(TOKEN_S) for phase in ("queue", "compute", "network")}
        """Times of a step at a remote hop."""
        self._traces: OrderedDict[str, HopTrace] = OrderedDict()

    def begin(self, generation_id: str) -> HopTrace:
        """Start the trace of a generation, and count the generation."""
        self._generations += 1
        trace = self._traces[generation_id] = HopTrace(generation_id, self.observer)
        while len(self._traces) > KEPT:
            self._traces.popitem(last=False)
        return trace

    def trace(self, generation_id: str) -> HopTrace | None:
        """The trace of a generation, if it is one of the latest."""
        return self._traces.get(generation_id)

    def line(self, generation_id: str) -> str | None:
        """The trace of a generation as one line of JSON; None if it is not one of the latest."""
        trace = self.trace(generation_id)
        return None if trace is None else trace.encode()

    def add(self, times: Sequence[HopTime]) -> None:
        """Count one step of each remote hop."""
        for time in times:
            self._queue.add(time.queue_ms)
            self._compute.add(time.compute_ms)
            self._network.add(time.network_ms)
            self.seconds["queue"].add(time.queue_ms / 1e3)
            self.seconds["compute"].add(time.compute_ms / 1e3)
            self.seconds["network"].add(time.network_ms / 1e3)

    @property
    def generations(self) -> int:
        """Generations that were driven."""
        return self._generations

    def figures(self) -> PipelineFigures:
        """Means over all steps, and the 99th percentile of the network."""
        return PipelineFigures(
            generations=self._generations,
            failovers=self.failovers,
            hop_queue_ms=self._queue.mean,
            hop_compute_ms=self._compute.mean,
            hop_network_ms=self._network.mean,
            hop_network_p99_ms=self._network.percentile(99),
        )
