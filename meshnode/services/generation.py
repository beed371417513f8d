"""One generation as its reader sees it: events, usage, timing (interface 2.1, 4.1 and 6).

Terms: the *reader* iterates over a generation; its *queue* (``admission.GenerationQueue``) computes
it. Between them is a channel with room for all possible events, so the queue never waits for a
reader.

=========  ==============================================  =========
state      event                                           next
=========  ==============================================  =========
QUEUED     ``admit``: it has a place                       COMPUTING
QUEUED     ``fail``: no place can be had                   FAILED
QUEUED     ``cancel``: the reader left                     CANCELLED
COMPUTING  ``advance`` with the last token, or a stop      FINISHED
COMPUTING  ``finish``                                      FINISHED
COMPUTING  ``fail``                                        FAILED
COMPUTING  ``cancel``: the reader left                     CANCELLED
=========  ==============================================  =========

Invariants (decision 0007): one event for each generated token, the end-of-text token included,
then ``Finished``; the texts of the events, concatenated, are the text; ``usage`` counts exactly the
tokens of the events so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Self

import trio

from meshnode.domain.errors import MeshnodeError
from meshnode.domain.generation import (
    Finished,
    FinishReason,
    GenerationRequest,
    Timing,
    TokenEvent,
    TokenLogprobs,
    Usage,
)
from meshnode.domain.textstream import TextStream
from meshnode.domain.traces import GenerationTrace
from meshnode.domain.transitions import checked
from meshnode.model.sampler import Constraint


class GenerationState(Enum):
    """How far a generation has come."""

    QUEUED = "queued"
    COMPUTING = "computing"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


TRANSITIONS: Mapping[GenerationState, frozenset[GenerationState]] = {
    GenerationState.QUEUED: frozenset(
        {GenerationState.COMPUTING, GenerationState.FAILED, GenerationState.CANCELLED}
    ),
    GenerationState.COMPUTING: frozenset(
        {GenerationState.FINISHED, GenerationState.FAILED, GenerationState.CANCELLED}
    ),
    GenerationState.FINISHED: frozenset(),
    GenerationState.FAILED: frozenset(),
    GenerationState.CANCELLED: frozenset(),
}


class Generation:
    """An async context manager and iterator. Leaving it cancels what is unfinished.

    Iteration yields ``TokenEvent`` and at last one ``Finished``; it raises ComputationFailed when
    the model failed, and Unavailable when the node stopped.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        id: str,
        prompt: Sequence[int],
        most_tokens: int,
        opened_at: float,
        leave: Callable[[Generation], None],
        constraint: Constraint | None = None,
    ) -> None:
        """``most_tokens`` bounds the completion; ``leave`` is called when the reader leaves.

        ``constraint`` is the compiled form of the request's JSON Schema, if it has one.
        """
        self.id = id
        self.request = request
        self.constraint = constraint
        self.prompt = prompt
        self.most_tokens = most_tokens
        self.state = GenerationState.QUEUED
        self._text = TextStream(request.stop)
        self._completion_tokens = 0
        self.opened_at = opened_at
        self.model_hash = ""
        """Of the model that computes it, from the moment in which it is queued."""
        self.notes: list[str] = []
        """What the client should know about how the answer was made."""
        self.trace: GenerationTrace | None = None
        """Its trace, while somebody records one."""
        self.first_emitted_at: float | None = None
        self.emitted_at: float | None = None
        """When its latest token was emitted."""
        self.finish_reason: FinishReason | None = None
        """Why it has finished; None before, and if it has ended in another way."""
        self.failure: MeshnodeError | None = None
        """Why it has failed."""
        self.admitted_at: float | None = None
        """When it got a place."""
        self._ended_at: float | None = None
        self._leave = leave
        # Room for one event for each token, and for the last one.
        self._send, self._receive = trio.open_memory_channel[TokenEvent | Finished](most_tokens + 1)

    def __repr__(self) -> str:
        """Id, state and positions. Never the prompt or a token: they are the client's."""
        done = len(self.prompt) + self._completion_tokens
        return f"<{self.id} {self.state.value}, {done} of at most {self.positions + 1} tokens>"

    @property
    def usage(self) -> Usage:
        """Tokens so far. Exact at any moment, also after a cancellation."""
        return Usage(len(self.prompt), self._completion_tokens)

    @property
    def positions(self) -> int:
        """Positions that its cache must hold: the last token is never computed from."""
        return len(self.prompt) + self.most_tokens - 1

    @property
    def ended(self) -> bool:
        """Whether nothing more will be computed."""
        return not TRANSITIONS[self.state]

    async def __aenter__(self) -> Self:
        """Hold the generation open."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what is unfinished. Does not wait."""
        self._leave(self)
        self._receive.close()

    def __aiter__(self) -> Self:
        """Iterate over the events, once."""
        return self

    async def __anext__(self) -> TokenEvent | Finished:
        """Wait for the next event."""
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            if self.failure is not None:
                raise self.failure from None
            raise StopAsyncIteration from None

    # The queue that computes the generation calls the methods below.

    def admit(self, now: float) -> None:
        """Note that the generation has a place in the batch."""
        self._enter(GenerationState.COMPUTING)
        self.admitted_at = now

    def advance(
        self,
        piece: bytes,
        *,
        end_of_text: bool,
        now: float,
        logprobs: TokenLogprobs | None = None,
    ) -> None:
        """Count one token and emit its event; emit ``Finished`` too if it was the last."""
        index = self._completion_tokens
        last = end_of_text or index + 1 == self.most_tokens
        text = self._text.push(b"" if end_of_text else piece)
        if last:
            text += self._text.finish()
        stopped = end_of_text or self._text.stopped
        self.relay(TokenEvent(text, index, None if end_of_text else logprobs), now)
        if last or stopped:
            self.finish(FinishReason.STOP if stopped else FinishReason.LENGTH, now)

    def relay(self, event: TokenEvent, now: float) -> None:
        """Count one token and emit its event, which may come from another node."""
        if self.ended:
            checked(TRANSITIONS, self.state, GenerationState.COMPUTING)
        self._completion_tokens += 1
        if self.first_emitted_at is None:
            self.first_emitted_at = now
        self.emitted_at = now
        self._emit(event)

    def finish(self, reason: FinishReason, now: float) -> None:
        """End after the latest token, and emit ``Finished``."""
        self._enter(GenerationState.FINISHED)
        self._ended_at = now
        self.finish_reason = reason
        self._emit(Finished(reason, self.usage, self.timing(now)))
        self._send.close()

    def waited(self, seconds: float) -> None:
        """Count the first ``seconds`` since it was admitted as waiting: its driver had a queue."""
        if self.admitted_at is not None and self.first_emitted_at is not None:
            self.admitted_at = min(self.first_emitted_at, self.admitted_at + seconds)

    def fail(self, failure: MeshnodeError, now: float) -> None:
        """End without ``Finished``: the reader gets the failure after the events so far."""
        self._enter(GenerationState.FAILED)
        self.failure, self._ended_at = failure, now
        self._send.close()

    def cancel(self, now: float) -> None:
        """End because the reader has left."""
        self._enter(GenerationState.CANCELLED)
        self._ended_at = now
        self._send.close()

    def timing(self, now: float) -> Timing:
        """Time so far: waiting, then computing."""
        end = self._ended_at or now
        admitted = self.admitted_at or end
        queue_ms, inference_ms = (admitted - self.opened_at) * 1e3, (end - admitted) * 1e3
        return Timing(queue_ms, inference_ms, queue_ms + inference_ms)

    def _enter(self, state: GenerationState) -> None:
        self.state = checked(TRANSITIONS, self.state, state)

    def _emit(self, event: TokenEvent | Finished) -> None:
        try:
            self._send.send_nowait(event)
        except trio.BrokenResourceError:
            # The reader left during this step; the queue drops the generation after the step.
            return
