"""Requests that are passed on, and their answers, as messages (interface 4.3; decision 0218).

Both sides are here: what a forwarding node sends and reads, and what a driver reads and sends.

Invariant: nothing of a message is believed before it is bounded; texts that reach a client are
short and printable.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from meshnode.domain.errors import (
    ComputationFailed,
    FalseResults,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unavailable,
    Unsupported,
)
from meshnode.domain.forwarded_rules import validate_forwarded
from meshnode.domain.generation import GenerationRequest, TokenLogprobs, TokenProbability
from meshnode.domain.shares import Requester, Standing
from meshnode.services.pipeline.records import MAX_HOPS, HopSum
from meshnode.wire import json
from meshnode.wire import node_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshnode.services.generation import Generation
    from meshnode.services.wallet.charging import OpenedGeneration

MAX_WORDS = 200
"""Characters of a driver's words that a client gets to see."""
MAX_NOTES = 4
MAX_RETRY_S = 3600
MAX_TRACE_CHARS = 32 * 1024
MAX_MS = 1e9
LEAST_LOGPROB = -1e9

KINDS: tuple[tuple[type[MeshnodeError], str], ...] = (
    (PromptTooLong, "PROMPT_TOO_LONG"),
    (Unsupported, "UNSUPPORTED"),
    (InvalidRequest, "INVALID_REQUEST"),
    (RateLimited, "RATE_LIMITED"),
    (Overloaded, "OVERLOADED"),
    (LayersUnavailable, "LAYERS_UNAVAILABLE"),
    (Unavailable, "UNAVAILABLE"),
    (FalseResults, "FALSE_RESULTS"),
)
"""The nearest kind of a failure comes first. All others are COMPUTATION_FAILED."""
COMPUTATION_FAILED = "COMPUTATION_FAILED"

_LAYERS = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_NODE_ID = re.compile(r"[0-9a-f]{40}")


def request_message(generation: Generation, seed: int) -> pb.InferenceRequest:
    """What a forwarding node asks a driver for. ``seed`` is that of the generation."""
    asked = generation.request
    extra = pb.ForwardedRequest(
        paid=asked.requester.standing is Standing.PAYING,
        frequency_penalty=asked.frequency_penalty,
        presence_penalty=asked.presence_penalty,
        logprobs=asked.logprobs,
        json_schema=asked.json_schema,
        bare=not asked.special_tokens,
        end_tokens=sorted(asked.end_tokens),
    )
    return pb.InferenceRequest(
        prompt=asked.prompt,
        # A driver with a longer context would not know where this node's ends.
        max_tokens=generation.most_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        stop=asked.stop,
        seed=seed,
        forwarded=extra,
    )


def forwarded_request(message: pb.InferenceRequest, address: str) -> GenerationRequest:
    """The request that a driver got from a node at ``address``. Raises InvalidRequest."""
    extra = message.forwarded
    request = GenerationRequest(
        prompt=message.prompt,
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        stop=tuple(message.stop),
        seed=message.seed,
        frequency_penalty=extra.frequency_penalty,
        presence_penalty=extra.presence_penalty,
        logprobs=extra.logprobs if extra.HasField("logprobs") else None,
        json_schema=extra.json_schema if extra.HasField("json_schema") else None,
        special_tokens=not extra.bare,
        end_tokens=frozenset(extra.end_tokens),
        requester=Requester(Standing.PEER if extra.paid else Standing.FREE, address),
    )
    validate_forwarded(request)
    return request


def waiting_answer(generation: OpenedGeneration, request_id: str) -> pb.InferenceResponse:
    """The driver is at work; also its first answer."""
    extra = pb.ForwardedAnswer(waits=True, model_hash=generation.model_hash)
    return pb.InferenceResponse(request_id=request_id, id=generation.id, forwarded=extra)


