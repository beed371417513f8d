"""One trial: honest clients undisturbed and under an attack, in turns.

An undisturbed phase lies before and behind each attack, and the attack's figures are compared with
the mean of these two. So what other programs do to the machine over minutes does not count for or
against the node; what they do within seconds is taken out by ``processor.taken``, and the median
over the rounds leaves out what remains.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

from tools.siege.attack import Attack, Target
from tools.siege.clients import ATOMS, Record, run_clients
from tools.siege.http1 import ask, request
from tools.siege.node import FUND, RunningNode, last_words
from tools.siege.pace import Pace
from tools.siege.phase import Observer, Phase
from tools.siege.place import (
    ATTACKER_ENDS_WITHIN_S,
    ATTACKERS,
    GRPC_PORT,
    HTTP_PORT,
    NODE,
    PROBER,
    connect,
    end,
)
from tools.siege.processor import ProcessorMeter, taken

WARM_S = 2.0
RECOVERS_WITHIN_S = 10.0
RECOVERY_WINDOW_S = 2.0
LOOK_EVERY_S = 0.25
AS_BEFORE = 0.8
"""The share of the undisturbed rate that counts as before; two seconds hold few requests."""
FEW_DESCRIPTORS = 16
"""As before means up to so many more: the honest clients' connections come and go."""
ATTACK_BEGINS_S = 3.0
"""From the beginning of the attack to the measurement: connecting takes a while."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a trial attacks, and from where."""

    numbers: tuple[int, ...] = (1, 2)
    """How many addresses attack; each number has as many rounds."""
    rounds: int = 2
    length_s: float = 4.0
    """Of each phase."""

    @property
    def most_s(self) -> float:
        """What the phases take if each attack needs all its time to be over."""
        each = ATTACK_BEGINS_S + 2 * self.length_s + RECOVERS_WITHIN_S + RECOVERY_WINDOW_S
        return WARM_S + self.length_s + self.rounds * len(self.numbers) * each


@dataclass(frozen=True, slots=True)
class Round:
    """One attack, and the undisturbed phases around it."""

    before: Phase
    during: Phase
    after: Phase
    recovered_s: float
    """From the end of the attack until everything was as before; infinity if it never was."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measures of the attacks from one number of addresses."""

    sources: int
    """How many addresses attacked."""
    rounds: tuple[Round, ...]
    ended: str
    """How the node ended; empty if it still runs."""
    attack_ended: str
    """The attacker's last words if the attack ended by itself: then nothing was measured."""
    charged_as_answered: bool
    log: str
    """The node's last warnings and errors."""


async def run_trial(
    name: str, attack: Attack, node: RunningNode, tokens: Sequence[str], plan: Plan
) -> list[Outcome]:
    """Run all rounds; returns an outcome for each of ``plan.numbers``.

    The last of the tokens is the attacker's.
    """
    record = Record()
    *honest, attackers = tokens
    meter = ProcessorMeter(node.pid, node.siblings, node.processors)
    with Pace(node.processors) as pace:
        observer = Observer(node.pid, record, honest[0], meter, pace, len(node.processors))
        trial = _Trial(name, node, record, observer)
        target = Target(NODE, HTTP_PORT, GRPC_PORT, attackers, node.pid)
        rounds: dict[int, list[Round]] = {number: [] for number in plan.numbers}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_clients, record, honest)
            nursery.start_soon(observer.watch)
            await trio.sleep(WARM_S)
            before = await observer.measure(plan.length_s)
            for _ in range(1 if attack.announces else plan.rounds):
                for number in plan.numbers:
                    one = await trial.round(target, ATTACKERS[:number], before, plan.length_s)
                    rounds[number].append(one)
                    before = one.after
            nursery.cancel_scope.cancel()
    status = node.process.poll()
    charged = status is not None or await _charged(record, honest)
    return [
        Outcome(
            sources=number,
            rounds=tuple(rounds[number]),
            ended="" if status is None else f"status {status}",
            attack_ended=trial.ended.get(number, ""),
            charged_as_answered=charged,
            log=last_words(node.log),
        )
        for number in plan.numbers
    ]


class _Trial:
    def __init__(self, name: str, node: RunningNode, record: Record, observer: Observer) -> None:
        self._name = name
        self._record = record
        self._observer = observer
        self._log = node.log.with_name("attacker.log")
        self.ended: dict[int, str] = {}
        """Last words of attackers that ended by themselves, by their number of addresses."""

    async def round(
        self, target: Target, sources: Sequence[str], before: Phase, length_s: float
    ) -> Round:
        """Attack, recover, and measure the undisturbed phase behind the attack."""
        with self._attacking(target, sources) as attacker:
            if attacker.stdout is not None:
                # On a busy machine, its imports alone take seconds.
                await trio.to_thread.run_sync(attacker.stdout.readline)
            await trio.sleep(ATTACK_BEGINS_S)
            during = await self._observer.measure(length_s, attacker.pid)
            if attacker.poll() is not None:
                self.ended[len(sources)] = _last_line(self._log)
        recovered_s = await self._recovery(before)
        after = await self._observer.measure(length_s)
        return Round(before, during, after, recovered_s)

    @contextmanager
    def _attacking(self, target: Target, sources: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """Attack from a process of its own, which ends with the block."""
        command = [sys.executable, "-m", "tools.siege.attacker", self._name]
        command += [json.dumps(asdict(target)), *sources]
        with self._log.open("w") as log:
            attacker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield attacker
        finally:
            end(attacker, ATTACKER_ENDS_WITHIN_S)

    async def _recovery(self, before: Phase) -> float:
        """Wait until everything is as before; returns the seconds that it took, or infinity."""
        observer, start = self._observer, trio.current_time()
        looks = [(start, observer.meter.look())]
        while trio.current_time() - start < RECOVERS_WITHIN_S + RECOVERY_WINDOW_S:
            await trio.sleep(LOOK_EVERY_S)
            now, usage = trio.current_time(), observer.meter.look()
            looks = [one for one in looks if one[0] >= now - RECOVERY_WINDOW_S]
            looks.append((now, usage))
            since, oldest = looks[0]
            if now - start < RECOVERY_WINDOW_S / 2:
                continue
            ended = [one for one in self._record.inference if since < one.ended <= now]
            # Requests that are in flight count by the time of those that have ended.
            served = sum(one.served for one in ended) / (now - since)
            share = observer.left_share(taken(oldest, usage), now - since)
            share *= observer.pace.speed(now - since)
            if (
                served / share >= AS_BEFORE * before.fair_requests
                and self._record.healthy
                and observer.open_files() <= before.descriptors + FEW_DESCRIPTORS
            ):
                return now - start
        return math.inf


def _last_line(log: Path) -> str:
    # A group of exceptions is drawn as a tree.
    lines = [line.strip(" |+-") for line in log.read_text().splitlines()]
    return next(filter(None, reversed(lines)), "without a word")


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
