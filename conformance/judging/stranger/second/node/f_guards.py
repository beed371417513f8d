"""Faults of guards: who may use a route of the node API."""

LINES, MADE = [], {}
NAMES = {
    "inference": "POST /inference",
    "balance": "GET /wallet/balance",
    "send": "POST /wallet/send",
    "history": "GET /wallet/transactions",
    "stake": "POST /wallet/stake",
    "unstake": "POST /wallet/unstake",
    "peers": "GET /peers",
    "layers": "GET /layers",
    "config": "GET /config",
    "patch": "PATCH /config",
    "proofs": "GET /proofs",
    "*": "every route with Auth",
}
INVALID = {
    "inference": "NA-AUTH-006",
    "patch": "NA-AUTH-007",
    "send": "NA-AUTH-008",
    "stake": "NA-AUTH-008",
    "unstake": "NA-AUTH-008",
}
CHANGES = ("inference", "send", "stake", "unstake", "patch")


def add(route, mode, req, what):
    i = "gua-%s-%s" % ("all" if route == "*" else route, mode)
    LINES.append([i, req, "%s %s" % (NAMES[route], what)])
    MADE[i] = {"guard": (route, mode)}


for _r in NAMES:
    if _r != "*":
        add(
            _r,
            "open",
            INVALID.get(_r, "NA-AUTH-001"),
            "needs no token at all and uses the first account",
        )
for _r in ("balance", "peers", "config", "proofs", "layers", "history"):
    add(_r, "missing", "NA-AUTH-017", "serves requests without the header Authorization")
for _r in CHANGES:
    add(_r, "missing", "NA-AUTH-019", "serves requests without the header Authorization")
for _r in ("send", "stake", "patch", "inference", "unstake"):
    add(_r, "expired", "NA-AUTH-018", "takes an expired token")
for _r in ("balance", "history", "config"):
    add(_r, "expired", "NA-AUTH-002", "takes an expired token")
for _r in ("balance", "send", "patch", "peers", "inference"):
    add(_r, "any", INVALID.get(_r, "NA-AUTH-001"), "takes any token")
for _r in CHANGES:
    add(_r, "deed", INVALID[_r], "does what an unauthorised request asks for, and then answers 401")
    add(
        _r,
        "bodyfirst",
        "NA-AUTH-023",
        "checks the body before the token, so that a wrong body with an invalid token yields 400",
    )
for _m, _q, _w in (
    ("empty", "NA-AUTH-017", "serves requests whose bearer token is empty"),
    ("prefix", "NA-AUTH-021", "takes a token that begins with a valid one"),
    ("begin", "NA-AUTH-021", "takes the beginning of a valid token"),
    ("case", "NA-AUTH-021", "takes a valid token in other letters of case"),
    ("suffix", "NA-AUTH-021", "takes a token that ends with a valid one"),
    ("length", "NA-AUTH-021", "takes a token as long as a valid one"),
    ("anyscheme", "NA-AUTH-017", "takes the token under any scheme, and without one"),
    ("flaky", "NA-AUTH-022", "refuses every seventh request with a valid token"),
    ("once", "NA-AUTH-022", "refuses a valid token that comes again within a second"),
    ("valid403", "NA-AUTH-005", "refuses the valid token of the second account with 403"),
    ("403", "NA-AUTH-001", "answers 403 to an invalid token"),
    ("400missing", "NA-AUTH-004", "answers 400 to a missing header"),
    ("404", "NA-AUTH-001", "answers 404 to an invalid token"),
    ("500", "NA-AUTH-001", "answers 500 to an invalid token"),
    ("200", "NA-AUTH-001", "answers 200 with an error body to an invalid token"),
    ("302", "NA-AUTH-001", "redirects an invalid token to a login page"),
    ("expired403", "NA-AUTH-002", "answers 403 to an expired token"),
    ("expired419", "NA-AUTH-002", "answers 419 to an expired token"),
):
    add("*", _m, _q, _w)
LINES.append(
    ["gua-inference-streamopen", "NA-AUTH-020", "POST /inference with stream true needs no token"]
)
MADE["gua-inference-streamopen"] = {"guard": ("inference", "streamopen")}


def code(new):
    def fn(b, f):
        if f.status == 401:
            b["error"]["code"] = new

    return fn


def status_needs(b, c):
    import http_api

    if not c.request.headers.get("Authorization", "").startswith("Bearer "):
        raise http_api.Fail(401, "UNAUTHORIZED", "no token")


for _i, _q, _w, _v in (
    (
        "gua-code-invalid-token",
        "NA-AUTH-003",
        "the code of a 401 is INVALID_TOKEN",
        "INVALID_TOKEN",
    ),
    ("gua-code-lower", "NA-AUTH-003", "the code of a 401 is in small letters", "unauthorized"),
    ("gua-code-number", "NA-ERR-002", "the code of a 401 is the number 401", 401),
):
    LINES.append([_i, _q, _w])
    MADE[_i] = {"hooks": [("error", code(_v))]}


def expired_code(b, f):
    if f.status == 401:
        b["error"]["code"] = "TOKEN_EXPIRED" if "tok-x" in str(LAST) else b["error"]["code"]


LAST = []
for _r, _q in (
    ("status", "NA-ROUTE-001"),
    ("metrics", "NA-ROUTE-002"),
    ("health", "NA-ROUTE-003"),
    ("network", "NA-ROUTE-012"),
    ("tglobal", "TR-ROUTE-001"),
    ("tverify", "TR-ROUTE-002"),
):
    LINES.append(["gua-%s-needs-token" % _r, _q, "%s answers 401 without a token" % _r])
    MADE["gua-%s-needs-token" % _r] = {"hooks": [(_r, status_needs)]}
