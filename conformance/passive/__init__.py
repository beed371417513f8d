"""Interface 4 and 7.1: rules for every answer of the node API, whichever check asked.

Invariant: nothing here sends a request, so this runs on every exchange at no cost to the target.
"""

import re

from conformance.editions import SIXTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.strictjson import Json, NotJson, brief, is_int, is_number

BODY = frozenset({"GEN-010", "GEN-011", "GEN-012", "GEN-032"})
ERROR = frozenset(
    f"NA-ERR-{number:03d}"
    for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 18, 19, 28, 60, 61, 62)
)
# Every answer of a documented operation shows its status and its numbers.
CALL = frozenset({"GR-CODE-001", "GR-SANE-001"})
PROVES = BODY | ERROR | CALL
# Names of checks without a function of their own: they run together with every other check.
CHECKS = {"passive-body": BODY, "passive-error": ERROR}

DOCUMENTED_CODES = {401: "UNAUTHORIZED", 402: "INSUFFICIENT_BALANCE", 429: "RATE_LIMITED"}
# Statuses of refusals that come from the API itself, not from a server or a proxy before it.
REFUSALS = (400, 403, 409, 422)
FORBIDDEN, UNSTAKE = 403, "/wallet/unstake"
NO_SUCH_ROUTE = "/no-such-route-of-the-document"
TRACES = (b"Traceback (most recent call last)", b"goroutine 1 [", b"\tat java.", b"panicked at")
# So much of a body is looked at.
SEARCHED = 20_000
# Such as they are in JSON, or as other languages write them.
FRAMES = re.compile(
    rb"goroutine \d+ \[|Stack trace:|stack backtrace:|Uncaught \w+(Error|Exception)"
    rb"|#0 +(/|\{main\})"
    rb"|(\n|\\n|\t|\\t) *at [\w.$<>]+ ?\([^)]{1,200}:\d+"
    rb"|\*\* (exception error:|\(\w+Error\) )|in (function|call from) [\w.]+:\w+/\d"
    rb"|stack traceback:|CallStack \(from |\[0x[0-9a-f]{4,}\] in |\.(cs|fs|vb):line \d"
    rb"|\.p[lm] line \d|\.(rb|ex|erl|pl|pm|py):\d+:in |[Ff]ile \\?\"[^\"]{1,200}\\?\", line \d"
)


def judge_answer(findings: Findings, answer: Answer, *, stream: bool = False) -> None:
    """Rule on one answer of the node API or of a training-verification route.

    The answer to a request for a stream need not be JSON, whatever its Content-Type.
    """
    if answer.ok:
        if not stream and answer.media_type != "text/event-stream":
            _judge_body(findings, answer)
        return
    if answer.status in DOCUMENTED_CODES:
        if _judge_body(findings, answer):
            _judge_documented_error(findings, answer, answer.json())
    elif answer.status >= 400:
        _judge_other_error(findings, answer)
    if answer.status >= 400:
        findings.judge(
            "NA-ERR-014",
            not any(trace in answer.body for trace in TRACES)
            and not (findings.edition >= SIXTH and FRAMES.search(answer.body[:SEARCHED])),
            "the body shows a traceback",
            answer,
        )


def _judge_body(findings: Findings, answer: Answer) -> bool:
    try:
        parsed = answer.parsed()
    except NotJson as error:
        findings.fails("GEN-010", f"the body is not JSON: {error}", answer)
        return False
    findings.holds("GEN-010", answer)
    repeated = ", ".join(parsed.repeated_keys)
    findings.judge("GEN-011", not repeated, f"duplicate keys: {repeated}", answer)
    findings.judge(
        "GEN-012",
        answer.media_type == "application/json" or answer.media_type.endswith("+json"),
        f"Content-Type is {answer.header('Content-Type')!r}",
        answer,
    )
    return True


