"""Tries a documented GET: its route, then the shape of its answer.

Invariants: a route that is not marked Auth is tried without a bearer header; a 503 says that the
node cannot serve now, and leaves the route unclear; any other wrong answer violates the sentence of
the route, a server error if it comes twice.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from conformance.catalogue import fields_of
from conformance.context import Context
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import Answer
from conformance.passive.meaning import ids_for, judge_meaning
from conformance.passive.resources import SINCE as EVERYWHERE_SINCE
from conformance.registry import add
from conformance.shapes import FORMAT_IDS, judge_shape
from conformance.strictjson import Json

Extra = Callable[[Context, dict[str, Json], Answer], None]
# The node does not know the path or the method.
ABSENT = (404, 405, 410, 501)
UNAVAILABLE = 503
SECOND_TRY_AFTER_S = 0.2
# Guarded routes that show whether the declared token is accepted anywhere.
SHOWING_THE_TOKEN = ("/wallet/balance", "/config", "/layers")


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
    prefix = resource.prefix
    answer = served(lambda: context.api("GET", resource.path, credential=credential, prefix=prefix))
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
        judge_token_refused(context, ident, answer)
    elif answer.status < 400:
        context.wrong(ident, f"a redirect, status {answer.status}", answer)
    elif answer.status < 500:
        context.fails(ident, f"status {answer.status} to the documented request", answer)
    else:
        judge_server_error(context, ident, answer)
    return False


def judge_server_error(context: Context, ident: str, answer: Answer) -> None:
    """Rule on an answer with a server error: a 503 may pass, any other one is wrong."""
    why = f"the server failed with status {answer.status}"
    if answer.status == UNAVAILABLE:
        context.unclear(ident, why, answer)
    else:
        context.wrong(ident, why, answer)


def judge_token_refused(context: Context, ident: str, answer: Answer) -> None:
    """Rule on a refusal of the declared token: wrong if another route takes the token."""
    why = f"the declared token is refused with {answer.status}"
    target, asked = context.target, answer.exchange.request
    of_second = asked["headers"].get("Authorization") == target.second.shown
    token = target.second if of_second else target.valid
    for path in SHOWING_THE_TOKEN:
        if answer.exchange.request["url"].partition("?")[0].endswith(path):
            continue
        other = context.api("GET", path, credential=token)
        if other.ok:
            context.wrong(ident, f"{why}, but GET {path} takes it", answer, other)
            return
    context.unclear(ident, why, answer)


def served(ask: Callable[[], Answer]) -> Answer:
    """Return the answer, or a second one if the first is a server error other than a 503."""
    answer = ask()
    if answer.status >= 500 and answer.status not in (*ABSENT, UNAVAILABLE):
        time.sleep(SECOND_TRY_AFTER_S)
        answer = ask()
    return answer


def resource_ids(name: str) -> tuple[str, ...]:
    """Return the requirements on which `judge_resource` may rule."""
    return (*fields_of(name), *FORMAT_IDS, *ids_for(name))


def judge_resource(context: Context, name: str, document: dict[str, Json], answer: Answer) -> None:
    """Rule on the fields of one resource, and on what their names mean.

    Later editions have judged it already, as in every answer.
    """
    if context.edition < EVERYWHERE_SINCE:
        judge_shape(context, name, document, answer)
        changed = context.service.steps_changed
        judge_meaning(context, name, document, answer, changed=changed)


def add_shape_check(resource: Resource, *extra_ids: str, extra: Extra | None = None) -> None:
    """Register the check of one resource; `extra` rules on `extra_ids`."""

    def run(context: Context) -> None:
        answer, document = fetch(context, resource)
        marked = resource.mark is not None and document is not None
        if not judge_route(context, resource.route, answer, auth=resource.auth, marked=marked):
            raise Skipped(f"GET {resource.path} was answered with status {answer.status}")
        if document is None:
            context.wrong(resource.route, "the answer is not a JSON object", answer)
            raise Skipped(f"GET {resource.path} returned no JSON object")
        judge_resource(context, resource.name, document, answer)
        if extra is not None:
            extra(context, document, answer)

    run.__doc__ = f"GET {resource.path}: the route, and every documented field of its answer."
    ids = (resource.route, *resource_ids(resource.name), *extra_ids)
    add(f"shape-{resource.name}", run, ids)
