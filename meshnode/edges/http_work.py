"""``/work/*``: the signed outbound worker protocol (interface 4.2 rule 7; native network 4).

A worker calls out and needs no address of its own: it polls for an assignment and brings back a
result, each in an envelope that it signs. What envelopes mean is the sponsor's business
(``services.work.sponsor``), also on a node that sponsors nothing; this edge bounds their size and
parses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio
from quart import request

from meshnode.domain.chain.canonical import Json, JsonLimits
from meshnode.domain.errors import InvalidRequest
from meshnode.http.native import BODY_BYTES, native_response, read_body
from meshnode.http.native_bodies import WorkAccepted, WorkAssignment, WorkEnvelope, WorkStatus
from meshnode.http.routes import Route

if TYPE_CHECKING:
    from meshnode.http.app import Response

POLL_LIMITS = JsonLimits(BODY_BYTES["/work/poll"])
RESULT_LIMITS = JsonLimits(BODY_BYTES["/work/result"], tokens=10_000)
"""A result is a few tensors, each of them one text."""
WORK_S = 20.0
"""Deadline for an answer to a poll or a result. A worker without one sends its result again."""


class Sponsor(Protocol):
    """Hands out work. A refused envelope is a Rejected or an InvalidRequest."""

    def status(self) -> dict[str, Json]:
        """The body of ``/work/status``."""

    async def poll(self, envelope: Json) -> dict[str, Json]:
        """An assignment for the signer, or none."""

    async def result(self, envelope: Json) -> dict[str, Json]:
        """Take a result; the first one of a job counts."""


@dataclass(frozen=True, slots=True)
class WorkApi:
    """The handlers."""

    sponsor: Sponsor

    async def get_status(self) -> Response:
        """``/work/status``, which takes no query."""
        if request.query_string:
            raise InvalidRequest(None, "/work/status takes no parameters")
        return native_response(self.sponsor.status())

    async def post_poll(self) -> Response:
        """``/work/poll``."""
        envelope = await read_body("work", POLL_LIMITS)
        with trio.fail_after(WORK_S):
            return native_response(await self.sponsor.poll(envelope))

    async def post_result(self) -> Response:
        """``/work/result``."""
        envelope = await read_body("work", RESULT_LIMITS)
        with trio.fail_after(WORK_S):
            return native_response(await self.sponsor.result(envelope))


ROUTES = (
    Route(
        "GET",
        "/work/status",
        WorkApi.get_status,
        "What the sponsor has left to hand out; takes no query",
        WorkStatus,
        errors=(400,),
    ),
    Route(
        "POST",
        "/work/poll",
        WorkApi.post_poll,
        "Ask for an assignment, in a signed envelope",
        WorkAssignment,
        body=WorkEnvelope,
    ),
    Route(
        "POST",
        "/work/result",
        WorkApi.post_result,
        "Bring back a result, in a signed envelope",
        WorkAccepted,
        body=WorkEnvelope,
    ),
)