def failed_answer(error: MeshnodeError, request_id: str) -> pb.InferenceResponse:
    """The last answer of a driver that failed."""
    kind = next((name for kind, name in KINDS if isinstance(error, kind)), COMPUTATION_FAILED)
    failure = pb.InferenceFailure(kind=kind)
    if kind != COMPUTATION_FAILED:
        failure.message = str(error)
    if isinstance(error, InvalidRequest):
        failure.field, failure.message = error.field or "", error.reason
    if isinstance(error, RateLimited):
        failure.retry_after = error.retry_after
    extra = pb.ForwardedAnswer(failure=failure)
    return pb.InferenceResponse(request_id=request_id, forwarded=extra)


def failure_in(failure: pb.InferenceFailure) -> MeshnodeError:
    """The inverse of :func:`failed_answer`, for the client of the forwarding node."""
    words = plain(failure.message) or "the driver cannot answer"
    field = plain(failure.field)[:64] or None
    match failure.kind:
        case "INVALID_REQUEST":
            return InvalidRequest(field, words)
        case "PROMPT_TOO_LONG":
            return PromptTooLong(field, words)
        case "UNSUPPORTED":
            return Unsupported(field, words)
        case "RATE_LIMITED":
            return RateLimited(min(failure.retry_after, MAX_RETRY_S), words)
        case "OVERLOADED":
            return Overloaded(words)
        case "LAYERS_UNAVAILABLE":
            return LayersUnavailable(words)
        case "UNAVAILABLE":
            return Unavailable(words)
        case "FALSE_RESULTS":
            return FalseResults()
    return ComputationFailed()


def logprobs_message(logprobs: TokenLogprobs) -> pb.TokenProbabilities:
    """What a driver reports of a token's probability."""
    return pb.TokenProbabilities(
        chosen=_probability(logprobs.chosen), top=map(_probability, logprobs.top)
    )


def logprobs_in(answer: pb.ForwardedAnswer, most: int | None) -> TokenLogprobs | None:
    """The inverse, with at most the ``most`` likely tokens that were asked for."""
    if most is None or not answer.HasField("logprobs"):
        return None
    chosen, *top = (
        TokenProbability(each.piece, _logarithm(each.logprob))
        for each in (answer.logprobs.chosen, *answer.logprobs.top[:most])
    )
    return TokenLogprobs(chosen, tuple(top))


def plain(text: str) -> str:
    """A driver's words in one short, printable line."""
    line = " ".join(text[: 4 * MAX_WORDS].split())[:MAX_WORDS]
    return "".join(char if char.isprintable() else "?" for char in line)


def notes_in(notes: Sequence[str]) -> list[str]:
    """What the client should know, by the driver's words."""
    return [plain(note) for note in notes[:MAX_NOTES]]


def hops_in(trace: str) -> list[HopSum]:
    """The hops of a driver's trace; those that are malformed are left out."""
    if not trace or len(trace) > MAX_TRACE_CHARS:
        return []
    try:
        hops = json.loads(trace.encode())["hops"]
        found = [_hop(hop) for hop in hops[:MAX_HOPS]]
    except (InvalidRequest, TypeError, KeyError):
        return []
    return [hop for hop in found if hop is not None]


def _hop(hop: dict[str, Any]) -> HopSum | None:
    layers, node_id, steps = _LAYERS.fullmatch(str(hop["layers"])), hop["node_id"], hop["steps"]
    if layers is None or not isinstance(node_id, str) or not _NODE_ID.fullmatch(node_id):
        return None
    times = [hop[name] for name in ("queue_ms", "compute_ms", "network_ms")]
    for figure in (steps, *times):
        if isinstance(figure, bool) or not isinstance(figure, int | float):
            return None
        if not math.isfinite(figure) or not 0 <= figure <= MAX_MS:
            return None
    return HopSum(node_id, int(layers[1]), int(layers[2]), int(steps), *map(float, times))


def _logarithm(value: float) -> float:
    """The logarithm of a probability, which JSON can spell."""
    return max(LEAST_LOGPROB, min(0.0, value)) if not math.isnan(value) else LEAST_LOGPROB


def _probability(probability: TokenProbability) -> pb.TokenProbability:
    return pb.TokenProbability(piece=probability.piece, logprob=probability.logprob)
