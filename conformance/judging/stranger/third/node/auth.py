"""Bearer tokens of the node API."""

import re

import money
from core import FLAGS, fault, nth, peculiar
from errors import ApiError

MEMORY = {"ok": False, "expired": 0}


def refuse(message, expired=False):
    details, status, code = None, 401, "UNAUTHORIZED"
    if fault("gua-401-details-scheme"):
        details = {"scheme": "Bearer"}
    if fault("gua-expired-403") and expired:
        status = 403
    if fault("gua-expired-code") and expired:
        code = "TOKEN_EXPIRED"
    if fault("gua2-expired-details") and expired:
        details = {"expired_at": "2026-01-31T00:00:00Z"}
    if fault("gua2-unknown-403") and not expired:
        status = 403
    if fault("gua2-unknown-code") and not expired:
        code = "INVALID_TOKEN"
    headers = {} if peculiar("no-www-authenticate") else {"WWW-Authenticate": "Bearer"}
    return ApiError(status, code, message, details, headers)


def _lookup(token, route, method):
    accounts = money.ACCOUNTS
    if fault("gua2-token-any-case"):
        token = token.lower()
    if token in accounts:
        return accounts[token]
    if token in money.EXPIRED:
        if fault("gua-expired-reads") and method == "GET":
            return accounts["tok-a"]
        if fault("gua-expired-second-time"):
            MEMORY["expired"] += 1
            if MEMORY["expired"] > 1:
                return accounts["tok-a"]
        if fault("gua-expired-inference") and route == "inference":
            return accounts["tok-a"]
        if route == {"gua2-expired-patch": "patch", "gua2-expired-send": "send"}.get(FLAGS["fault"]):
            return accounts["tok-a"]
        raise refuse("the token has expired", True)
    if fault("gua-token-prefix"):
        for known in accounts:
            if token.startswith(known):
                return accounts[known]
    if fault("gua-token-cut") and len(token) >= 4:
        for known in accounts:
            if known.startswith(token):
                return accounts[known]
    if fault("gua-any-token-stake") and route == "stake":
        return accounts["tok-a"]
    if fault("gua2-any-token-peers") and route == "peers":
        return accounts["tok-a"]
    raise refuse("the token is not known")


OPEN = {
    "gua-open-proofs": ("proofs",),
    "gua-open-layers": ("layers",),
    "gua-open-config": ("config",),
    "gua-open-patch": ("patch",),
    "gua-open-unstake": ("unstake",),
    "gua2-open-balance": ("balance",),
    "gua2-open-stake": ("stake",),
}


def authorize(request, route, stream=False):
    header = request.headers.get("authorization")
    method = request.method
    accounts = money.ACCOUNTS
    for name, routes in OPEN.items():
        if fault(name) and route in routes:
            if header is None or name in ("gua-open-patch", "gua-open-proofs"):
                return accounts["tok-a"]
    if fault("gua-random-401") and nth("auth") % 23 == 22:
        raise refuse("the token is not known")
    if fault("gua-401-when-many-in-flight") and MEMORY.get("busy", 0) > 2:
        raise refuse("the token is not known")
    if header is None:
        if fault("gua-open-history-pages") and route == "history" and "limit" in request.query_params:
            return accounts["tok-a"]
        if fault("gua-remembers-client") and MEMORY["ok"] and method == "GET":
            return accounts["tok-a"]
        raise refuse("a bearer token is needed")
    found = re.fullmatch(r"[Bb]earer (\S+)", header)
    if peculiar("bearer-exact-case"):
        found = re.fullmatch(r"Bearer (\S+)", header)
    if found is None and fault("gua2-basic-reads") and method == "GET" and header.startswith("Basic "):
        return accounts["tok-a"]
    if found is None:
        if fault("gua-empty-bearer") and header.strip().lower() == "bearer":
            return accounts["tok-a"]
        raise refuse("a bearer token is needed")
    account = _lookup(found.group(1), route, method)
    MEMORY["ok"] = True
    if fault("gua-poor-refused") and account.available == 0 and account.staked == 0:
        raise refuse("the token is not known")
    return account
