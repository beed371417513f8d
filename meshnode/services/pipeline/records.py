"""Times of every hop: milliseconds of queue, computing and network (decision 0039).

Terms: a hop's *network* time is the time between its caller's sending and receiving, less the queue
and the computing of the hop itself and all three times of the hops after it. The driver is the
first hop.

Invariants: memory is bounded whatever the traffic: there are sums for each hop, the traces of the
latest generations, and one histogram for each figure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.metering import Histogram
from meshnode.wire import json

KEPT = 256
"""Traces kept, of the latest generations. A client asks for a trace as its answer ends."""


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


class HopTrace:
    """The hops of one generation."""

    def __init__(self, generation_id: str) -> None:
        self.generation_id = generation_id
        self.paths = 0
        """How many paths it took: one unless a hop failed."""
        self.failures: list[str] = []
        """The failures of hops, at most ``MAX_FAILURES``."""
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

    def failed(self, reason: str) -> None:
        """Note the reason of a hop's failure, unless there are many already."""
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(reason)

    def fields(self) -> dict[str, object]:
        """The trace as JSON values, for the log and for the client."""
        return {
            "id": self.generation_id,
            "paths": self.paths,
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
        self.failovers = 0
        self._generations = 0
        self._queue = Histogram()
        self._compute = Histogram()
        self._network = Histogram()
        self._traces: OrderedDict[str, HopTrace] = OrderedDict()

    def begin(self, generation_id: str) -> HopTrace:
        """Start the trace of a generation, and count the generation."""
        self._generations += 1
        trace = self._traces[generation_id] = HopTrace(generation_id)
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
