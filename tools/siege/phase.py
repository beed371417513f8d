"""The measures of one phase of a trial."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from tools.siege.clients import Record, Request
from tools.siege.http1 import BadAnswer, ask, request
from tools.siege.pace import Pace
from tools.siege.place import HTTP_PORT, NODE, PROBER, connect
from tools.siege.processor import ProcessorMeter, taken

METRICS_WITHIN_S = 2.0
GENERATED = "meshnode_generated_tokens_total"
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Phase:
    """The measures of one phase."""

    requests: float
    """Honest requests served a second."""
    tokens: float
    """Tokens generated for them a second."""
    worst_wait_s: float
    """The longest wait of an honest request, whether it has ended or not."""
    failed: int
    """Honest requests that were refused or broken."""
    wrong: int
    """Honest requests whose answer differs from the first one to the same prompt."""
    health_p99_s: float
    peak_memory: int
    """The node's largest resident set, in bytes."""
    descriptors: int
    """The most that the node had open when it was looked at."""
    node_cores: float
    """Processors in use by the node."""
    attacker_cores: float
    attacker_waits: float
    """Processors that the attackers waited for: what they would have used besides."""
    taken_cores: float
    """Processors that other programs took from the node."""
    left_share: float
    """The part of the node's processors that others left it, from 0 to 1."""
    speed: float
    """Of the node's processors, as a multiple of what it was in the trial's first phase."""
    loop_cores: float = 0.0
    """The part of ``node_cores`` that its event loop used; the rest are threads that compute."""
    foreign_tokens: float = 0.0
    """Tokens a second that the node generated for others than the honest clients."""

    @property
    def fair_requests(self) -> float:
        """Honest requests in each second of the time that others left, at the usual speed."""
        return self.requests / (self.left_share * self.speed)

    @property
    def fair_tokens(self) -> float:
        """Tokens for honest clients, in each second as above."""
        return self.tokens / (self.left_share * self.speed)


SMALLEST_SHARE = 0.05
"""Of the node's processors; with less, a rate would be divided by nearly nothing."""


class Observer:
    """Measures phases of one trial."""

    def __init__(
        self,
        pid: int,
        record: Record,
        token: str,
        meter: ProcessorMeter,
        pace: Pace,
        processors: int,
    ) -> None:
        """``token`` is an honest customer's, for ``/metrics``; ``processors`` are the node's."""
        self._pid = pid
        self._record = record
        self._token = token
        self._processors = processors
        self._descriptors = 0
        self.meter = meter
        self.pace = pace

    async def watch(self) -> None:
        """Keep the largest number of open descriptors; never returns."""
        while True:
            self._descriptors = max(self._descriptors, self.open_files())
            await trio.sleep(LOOK_EVERY_S)

    def open_files(self) -> int:
        """How many descriptors the node has open; 0 if it has ended."""
        with suppress(OSError):
            return len(os.listdir(f"/proc/{self._pid}/fd"))
        return 0

    def left_share(self, taken_s: float, wall_s: float) -> float:
        """Which part of the node's processors others left it, if they took ``taken_s``."""
        return max(SMALLEST_SHARE, 1 - taken_s / (wall_s * self._processors))

    async def measure(self, length_s: float, attacker: int | None = None) -> Phase:
        """Measure for ``length_s`` seconds; ``attacker`` is the attacking process, if any."""
        self._descriptors = self.open_files()
        _forget_peak(self._pid)
        generated = await self._generated()
        start, before = trio.current_time(), self.meter.look(attacker)
        await trio.sleep(length_s)
        end, now = trio.current_time(), self.meter.look(attacker)
        length_s = end - start
        inference = [one for one in self._record.inference if one.ended > start]
        health = sorted(
            min(one.ended, end) - one.begun for one in self._record.health if one.ended > start
        )
        tokens = _served(inference, start, end, lambda one: one.tokens) / length_s
        generated = (await self._generated() - generated) / (trio.current_time() - start)
        taken_s = taken(before, now)
        return Phase(
            requests=_served(inference, start, end, lambda one: 1) / length_s,
            tokens=tokens,
            worst_wait_s=max((min(one.ended, end) - one.begun for one in inference), default=0.0),
            failed=sum(bool(one.failure) and one.ended <= end for one in inference),
            wrong=sum(one.wrong for one in inference),
            health_p99_s=health[int(len(health) * 0.99)] if health else 0.0,
            peak_memory=_peak(self._pid),
            descriptors=self._descriptors,
            node_cores=(now.node - before.node) / length_s,
            attacker_cores=(now.attacker - before.attacker) / length_s,
            attacker_waits=(now.attacker_waits - before.attacker_waits) / length_s,
            taken_cores=taken_s / length_s,
            left_share=self.left_share(taken_s, length_s),
            speed=self.pace.speed(length_s),
            loop_cores=(now.loop - before.loop) / length_s,
            foreign_tokens=max(0.0, generated - tokens),
        )

    async def _generated(self) -> float:
        """The tokens that the node has generated since it started; 0 if it does not answer."""
        asked = request("GET", "/metrics", token=self._token)
        failures = (OSError, trio.BrokenResourceError, BadAnswer)
        with trio.move_on_after(METRICS_WITHIN_S), suppress(*failures):
            stream = await connect(NODE, HTTP_PORT, PROBER)
            async with stream:
                lines = (await ask(stream, asked)).body.decode().splitlines()
            values = [line.split()[1] for line in lines if line.startswith(GENERATED)]
            return float(values[0]) if values else 0.0
        return 0.0


def _served(
    requests: Sequence[Request], start: float, end: float, weight: Callable[[Request], float]
) -> float:
    """The sum of the weights, each counted by the part of the request inside the interval."""
    return sum(weight(one) * one.share_between(start, end) for one in requests)


def _forget_peak(pid: int) -> None:
    # Without it the peak since the start is shown, which is at least as high.
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> int:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(found[0]) * 1024 if found else 0
    return 0
