"""Generations as answers in OpenAI's form: one body, or chunks and ``[DONE]`` (decision 0160).

Invariants: a stream that has begun ends with ``[DONE]``, with an event that has an error, or with
the end of the connection; with ``include_usage`` the last chunk has the usage and no choices, and
all others have ``usage: null``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.generation import Finished, TokenEvent, Usage
from meshnode.http.app import Response, event_stream, json_response
from meshnode.http.exchange import request_record
from meshnode.http.openai import openai_error, openai_failure
from meshnode.http.openai_bodies import OpenaiUsage
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.http.access_log import RequestRecord
    from meshnode.http.inference import Generation
    from meshnode.http.openai_choices import Choice

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Heading:
    """What an answer, and each of its chunks, has in common."""

    id: str
    object: str
    chunk_object: str
    created: int
    model: str
    system_fingerprint: str

    def fields(self, *, chunk: bool) -> dict[str, Any]:
        """The first fields of a body or a chunk."""
        return {
            "id": self.id,
            "object": self.chunk_object if chunk else self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


class MergedEvents:
    """The events of several generations as they are made, each with the generation's index."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._events = [aiter(generation) for generation in generations]
        self._open = set(range(len(generations)))
        self._ready: deque[tuple[int, TokenEvent | Finished]] = deque()
        self._failure: MeshnodeError | None = None

    def __aiter__(self) -> MergedEvents:
        """Iterate over the events, once."""
        return self

    async def __anext__(self) -> tuple[int, TokenEvent | Finished]:
        """The next event of any; raises what a generation raises."""
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                raise StopAsyncIteration
            await self._read()
        return self._ready.popleft()

    async def _read(self) -> None:
        """Wait until a generation has an event; take all that there are."""
        if len(self._open) == 1:
            # By far the most requests want one choice; they need no tasks.
            await self._take(next(iter(self._open)))
            return
        async with trio.open_nursery() as nursery:
            for index in self._open:
                nursery.start_soon(self._take, index, nursery.cancel_scope)

    async def _take(self, index: int, waiting: trio.CancelScope | None = None) -> None:
        try:
            event = await anext(self._events[index])
        except MeshnodeError as error:
            self._failure = error
        else:
            self._ready.append((index, event))
            if isinstance(event, Finished):
                self._open = self._open - {index}
        if waiting is not None:
            waiting.cancel()


@dataclass(slots=True)
class Usages:
    """Adds up what the choices of an answer used. A prompt counts once, whatever its choices."""

    prompts: int
    """How many prompts the choices are of; each has equally many, one after another."""
    choices: int

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, index: int, usage: Usage) -> None:
        """A choice has ended."""
        self.completion_tokens += usage.completion_tokens
        if index % (self.choices // self.prompts) == 0:
            self.prompt_tokens += usage.prompt_tokens

    def body(self) -> OpenaiUsage:
        """The usage of the answer."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


async def collect_choices(
    generations: Sequence[Generation], choices: Sequence[Choice], heading: Heading, usages: Usages
) -> Response:
    """Wait for the end of all generations, and answer."""
    record = request_record()
    async for index, event in MergedEvents(generations):
        choices[index].take(event)
        if isinstance(event, Finished):
            usages.add(index, event.usage)
        else:
            record.count_token()
    record.tokens = usages.completion_tokens
    bodies = [choice.body() for choice in choices]
    fields = heading.fields(chunk=False)
    return json_response({**fields, "choices": bodies, "usage": usages.body()})


def stream_choices(
    generations: Sequence[Generation],
    choices: Sequence[Choice],
    heading: Heading,
    usages: Usages,
    *,
    include_usage: bool,
) -> Response:
    """The chunks of the generations, as their tokens are made."""
    record = request_record()
    return event_stream(_Chunks(generations, choices, heading, usages, include_usage, record))


class _Chunks(AsyncIterator[bytes]):
    """Encodes chunks. It holds nothing; the generations belong to the exchange."""

    def __init__(
        self,
        generations: Sequence[Generation],
        choices: Sequence[Choice],
        heading: Heading,
        usages: Usages,
        include_usage: bool,
        record: RequestRecord,
    ) -> None:
        self._events = MergedEvents(generations)
        self._choices = choices
        self._heading = heading
        self._usages = usages
        self._include_usage = include_usage
        self._record = record
        self._begun = False
        self._ended = False

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        if not self._begun:
            self._begun = True
            first = b"".join(self._chunk(entry) for c in self._choices for entry in c.begin())
            if first:
                return first
        try:
            while not (chunks := await self._next()):
                pass
        except StopAsyncIteration:
            return self._end()
        except Exception as error:  # noqa: BLE001 - an edge guard: the client must hear of it
            # The status line has been sent: an event is the only place left for the error.
            self._ended = True
            return sse.encode_event(dict(openai_error(openai_failure(error, self._record.id))))
        return chunks

    async def _next(self) -> bytes:
        """The chunks of the next event; none while its text is withheld."""
        index, event = await anext(self._events)
        if isinstance(event, Finished):
            self._usages.add(index, event.usage)
        else:
            self._record.count_token()
        return b"".join(self._chunk(entry) for entry in self._choices[index].take(event))

    def _end(self) -> bytes:
        self._ended = True
        self._record.tokens = self._usages.completion_tokens
        if not self._include_usage:
            return DONE
        fields = self._heading.fields(chunk=True)
        return sse.encode_event({**fields, "choices": [], "usage": self._usages.body()}) + DONE

    def _chunk(self, entry: dict[str, Any]) -> bytes:
        chunk = {**self._heading.fields(chunk=True), "choices": [entry]}
        if self._include_usage:
            chunk["usage"] = None
        return sse.encode_event(chunk)
