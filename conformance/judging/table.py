"""The table of mutants, each with the requirement that it violates, and the table of variants.

The rows are defined where they are easiest to read: `mutants/fields.py` generates fields and
message numbers that differ from the catalogue; hooks that break one sentence each are in
`mutants/rules.py`, `mutants/sense.py` and `mutants/followed.py`; unusual behaviour that the
document allows is in `peculiarities.py`; mutants of the native API and the pipeline are here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.catalogue import Level, load
from conformance.judging import peculiarities
from conformance.judging.hooks import Grpc, Http, on, put
from conformance.judging.mutants import fields, followed, rules, sense
from conformance.judging.nodes import FIRST_ABSENT_SHARD
from conformance.judging.toy.answers import Asked, Response, no_grpc_hook, no_http_hook

# A hook may keep state, so each run makes a new one.
MakeHttp = Callable[[], Http]
MakeGrpc = Callable[[], Grpc]


@dataclass(frozen=True)
class Mutant:
    """One violation of one sentence, and the requirement for that sentence."""

    name: str
    ident: str
    http: Http = no_http_hook
    grpc: Grpc = no_grpc_hook
    # Requirements that the same change violates too.
    also: frozenset[str] = frozenset()
    examples: int = 3

    @property
    def level(self) -> Level:
        """The level of the requirement."""
        return load()[self.ident].level


@dataclass(frozen=True)
class Variant:
    """Unusual behaviour that no sentence of the document forbids."""

    name: str
    http: Http = no_http_hook
    grpc: Grpc = no_grpc_hook
    settings: dict[str, Any] = field(default_factory=dict)


def rpc(change: Callable[[Any, Response], object]) -> Http:
    """Change the answers of POST /rpc; `change` also gets the request body."""

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) == ("POST", "/rpc") and isinstance(asked.body, dict):
            change(asked.body, response)

    return hook


def having(method: str) -> Http:
    """Serve one additional method over /rpc."""
    return rpc(lambda body, r: body["method"] == method and becomes(200, _RESULT)(r))


def lacking(method: str) -> Http:
    """Serve one method fewer over /rpc."""
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
    """Set fields in successful forward answers."""

    def hook(called: str, request: Any, answer: Any) -> Any:
        fits = called == "PipelineForward" and answer.get("success")
        return {**answer, **changes} if fits else answer

    return hook


def many_blocks(height: int) -> Callable[[Response], None]:
    """List nine blocks at multiples of `height`, whatever the limit."""

    def change(response: Response) -> None:
        entry = (response.json["blocks"] or [{}])[0]
        response.json["blocks"] = [{**entry, "height": height * n} for n in range(1, 10)]

    return change


_RESULT = {"error": None, "result": {"code": 0}}
OF_REAL_NODES: list[Mutant] = [
    Mutant("no block at a listed height", "NT-ROUTE-007", block(becomes(404))),
    Mutant("no account", "NT-ROUTE-008", under("/api/account", becomes(404))),
    Mutant("accounts require a key", "NT-ROUTE-008", under("/api/account", becomes(401))),
    Mutant("no request", "NT-ROUTE-011", under("/api/inference/request", becomes(404))),
    Mutant("no artifact", "NT-ROUTE-014", under("/artifacts/", becomes(404))),
    Mutant("other content in an artifact", "NT-RULE-019",
           under("/artifacts/", lambda r: setattr(r, "raw", b"other bytes"))),
    Mutant("no polling", "NT-ROUTE-016", on("/work/poll", becomes(405), "POST", 400)),
    Mutant("no results", "NT-ROUTE-017", on("/work/result", becomes(405), "POST", 400)),
    Mutant("no /rpc", "NT-ROUTE-018", rpc(lambda body, r: becomes(404)(r))),
    Mutant("no views", "NT-ROUTE-019", under("/reference/", becomes(404))),
    Mutant("views accept a POST", "NT-RULE-020", under("/reference/", becomes(200), "POST")),
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
    Mutant("balance as a number", "NT-RULE-011", on("/api/account", put("balance", 4))),
    Mutant("balance in units", "NT-RULE-011", on("/api/account", put("total", "1.5"))),
    Mutant("bond as a number", "NT-RULE-011", on(
        "/api/validators", lambda r: r.json["validators"][0].update(bond=1))),
    Mutant("price with a unit", "NT-RULE-011", on(
        "/api/inference", put("fee_atoms", "1000 atoms"))),
    Mutant("supply as a number", "NT-RULE-011", on("/api/network", put("initial_supply", 1))),
    Mutant("pages of blocks longer than limit", "NT-PAGE-001", on("/api/blocks", many_blocks(0))),
    Mutant("before is not a height", "NT-PAGE-002", on("/api/blocks", many_blocks(10**9))),
    Mutant("before is not a round", "NT-PAGE-003", on("/api/training", lambda r: r.json.update(
        records=[{"round": 10**6}, {"round": 10**6 - 5}, {"round": 3}]))),
    Mutant("another hash", "NT-RULE-021", block(put("hash", "ab" * 32))),
    Mutant("the native API requires a key", "NA-AUTH-013", on("/api/model", becomes(401))),
    Mutant("logits before the last shard", "PL-FWD-002", grpc=forward(is_final=False)),
    Mutant("success without logits", "PL-FWD-004", grpc=forward(logits=b"", logits_shape=[])),
    Mutant("the pass is refused", "PL-FWD-004", grpc=lambda called, request, answer: (
        {"success": False, "error_message": "no", "request_id": request.request_id}
        if called == "PipelineForward" else answer)),
    Mutant("the last shard is not final", "PL-FWD-005", grpc=forward(
        is_final=False, logits=b"", logits_shape=[], hidden_states=b"1234", hidden_shape=[1])),
    Mutant("INTERNAL for an absent layer", "GR-CODE-004", grpc=lambda called, request, answer: (
        "INTERNAL" if called == "PipelineForward" and request is not None
        and request.target_shard >= FIRST_ABSENT_SHARD else answer)),
]  # fmt: skip
ALSO: dict[str, set[str]] = {
    # A half that stands for a whole number may be above its whole, and is not what was sent.
    "status: resources.gpu_memory_used has another type": {"NA-SANE-015"},
    "inference: usage.total_tokens has another type": {"NA-SANE-015"},
    "training-global: diloco.inner_steps_total has another type": {"TR-RULE-013"},
    "transfer: to has another type": {"NA-WALLET-001"},
    "transfer: amount has another type": {"NA-WALLET-001"},
    "transfer: memo has another type": {"NA-WALLET-001"},
    "unstake: unstake.amount has another type": {"NA-WALLET-004"},
    "layers: total_layers has another type": {"NA-SANE-015"},
    "network: nodes.total has another type": {"NA-SANE-015"},
    "proofs: stats.total_verified has another type": {"NA-SANE-015"},
    # Without a list, or without its ids, it does not have the transfer that was just made.
    **{
        f"transactions: {path} {does}": {"NA-WALLET-006"}
        for path in ("transactions", "transactions[].id")
        for does in ("is left out", "has another type")
    },
    "INTERNAL for an absent layer": {"PL-FWD-004"},
    # All three say that a final answer has logits, and one answer violates all of them.
    "logits before the last shard": {"PL-FWD-004", "PL-FWD-005"},
    # Its hidden states have another shape than those of the request.
    "the last shard is not final": {"PL-FWD-009"},
    "no request": {"ST-003"},
    "before is not a height": {"NT-PAGE-001", "NT-PAGE-004"},
    "pages of blocks longer than limit": {"NT-PAGE-004"},
    "before is not a round": {"NT-PAGE-001", "NT-PAGE-004"},
}


def mutants() -> list[Mutant]:
    """Return all mutants: of fields, of messages, of rules, of the native API and the pipeline."""
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
    for at, (ident, http, grpc) in enumerate([*rules.ROWS, *sense.ROWS, *followed.ROWS]):
        also = rules.AGAIN - {ident} | frozenset(rules.TOGETHER.get(ident, ()))
        name = f"{at}. violated: {load()[ident].text}"
        rows.append(Mutant(name, ident, http, grpc, also, examples=10))
    rows += OF_REAL_NODES
    return [replace(row, also=row.also | ALSO.get(row.name, set())) for row in rows]


def variants() -> list[Variant]:
    """Return all variants."""
    return [Variant(name, http, grpc) for name, http, grpc in peculiarities.ROWS]
