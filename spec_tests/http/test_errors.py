"""Interface 7.1: one table from failures to status, code and details."""

import inspect
from typing import Any

import pytest
from werkzeug.exceptions import MethodNotAllowed, NotFound, default_exceptions

from meshnode.domain import errors as domain
from meshnode.http.errors import DOMAIN_ERRORS, failure_of, http_failure

EXAMPLES = [
    domain.InvalidRequest("prompt", "is required"),
    domain.PromptTooLong("prompt", "has 600 tokens; the model's context has 512"),
    domain.Unsupported("tools", "are unknown to the model's template"),
    domain.ModelNotServed("default"),
    domain.Unauthorized(),
    domain.MissingScope("admin"),
    domain.RateLimited(3),
    domain.InsufficientBalance(2.0, 1.5),
    domain.FundsLocked("2026-12-01"),
    domain.Unavailable("draining"),
    domain.Overloaded("the request has waited for 30 s"),
    domain.ForeignSite("another site"),
    domain.LayersUnavailable("nobody has layer 3"),
    domain.LayerNotHeld("layer 3 is not here"),
    domain.ComputationFailed(),
    domain.FalseResults(),
]
OPERATORS_ONLY = {domain.MeshnodeError, domain.StartupError}
"""Failures that never reach a client."""


def test_every_failure_of_the_domain_has_a_row() -> None:
    classes = {
        value
        for value in vars(domain).values()
        if inspect.isclass(value) and issubclass(value, domain.MeshnodeError)
    }
    assert {type(error) for error in EXAMPLES} == classes - OPERATORS_ONLY
    for error in EXAMPLES:
        assert any(base in DOMAIN_ERRORS for base in type(error).__mro__)


@pytest.mark.parametrize(
    ("error", "status", "code", "details"),
    [
        (domain.Unauthorized(), 401, "UNAUTHORIZED", None),
        (domain.RateLimited(3), 429, "RATE_LIMITED", {"retry_after": 3}),
        (
            domain.InsufficientBalance(2.0, 1.5),
            402,
            "INSUFFICIENT_BALANCE",
            {"required": 2.0, "available": 1.5},
        ),
        (domain.FundsLocked("2026-12-01"), 409, "FUNDS_LOCKED", {"unlock_date": "2026-12-01"}),
        (
            domain.InvalidRequest(None, "no"),
            400,
            "INVALID_REQUEST",
            {"field": "body", "reason": "no"},
        ),
        (NotFound(), 404, "NOT_FOUND", None),
        (RuntimeError("secret"), 500, "INTERNAL_ERROR", None),
        (domain.StartupError("secret"), 500, "INTERNAL_ERROR", None),
    ],
)
def test_the_documented_rows(
    error: Exception, status: int, code: str, details: dict[str, Any] | None
) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.code, failure.details) == (status, code, details)
    assert "secret" not in failure.message
    body: Any = failure.body()
    assert set(body["error"]) == {"code", "message", "details"} - (
        {"details"} if details is None else set()
    )


def test_allow_is_kept_and_werkzeugs_page_is_not() -> None:
    failure = failure_of(MethodNotAllowed(["GET", "HEAD"]))
    assert failure.headers == {"Allow": "GET, HEAD"}


def test_every_http_fault_has_a_code_and_a_plain_message() -> None:
    for status in default_exceptions:
        failure = http_failure(status)
        assert failure.code == failure.code.upper()
        assert "<" not in failure.message
        assert failure.status == (status if status in range(400, 500) else failure.status)
