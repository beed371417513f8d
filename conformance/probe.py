"""Finds out what a target serves with a few harmless requests, and proposes a `conformance.toml`.

Invariants: a family of routes is served if two of its routes answer in its way, that is with its
resources or with its refusal of a missing token; an error of the server, a redirect or a page of
HTML shows nothing. A family that is served is judged whole, a missing route of it included. Any
gRPC server on the documented port counts as the service, and so does one that the target's own
configuration names. No request changes anything.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from conformance import messages
from conformance.catalogue import Profile
from conformance.compiled import AVAILABLE, NO_GRPC
from conformance.editions import FIFTH, SEVENTH
from conformance.grpcwire import GrpcClient
from conformance.httprequest import ANONYMOUS, Credential
from conformance.httpwire import Answer, HttpClient, Unanswered
from conformance.journal import Journal
from conformance.secrecy import Redactor
from conformance.strictjson import Json, NotJson, is_int
from conformance.target import Target, documented_grpc_address


@dataclass(frozen=True)
class Family:
    """One of the two families of routes, the profiles that it has, and routes that show it.

    For each route there are keys of its resource; for a native one, whose fields are not
    specified, there are none. A guarded route may refuse the probe, which sends no token.
    """

    profiles: frozenset[Profile]
    routes: dict[str, tuple[str, ...]]
    guarded: tuple[str, ...] = ()
    # Routes that are there, but not for GET.
    posted: tuple[str, ...] = ()
    # More of them, which earlier editions did not look at.
    posted_since_7: tuple[str, ...] = ()
    # Whether its routes, even those that only list something, ask for the token.
    with_token: bool = False


FAMILIES = (
    Family(
        frozenset({Profile.NODE_API, Profile.TRAINING}),
        {
            "/api/v1/status": ("node_id", "uptime_seconds", "peer_count", "role"),
            "/api/v1/health": ("healthy", "checks"),
            "/api/v1/metrics": ("inference", "network", "rewards", "timestamp"),
            "/api/v1/network": ("nodes", "architecture", "capacity"),
            "/api/training/global": ("hash_agreement_rate", "is_converging", "diloco"),
            "/api/training/verify": ("is_working", "reason"),
        },
        ("/api/v1/config", "/api/v1/layers", "/api/v1/wallet/balance"),
    ),
    Family(
        frozenset({Profile.OPENAI}),
        {"/v1/models": ("data",)},
        posted=("/v1/chat/completions",),
        posted_since_7=("/v1/completions",),
        with_token=True,
    ),
    Family(
        frozenset({Profile.NATIVE_API}),
        # Not /healthz, which many services have that are not gateways.
        dict.fromkeys(
            ("/api/network", "/api/model", "/api/blocks", "/api/validators", "/work/status"), ()
        ),
    ),
)
# How many routes have to answer in the way of their family.
ENOUGH = 2
# The operations of all three belong to one service.
SERVICE_PROFILES = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
TIMEOUT_S = 3.0
UNAUTHORIZED = 401
NOT_ALLOWED = 405


@dataclass(frozen=True)
class Proposal:
    """What was found, the outcome of each request, and why a profile was not found."""

    profiles: frozenset[Profile]
    grpc: str | None
    looks: tuple[str, ...]
    absent: dict[Profile, str]


def probe(target: Target) -> Proposal:
    """Probe a target without changing anything.

    Only its configuration and OpenAI's routes are read with a token.
    """
    journal = Journal(Redactor(target.secrets))
    looks: list[str] = []
    found: set[Profile] = set()
    absent: dict[Profile, str] = {}
    http = HttpClient(target.url, journal, timeout_s=TIMEOUT_S, max_wait_s=10)
    for family in FAMILIES:
        credential = target.valid if family.with_token else ANONYMOUS
        asks = {path: _get(http, path, keys, credential) for path, keys in family.routes.items()}
        asks.update({path: _guarded(http, path) for path in family.guarded})
        later = family.posted_since_7 if target.edition >= SEVENTH else ()
        posted = (*family.posted, *later)
        asks.update({path: _posted(http, path, credential) for path in posted})
        shown = [path for path, ask in asks.items() if _look(looks, f"GET {path}", ask)]
        if len(shown) >= ENOUGH:
            found |= family.profiles
            continue
        if Profile.NATIVE_API in family.profiles and _names_native(target):
            # It is there by what the operator says, so that its absence is a finding.
            looks.append("the operator declares resources of the native API")
            found |= family.profiles
            continue
        first = next(iter(asks))
        outcome = next(look for look in looks if look.startswith(f"GET {first}:"))
        why = f"{len(shown)} of {len(asks)} routes tried answer in its way; {outcome}"
        absent.update(dict.fromkeys(family.profiles, why))
    if not AVAILABLE:
        absent.update(dict.fromkeys(SERVICE_PROFILES, NO_GRPC))
        return Proposal(frozenset(found), None, tuple(looks), absent)
    address = target.grpc or documented_grpc_address(target.url)
    grpc = GrpcClient(address, journal, timeout_s=TIMEOUT_S)
    if _look(looks, f"{address} GetCheckpointInfo", _speaks(grpc)):
        found |= SERVICE_PROFILES
    elif Profile.NODE_API in found and _names_grpc(http, target):
        # The target says that it serves gRPC, so that its absence is a finding.
        looks.append("GET /api/v1/config names a grpc_port")
        found |= SERVICE_PROFILES
    else:
        absent.update(dict.fromkeys(SERVICE_PROFILES, f"no gRPC server answers at {looks[-1]}"))
    grpc.close()
    served = address if Profile.GRPC in found else None
    return Proposal(frozenset(found), served, tuple(looks), absent)


def _names_native(target: Target) -> bool:
    """Whether the operator has declared what only the native API serves."""
    declared = (target.public_key, target.request_id, target.artifact, target.rpc, target.field_map)
    return target.edition >= FIFTH and any(declared)


def _names_grpc(http: HttpClient, target: Target) -> bool:
    try:
        answer = http.call("GET", "/api/v1/config", credential=target.valid)
    except Unanswered:
        return False
    return answer.ok and is_int((answer.json_object() or {}).get("grpc_port"))


def _look(looks: list[str], what: str, ask: Callable[[], tuple[bool, str]]) -> bool:
    try:
        present, outcome = ask()
    except Unanswered as reason:
        present, outcome = False, reason.why
    looks.append(f"{what}: {outcome}")
    return present


def _get(
    http: HttpClient, path: str, keys: tuple[str, ...], credential: Credential
) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        answer = http.call("GET", path, credential=credential)
        document = answer.json_object() or {}
        # An unhealthy node may give its report with an error status.
        fits = bool(set(keys) & _shown(document)) if keys else answer.ok and bool(document)
        spoilt = bool(keys) and answer.ok and _is_spoilt(answer)
        return spoilt or (fits and (answer.ok or "healthy" in document)), f"status {answer.status}"

    return ask


def _shown(document: dict[str, Json]) -> set[str]:
    """The keys of an object, and those of objects in it: the resource may be in an envelope."""
    inner = [value for value in document.values() if isinstance(value, dict)]
    return set(document).union(*inner)


def _is_spoilt(answer: Answer) -> bool:
    """Whether a success that calls itself JSON has a body that is none.

    A node that spoils all its bodies alike has the routes all the same.
    """
    if answer.media_type != "application/json" or not answer.body:
        return False
    try:
        answer.json()
    except NotJson:
        return True
    return False


def _guarded(http: HttpClient, path: str) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        answer = http.call("GET", path)
        error = (answer.json_object() or {}).get("error")
        documented = isinstance(error, dict) and "code" in error
        return answer.status == UNAUTHORIZED and documented, f"status {answer.status}"

    return ask


def _posted(http: HttpClient, path: str, credential: Credential) -> Callable[[], tuple[bool, str]]:
    def ask() -> tuple[bool, str]:
        answer = http.call("GET", path, credential=credential)
        return answer.status == NOT_ALLOWED, f"status {answer.status}"

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
