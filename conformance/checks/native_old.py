"""Interface 4.2, 5, 7.2 and 9: old paths in other forms, and worker messages that are none."""

from itertools import product
from urllib.parse import urljoin, urlsplit

from conformance.checks.native import native_get
from conformance.checks.node_sanity import FAILED
from conformance.context import Context
from conformance.editions import SIXTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, brief

OLD, FAILS, UNSIGNED = "NT-RULE-155", "NT-RULE-156", "NT-RULE-157"
# What a client of an old edition may send.
QUERY: dict[str, object] = {"next": "/"}
REGISTRATION: Json = {
    "name": "conformance", "username": "conformance", "email": "conformance@example.org",
    "password": "conformance", "public_key": "02" + "ab" * 32,
}  # fmt: skip
WORK = ("/work/poll", "/work/result")
# No messages: such as are of another type, and such as have members of another type.
NO_MESSAGES: tuple[bytes, ...] = (
    b"[]", b"[{}]", b"null", b'"x"', b"7", b'{"signature":7,"public_key":[],"worker":{}}',
    b'{"payload":null,"signature":null}',
)  # fmt: skip
UNSIGNED_MESSAGES: tuple[Json, ...] = (
    {"worker": "conformance", "public_key": "02" + "ab" * 32, "nonce": 1},
    {"worker_id": "conformance", "stage": "none", "result": {"loss": 1.5}, "signature": ""},
    {"message": {"worker": "conformance"}, "signature": "00" * 64},
)  # fmt: skip


def _needs_sixth(context: Context) -> None:
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")


@requirement(OLD)
def native_old_forms(context: Context) -> None:
    """GET the declared old paths with a query, and POST to them what registered somebody once."""
    _needs_sixth(context)
    for path in context.target.legacy_gone:
        read = native_get(context, path, QUERY)
        sent = [
            context.http.call(method, path, json_body=REGISTRATION) for method in ("POST", "PUT")
        ]
        why = f"GET {path} with a query: status {read.status}"
        context.judge(OLD, read.status == 410, why, read)
        for answer in sent:
            why = f"{path} takes a registration: status {answer.status}"
            context.judge(OLD, not answer.ok, why, answer)
    for path in context.target.legacy_redirected:
        for query in ({}, QUERY):
            answer = native_get(context, path, query)
            there = answer.header("Location")
            why = f"{path} with {brief(query)}: {answer.status} to {there!r}"
            context.judge(OLD, _leads_to_join(context, path, answer), why, answer)
        sent_to = context.http.call("POST", path, json_body=REGISTRATION)
        why = f"POST {path} with a name and a password: status {sent_to.status}"
        context.judge(OLD, not sent_to.ok, why, sent_to)


def _leads_to_join(context: Context, path: str, answer: Answer) -> bool:
    """Return whether it is a redirect to /join, at this gateway or at another address."""
    base = context.target.url.rstrip("/")
    there = urlsplit(urljoin(base + path, answer.header("Location"))).path.rstrip("/")
    return 300 <= answer.status < 400 and there in ("/join", urlsplit(base).path + "/join")


@requirement(FAILS, UNSIGNED)
def native_work_odd(context: Context) -> None:
    """POST to the worker routes what is no message, and messages that nobody has signed."""
    _needs_sixth(context)
    for path, content in product(WORK, NO_MESSAGES):
        answers = [context.http.call("POST", path, content=content) for _ in range(2)]
        why = f"{path}: status {answers[-1].status} twice to {brief(content.decode())}"
        held = any(answer.status not in FAILED for answer in answers)
        context.judge(FAILS, held, why, *answers)
    for path, body in product(WORK, UNSIGNED_MESSAGES):
        answer = context.http.call("POST", path, json_body=body)
        why = f"POST {path} with {brief(body)}: status {answer.status}"
        refused = not answer.ok or bool((answer.json_object() or {}).get("error"))
        context.judge(UNSIGNED, refused, why, answer)
