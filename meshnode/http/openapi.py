"""The OpenAPI 3.1 description of the node API, as far as it exists (document, sections 2.1 to 7.1).

One entry for each route of ``edges.http_node``, and no other; a test holds the two together. The
schemas of bodies are in :mod:`meshnode.http.schemas`.
"""

from __future__ import annotations

from typing import Any

from meshnode.http.errors import HTTP_ERRORS
from meshnode.http.schemas import SCHEMAS, ref

Json = dict[str, Any]

_PHRASES = {401: "invalid or expired token", 429: "too many requests", 500: "internal error"}

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
                extra=(503,),
            )
        },
        "/api/v1/layers": {
            "get": _operation("getLayers", "Layers held by this node", "Layers", auth=True)
        },
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
        "/openapi.json": {"get": _operation("getOpenapi", "This document", "OpenapiDocument")},
    }


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
    return sorted({*_ALWAYS, *_WITH_AUTH, *_WITH_BODY, 503})


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
