"""Tries a documented GET: its route, then the shape of its answer.

Invariants: a route that is not marked Auth is tried without a bearer header; a 503 or another
server error does not mean that the route is missing, and leaves it unclear.
"""

from collections.abc import Callable
from dataclasses import dataclass

from conformance.catalogue import fields_of
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httpwire import ANONYMOUS, Answer
from conformance.registry import add
from conformance.shapes import FORMAT_IDS, judge_shape
from conformance.strictjson import Json

Extra = Callable[[Context, dict[str, Json], Answer], None]
# The node does not know the path or the method.
ABSENT = (404, 405, 410, 501)


@dataclass(frozen=True)
class Resource:
    """A resource that a GET returns."""

    name: str
    path: str
    route: str
    auth: bool
    prefix: str = "/api/v1"
    # A key that identifies the resource even in an answer with an error status.
    mark: str | None = None


def fetch(context: Context, resource: Resource) -> tuple[Answer, dict[str, Json] | None]:
    """GET the resource with the documented credential; return the answer and its object, if any."""
    credential = context.target.valid if resource.auth else ANONYMOUS
    answer = context.api("GET", resource.path, credential=credential, prefix=resource.prefix)
    document = answer.json_object()
    marked = document is not None and resource.mark is not None and resource.mark in document
    return answer, document if answer.ok or marked else None


def judge_route(
    context: Context, ident: str, answer: Answer, *, auth: bool, marked: bool = False
) -> bool:
    """Rule on whether the route exists; return whether it answered with its resource."""
    if answer.ok or (marked and answer.status >= 500):
        context.holds(ident, answer)
        return True
    if answer.status in ABSENT:
        context.fails(ident, f"the route does not exist: status {answer.status}", answer)
    elif answer.status in (401, 403) and not auth:
        context.fails(ident, f"status {answer.status} to the documented request", answer)
    elif answer.status in (401, 403):
        context.unclear(ident, f"the declared token is refused with {answer.status}", answer)
    elif answer.status < 400:
        context.unclear(ident, f"a redirect, status {answer.status}", answer)
    elif answer.status < 500:
        context.fails(ident, f"status {answer.status} to the documented request", answer)
    else:
        context.unclear(ident, f"the server failed with status {answer.status}", answer)
    return False


def add_shape_check(resource: Resource, *extra_ids: str, extra: Extra | None = None) -> None:
    """Register the check of one resource; `extra` rules on `extra_ids`."""

    def run(context: Context) -> None:
        answer, document = fetch(context, resource)
        marked = resource.mark is not None and document is not None
        if not judge_route(context, resource.route, answer, auth=resource.auth, marked=marked):
            raise Skipped(f"GET {resource.path} was answered with status {answer.status}")
        if document is None:
            context.unclear(resource.route, "the answer is not a JSON object", answer)
            raise Skipped(f"GET {resource.path} returned no JSON object")
        judge_shape(context, resource.name, document, answer)
        if extra is not None:
            extra(context, document, answer)

    run.__doc__ = f"GET {resource.path}: the route, and every documented field of its answer."
    ids = (resource.route, *fields_of(resource.name), *FORMAT_IDS, *extra_ids)
    add(f"shape-{resource.name}", run, ids)
