"""The form of failures on the paths under ``/v1``: that of OpenAI's interface (decision 0160).

Every failure has the status that it has on the node API, and the body ``{"error": {"message",
"type", "param", "code"}}``, from which OpenAI's clients make their exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from meshnode.domain.errors import ModelNotServed, PromptTooLong, Unsupported
from meshnode.http.errors import ErrorForm, Failure, report
from meshnode.wire import json


class OpenaiErrorDetails(TypedDict):
    """The value of ``error``."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenaiError(TypedDict):
    """The error body under ``/v1``."""

    error: OpenaiErrorDetails


INVALID = "invalid_request_error"
KINDS: Mapping[str, tuple[str, str | None]] = {
    "UNAUTHORIZED": (INVALID, "invalid_api_key"),
    "INSUFFICIENT_BALANCE": ("insufficient_quota", "insufficient_quota"),
    "FORBIDDEN": ("permission_error", "forbidden"),
    "RATE_LIMITED": ("rate_limit_error", "rate_limit_exceeded"),
    "UNAVAILABLE": ("server_error", "service_unavailable"),
    "INTERNAL_ERROR": ("server_error", "internal_error"),
    "NOT_FOUND": (INVALID, "not_found"),
    "MODEL_NOT_FOUND": (INVALID, "model_not_found"),
    "CONTEXT_LENGTH": (INVALID, "context_length_exceeded"),
    "UNSUPPORTED": (INVALID, "unsupported_parameter"),
}
"""Type and code for the codes of the node API; all others are invalid requests without a code."""

_SPECIAL = {
    ModelNotServed: "MODEL_NOT_FOUND",
    PromptTooLong: "CONTEXT_LENGTH",
    Unsupported: "UNSUPPORTED",
}


def openai_failure(error: Exception, request_id: str) -> Failure:
    """The failure for an exception, which is logged when the fault is the node's."""
    failure = report(error, request_id)
    code = _SPECIAL.get(type(error))
    return failure if code is None else replace(failure, code=code)


def openai_error(failure: Failure) -> OpenaiError:
    """The body of a failure."""
    kind, code = KINDS.get(failure.code, (INVALID, None))
    field = (failure.details or {}).get("field")
    named = isinstance(field, str) and field not in ("body", "request")
    return {
        "error": {
            "message": failure.message,
            "type": kind,
            "param": str(field) if named else None,
            "code": code,
        }
    }


OPENAI_ERRORS = ErrorForm(openai_failure, lambda failure: json.dumps(openai_error(failure)))
"""The form under ``/v1``."""
