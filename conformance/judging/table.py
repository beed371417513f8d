"""The mutants and the variants, as one table each: what is done to the node, and who has to notice.

The rows come from where they are readable at a glance: a field or a message number that is not as
the catalogue says, made from the catalogue; one sentence broken by one hook
(`tests/test_mutants_of_rules.py`, `tests/test_mutants_of_sense.py`); freedoms of the document
(`tests/test_peculiar_but_allowed.py`); and those of the native API and the pipeline, which need a
real node.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.catalogue import Level, load
from conformance.tests import test_mutants_of_fields as fields
from conformance.tests import test_mutants_of_rules as rules
from conformance.tests import test_mutants_of_sense as sense
from conformance.tests import test_peculiar_but_allowed as peculiar
from conformance.tests.hooks import Grpc, Http, on, put
from conformance.tests.toy import Asked, Response, no_grpc_hook, no_http_hook

# A hook may remember: each run has a new one.
MakeHttp = Callable[[], Http]
MakeGrpc = Callable[[], Grpc]


@dataclass(frozen=True)
class Mutant:
    """One act against one sentence, and the requirement that names it."""

    name: str
    ident: str
    http: Http = no_http_hook
    grpc: Grpc = no_grpc_hook
    # Sentences that the same act breaks too, since one answer cannot keep both.
    also: frozenset[str] = frozenset()
    examples: int = 3

    @property
    def level(self) -> Level:
        """Give the level of the requirement."""
        return load()[self.ident].level


@dataclass(frozen=True)
class Variant:
    """Something peculiar that no sentence forbids."""

    name: str
    http: Http = no_http_hook
    grpc: Grpc = no_grpc_hook
    settings: dict[str, Any] = field(default_factory=dict)


def rpc(change: Callable[[Any, Response], object]) -> Http:
    """Change what POST /rpc answers; the body that was sent comes along."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) == ("POST", "/rpc") and isinstance(asked.body, dict):
            change(asked.body, response)

    return hook


def having(method: str) -> Http:
    """Serve one method more over /rpc."""
    return rpc(lambda body, r: body["method"] == method and becomes(200, _RESULT)(r))


def lacking(method: str) -> Http:
    """Serve one method less over /rpc."""
    none = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}
    return rpc(lambda body, r: body["method"] == method and becomes(200, none)(r))


def block(change: Callable[[Response], object]) -> Http:
    """Change every answer about one block."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path.startswith("/api/block/") and response.status == 200:
            change(response)

    return hook


def under(prefix: str, change: Callable[[Response], object], method: str = "GET") -> Http:
    """Change every answer below a path."""

    def hook(asked: Asked, response: Response) -> None:
        if asked.path.startswith(prefix) and asked.method == method:
            change(response)

    return hook


def becomes(status: int, body: Any = None) -> Callable[[Response], None]:
    """Turn an answer into another one."""

    def change(response: Response) -> None:
        response.status, response.raw, response.events = status, None, None
        response.json = body if body is not None else {}
        response.headers = {}

    return change


def forward(**changes: Any) -> Grpc:
    """Set fields in those forward answers that are a success."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        fits = called == "PipelineForward" and answer.get("success")
        return {**answer, **changes} if fits else answer

    return hook


def many_blocks(height: int) -> Callable[[Response], None]:
    """List nine blocks, whatever was asked for."""

    def change(response: Response) -> None:
        entry = (response.json["blocks"] or [{}])[0]
        response.json["blocks"] = [{**entry, "height": height * n} for n in range(1, 10)]

    return change