def _judge_documented_error(findings: Findings, answer: Answer, body: Json) -> None:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        findings.fails("NA-ERR-001", f"there is no object named error in {brief(body)}", answer)
        return
    findings.holds("NA-ERR-001", answer)
    code, message, details = error.get("code"), error.get("message"), error.get("details")
    findings.judge(
        "NA-ERR-002", isinstance(code, str), f"error.code is {brief(code)}, not a string", answer
    )
    findings.judge(
        "NA-ERR-003",
        isinstance(message, str),
        f"error.message is {brief(message)}, not a string",
        answer,
    )
    if "details" in error:
        findings.judge(
            "NA-ERR-004",
            isinstance(details, dict),
            f"error.details is {brief(details)}, not an object",
            answer,
        )
    known = details if isinstance(details, dict) else {}
    if code == DOCUMENTED_CODES[429]:
        why = f"error.code is {code}, and the status {answer.status}"
        findings.judge("NA-ERR-028", answer.status == 429, why, answer)
    if answer.status == 401:
        findings.judge("NA-ERR-005", not details, f"error.details is {brief(details)}", answer)
    if answer.status == 429:
        findings.judge(
            "NA-ERR-006", code == DOCUMENTED_CODES[429], f"error.code is {brief(code)}", answer
        )
        retry_after = known.get("retry_after")
        findings.judge(
            "NA-ERR-007",
            is_int(retry_after) and retry_after >= 0,
            f"details.retry_after is {brief(retry_after)}, not a number of seconds",
            answer,
        )
    if answer.status == 402:
        findings.judge(
            "NA-ERR-009", code == DOCUMENTED_CODES[402], f"error.code is {brief(code)}", answer
        )
        for ident, key in (("NA-ERR-010", "required"), ("NA-ERR-011", "available")):
            findings.judge(
                ident,
                is_number(known.get(key)),
                f"details.{key} is {brief(known.get(key))}, not a number",
                answer,
            )
        required, available = known.get("required"), known.get("available")
        if is_number(required) and is_number(available):
            findings.judge("NA-ERR-019", available < required, f"details {brief(known)}", answer)


def _judge_other_error(findings: Findings, answer: Answer) -> None:
    # /health may answer with its report whatever the status; the report is not an error body.
    body = answer.json_object()
    if body is not None and "healthy" in body:
        return
    error = body.get("error") if body else None
    fits = (
        isinstance(error, dict)
        and isinstance(error.get("code"), str)
        and isinstance(error.get("message"), str)
    )
    code = error.get("code") if isinstance(error, dict) else None
    if code == DOCUMENTED_CODES[429]:
        why = f"error.code is {code}, and the status {answer.status}"
        findings.fails("NA-ERR-028", why, answer)
    known = NO_SUCH_ROUTE not in answer.exchange.request["url"]
    if findings.edition >= SIXTH and isinstance(error, dict) and known:
        _judge_parts(findings, error, answer)
    why = f"a {answer.status} without error.code and error.message"
    findings.judge("NA-ERR-012", fits, why, answer)
    if answer.status in REFUSALS and known:
        findings.judge("NA-ERR-018", fits, why, answer)


def _judge_parts(findings: Findings, error: dict[str, Json], answer: Answer) -> None:
    """Rule on the code and the details of an error whose status the document does not name."""
    code, details = error.get("code"), error.get("details")
    if details is not None:
        why = f"error.details of a {answer.status} is {brief(details)}, not an object"
        findings.judge("NA-ERR-060", isinstance(details, dict), why, answer)
    # Who is forbidden something, or has not staked as much, is told so in whatever words.
    of_others = [DOCUMENTED_CODES[401]] if answer.status != FORBIDDEN else []
    of_others += [] if UNSTAKE in answer.exchange.request["url"] else [DOCUMENTED_CODES[402]]
    if isinstance(code, str):
        why = f"error.code is {brief(code)}, and the status {answer.status}"
        findings.judge("NA-ERR-061", code not in of_others, why, answer)
        findings.judge("NA-ERR-062", bool(code.strip()), f"a {answer.status} has no code", answer)
