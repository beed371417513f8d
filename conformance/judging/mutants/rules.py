"""Mutants that each violate one requirement by a short hook.

Each row has the requirement that must be judged violated, and the hook that changes the answers.
"""

from conformance import messages
from conformance.checks.native import READABLE
from conformance.judging.hooks import (
    CONFIG,
    INFERENCE,
    Drifting,
    Grpc,
    Http,
    OnlyTheLastChange,
    OnlyTheLastValue,
    events,
    gone,
    grpc_answer,
    grpc_status,
    inference,
    letting_in,
    on,
    overrun,
    overrun_by_default,
    patched,
    put,
    raw_events,
    refusal,
    refusing,
    reindexed,
    serving,
    unended,
    unknown_nodes,
)
from conformance.judging.mutants import openai
from conformance.judging.toy.answers import Asked, Response, no_grpc_hook, no_http_hook
from conformance.passive import passes

WALLET = "/api/v1/wallet"

ROUTES: list[tuple[str, Http]] = [
    ("NA-ROUTE-001", gone("/api/v1/status")),
    ("NA-ROUTE-002", gone("/api/v1/metrics")),
    ("NA-ROUTE-003", gone("/api/v1/health")),
    ("NA-ROUTE-004", gone(INFERENCE, "POST")),
    ("NA-ROUTE-005", gone("/api/v1/wallet/balance")),
    ("NA-ROUTE-006", gone(f"{WALLET}/send", "POST")),
    ("NA-ROUTE-008", gone(f"{WALLET}/stake", "POST")),
    ("NA-ROUTE-009", gone(f"{WALLET}/unstake", "POST")),
    ("NA-ROUTE-007", gone("/api/v1/wallet/transactions")),
    ("NA-ROUTE-010", gone("/api/v1/peers")),
    ("NA-ROUTE-011", gone("/api/v1/layers")),
    ("NA-ROUTE-012", gone("/api/v1/network")),
    ("NA-ROUTE-013", gone(CONFIG)),
    ("NA-ROUTE-014", gone(CONFIG, "PATCH")),
    ("NA-ROUTE-015", gone("/api/v1/proofs")),
    ("TR-ROUTE-001", gone("/api/training/global")),
    ("TR-ROUTE-002", gone("/api/training/verify")),
]


class Forgetful:
    """A history that lacks every transfer."""

    def __call__(self, asked: Asked, response: Response) -> None:
        """Leave the transfers out of the history."""
        if asked.path == f"{WALLET}/transactions" and response.status == 200:
            entries = response.json["transactions"]
            response.json["transactions"] = [e for e in entries if e["type"] != "send"]


