"""One trial: honest clients undisturbed, under an attack, and afterwards."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import trio

from tools.siege.attack import Attack, Target
from tools.siege.clients import ATOMS, Record, Request, run_clients
from tools.siege.http1 import ask, request
from tools.siege.node import FUND, RunningNode, last_words
from tools.siege.place import ATTACKERS, GRPC_PORT, HTTP_PORT, NODE, PROBER, connect, end

WARM_S = 2.0
METRICS_WITHIN_S = 2.0
GENERATED = "meshnode_generated_tokens_total"
RECOVERS_WITHIN_S = 10.0
RECOVERY_WINDOW_S = 2.0
AS_BEFORE = 0.8
"""The share of the undisturbed rate that counts as before; two seconds hold few requests."""
FEW_DESCRIPTORS = 16
"""As before means up to so many more: the honest clients' connections come and go."""
ATTACK_BEGINS_S = 3.0
"""From the beginning of the attack to the measurement: connecting takes a while."""


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
    """Processors in use, by the node, the attackers and programs outside the siege."""
    attacker_cores: float
    other_cores: float
    loop_cores: float = 0.0
    """The part of ``node_cores`` that its event loop used; the rest are threads that compute."""
    foreign_tokens: float = 0.0
    """Tokens a second that the node generated for others than the honest clients."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measures of one trial."""

    sources: int
    """How many addresses attacked."""
    before: Phase
    during: Phase
    after: Phase
    recovered_s: float
    """From the end of the attack until everything was as before; infinity if it never was."""
    ended: str
    """How the node ended; empty if it still runs."""
    attack_ended: str
    """The attacker's last words if the attack ended by itself: then nothing was measured."""
    charged_as_answered: bool
    log: str
    """The node's last warnings and errors."""


async def run_trial(
    name: str,
    attack: Attack,
    node: RunningNode,
    tokens: Sequence[str],
    sources: int,
    length_s: float,
) -> Outcome:
    """Run the phases, ``length_s`` seconds each. The last of the tokens is the attacker's."""
    record = Record()
    *honest, attackers = tokens
    trial = _Trial(node, record, honest[0])
    target = Target(NODE, HTTP_PORT, GRPC_PORT, attackers, node.pid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_clients, record, honest)
        nursery.start_soon(trial.watch)
        await trio.sleep(WARM_S)
        before = await trial.measure(length_s)
        with trial.attacking(name, target, ATTACKERS[:sources]) as attacker:
            if attacker.stdout is not None:
                # On a busy machine, its imports alone take seconds.
                await trio.to_thread.run_sync(attacker.stdout.readline)
            await trio.sleep(ATTACK_BEGINS_S)
            during = await trial.measure(length_s)
            attack_ended = "" if attacker.poll() is None else _last_line(trial.attacker_log)
        recovered_s = await trial.recovery(before)
        after = await trial.measure(length_s)
        nursery.cancel_scope.cancel()
    status = node.process.poll()
    return Outcome(
        sources=sources,
        before=before,
        during=during,
        after=after,
        recovered_s=recovered_s,
        ended="" if status is None else f"status {status}",
        attack_ended=attack_ended,
        charged_as_answered=status is not None or await _charged(record, honest),
        log=last_words(node.log),
    )


