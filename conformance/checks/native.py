"""Sections 4.2 and 7.2: which routes of the native API are there. Their fields are not shown."""

from conformance.checks.reading import ABSENT, judge_route
from conformance.context import Context
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import NotJson

# The routes that can be read without knowing anything of the target, by the number of their entry.
READABLE: dict[str, tuple[str, dict[str, object]]] = {
    "NT-ROUTE-002": ("/api/network", {}),
    "NT-ROUTE-003": ("/api/model", {}),
    "NT-ROUTE-004": ("/api/model/checkpoint.json", {}),
    "NT-ROUTE-005": ("/api/training", {"limit": 3}),
    "NT-ROUTE-006": ("/api/blocks", {"limit": 3}),
    "NT-ROUTE-009": ("/api/validators", {}),
    "NT-ROUTE-010": ("/api/inference", {}),
    "NT-ROUTE-012": ("/network/genesis.json", {}),
    "NT-ROUTE-013": ("/network/dataset.json", {}),
    "NT-ROUTE-015": ("/work/status", {}),
}


def _get(context: Context, path: str, query: dict[str, object] | None = None) -> Answer:
    # The passive checks are about the node API: the native API's error body is not shown.
    return context.http.call("GET", path, query=query)


@requirement(*READABLE, "NT-RULE-017")
def native_routes(context: Context) -> None:
    """GET every route that needs no knowledge of the target."""
    for ident, (path, query) in READABLE.items():
        answer = _get(context, path, query)
        if not judge_route(context, ident, answer, auth=False):
            continue
        if not answer.media_type.endswith("json"):
            continue
        try:
            repeated = answer.parsed().repeated_keys
        except NotJson as error:
            context.fails("NT-RULE-017", f"not JSON: {error}", answer)
        else:
            context.judge("NT-RULE-017", not repeated, f"keys twice: {repeated}", answer)


@requirement("NT-ROUTE-001", "NT-RULE-001")
def native_healthz(context: Context) -> None:
    """GET /healthz."""
    answer = _get(context, "/healthz")
    if answer.status in ABSENT:
        context.fails("NT-ROUTE-001", f"the route is not there: status {answer.status}", answer)
        return
    context.holds("NT-ROUTE-001", answer)
    context.judge(
        "NT-RULE-001", answer.ok or answer.status == 503, f"status {answer.status}", answer
    )


@requirement("NT-RULE-009", "NT-RULE-010")
def native_legacy(context: Context) -> None:
    """GET the legacy paths that the target declares."""
    for path in context.target.legacy_gone:
        answer = _get(context, path)
        context.judge("NT-RULE-009", answer.status == 410, f"{path}: {answer.status}", answer)
    for path in context.target.legacy_redirected:
        answer = _get(context, path)
        there = answer.header("Location").split("?")[0].rstrip("/")
        context.judge(
            "NT-RULE-010",
            300 <= answer.status < 400 and there.endswith("/join"),
            f"{path}: {answer.status} to {there!r}",
            answer,
        )
