"""The honest clients: eight who pay for inference, and one who asks for the node's health.

Each client has an address and an account of its own, and asks again as soon as it has its answer.
Every second client opens a connection for each request; the others keep theirs while it lasts. A
client that is refused, or whose connection breaks, tries again after a moment.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from tools.siege.http1 import Answer, BadAnswer, ask, request
from tools.siege.place import CLIENTS, HTTP_PORT, NODE, PROBER, connect

TOKENS = 12
ANSWER_WITHIN_S = 60.0
PAUSE_S = 0.1
"""Before another try, and between two health checks."""
HEALTH_WITHIN_S = 10.0
ATOMS = 1_000_000
PROMPTS = ("Once upon a time", "The little dog", "In the morning", "Lily had a red ball")


@dataclass(slots=True)
class Request:
    """One request and its outcome; times are trio's clock."""

    begun: float
    ended: float = math.inf
    tokens: int = 0
    """Generated for it; 0 if it was not answered with 200."""
    wrong: bool = False
    """Whether the answer differs from the first one to the same prompt."""
    failure: str = ""
    """A status, or the name of an error; empty if it was answered with 200, or is in flight."""

    @property
    def served(self) -> bool:
        """Whether it was answered with 200."""
        return self.ended < math.inf and not self.failure

    def share_between(self, start: float, end: float) -> float:
        """Which part of its time lies in an interval, from 0 to 1; 0 if it was not served."""
        if not self.served:
            return 0.0
        inside = min(self.ended, end) - max(self.begun, start)
        return max(0.0, inside) / max(self.ended - self.begun, 1e-9)


@dataclass(slots=True)
class Record:
    """What the honest clients have seen since they began."""

    inference: list[Request] = field(default_factory=list)
    health: list[Request] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """The first answer to each prompt; temperature 0 gives the same one each time."""
    paid_atoms: int = 0
    """The sum of the costs in all answers."""
    healthy: bool = False
    """Whether the latest health check said so."""


async def run_clients(record: Record, tokens: Sequence[str]) -> None:
    """Keep asking until cancelled."""
    async with trio.open_nursery() as nursery:
        for index, (source, token) in enumerate(zip(CLIENTS, tokens, strict=False)):
            nursery.start_soon(_buy, record, source, token, index)
        nursery.start_soon(_probe, record)


async def _buy(record: Record, source: str, token: str, index: int) -> None:
    def settle(answer: Answer, work: Request) -> None:
        result = answer.json
        work.wrong = result["text"] != record.texts.setdefault(prompt, result["text"])
        work.tokens = int(result["tokens_generated"])
        record.paid_atoms += round(result["cost"]["amount"] * ATOMS)

    prompts = itertools.cycle(PROMPTS[index % len(PROMPTS) :] + PROMPTS)
    client = _Client(source, keeps=index % 2 == 0)
    for prompt in prompts:
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        data = request("POST", "/api/v1/inference", body, token)
        work = Request(trio.current_time())
        record.inference.append(work)
        await client.carry_out(work, data, ANSWER_WITHIN_S, settle)
        if work.failure:
            await trio.sleep(PAUSE_S)


async def _probe(record: Record) -> None:
    def settle(answer: Answer, work: Request) -> None:
        record.healthy = bool(answer.json["healthy"])

    client = _Client(PROBER, keeps=False)
    while True:
        work = Request(trio.current_time())
        record.health.append(work)
        await client.carry_out(work, request("GET", "/api/v1/health"), HEALTH_WITHIN_S, settle)
        record.healthy = record.healthy and work.served
        await trio.sleep(PAUSE_S)


class _Client:
    """The connection of one client."""

    def __init__(self, source: str, *, keeps: bool) -> None:
        self._source = source
        self._keeps = keeps
        self._stream: trio.SocketStream | None = None

    async def carry_out(
        self,
        work: Request,
        data: bytes,
        within_s: float,
        settle: Callable[[Answer, Request], None],
    ) -> None:
        """Send a request, read its answer and note the outcome in ``work``."""
        failure = await self._tried(work, data, within_s, settle)
        if failure and self._stream is not None:
            await self._close()
        work.failure, work.ended = failure, trio.current_time()
        if not self._keeps:
            await self._close()

    async def _tried(
        self,
        work: Request,
        data: bytes,
        within_s: float,
        settle: Callable[[Answer, Request], None],
    ) -> str:
        try:
            with trio.fail_after(within_s):
                answer = await self._ask(data)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, BadAnswer) as error:
            return type(error).__name__
        if answer.status != 200:
            return str(answer.status)
        settle(answer, work)
        return ""

    async def _ask(self, data: bytes) -> Answer:
        kept = self._stream
        if kept is not None:
            try:
                return await ask(kept, data)
            except (trio.BrokenResourceError, BadAnswer):
                # The node may close a connection between two requests; clients then open another.
                await self._close()
        self._stream = await connect(NODE, HTTP_PORT, self._source)
        return await ask(self._stream, data)

    async def _close(self) -> None:
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream = None