_RESULT = {"error": None, "result": {"code": 0}}
OF_REAL_NODES: list[Mutant] = [
    Mutant("no block at its height", "NT-ROUTE-007", block(becomes(404))),
    Mutant("no account", "NT-ROUTE-008", under("/api/account", becomes(404))),
    Mutant("accounts want a key", "NT-ROUTE-008", under("/api/account", becomes(401))),
    Mutant("no request", "NT-ROUTE-011", under("/api/inference/request", becomes(404))),
    Mutant("no artifact", "NT-ROUTE-014", under("/artifacts/", becomes(404))),
    Mutant("another artifact", "NT-RULE-019",
           under("/artifacts/", lambda r: setattr(r, "raw", b"other bytes"))),
    Mutant("no polling", "NT-ROUTE-016", on("/work/poll", becomes(405), "POST", 400)),
    Mutant("no results", "NT-ROUTE-017", on("/work/result", becomes(405), "POST", 400)),
    Mutant("no /rpc", "NT-ROUTE-018", rpc(lambda body, r: becomes(404)(r))),
    Mutant("no views", "NT-ROUTE-019", under("/reference/", becomes(404))),
    Mutant("views are written", "NT-RULE-020", under("/reference/", becomes(200), "POST")),
    Mutant("no status over /rpc", "NT-RULE-003", rpc(
        lambda body, r: body["method"] == "status" and becomes(400, {"error": "no"})(r))),
    Mutant("no blocks over /rpc", "NT-RULE-018", rpc(
        lambda body, r: body["method"] == "block" and becomes(400, {"error": "no"})(r))),
    Mutant("no validators over /rpc", "NT-RULE-018", rpc(
        lambda body, r: body["method"] == "validators" and becomes(400, {"error": "no"})(r))),
    *(Mutant(f"/rpc has {method}", "NT-RULE-005", having(method))
      for method in ("unsafe_flush_mempool", "dial_seeds", "export_private_key", "stop")),
    *(Mutant(f"/rpc lacks {method}", ident, lacking(method))
      for ident, method in (("NT-RULE-022", "abci_query"), ("NT-RULE-023", "broadcast_tx_sync"))),
    Mutant("balance as a number", "NT-RULE-011", on("/api/account", put("balance", 7))),
    Mutant("balance in units", "NT-RULE-011", on("/api/account", put("total", "1.5"))),
    Mutant("bond as a number", "NT-RULE-011", on(
        "/api/validators", lambda r: r.json["validators"][0].update(bond=1))),
    Mutant("price with a unit", "NT-RULE-011", on(
        "/api/inference", put("fee_atoms", "1000 atoms"))),
    Mutant("supply as a number", "NT-RULE-011", on("/api/network", put("initial_supply", 1))),
    Mutant("long pages of blocks", "NT-PAGE-001", on("/api/blocks", many_blocks(0))),
    Mutant("before is no height", "NT-PAGE-002", on("/api/blocks", many_blocks(10**9))),
    Mutant("before is no round", "NT-PAGE-003", on("/api/training", lambda r: r.json.update(
        records=[{"round": 10**6}, {"round": 10**6 - 5}, {"round": 3}]))),
    Mutant("another hash", "NT-RULE-021", block(put("hash", "ab" * 32))),
    Mutant("keys for the native API", "NA-AUTH-013", on("/api/model", becomes(401))),
    Mutant("logits before the last shard", "PL-FWD-002", grpc=forward(is_final=False)),
    Mutant("nothing comes out", "PL-FWD-004", grpc=forward(logits=b"", logits_shape=[])),
    Mutant("the pass is refused", "PL-FWD-004", grpc=lambda called, request, answer: (
        {"success": False, "error_message": "no", "request_id": request.request_id}
        if called == "PipelineForward" else answer)),
    Mutant("the last shard is none", "PL-FWD-005", grpc=forward(
        is_final=False, logits=b"", logits_shape=[], hidden_states=b"1234", hidden_shape=[1])),
    Mutant("an absent layer is unavailable", "GR-CODE-004", grpc=lambda called, request, answer: (
        "INTERNAL" if called == "PipelineForward" and request is not None
        and request.target_shard >= 1000 else answer)),
]  # fmt: skip
ALSO = {
    "an absent layer is unavailable": {"PL-FWD-004"},
    # One act: all three say that a final answer has logits, and they are seen in one answer.
    "logits before the last shard": {"PL-FWD-004", "PL-FWD-005"},
    "no request": {"ST-003"},
    "before is no height": {"NT-PAGE-001"},
}


def mutants() -> list[Mutant]:
    """Give all mutants: of fields, of messages, of rules, and of real nodes only."""
    rows: list[Mutant] = []
    for item in fields.FIELDS:
        shown = item.field
        if shown is not None:
            does = "is left out" if shown.aspect == "present" else "has another type"
            name = f"{shown.of}: {shown.path} {does}"
            rows.append(Mutant(name, item.id, fields.mutant(item), examples=1))
    for item in fields.MESSAGE_FIELDS:
        rule = item.message
        if rule is not None:
            name = f"{rule.name}.{rule.field} has another wire type"
            rows.append(Mutant(name, item.id, grpc=fields.message_mutant(item), examples=1))
    for at, (ident, http, grpc) in enumerate([*rules.ROWS, *sense.ROWS]):
        also = frozenset(rules.TOGETHER.get(ident, ()))
        name = f"{at}. not so: {load()[ident].text}"
        rows.append(Mutant(name, ident, http, grpc, also, examples=10))
    rows += [replace(row, also=frozenset(ALSO.get(row.name, ()))) for row in OF_REAL_NODES]
    return rows


def variants() -> list[Variant]:
    """Give all variants."""
    return [Variant(name, http, grpc) for name, http, grpc in peculiar.ROWS]