class _Trial:
    def __init__(self, node: RunningNode, record: Record, token: str) -> None:
        self._token = token
        self.attacker_log = node.log.with_name("attacker.log")
        self._node = node
        self._record = record
        self._process = psutil.Process(node.pid)
        self._attacker: psutil.Process | None = None
        self._descriptors = 0

    async def watch(self) -> None:
        """Keep the largest number of open descriptors."""
        while True:
            self._descriptors = max(self._descriptors, self._open())
            await trio.sleep(0.1)

    @contextmanager
    def attacking(
        self, name: str, target: Target, sources: Sequence[str]
    ) -> Iterator[subprocess.Popen[str]]:
        """Attack from a process of its own, which is killed at the end of the block."""
        command = [sys.executable, "-m", "tools.siege.attacker", name]
        command += [json.dumps(asdict(target)), *sources]
        with self.attacker_log.open("w") as log:
            attacker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._attacker = psutil.Process(attacker.pid)
        try:
            yield attacker
        finally:
            end(attacker)

    async def measure(self, length_s: float) -> Phase:
        """Measure for ``length_s`` seconds."""
        self._descriptors = self._open()
        _forget_peak(self._node.pid)
        generated = await self._generated()
        start, spent = trio.current_time(), self._spent()
        await trio.sleep(length_s)
        end = trio.current_time()
        taken = [
            (now - then) / (end - start) for now, then in zip(self._spent(), spent, strict=True)
        ]
        node, attacker, own, all_of_it, loop = taken
        inference = [one for one in self._record.inference if one.ended > start]
        health = sorted(
            min(one.ended, end) - one.begun for one in self._record.health if one.ended > start
        )
        tokens = _served(inference, start, end, lambda one: one.tokens) / (end - start)
        generated = (await self._generated() - generated) / (trio.current_time() - start)
        return Phase(
            requests=_served(inference, start, end, lambda one: 1) / (end - start),
            tokens=tokens,
            worst_wait_s=max((min(one.ended, end) - one.begun for one in inference), default=0.0),
            failed=sum(bool(one.failure) and one.ended <= end for one in inference),
            wrong=sum(one.wrong for one in inference),
            health_p99_s=health[int(len(health) * 0.99)] if health else 0.0,
            peak_memory=_peak(self._node.pid),
            descriptors=self._descriptors,
            node_cores=node,
            attacker_cores=attacker,
            other_cores=max(0.0, all_of_it - node - attacker - own),
            loop_cores=loop,
            foreign_tokens=max(0.0, generated - tokens),
        )

    async def recovery(self, before: Phase) -> float:
        """Wait until everything is as before; returns the seconds that it took, or infinity."""
        start = trio.current_time()
        while trio.current_time() - start < RECOVERS_WITHIN_S + RECOVERY_WINDOW_S:
            await trio.sleep(0.25)
            now = trio.current_time()
            since = max(start, now - RECOVERY_WINDOW_S)
            if now - start < RECOVERY_WINDOW_S / 2:
                continue
            ended = [one for one in self._record.inference if since < one.ended <= now]
            # Requests that are in flight count by the time of those that have ended.
            served = sum(one.served for one in ended) / (now - since)
            if (
                served >= AS_BEFORE * before.requests
                and self._record.healthy
                and self._open() <= before.descriptors + FEW_DESCRIPTORS
            ):
                return now - start
        return math.inf

    def _open(self) -> int:
        try:
            return len(os.listdir(f"/proc/{self._node.pid}/fd"))
        except OSError:
            return 0

    async def _generated(self) -> float:
        """The tokens that the node has generated since it started; 0 if it does not answer."""
        asked = request("GET", "/metrics", token=self._token)
        with trio.move_on_after(METRICS_WITHIN_S), suppress(OSError, trio.BrokenResourceError):
            stream = await connect(NODE, HTTP_PORT, PROBER)
            async with stream:
                lines = (await ask(stream, asked)).body.decode().splitlines()
            values = [line.split()[1] for line in lines if line.startswith(GENERATED)]
            return float(values[0]) if values else 0.0
        return 0.0

    def _spent(self) -> tuple[float, ...]:
        machine = psutil.cpu_times()
        everything = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
        everything -= machine.guest + machine.guest_nice
        own = _cpu(psutil.Process())
        loop = _main_thread(self._node.pid)
        return _cpu(self._process), _cpu(self._attacker), own, everything, loop


def _last_line(log: Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else "without a word"


def _served(
    requests: Sequence[Request], start: float, end: float, weight: Callable[[Request], float]
) -> float:
    """The sum of the weights, each counted by the part of the request inside the interval."""
    return sum(weight(one) * one.share_between(start, end) for one in requests)


async def _charged(record: Record, tokens: Sequence[str]) -> bool:
    """Whether the customers' accounts have lost at least what the answers said."""
    funded = round(float(FUND) * ATOMS) * len(tokens)
    kept = 0
    for token in tokens:
        stream = await connect(NODE, HTTP_PORT, PROBER)
        async with stream:
            answer = await ask(stream, request("GET", "/api/v1/wallet/balance", token=token))
        kept += round(answer.json["balances"]["available"] * ATOMS)
    return funded - kept >= record.paid_atoms > 0


def _cpu(process: psutil.Process | None) -> float:
    try:
        times = process.cpu_times() if process is not None else None
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system if times is not None else 0.0


def _main_thread(pid: int) -> float:
    """Processor time of the thread that runs the event loop, in seconds."""
    try:
        line = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = line.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _forget_peak(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        # Then the peak since the start is shown, which is at least as high.
        return


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0