class Dwindling:
    """A balance that loses a unit between two readings."""

    def __init__(self) -> None:
        self.lost = 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show one unit less than the previous time."""
        if asked.path == f"{WALLET}/balance" and response.status == 200:
            self.lost += 1
            response.json["balances"]["available"] -= self.lost


MONEY: list[tuple[str, Http]] = [
    ("NA-WALLET-006", Forgetful()),
    ("NA-WALLET-007", Dwindling()),
    ("NA-WALLET-008", on(f"{WALLET}/balance", put("balances.staked", 17))),
    ("NA-WALLET-008", Dwindling()),
    ("GEN-008", on(f"{WALLET}/send", put("timestamp", "1767268800"), "POST")),
    ("GEN-009", on(f"{WALLET}/stake", put("stake.unlock_date", "in a month"), "POST")),
    ("NA-WALLET-001", on(f"{WALLET}/send", put("amount", 1), "POST")),
    ("NA-WALLET-002", on(f"{WALLET}/stake", put("stake.duration_days", 1), "POST")),
    ("NA-WALLET-003", on(f"{WALLET}/stake", put("stake.unlock_date", "2020-01-01"), "POST")),
    ("NA-WALLET-004", on(f"{WALLET}/unstake", put("unstake.amount", 1), "POST")),
    ("ST-005", on(f"{WALLET}/unstake", put("unstake.available_date", "2020-01-01"), "POST")),
    ("NA-ERR-008", on(f"{WALLET}/stake", lambda r: setattr(r, "status", 200), "POST", 402)),
    ("NA-ERR-009", on(f"{WALLET}/stake", put("error.code", "POOR"), "POST", 402)),
    ("NA-ERR-010", on(f"{WALLET}/stake", put("error.details.required", "much"), "POST", 402)),
    ("NA-ERR-011", on(f"{WALLET}/send", put("error.details.available", None), "POST", 402)),
    ("NA-AUTH-008", letting_in("POST", f"{WALLET}/send")),
    ("NA-AUTH-008", letting_in("POST", f"{WALLET}/unstake")),
]

NATIVE: list[tuple[str, Http]] = [
    ("NT-ROUTE-001", gone("/healthz")),
    *((ident, gone(path)) for ident, (path, _) in READABLE.items()),
    ("NT-RULE-001", on("/healthz", lambda r: setattr(r, "status", 500))),
    ("NT-RULE-009", on("/api/register", lambda r: setattr(r, "status", 404), status=410)),
    ("NT-RULE-010", on("/login", lambda r: setattr(r, "status", 200), status=302)),
    ("NT-RULE-010", on("/login", lambda r: r.headers.update(Location="/"), status=302)),
    ("NT-RULE-017", on("/api/model", lambda r: setattr(r, "raw", b"{'toy': True}"))),
]

BODIES: list[tuple[str, Http]] = [
    ("GEN-001", on(CONFIG, put("grpc_port", 9001))),
    ("GEN-007", on("/api/v1/status", put("layers", [1, 1]))),
    ("GEN-008", on("/api/v1/metrics", put("timestamp", "yesterday at noon"))),
    ("GEN-008", on("/api/v1/metrics", put("timestamp", "2026-01-01T12:00:00+02:00"))),
    ("GEN-009", on("/api/v1/wallet/balance", put("staking.start_date", "01.01.2026"))),
    ("GEN-010", on("/api/v1/status", lambda r: setattr(r, "raw", b"running"))),
    ("GEN-010", on("/api/v1/status", put("training.loss", float("nan")))),
    ("GEN-011", on("/api/v1/health", lambda r: setattr(
        r, "raw", b'{"healthy": true, "healthy": true, "checks": {"gpu": "", "network": "",'
        b' "storage": "", "peers": ""}}'))),
    ("GEN-012", on("/api/v1/status", lambda r: r.headers.update({"Content-Type": "text/plain"}))),
    ("GEN-014", on("/api/v1/status", put("version", ""))),
    ("NA-SANE-001", Drifting("/api/v1/status", "uptime_seconds", -1)),
    ("NA-SANE-003", on(CONFIG, put("node_id", "another"))),
    ("NA-SANE-004", on("/api/v1/status", put("peer_count", -1))),
    ("NA-SANE-005", on("/api/v1/layers", put("my_layer_count", 3))),
    ("NA-SANE-025", on("/api/v1/layers", lambda r: [
        entry.update(index=entry["index"] + 1) for entry in r.json["layers"]])),
    ("NA-SANE-006", on("/api/v1/layers", put("total_layers", 1))),
    ("NA-SANE-007", on("/api/v1/peers", put("total", 2))),
    ("NA-SANE-008", on("/api/v1/peers", lambda r: r.json["peers"][0].update(address="nowhere"))),
    ("NA-SANE-012", Drifting("/api/v1/metrics", "inference.requests_total", -1)),
    ("NA-QUERY-003", on("/api/v1/wallet/transactions", put("offset", 77))),
    ("NA-QUERY-006", on("/api/v1/wallet/transactions", put("total", 0))),
    ("NA-QUERY-007", on(
        "/api/v1/wallet/transactions",
        lambda r: [entry.update(amount=2) for entry in r.json["transactions"]])),
    ("NA-ERR-012", on("/api/v1/no-such-route-of-the-document", put("error", "no"), status=404)),
    ("NA-ERR-017", on("/api/v1/no-such-route-of-the-document",
                      lambda r: setattr(r, "status", 200), status=404)),
    ("TR-RULE-002", on("/api/training/global", put("hash_agreement_rate", 100))),
    ("TR-RULE-003", on("/api/training/global", put("sync_success_rate", 90))),
    ("TR-RULE-004", on("/api/training/global", put("sync_success_rate", 0.123))),
    ("TR-RULE-001", on("/api/training/global", lambda r: r.json.update(
        hash_agreement_rate=0.5, is_converging=False))),
    ("TR-RULE-006", on("/api/training/verify", put("metrics.hash_agreement", "1.0"))),
    ("TR-RULE-010", on("/api/training/verify", put("reason", ""))),
]  # fmt: skip

REFUSALS: list[tuple[str, Http]] = [
    ("NA-AUTH-001", letting_in("GET", "/api/v1/peers")),
    ("NA-AUTH-002", letting_in("GET", "/api/v1/layers")),
    ("NA-AUTH-004", letting_in("GET", CONFIG)),
    ("NA-AUTH-006", letting_in("POST", INFERENCE)),
    ("NA-AUTH-007", letting_in("PATCH", CONFIG)),
    ("NA-AUTH-003", refusal(lambda body: body["error"].update(code="unauthorized"))),
    ("NA-ERR-001", refusal(lambda body: body.update(error="no"))),
    ("NA-ERR-002", refusal(lambda body: body["error"].update(code=401))),
    ("NA-ERR-003", refusal(lambda body: body["error"].update(message=None))),
    ("NA-ERR-004", refusal(lambda body: body["error"].update(details="none"))),
    ("NA-ERR-005", refusal(lambda body: body["error"].update(details={"why": "so"}))),
    ("NA-ERR-014", refusal(
        lambda body: body["error"].update(message="Traceback (most recent call last)"))),
]  # fmt: skip

INFERENCES: list[tuple[str, Http]] = [
    ("NA-INF-001", refusing(lambda body: "max_tokens" not in body)),
    ("NA-INF-002", serving(lambda body: isinstance(body, dict) and "prompt" not in body)),
    ("NA-INF-003", inference(overrun)),
    ("NA-INF-004", inference(overrun_by_default)),
    ("NA-INF-005", refusing(lambda body: "max_tokens" in body)),
    ("NA-INF-006", refusing(lambda body: "temperature" in body)),
    ("NA-INF-006", refusing(lambda body: body.get("temperature") == 0)),
    ("NA-INF-006", refusing(lambda body: body.get("temperature") == 2)),
    ("NA-INF-007", serving(
        lambda body: isinstance(body, dict) and isinstance(body.get("temperature"), float | int))),
    ("NA-INF-008", refusing(lambda body: "top_p" in body)),
    ("NA-INF-009", refusing(lambda body: "top_k" in body)),
    ("NA-INF-010", refusing(lambda body: body.get("stream") is False)),
    ("NA-INF-011", inference(
        lambda body, r: r.__dict__.update(events=None, json={"text": "all at once"}),
        stream=True)),
    ("NA-INF-012", refusing(lambda body: "stop" in body)),
    ("NA-INF-013", inference(
        lambda body, r: body.get("stop") and r.json.update(text=body["stop"][0] + " and more"))),
    ("NA-INF-017", inference(
        lambda body, r: "stream" in body or r.__dict__.update(events=[{"token": "[DONE]"}]))),
    ("NA-INF-019", serving(
        lambda body: isinstance(body, dict) and isinstance(body.get("max_tokens"), float))),
    ("NA-INF-031", serving(
        lambda body: isinstance(body, dict) and isinstance(body.get("max_tokens"), str))),
    ("NA-INF-020", on(INFERENCE, lambda r: setattr(r, "status", 500), "POST", 400)),
    ("NA-INF-021", serving(lambda body: body is None)),
    ("NA-INF-022", inference(lambda body, r: r.json["usage"].update(total_tokens=1))),
    ("NA-INF-023", inference(lambda body, r: r.json.update(tokens_generated=0))),
    ("NA-INF-024", inference(lambda body, r: r.json["timing"].update(total_ms=0))),
    ("NA-INF-025", inference(lambda body, r: r.json["cost"].update(currency=""))),
    ("NA-INF-026", inference(lambda body, r: r.json.update(id="always"))),
    ("NA-INF-030", refusing(lambda body: not body["prompt"].isascii())),
]  # fmt: skip

EVENTS: list[tuple[str, Http]] = [
    ("NA-SSE-001", raw_events("{}\n\n")),
    ("NA-SSE-001", raw_events("data: {}\n")),
    ("NA-SSE-001", raw_events("data: <{}>\n\n")),
    ("NA-SSE-015", unended),
    ("NA-SSE-002", events(lambda values: reindexed(values, lambda i: i + 1))),
    ("NA-SSE-003", events(lambda values: reindexed(values, lambda i: 0))),
    ("NA-SSE-004", events(lambda values: reindexed(values, lambda i: 2 * i))),
    ("NA-SSE-005", events(lambda values: values[:-1])),
    ("NA-SSE-006", events(lambda values: [*values[:-1], {**values[-1], "token": ""}])),
    ("NA-SSE-007", events(lambda values: [*values, {"token": "more", "index": 99}])),
    ("NA-SSE-008", inference(
        lambda body, r: r.headers.update({"Content-Type": "text/plain"}), stream=True)),
    ("NA-SSE-009", inference(overrun, stream=True)),
    ("NA-SSE-010", inference(
        lambda body, r: r.events and r.events[-1]["usage"].update(total_tokens=0), stream=True)),
    ("NA-SSE-014", raw_events(
        "data: {}\n\n", '"token": "[DONE]"', '"token": "", "token": "[DONE]"')),
]  # fmt: skip

CHANGES: list[tuple[str, Http]] = [
    ("NA-PATCH-101", patched(lambda result: result.update(updated=[]))),
    ("NA-PATCH-101", patched(
        lambda result: result.update(updated=[p.split(".")[1] for p in result["updated"]]))),
    ("NA-PATCH-102", patched(lambda result: result["updated"].append("port"))),
    ("NA-PATCH-103", Drifting(CONFIG, "tracker_url", 1)),
    ("NA-PATCH-104", on(CONFIG, put("training.batch_size", 1))),
    ("NA-PATCH-108", OnlyTheLastChange()),
    ("NA-PATCH-105", on(
        CONFIG,
        lambda r: r.__dict__.update(status=200, json={
            "success": True, "updated": [], "restart_required": False}),
        "PATCH", 400)),
]  # fmt: skip

GRPC: list[tuple[str, Grpc]] = [
    ("GR-OP-003", grpc_status("GetWeights", "UNIMPLEMENTED")),
    ("GR-OP-004", grpc_status("GossipGradient", "UNIMPLEMENTED")),
    ("GR-OP-005", grpc_status("GetCheckpoint", "UNIMPLEMENTED")),
    ("GR-OP-006", grpc_status("GetCheckpointInfo", "UNIMPLEMENTED")),
    ("GR-OP-012", grpc_status("PipelineForward", "UNIMPLEMENTED")),
    ("GR-OP-013", grpc_status("PipelineBackward", "UNIMPLEMENTED")),
    ("GR-OP-015", grpc_status("DHTPing", "UNIMPLEMENTED")),
    ("GR-OP-016", grpc_status("DHTStore", "UNIMPLEMENTED")),
    ("GR-OP-017", grpc_status("DHTFindNode", "UNIMPLEMENTED")),
    ("GR-OP-018", grpc_status("DHTFindValue", "UNIMPLEMENTED")),
    ("GR-OP-009", grpc_status("GossipStake", "UNIMPLEMENTED")),
    ("GR-NAME-001", lambda called, request, answer: "UNIMPLEMENTED"),
    ("GR-CKPT-001", grpc_answer("GetCheckpoint", success=True, checkpoint_data=b"x", version=3,
                                model_hash="a" * 64, error_message="")),
    ("GR-CKPT-002", grpc_answer("GetCheckpoint", success=True, checkpoint_data=b"x",
                                version=2**31 - 1, model_hash="b" * 64)),
    ("GR-CKPT-003", grpc_answer("GetCheckpoint", success=False, error_message="")),
    ("GR-CKPT-007", grpc_status("GetCheckpointInfo", "INVALID_ARGUMENT")),
    ("GR-CKPT-004", grpc_answer("GetCheckpointInfo", version=4)),
    ("GR-CKPT-005", grpc_answer("GetCheckpoint", checkpoint_data=b"")),
    ("GR-GOSSIP-001", grpc_answer("GossipGradient", reason="")),
    ("GR-CODE-001", grpc_status("DHTFindNode", "DATA_LOSS")),
    ("PL-FWD-001", grpc_answer("PipelineForward", error_message="")),
    ("PL-FWD-002", grpc_answer("PipelineForward", logits=b"x")),
    ("PL-FWD-003", grpc_answer("PipelineForward", request_id="another")),
    ("PL-BWD-001", grpc_answer("PipelineBackward", error_message="")),
    ("DH-001", lambda called, request, answer: {} if called == "DHTPing" else answer),
    ("LIM-010", grpc_answer("DHTPing", responder=messages.make("DHTNodeInfo", node_id=b"short"))),
    ("DH-003", unknown_nodes),
    ("DH-007", lambda called, request, answer: (
        {**answer, "found": True, "value": "x:1"} if called == "DHTFindValue"
        and not answer["found"] else answer)),
    ("DH-008", lambda called, request, answer: (
        {**answer, "value": "x:1"} if called == "DHTFindValue" and not answer["found"]
        else answer)),
    ("DH-015", OnlyTheLastValue()),
    ("DH-009", lambda called, request, answer: (
        {**answer, "value": "another:1"} if called == "DHTFindValue" and answer["found"]
        else answer)),
]  # fmt: skip

HTTP = [*ROUTES, *MONEY, *NATIVE, *BODIES, *REFUSALS, *INFERENCES, *EVENTS, *CHANGES]
ROWS: list[tuple[str, Http, Grpc]] = [(ident, hook, no_grpc_hook) for ident, hook in HTTP]
ROWS += [(ident, no_http_hook, hook) for ident, hook in GRPC]
ROWS += [(ident, hook, no_grpc_hook) for ident, hook in openai.ROWS]
# Their checks run others again, and name what these find; and every answer to a pass is judged, and
# every answer of a run held against those before it, for figures that a mutant gives in some
# answers only, or for all alike.
AGAIN = passes.IDS | {"NA-AUTH-036", "PL-FWD-020", "NA-INF-060", "NA-SANE-060", "NA-SANE-062"}
# These violate other requirements too, which the same answer shows.
TOGETHER = {
    # The first mutant answers every request with one checkpoint, so it ignores the hash too. Each
    # requirement about an answer goes with one about the field of the request.
    "GR-CKPT-001": {"GR-GET-CHECKPOINT-REQUEST-02", "GR-CKPT-002", "GR-GET-CHECKPOINT-REQUEST-01"},
    "GR-CKPT-002": {"GR-GET-CHECKPOINT-REQUEST-01", "GR-CKPT-016"},
    # A route that answers with no object violates its own sentence too.
    "GEN-010": {"NA-ROUTE-001"},
    "NT-RULE-017": {"NT-RULE-024"},
    # Two sentences say the same of one figure: one of its kind, one of its relation to another.
    "NA-WALLET-002": {"NA-WALLET-003", "NA-WALLET-022", "NA-WALLET-027"},
    "NA-WALLET-003": {"NA-WALLET-022"},
    "NA-STAKE-014": {"NA-WALLET-022"},
    "NA-WALLET-045": {"NA-WALLET-022", "NA-WALLET-028"},
    # A status that says of training what is not so is not that of the configuration either.
    "TR-SAME-005": {"NA-PATCH-116"},
    "NA-WALLET-027": {"NA-WALLET-003"},
    "NA-WALLET-030": {"NA-WALLET-003"},
    # A text that ends at the sequence of an earlier request is no longer the one of before.
    "NA-INF-018": {"NA-INF-033"},
    "NT-RULE-030": {"NT-RULE-054"},
    "NA-SSE-007": {"NA-SSE-003"},
    "NA-INF-037": {"NA-INF-024"},
    "NA-COUNT-001": {"NA-COUNT-003"},
    # What is so in the answers of one check is so in those of the whole run.
    "NT-PAGE-001": {"NT-RULE-100"},
    "NT-RULE-061": {"NT-RULE-100"},
    "NT-RULE-043": {"NT-RULE-121"},
    "NT-RULE-063": {"NT-RULE-101"},
    "NA-ROUTE-019": {"NA-ROUTE-018"},
    "NA-AUTH-026": {"NA-SANE-040"},
    "NA-AUTH-028": {"NA-AUTH-022"},
    "NA-AUTH-029": {"NA-SANE-040"},
    "NA-AUTH-032": {"NA-AUTH-022"},
    # Timestamps that are all the same are those of other figures, too.
    "GEN-008": {"NA-SANE-027", "NA-SANE-046"},
    # A transfer is looked for in the list that is not there.
    "NA-HISTORY-001": {"NA-WALLET-047"},
    "NA-HISTORY-002": {"NA-WALLET-047"},
    # What one check asks for shows both.
    "NA-PATCH-104": {"NA-PATCH-121"},
    "NA-PATCH-106": {"NA-PATCH-121"},
    "PL-FWD-010": {"PL-FWD-014"},
    "PL-FWD-025": {"PL-FWD-007"},
    "GR-CODE-011": {"GR-CODE-001", "GR-CODE-015"},
    # Whatever does not hold for another part is named as well.
    "PL-FWD-020": {"PL-FWD-003", "PL-FWD-013", "GR-NUM-001"},
    "NA-AUTH-036": {"NA-WALLET-001"},
    "NA-WALLET-051": {"NA-SANE-041"},
    "NA-ERR-024": {"NA-SANE-041"},
    # A body that is no JSON is taken for none, as null is.
    "NA-INF-021": {"NA-INF-031", "NA-INF-007"},
    "NA-WALLET-048": {"NA-SANE-041"},
    "NA-INF-026": {"NA-SANE-041"},
    "NA-SANE-002": {"NA-SANE-040"},
    # Every refusal has the mutant's error, also those of OpenAI's routes.
    "NA-ERR-001": {"OA-ERROR-002"},
    "NA-ERR-002": {"OA-ERROR-010"},
    "NA-ERR-003": {"OA-ERROR-004"},
    "NA-ROUTE-018": {"TR-ROUTE-001"},
    "GEN-009": {"NA-WALLET-022"},
    # An account from which more is taken than it has is below zero.
    "NA-ERR-022": {"NA-SANE-004", "NA-ERR-020"},
    # A balance that is shown otherwise is not the one that a 402 names.
    "NA-WALLET-052": {"NA-ERR-020", "NA-ERR-022", "NA-SANE-004", "NA-WALLET-092"},
    "NA-WALLET-013": {"NA-WALLET-092"},
    # What a stake takes from what is pending waits for its date no more.
    "NA-WALLET-059": {"NA-WALLET-092", "NA-WALLET-019"},
    # What is taken from an account that has nothing is missing where it has something again.
    "NA-ERR-025": {"NA-ERR-024"},
    # What is unstaked without a stake has no good term either.
    "NA-WALLET-024": {"NA-WALLET-004", "ST-005"},
    # One proof too many is one more than are counted, and other times are other ones in turn.
    "NA-QUERY-005": {"NA-PROOFS-033"},
    "NA-QUERY-025": {"NA-QUERY-031"},
    "NA-ERR-008": {"NA-ERR-021", "NA-STAKE-001"},
    # A 402 of what there is says so itself.
    "NA-ERR-030": {"NA-ERR-019"},
    "NA-SANE-005": {"NA-SANE-019"},
    "GR-CKPT-003": {"GR-CKPT-013"},
    # One hash has the version that each request asks for.
    "GR-CKPT-016": {"GR-CKPT-017"},
    # One that is listed at any port is so without one.
    "DH-013": {"DH-027", "DH-040"},
    "NA-SANE-006": {"NA-SANE-015", "NA-SANE-021"},
    "NA-INF-022": {"NA-SANE-015"},
    "NA-INF-025": {"NA-SANE-014"},
    "NA-PATCH-103": {"NA-CONFIG-008"},
    "GEN-014": {"NA-SANE-014"},
    "TR-RULE-003": {"TR-RULE-004"},
    "TR-RULE-010": {"TR-RULE-012"},
    "NA-ERR-004": {"NA-ERR-005"},
    "NA-AUTH-004": {"NA-AUTH-017"},
    # A token that gets 401 in between is seen wherever that happens.
    "NA-AUTH-031": {"NA-AUTH-022"},
    "NA-PATCH-105": {"NA-PATCH-109", "NA-PATCH-131"},
    "GR-CODE-001": {"GR-CODE-010", "GR-CODE-011"},
    "PL-FWD-002": {"PL-FWD-007"},
    "DH-003": {"DH-018"},
    # Who looks into one part of a table only lists fewer nodes than elsewhere.
    "DH-032": {"DH-044"},
    "DH-029": {"DH-042"},
    "DH-040": {"DH-041"},
    "NA-INF-036": {"NA-INF-013"},
    **openai.TOGETHER,
}
