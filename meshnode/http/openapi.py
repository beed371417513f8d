"""The OpenAPI 3.1 description of the node API (document, sections 2.1 to 7.1).

One entry for each route of the node API, and no other; a test holds the two together. The schemas
of bodies are in :mod:`meshnode.http.schemas`.
"""

from __future__ import annotations

from typing import Any

from meshnode.http.errors import HTTP_ERRORS
from meshnode.http.schemas import SCHEMAS, ref

Json = dict[str, Any]

_PHRASES = {
    401: "invalid or expired token",
    402: "balance too low for the operation",
    409: "the stake is locked until its unlock date",
    429: "too many requests",
    500: "internal error",
}

_RETRY_AFTER = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
_HEADERS_OF: dict[int, Json] = {
    401: {"WWW-Authenticate": {"$ref": "#/components/headers/WWWAuthenticate"}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_REQUEST_ID = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}

_ALWAYS = (429, 500)
_WITH_AUTH = (401,)
_WITH_BODY = (400, 408, 413, 415)


def openapi_document(version: str) -> Json:
    """The whole document. ``version`` is the node's."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Node API",
            "version": version,
            "description": (
                "HTTP interface of a node in a distributed model network. Every response carries "
                "X-Request-Id; every failure has the body described by Error."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {
            "schemas": SCHEMAS,
            "headers": {
                "RequestId": _header("Names this exchange in the node's log.", "^[0-9a-f]{16}$"),
                "RetryAfter": _header("Seconds to wait before trying again.", "^[0-9]+$"),
                "WWWAuthenticate": _header("The scheme to use.", "^Bearer"),
            },
            "responses": {f"Error{status}": _error(status) for status in _error_statuses()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token issued with `meshnode token issue`.",
                }
            },
        },
    }


def _paths() -> Json:
    inference_content = {
        "application/json": {"schema": ref("InferenceResult")},
        # Before OpenAPI 3.2, the schema of an event stream is that of each event.
        "text/event-stream": {"schema": ref("InferenceEvent")},
    }
    return {
        "/api/v1/status": {"get": _operation("getStatus", "Node status", "NodeStatus")},
        "/api/v1/metrics": {"get": _operation("getMetrics", "Metrics", "Metrics")},
        "/api/v1/health": {"get": _health()},
        "/api/v1/inference": {
            "post": _operation(
                "createInference",
                "Generate text",
                content=inference_content,
                auth=True,
                body="InferenceRequest",
                example={"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0.7},
                extra=(402, 503),
            )
        },
        **_wallet_paths(),
        "/api/v1/peers": {
            "get": _operation("getPeers", "Other nodes that this one knows", "Peers", auth=True)
        },
        "/api/v1/network": {"get": _operation("getNetwork", "Network statistics", "Network")},
        "/api/v1/layers": {
            "get": _operation("getLayers", "Layers held by this node", "Layers", auth=True)
        },
        "/api/v1/proofs": {"get": _proofs_operation()},
        "/api/v1/config": {
            "get": _operation("getConfig", "Configuration", "Configuration", auth=True),
            "patch": _operation(
                "patchConfig",
                "Change some keys of the configuration, all or none of them",
                "ConfigurationChanged",
                auth=True,
                body="ConfigurationPatch",
                example={"training": {"batch_size": 16}},
            ),
        },
        "/api/training/global": {
            "get": _operation("getGlobalTraining", "Global training verification", "GlobalTraining")
        },
        "/api/training/verify": {
            "get": _operation("verifyTraining", "Quick verification", "QuickVerification")
        },
        "/openapi.json": {"get": _operation("getOpenapi", "This document", "OpenapiDocument")},
    }


def _wallet_paths() -> Json:
    account = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
    history = _operation(
        "getTransactions", "The account's history", "Transactions", auth=True, extra=(400, 503)
    )
    history["parameters"] = [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        _query("offset", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0}),
    ]
    return {
        "/api/v1/wallet/balance": {
            "get": _operation("getBalance", "Balance", "Balance", auth=True, extra=(503,))
        },
        "/api/v1/wallet/send": {
            "post": _operation(
                "sendPayment",
                "Pay another account",
                "TransferResult",
                auth=True,
                body="SendRequest",
                example={"to": account, "amount": 2.5, "memo": "thanks"},
                extra=(402, 503),
            )
        },
        "/api/v1/wallet/transactions": {"get": history},
        "/api/v1/wallet/stake": {
            "post": _operation(
                "stake",
                "Stake for a number of days",
                "StakeResult",
                auth=True,
                body="StakeRequest",
                example={"amount": 1000, "duration_days": 30},
                extra=(402, 503),
            )
        },
        "/api/v1/wallet/unstake": {
            "post": _operation(
                "unstake",
                "Start the cooldown of staked money",
                "UnstakeResult",
                auth=True,
                body="UnstakeRequest",
                example={"amount": 1000},
                extra=(402, 409, 503),
            )
        },
    }


def _proofs_operation() -> Json:
    operation = _operation(
        "getProofs",
        "This node's claims of work, newest first, and sums over all of them",
        "Proofs",
        auth=True,
        extra=(400, 503),
    )
    operation["parameters"] = [
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20})
    ]
    return operation


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _operation(
    operation_id: str,
    summary: str,
    schema: str = "",
    *,
    content: Json | None = None,
    auth: bool = False,
    body: str = "",
    example: Json | None = None,
    extra: tuple[int, ...] = (),
) -> Json:
    content = content or {"application/json": {"schema": ref(schema)}}
    statuses = {*_ALWAYS, *(_WITH_AUTH if auth else ()), *(_WITH_BODY if body else ()), *extra}
    errors = {str(n): {"$ref": f"#/components/responses/Error{n}"} for n in sorted(statuses)}
    success = {"description": "Success.", "headers": _REQUEST_ID, "content": content}
    operation: Json = {
        "operationId": operation_id,
        "summary": summary,
        "security": [{"bearer": []}] if auth else [],
        "responses": {"200": success, **errors},
    }
    if body:
        media = {"schema": ref(body), "example": example}
        operation["requestBody"] = {"required": True, "content": {"application/json": media}}
    return operation


def _health() -> Json:
    operation = _operation("getHealth", "Health; never rate limited", "Health")
    content = {"application/json": {"schema": ref("Health")}}
    del operation["responses"]["429"]
    operation["responses"]["503"] = {
        "description": "The node is not fit to be sent work, or it is draining.",
        "headers": _REQUEST_ID,
        "content": content,
    }
    return operation


def _error_statuses() -> list[int]:
    return sorted({*_ALWAYS, *_WITH_AUTH, *_WITH_BODY, 402, 409, 503})


def _error(status: int) -> Json:
    phrase = _PHRASES.get(status) or HTTP_ERRORS[status][1]
    if status == 503:
        phrase = "the node is draining, or lacks what the request needs"
    return {
        "description": phrase[0].upper() + phrase[1:] + ".",
        "headers": {**_REQUEST_ID, **_HEADERS_OF.get(status, {})},
        "content": {"application/json": {"schema": ref("Error")}},
    }


def _header(description: str, pattern: str) -> Json:
    return {
        "description": description,
        "required": True,
        "schema": {"type": "string", "pattern": pattern},
    }
