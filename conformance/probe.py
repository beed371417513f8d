"""Finds out what a target serves with a few harmless requests, and proposes a `conformance.toml`.

Invariants: a profile is proposed if any of its routes exists, so that a node with a broken route is
judged and not excused; any gRPC server on the documented port counts as the service, and its
operations are then judged; no request changes anything.
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
    # Not /healthz, which many services have that are not gateways.
    Profile.NATIVE_API: ("/api/network", "/api/model", "/api/blocks"),
}
# The operations of all three belong to one service.
SERVICE_PROFILES = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Proposal:
    """What was found, and the outcome of each request."""

    profiles: frozenset[Profile]
    grpc: str | None
    looks: tuple[str, ...]


def probe(target: Target) -> Proposal:
    """Probe a target, without changing anything and without sending a token."""
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
        present, outcome = ask()
    except Unanswered as reason:
        present, outcome = False, reason.why
    looks.append(f"{what}: {outcome}")
    return present


def _get(http: HttpClient, path: str) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        answer = http.call("GET", path)
        page = answer.media_type == "text/html"
        # Single-page applications answer every path with an HTML page.
        return answer.status not in ABSENT and not page, f"status {answer.status}"

    return ask


def _speaks(grpc: GrpcClient) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        reply = grpc.call("GetCheckpointInfo", messages.make("GetCheckpointInfoRequest"))
        # A web server on this port answers with an HTTP status, which gRPC calls UNKNOWN.
        return reply.code not in ("UNAVAILABLE", "UNKNOWN", "INTERNAL"), reply.code

    return ask


def propose(target: Target, proposal: Proposal) -> str:
    """Return the text of a `conformance.toml`."""
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
        "# An address that receives a hundredth of a unit; without it the node sends to itself.",
        '# send_to = ""',
        "# Legacy paths that answer 410, and those that redirect to /join.",
        "legacy_gone = []",
        "legacy_redirected = []",
        "# To have more judged, declare what the document leaves open and only the node knows:",
        "# rpc, reference, public_key, request_id, artifact, gradient, [target.field_map] and",
        "# [target.pipeline].",
        "# The README of the suite explains them.",
        "# Set tokens as CONFORMANCE_TOKEN and CONFORMANCE_EXPIRED_TOKEN in the environment.",
    ]
    return "\n".join(lines) + "\n"
