"""The page of all errors, from the tables of the HTTP and the gRPC edge."""

from __future__ import annotations

from meshnode.http.errors import DOMAIN_ERRORS, HTTP_ERRORS
from meshnode.rpc.errors import CODES
from tools.reference.tables import code, prose, sentence, table


def page() -> str:
    """The page."""
    codes = dict(CODES)
    failures = [
        (
            sentence(prose((kind.__doc__ or "").split("\n\n")[0])),
            str(row.status),
            code(row.code),
            code(codes[kind].name) if kind in codes else "`INTERNAL`",
        )
        for kind, row in DOMAIN_ERRORS.items()
    ]
    early = [
        (str(status), code(name), sentence(text)) for status, (name, text) in HTTP_ERRORS.items()
    ]
    return (
        "# Errors\n\n"
        "An answer of the node API that is not a success has the body "
        '`{"error": {"code", "message", "details"?}}`; the native\nAPI has '
        '`{"error": message}`, and the routes under `/v1` have OpenAI\'s form. Every answer '
        "carries\n`X-Request-Id`, which the log names too. A gRPC call ends with the status beside "
        "it.\n\n"
        "## Failures of a request\n\n"
        + table(("failure", "HTTP", "code", "gRPC"), failures)
        + "\n## Requests that are refused before they have a meaning\n\n"
        + table(("HTTP", "code", "message"), early)
    )
