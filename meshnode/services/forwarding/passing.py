"""One generation that drivers compute for the client of this node (interface 4.3, 7.3 and 8).

Terms: an *attempt* is one call of ``StreamInference`` at one driver. What it answers is checked and
*passed on*, event by event. When a driver fails, the next one is asked for the same generation with
the same seed, and must begin with the text that the client already has.

==================================  ==============================================================
a driver                            what is done
==================================  ==============================================================
is silent, or out of reach          another one; the peer book checks whether it lives
is full, drains, or lacks a layer   another one
refuses the request as invalid      another one; the second that does so is believed
could not compute                   another one
computed false results              the generation ends, and costs nothing (decision 0211)
==================================  ==============================================================

Invariants: no more tokens are passed on than were asked for; each has its place in the text once,
whichever drivers computed it; a driver that says nothing for the time of a call is left; attempts
are at most MAX_ATTEMPTS.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from meshnode.domain.errors import (
    ComputationFailed,
    FalseResults,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.domain.generation import FinishReason, TokenEvent
from meshnode.rpc.errors import CallFailed, Code
from meshnode.services.forwarding.messages import (
    MAX_MS,
    failure_in,
    hops_in,
    logprobs_in,
    notes_in,
    request_message,
)
from meshnode.services.observing import PathHop
from meshnode.services.pipeline.policy import ROUNDS, backoff_s
from meshnode.services.shards.decoding import CREDENTIAL

if TYPE_CHECKING:
    from meshnode.domain.drivers import KnownDriver
    from meshnode.domain.peer_session import Credentials
    from meshnode.rpc.channel import ClientCall
    from meshnode.services.forwarding.drivers import Drivers
    from meshnode.services.generation import Generation
    from meshnode.services.pipeline.records import HopRecorder, HopTrace
    from meshnode.services.stub_pool import StubPool
    from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8
LONGEST_S = 3600.0
"""Deadline of an attempt. A driver that is stuck says nothing, and is left long before."""
MAX_ANSWER_BYTES = 64 * 1024
"""An answer has one token: its text and 21 probabilities."""
SPARE_CHARS, TOKEN_CHARS = 4096, 1024
"""What the text of a generation may have in all, beside so much for each token."""
MAX_HASH_CHARS = 64
REASONS = frozenset(map(str, FinishReason))
GONE = "the node with the first layer does not answer"
NO_DRIVER = "this node does not hold the first layer, and knows no node that does"


@dataclass(frozen=True, slots=True)
class ForwardingContext:
    """What all generations of a forwarding node share."""

    drivers: Drivers
    pool: StubPool
    credentials: Credentials
    recorder: HopRecorder
    call_s: float
    """How long a driver may say nothing."""
    token: Callable[[Generation], None]
    """Called for each token."""


class DriverFailed(Exception):
    """An attempt failed. ``outcome`` is for the client if no other driver can be asked."""

    def __init__(
        self, outcome: MeshnodeError, *, fault: bool = False, suspect: bool = False
    ) -> None:
        """``fault``: the driver has done something that it may not; ``suspect``: it may be gone."""
        super().__init__(str(outcome))
        self.outcome = outcome
        self.fault = fault
        self.suspect = suspect


class Passing:
    """A generation and its attempts."""

    def __init__(self, generation: Generation, context: ForwardingContext) -> None:
        self.generation = generation
        self.scope = trio.CancelScope()
        """Of the task that runs it."""
        self.accepted = trio.Event()
        """Set when a driver has taken it, or it has ended."""
        self._context = context
        seed = generation.request.seed
        # With a seed, any driver of the same class can go on where another one has stopped.
        self._seed = secrets.randbits(63) if seed is None else seed
        self._texts: list[str] = []
        """The text of each token that was passed on."""
        self._chars = 0
        self._trace: HopTrace = context.recorder.begin(generation.id)

    async def run(self) -> None:
        """Pass the generation on to its end. Raises a domain error if no driver can."""
        excluded: set[str] = set()
        refusal: InvalidRequest | None = None
        failure: MeshnodeError | None = None
        rounds = 0
        for _ in range(MAX_ATTEMPTS):
            driver = self._context.drivers.choose(excluded)
            if driver is None and refusal is None and excluded:
                rounds += 1
                if rounds < ROUNDS:
                    await trio.sleep(backoff_s(rounds))
                    excluded.clear()
                    driver = self._context.drivers.choose()
            if driver is None:
                break
            excluded.add(driver.node_id)
            try:
                with self._context.drivers.asked(driver):
                    await self._ask(driver)
                return
            except DriverFailed as failed:
                self._note(driver, failed)
                failure = failed.outcome
                if isinstance(failure, FalseResults):
                    break
                if isinstance(failure, InvalidRequest):
                    if refusal is not None:
                        break
                    refusal = failure
        raise refusal or failure or LayersUnavailable(NO_DRIVER)

    def _note(self, driver: KnownDriver, failed: DriverFailed) -> None:
        drivers, outcome = self._context.drivers, failed.outcome
        if failed.fault:
            drivers.failed(driver.node_id, suspect=failed.suspect)
        elif not isinstance(outcome, InvalidRequest):
            drivers.was_full(driver.node_id)
        self._trace.failed(f"{driver.node_id[:8]} {outcome}")
        log.info("generation %s: driver %s: %s", self.generation.id, driver.node_id[:8], outcome)

    async def _ask(self, driver: KnownDriver) -> None:
        """One attempt, in a span of the generation's trace if there is one. Raises DriverFailed."""
        spans = self.generation.trace
        metadata: dict[str, str] = {}
        call = None if spans is None else spans.calling(len(self.generation.prompt))
        if call is not None:
            metadata.update(call.metadata)
        metadata[CREDENTIAL] = self._context.credentials.for_node(driver.node_id)
        reason = "cancelled"
        try:
            await self._talk(driver, metadata)
            reason = ""
        except DriverFailed as failed:
            reason = str(failed)
            raise
        finally:
            if call is not None:
                call.ended(reason)

    async def _talk(self, driver: KnownDriver, metadata: Mapping[str, str]) -> None:
        try:
            with trio.move_on_after(self._context.call_s) as connecting:
                stub = await self._context.pool.stub(driver.host, driver.grpc_port)
            if connecting.cancelled_caught:
                raise self._silent(driver)
            with trio.move_on_after(LONGEST_S):
                async with stub.StreamInference(
                    metadata=metadata, most_bytes=MAX_ANSWER_BYTES
                ) as call:
                    await call.send(request_message(self.generation, self._seed), last=True)
                    await self._pass_on(driver, call)
                return
        except CallFailed as error:
            raise _call_failed(error) from None
        raise self._silent(driver)

    async def _pass_on(
        self, driver: KnownDriver, call: ClientCall[pb.InferenceRequest, pb.InferenceResponse]
    ) -> None:
        """Read the answers to the end. Raises DriverFailed and CallFailed."""
        answer = await self._receive(driver, call)
        if not answer.forwarded.waits:
            raise _broken("it takes no requests of other nodes")
        self._accept(driver, answer)
        tokens = 0
        while not (answer := await self._receive(driver, call)).is_final:
            if answer.forwarded.waits:
                continue
            if answer.index != tokens:
                raise _broken("its tokens are not in order")
            self._token(tokens, answer)
            tokens += 1
        self._end(driver, tokens, answer)

    async def _receive(
        self, driver: KnownDriver, call: ClientCall[pb.InferenceRequest, pb.InferenceResponse]
    ) -> pb.InferenceResponse:
        with trio.move_on_after(self._context.call_s) as silence:
            answer = await call.receive()
        # The client may have left while an answer was there to be read.
        await trio.lowlevel.checkpoint_if_cancelled()
        if silence.cancelled_caught:
            raise self._silent(driver)
        if answer is None:
            raise _broken("it ended without a final answer")
        if not answer.HasField("forwarded"):
            # A driver of an earlier version does not know what else the client asked for.
            raise _broken("it takes no requests of other nodes")
        if answer.forwarded.HasField("failure"):
            error = failure_in(answer.forwarded.failure)
            raise DriverFailed(error, fault=isinstance(error, ComputationFailed))
        return answer

    def _accept(self, driver: KnownDriver, answer: pb.InferenceResponse) -> None:
        generation = self.generation
        if not self.accepted.is_set():
            generation.admit(trio.current_time())
        self._trace.took_path([PathHop(driver.node_id, driver.layers[0], driver.layers[-1])])
        if not self._texts:
            # Later the client may have been told whose weights they are.
            generation.model_hash = answer.forwarded.model_hash[:MAX_HASH_CHARS]
        self.accepted.set()

    def _token(self, index: int, answer: pb.InferenceResponse) -> None:
        generation = self.generation
        if index < len(self._texts):
            if answer.text != self._texts[index]:
                raise _broken("its text is not the one that was begun")
            return
        self._chars += len(answer.text)
        if index >= generation.most_tokens or self._chars > SPARE_CHARS + TOKEN_CHARS * index:
            raise _broken("it answers more than it was asked for")
        self._texts.append(answer.text)
        logprobs = logprobs_in(answer.forwarded, generation.request.logprobs)
        self._context.token(generation)
        generation.relay(TokenEvent(answer.text, index, logprobs), trio.current_time())

    def _end(self, driver: KnownDriver, tokens: int, answer: pb.InferenceResponse) -> None:
        generation = self.generation
        if tokens != len(self._texts) or not tokens or answer.finish_reason not in REASONS:
            raise _broken("its end does not fit its tokens")
        self._context.drivers.answered(driver.node_id)
        generation.notes = notes_in(answer.forwarded.notes)
        for hop in hops_in(answer.forwarded.trace):
            self._trace.add_sum(hop)
        generation.waited(_milliseconds(answer.timing.queue_ms) / 1e3)
        generation.finish(FinishReason(answer.finish_reason), trio.current_time())

    def _silent(self, driver: KnownDriver) -> DriverFailed:
        self._context.pool.distrust(driver.host, driver.grpc_port)
        return DriverFailed(Unavailable(GONE), fault=True, suspect=True)


def _broken(reason: str) -> DriverFailed:
    """The driver has answered what it may not. The reason is for the log and the trace."""
    return DriverFailed(Unavailable(f"the driver cannot be used: {reason}"), fault=True)


def _call_failed(error: CallFailed) -> DriverFailed:
    """An attempt that ended with a status of gRPC."""
    match error.code:
        case Code.UNAUTHENTICATED | Code.PERMISSION_DENIED:
            # It has not met this node yet, or takes no requests of others.
            return DriverFailed(Unavailable("no driver takes requests of this node now"))
        case Code.RESOURCE_EXHAUSTED:
            return DriverFailed(RateLimited(1, "the drivers are full"))
        case Code.UNAVAILABLE | Code.DEADLINE_EXCEEDED:
            return DriverFailed(Unavailable(GONE), fault=True, suspect=True)
    return DriverFailed(ComputationFailed(), fault=True)


def _milliseconds(figure: float) -> float:
    """A driver's figure if it can be a duration, else 0.0."""
    return figure if 0.0 <= figure < MAX_MS else 0.0
