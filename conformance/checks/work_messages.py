"""Interface 4.2 and 5: messages of workers whose signature is that of other content, or missing."""

from contextlib import suppress

from conformance.checks import signatures
from conformance.checks.signed_requests import ATOMS, is_refused, post, sign
from conformance.context import Context
from conformance.editions import FIFTH, SEVENTH
from conformance.findings import Skipped
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.signer import Kind, Signed
from conformance.strictjson import brief

WORKER, UNSIGNED = "NT-RULE-053", "NT-RULE-039"
# Members with which an answer of status 200 may refuse.
REFUSING = ("error", "errors", "problem", "reason", "message", "detail")


@requirement(WORKER, UNSIGNED)
def work_forged(context: Context) -> None:
    """POST worker messages whose signature is that of other content, or that have none."""
    made = sign(context, Kind.FORGED_WORK)
    answer = post(context, made)
    why = f"status {answer.status}: {brief(answer.body)}"
    context.judge(WORKER, not answer.ok or _refuses(answer), why, answer)
    if context.edition >= FIFTH:
        _judge_others(context, made)
        with suppress(Skipped):
            told = post(context, _forged_result(context))
            why = f"a forged result: status {told.status}: {brief(told.body)}"
            context.judge(WORKER, not told.ok or _refuses(told), why, told)
    ways = [signatures.unsigned(made.body, instead) for instead in ("", None)]
    if context.edition >= SEVENTH:
        ways.append(signatures.without(made.body))
    for bare in ways:
        if bare != made.body:
            answer = context.http.call("POST", made.path, json_body=bare)
            why = f"POST {made.path} without a signature: status {answer.status}"
            context.judge(UNSIGNED, not answer.ok, why, answer)


def _forged_result(context: Context) -> Signed:
    """Return a forged result. Later editions broadcast a request where no work is left for it."""
    try:
        return sign(context, Kind.FORGED_RESULT)
    except Skipped:
        if context.edition < SEVENTH or context.budget.exhausted:
            raise
    request = sign(context, Kind.REQUEST)
    if not is_refused(post(context, request)):
        context.budget.charge(request.cost / ATOMS)
    # Before the node's own worker has it.
    return sign(context, Kind.FORGED_RESULT)


def _judge_others(context: Context, made: Signed) -> None:
    """Send a forged message to the routes of the worker that it is not for."""
    for path in ("/work/poll", "/work/result"):
        if path == made.path:
            continue
        answer = context.http.call("POST", path, json_body=made.body)
        why = f"POST {path} of a forged message for {made.path}: status {answer.status}"
        # What is not for it may be answered in any way, but for one that takes it.
        taken = answer.ok and True in (answer.json_object() or {}).values()
        context.judge(WORKER, not taken or _refuses(answer), why, answer)


def _refuses(answer: Answer) -> bool:
    document = answer.json_object() or {}
    return any(document.get(name) for name in REFUSING) or False in document.values()
