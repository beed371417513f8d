"""What a target seems to serve: a few harmless looks, from which a `conformance.toml` is proposed.

Invariant: a profile is proposed as soon as one of its routes is there at all, so that a node with
one broken route is judged and not excused. Whatever speaks gRPC on the documented port is taken for
the service; which of its operations are there is then judged. Nothing is sent that could change
something.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from conformance import messages
from conformance.catalogue import Profile
from conformance.checks.reading import ABSENT
from conformance.grpcwire import GrpcClient
from conformance.httpwire import HttpClient, Unanswered
from conformance.journal import Journal
from conformance.secrecy import Redactor
from conformance.target import Target, documented_grpc_address

ROUTES: dict[Profile, tuple[str, ...]] = {
    Profile.NODE_API: ("/api/v1/status", "/api/v1/health", "/api/v1/metrics", "/api/v1/config"),
    Profile.TRAINING: ("/api/training/global", "/api/training/verify"),
    # Not /healthz: many a service that is no gateway has one.
    Profile.NATIVE_API: ("/api/network", "/api/model", "/api/blocks"),
}
# One service has the operations of all three.
SERVICE_PROFILES = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Proposal:
    """What was found, and what each look said."""

    profiles: frozenset[Profile]
    grpc: str | None
    looks: tuple[str, ...]


def probe(target: Target) -> Proposal:
    """Look at a target. Nothing is changed, and no token is sent."""
    journal = Journal(Redactor(target.secrets))
    looks: list[str] = []
    found: set[Profile] = set()
    http = HttpClient(target.url, journal, timeout_s=TIMEOUT_S, max_wait_s=10)
    for profile, paths in ROUTES.items():
        if any(_look(looks, f"GET {path}", _get(http, path)) for path in paths):
            found.add(profile)
    address = target.grpc or documented_grpc_address(target.url)
    grpc = GrpcClient(address, journal, timeout_s=TIMEOUT_S)
    if _look(looks, f"{address} GetCheckpointInfo", _speaks(grpc)):
        found |= SERVICE_PROFILES
    grpc.close()
    return Proposal(frozenset(found), address if Profile.GRPC in found else None, tuple(looks))


def _look(looks: list[str], what: str, ask: Callable[[], tuple[bool, str]]) -> bool:
    try:
        there, said = ask()
    except Unanswered as reason:
        there, said = False, reason.why
    looks.append(f"{what}: {said}")
    return there


def _get(http: HttpClient, path: str) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        answer = http.call("GET", path)
        page = answer.media_type == "text/html"
        # A page for people at every path is how single-page applications are served.
        return answer.status not in ABSENT and not page, f"status {answer.status}"

    return ask


def _speaks(grpc: GrpcClient) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        reply = grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        # A web server on this port gives a status of HTTP, which gRPC calls UNKNOWN.
        return reply.code not in ("UNAVAILABLE", "UNKNOWN", "INTERNAL"), reply.code

    return ask


def propose(target: Target, proposal: Proposal) -> str:
    """Give the text of a `conformance.toml`."""
    profiles = [profile.value for profile in Profile if profile in proposal.profiles]
    lines = [
        "[target]",
        f"url = {json.dumps(target.url)}",
        f"profiles = {json.dumps(profiles)}",
    ]
    if proposal.grpc:
        lines.append(f"grpc = {json.dumps(proposal.grpc)}")
    lines += [
        "# What a run may do besides reading: mutate, spend, intrusive.",
        "allow = []",
        "# In whole units of the network's currency.",
        f"budget = {target.budget}",
        "# An address that may be sent a hundredth of a unit; without it the node sends to itself.",
        '# send_to = ""',
        "# Legacy paths that answer 410, and those that redirect to /join.",
        "legacy_gone = []",
        "legacy_redirected = []",
        "# What the document leaves open, and only its node knows, so that more can be judged:",
        "# rpc, reference, public_key, request_id, artifact, gradient, [target.field_map] and",
        "# [target.pipeline].",
        "# The README of the suite says what they are.",
        "# The tokens are better given as CONFORMANCE_TOKEN and CONFORMANCE_EXPIRED_TOKEN.",
    ]
    return "\n".join(lines) + "\n"
