"""What strangers, customers and pages of other sites can do at a real node (docs/access.md).

Every operation and every route of the node's own description is asked without a token, with each
scope alone, and as a peer; the outcome is compared with what docs/access.md says. Endless routes
(live events, the websocket) are left out: ``test_http_events.py`` has theirs.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from meshnode.domain.peer_session import make_credential
from meshnode.domain.tokens import Scope
from meshnode.services.keystore import Keystore
from meshnode.wire import node_pb2 as pb
from spec_tests.certificates import make_certificate
from spec_tests.processes.nodes import Node, run, running_node, wait_until
from spec_tests.processes.pipelines import NODE

pytestmark = [pytest.mark.process, pytest.mark.slow]

ACCESS = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
SERVICE = pb.DESCRIPTOR.services_by_name["NodeService"]
ENDLESS = {"/api/v1/events", "/ws"}
UNLIMITED = {
    f"MESHNODE_LIMITS_{name}": "1000000"
    for name in (
        "REQUESTS_PER_SECOND_PER_ADDRESS",
        "BURST_PER_ADDRESS",
        "REQUESTS_PER_SECOND_PER_TOKEN",
        "BURST_PER_TOKEN",
        "NATIVE_REQUESTS_PER_MINUTE",
    )
}
ID, KEY = bytes(range(20)), bytes(range(20, 40))
WHO = pb.DHTNodeInfo(node_id=ID, ip="127.0.0.1", port=9)
EVIL = "https://evil.example"


@dataclass
class Site:
    """A node, another that is its peer, and tokens with one scope each."""

    node: Node
    peer: Node
    tokens: dict[str, str]
    callers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Metadata of callers over gRPC, by who they are."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("attacked")
    with ExitStack() as stack:
        variables = {**NODE, **UNLIMITED, "MESHNODE_FREE_INFERENCE": "none"}
        node = stack.enter_context(running_node(folder / "node", **variables))
        tracker = f"http://127.0.0.1:{node.port}"
        peer = stack.enter_context(running_node(folder / "peer", "--tracker", tracker, **NODE))
        wait_until(lambda: node.ask("GET", "/api/v1/status").json["peer_count"] == 1)
        tokens = {str(scope): issue(node, str(scope)) for scope in Scope}
        found = Site(node, peer, tokens)
        own = node.ask("GET", "/api/v1/status").json["node_id"]
        key = Keystore(peer.data_dir, "").node_key
        found.callers = {
            "nobody": [],
            **{scope: [("authorization", f"Bearer {token}")] for scope, token in tokens.items()},
            "peer": [("peer-session", make_credential(key, own, time.time()))],
        }
        yield found


def issue(node: Node, scope: str) -> str:
    """A token that has this scope alone."""
    issued = run(
        *("token", "issue", "--name", scope, "--scope", scope, "--data-dir", str(node.data_dir))
    )
    assert issued.returncode == 0, issued
    return issued.stdout.split("shown this once: ")[1].split()[0]


# Operations over gRPC

TOKENS, ANYBODY, SIGNED = "tokens with `infer`", "anybody", "by signature"
REQUESTS: dict[str, tuple[str, Any]] = {
    "UnaryInference": (TOKENS, pb.InferenceRequest(prompt="Once", max_tokens=1)),
    "StreamInference": (TOKENS, pb.InferenceRequest(prompt="Once", max_tokens=1)),
    "PipelineForward": (
        ANYBODY,
        pb.PipelineForwardRequest(hidden_states=bytes(8), hidden_shape=[1, 1]),
    ),
    "SwarmForward": (
        ANYBODY,
        pb.SwarmForwardRequest(
            hidden_states=bytes(8),
            hidden_shape=[1, 1],
            route=[pb.SwarmHop(first_layer=0, last_layer=7)],
        ),
    ),
    "PipelineBackward": (SIGNED, pb.PipelineBackwardRequest(session_id="s", request_id="r")),
    "GossipGradient": (SIGNED, pb.GossipGradientRequest(node_id="a" * 40, round_id=1)),
    "GossipTransaction": (ANYBODY, pb.GossipTransactionRequest(transaction=b"{}")),
    "GossipStake": (ANYBODY, pb.GossipStakeRequest(transaction=b"{}")),
    "GossipProof": (SIGNED, pb.GossipProofRequest()),
    "RequestProofValidation": (SIGNED, pb.ProofValidationRequest()),
    "GossipValidationVote": (SIGNED, pb.ValidationVoteRequest()),
    "DHTPing": (ANYBODY, pb.DHTPingRequest(sender=WHO)),
    "DHTFindNode": (ANYBODY, pb.DHTFindNodeRequest(sender=WHO, target_id=KEY)),
    "DHTFindValue": (ANYBODY, pb.DHTFindValueRequest(sender=WHO, key=KEY)),
    "DHTStore": (ANYBODY, pb.DHTStoreRequest(sender=WHO, key=KEY, value="{}")),
    "GetShardInfo": (ANYBODY, pb.GetShardInfoRequest()),
    "GetSwarmStatus": (ANYBODY, pb.SwarmStatusRequest()),
    "UpdatePeerCapacity": (
        ANYBODY,
        pb.UpdatePeerCapacityRequest(node_id="a" * 40, address="127.0.0.1:9", timestamp=1.0),
    ),
    "GetWeights": (ANYBODY, pb.WeightRequest(shard_range="head")),
    "GetCheckpointInfo": (ANYBODY, pb.GetCheckpointInfoRequest()),
    "GetCheckpoint": (ANYBODY, pb.GetCheckpointRequest()),
}
"""A request of every operation, and to whom docs/access.md says that it is open."""


def test_the_page_lists_every_operation_and_its_bounds() -> None:
    assert set(REQUESTS) == {method.name for method in SERVICE.methods}
    rows = [line.split("|")[1:4] for line in ACCESS.splitlines() if re.match(r"\| `[A-Z]", line)]
    operations = {name: row for row in rows for name in re.findall(r"`([A-Z]\w+)`", row[0])}
    for name, (whom, _) in REQUESTS.items():
        # Two rows name the operations of pipelines; the later one is about training.
        listed = [row for row in rows if f"`{name}`" in row[0]]
        assert any(whom in row[1] for row in listed), name
        assert all(row[2].strip() for row in listed), name
    assert set(operations) >= set(REQUESTS)


def call(node: Node, name: str, request: Any, metadata: list[tuple[str, str]]) -> tuple[str, Any]:
    """The name of the status, and the first answer."""
    method = SERVICE.methods_by_name[name]
    answers = message_factory.GetMessageClass(method.output_type)
    kind = "stream_stream" if method.server_streaming else "unary_unary"
    options = [("grpc.max_receive_message_length", 1 << 27)]
    with grpc.insecure_channel(f"127.0.0.1:{node.port + 1000}", options) as channel:
        operation = getattr(channel, kind)(
            f"/node.NodeService/{name}", type(request).SerializeToString, answers.FromString
        )
        try:
            if method.server_streaming:
                return "OK", next(operation(iter([request]), metadata=metadata, timeout=600))
            return "OK", operation(request, metadata=metadata, timeout=600)
        except grpc.RpcError as error:
            return error.code().name, None


@pytest.mark.parametrize("name", REQUESTS)
def test_an_operation_is_open_to_those_whom_the_page_names(site: Site, name: str) -> None:
    whom, request = REQUESTS[name]
    found = {who: call(site.node, name, request, data) for who, data in site.callers.items()}
    statuses = {who: status for who, (status, _) in found.items()}
    if whom == TOKENS:
        refused = {"nobody": "UNAUTHENTICATED", "peer": "UNAUTHENTICATED"}
        refused |= {str(scope): "PERMISSION_DENIED" for scope in Scope}
        # The token has no money: it is let in, and then asked to pay.
        assert statuses == {**refused, "infer": "FAILED_PRECONDITION"}
        return
    # A token or a peer's credential opens nothing else, and closes nothing.
    assert len(set(statuses.values())) == 1, statuses
    status, answer = found["nobody"]
    if whom == SIGNED or name in ("GossipTransaction", "GossipStake"):
        # A transaction is signed by its account, whoever passes it on.
        assert status in ("OK", "INVALID_ARGUMENT")
        assert not getattr(answer, "accepted", False)
        assert not getattr(answer, "success", False)
    else:
        assert status in ("OK", "NOT_FOUND"), name


@pytest.mark.parametrize("metadata", [[("training", "1")], [("training", "step")]])
def test_nobody_trains_the_layers_without_a_signature(
    site: Site, metadata: list[tuple[str, str]]
) -> None:
    _, request = REQUESTS["PipelineForward"]
    for data in site.callers.values():
        status, answer = call(site.node, "PipelineForward", request, [*data, *metadata])
        assert status != "OK" or not answer.success


# Routes over HTTP


def routes(node: Node) -> list[tuple[str, str]]:
    """Method and path of every route that the node describes, with its parameters filled in."""
    described = node.ask("GET", "/openapi.json").json["paths"]
    return [
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods
        if method in ("get", "post", "patch", "put", "delete") and path not in ENDLESS
    ]


def needed(method: str, path: str) -> str | None:
    """The scope that docs/access.md names for a route."""
    plain = re.sub(r"\{\w+\}", "{id}", path)
    row = re.search(rf"^\| `{method} {re.escape(plain)}` \| `(\w+)` \|", ACCESS, re.MULTILINE)
    return row and row[1]


def ask(node: Node, method: str, path: str, **headers: str) -> int:
    """The status of a request with an empty object as its body."""
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=600)
    body = None if method == "GET" else "{}"
    given = {"Content-Type": "application/json", **headers}
    connection.request(method, re.sub(r"\{\w+\}", "1", path), body, given)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_route_is_open_to_those_whom_the_page_names(site: Site) -> None:
    scoped = set()
    for method, path in routes(site.node):
        scope = needed(method, path)
        statuses = {
            who: ask(
                site.node, method, path, **({"Authorization": f"Bearer {token}"} if token else {})
            )
            for who, token in {"": "", **site.tokens}.items()
        }
        if scope is None:
            # A token changes nothing. The export of an older chain is read-only for everybody.
            assert len(set(statuses.values())) == 1, (method, path, statuses)
            read_only = method != "GET" and path.startswith("/reference/")
            assert read_only or statuses[""] not in (401, 403), (method, path, statuses)
            continue
        scoped.add((method, path))
        assert statuses.pop("") == 401, (method, path)
        assert statuses.pop(scope) not in (401, 403), (method, path)
        assert set(statuses.values()) == {403}, (method, path, statuses)
        assert ask(site.node, method, path, Authorization="Bearer wrong") == 401
    assert len(scoped) == len(re.findall(r"^\| `(?:GET|POST|PATCH) /", ACCESS, re.MULTILINE))


def test_a_customer_changes_nothing(site: Site) -> None:
    node = site.node
    before = node.ask("GET", "/api/v1/config").json
    customer = issue_customer(node)
    change = {"tracker_url": "http://evil.example:1"}
    assert node.ask("PATCH", "/api/v1/config", change, token=customer).status == 403
    assert node.ask("GET", "/api/v1/log", token=customer).status == 403
    assert node.ask("GET", "/api/v1/config", token=customer).status == 200
    assert node.ask("GET", "/api/v1/config").json == before


def issue_customer(node: Node) -> str:
    issued = run("token", "issue", "--name", "customer", "--data-dir", str(node.data_dir))
    return issued.stdout.split("shown this once: ")[1].split()[0]


def test_pages_of_other_sites_get_nowhere(site: Site) -> None:
    """Forms, scripts of another origin, and a rebound name, even with the operator's token."""
    token = {"Authorization": f"Bearer {site.node.token}"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    pages: tuple[dict[str, str], ...] = (
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Host": f"evil.example:{site.node.port}"},
        {"Origin": EVIL},
        {"Origin": EVIL, **form},
        {"Origin": "null", "Content-Type": "text/plain"},
    )
    for method, path in routes(site.node):
        if needed(method, path) is None and (method == "GET" or path.startswith("/work/")):
            # What anybody may read; and bodies that are signed.
            continue
        for page in pages:
            for with_token in ({}, token):
                status = ask(site.node, method, path, **page, **with_token)
                # 404 and 410: paths of an older edition, which do nothing.
                assert status in (403, 404, 410, 415), (method, path, page, status)


# TLS


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("secure")
    made = make_certificate(folder / "tls")
    with running_node(folder / "node", *made.flags, **NODE) as node:
        yield node


def shake(port: int, **limits: Any) -> str | None:
    """The version of TLS that a client and the node agree on; None if they do not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers(limits.pop("ciphers", "ALL:@SECLEVEL=0"))
    for name, value in limits.items():
        setattr(context, name, value)
    with socket.create_connection(("127.0.0.1", port), 600) as plain:
        try:
            with context.wrap_socket(plain) as stream:
                return stream.version()
        except (ssl.SSLError, ConnectionError):
            return None


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("offset", [0, 1000], ids=["http", "grpc"])
def test_tls_is_not_downgraded(secure: Node, offset: int) -> None:
    port = secure.port + offset
    assert shake(port) == "TLSv1.3"
    assert shake(port, maximum_version=ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        assert shake(port, minimum_version=old, maximum_version=old) is None
    # Ciphers without forward secrecy, without authenticated encryption, and without any.
    for weak in ("AES256-GCM-SHA384", "ECDHE-ECDSA-AES256-SHA", "eNULL"):
        limits = {"maximum_version": ssl.TLSVersion.TLSv1_2, "ciphers": f"{weak}:@SECLEVEL=0"}
        assert shake(port, **limits) is None, weak


@pytest.mark.parametrize("offset", [0, 1000], ids=["http", "grpc"])
def test_plain_text_on_a_tls_port_gets_no_answer(secure: Node, offset: int) -> None:
    for first in (
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", secure.port + offset), 600) as plain:
            plain.sendall(first)
            answer = b""
            try:
                while data := plain.recv(4096):
                    answer += data
            except ConnectionError:
                pass
            assert b"HTTP" not in answer
            assert b"status" not in answer


def test_answers_are_json_objects(site: Site) -> None:
    """An attacker's malformed requests get the document's errors, not a traceback."""
    for method, path in routes(site.node):
        if method != "GET":
            connection = http.client.HTTPConnection("127.0.0.1", site.node.port, timeout=600)
            headers = {"Content-Type": "application/json"}
            headers["Authorization"] = f"Bearer {site.node.token}"
            connection.request(method, path.replace("{", "").replace("}", ""), "[", headers)
            answer = connection.getresponse()
            assert answer.status < 500, (method, path, answer.status)
            assert isinstance(json.loads(answer.read()), dict)
            connection.close()
