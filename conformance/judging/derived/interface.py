"""The interface as data for the generator: routes, their parameters and effects.

The tables are drawn from the catalogue and from the tables of the checks. A test compares them with
`docs/interface.md`, so that a route of the document cannot be missing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.catalogue import FieldRule, load
from conformance.checks.native import READABLE
from conformance.judging.mutants.fields import PLACES

# Resources that are in the answer of another one's route.
STREAMED = frozenset({"sse-token", "sse-final"})
GUARDED = frozenset(
    {
        "inference", "balance", "transfer", "transactions", "stake", "unstake", "peers", "layers",
        "config", "patch", "proofs",
    }
)  # fmt: skip
# The native routes that need a value, as the small and the reference node have them.
NATIVE_MORE = (
    ("GET", "/healthz"), ("GET", "/api/block/"), ("GET", "/api/account"),
    ("GET", "/api/inference/request"), ("GET", "/artifacts/sha256/"), ("GET", "/reference/"),
    ("POST", "/work/poll"), ("POST", "/work/result"), ("POST", "/rpc"),
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """One route. A path that ends with a slash stands for all paths below it."""

    method: str
    path: str
    guarded: bool
    resource: str | None = None

    @property
    def key(self) -> str:
        """The key of what a fault touches."""
        return f"{self.method} {self.path}"

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request goes to this route."""
        below = self.path.endswith("/") and path.startswith(self.path)
        return method == self.method and (path == self.path or below)


NODE_ROUTES = tuple(
    Route(*place, name in GUARDED, name)
    for name, place in PLACES.items()
    if name not in STREAMED and not name.startswith("openai")
)
OPENAI_ROUTES = (
    Route("GET", "/v1/models", guarded=True),
    Route("GET", "/v1/models/", guarded=True),
    Route("POST", "/v1/chat/completions", guarded=True),
    Route("POST", "/v1/completions", guarded=True),
)
NATIVE_ROUTES = tuple(
    Route(method, path, guarded=False)
    for method, path in (*(("GET", path) for path, _ in READABLE.values()), *NATIVE_MORE)
)
ROUTES = (*NODE_ROUTES, *NATIVE_ROUTES, *OPENAI_ROUTES)
# Query parameters and members of bodies, by route.
QUERIES = {
    "GET /api/v1/wallet/transactions": ("limit", "offset"),
    "GET /api/v1/proofs": ("limit",),
    "GET /api/training": ("limit", "before"),
    "GET /api/blocks": ("limit", "before"),
    "GET /api/account": ("public_key",),
    "GET /api/inference/request": ("id",),
}
BODIES = {
    "POST /api/v1/inference": (
        "max_tokens", "temperature", "top_p", "top_k", "stream", "stop", "prompt",
    ),
    "POST /api/v1/wallet/send": ("to", "amount", "memo"),
    "POST /api/v1/wallet/stake": ("amount", "duration_days"),
    "POST /api/v1/wallet/unstake": ("amount",),
    "POST /v1/chat/completions": (
        "messages", "model", "max_tokens", "max_completion_tokens", "n", "stop", "stream",
        "stream_options", "logprobs",
    ),
    "POST /v1/completions": ("max_tokens", "n", "stop"),
}  # fmt: skip


def fields() -> Iterator[tuple[str, FieldRule]]:
    """Yield the name of each resource with the rule of the type of each of its fields."""
    for item in load().values():
        if item.field and item.field.aspect != "present" and item.field.of in PLACES:
            yield item.field.of, item.field


def key_of(resource: str) -> str:
    """Return the key of the route that answers with a resource."""
    return " ".join(PLACES[resource])
