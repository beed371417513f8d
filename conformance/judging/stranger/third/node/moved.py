"""Routes that a refactoring has moved: the faults that change a method or a path."""

import core

# id: method and path of the document, method and path that is served instead; a path that ends with / stands for all below
TABLE = {
    "rou2-patch-is-put": ("PATCH", "/api/v1/config", "PUT", "/api/v1/config"),
    "rou2-unstake-delete": ("POST", "/api/v1/wallet/unstake", "DELETE", "/api/v1/wallet/stake"),
    "rou2-health-root": ("GET", "/api/v1/health", "GET", "/health"),
    "rou2-history-renamed": ("GET", "/api/v1/wallet/transactions", "GET", "/api/v1/wallet/history"),
    "rou2-global-versioned": ("GET", "/api/training/global", "GET", "/api/v1/training/global"),
    "rou2-healthz-renamed": ("GET", "/healthz", "GET", "/readyz"),
    "rou2-checkpoint-no-json": ("GET", "/api/model/checkpoint.json", "GET", "/api/model/checkpoint"),
    "rou2-genesis-root": ("GET", "/network/genesis.json", "GET", "/genesis.json"),
    "rou2-work-status-post": ("GET", "/work/status", "POST", "/work/status"),
    "rou2-artifact-short": ("GET", "/artifacts/sha256/", "GET", "/artifacts/"),
    "rou2-reference-short": ("GET", "/reference/v03/api/", "GET", "/reference/api/"),
}


def rewritten(scope):
    """The request as this run routes it."""
    row = TABLE.get(core.FLAGS["fault"])
    if row is None:
        return scope
    method, path, new_method, new_path = row
    asked = scope["path"]
    below = path.endswith("/")
    if scope["method"] == method and (asked.startswith(path) if below else asked == path):
        return dict(scope, path="/api/v1/-" if path.startswith("/api/v1") else "/-")
    if scope["method"] == new_method and (asked.startswith(new_path) if below else asked == new_path):
        return dict(scope, method=method, path=path + asked[len(new_path) :])
    return scope
