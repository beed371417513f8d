"""Interface 2.2 and 10: the form of what is read, in all answers of a run.

The document shows neither how a native resource is encoded nor what its fields are called. But a
client that has read one knows, and reads the next one likewise. So each answer is compared with the
first one to the same request.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.catalogue import fields_of
from conformance.editions import SEVENTH
from conformance.findings import Findings
from conformance.httpwire import Answer
from conformance.journal import Exchange
from conformance.shapes import judge_shape
from conformance.sse import read
from conformance.strictjson import Json, NotJson, brief

FORM, SERVED = "NT-RULE-170", "NT-RULE-171"
OPENAI = "/v1"
MODELS = f"{OPENAI}/models"
# What a generation is answered with, as a whole and as a chunk of a stream.
GENERATED = {
    f"{OPENAI}/chat/completions": ("openai-chat", "openai-chunk"),
    f"{OPENAI}/completions": ("openai-text", ""),
}
NAMES = ("openai-models", "openai-model", "openai-chat", "openai-chunk", "openai-text")
OBJECT, MODEL = "OA-ROUTE-010", "OA-MIX-014"
IDS = frozenset({FORM, SERVED, OBJECT, MODEL}).union(*map(fields_of, NAMES))
# One thing, which a node may forget.
ONE = re.compile(r"/(api/block|artifacts|reference)/")
# What is no longer known, or not allowed now, or failed for a time.
_NOT_SERVED = (400, 404, 405, 406, 410, 422, 501)
_FORGOTTEN = (404, 410)


@dataclass
class Forms:
    """The form of each native resource as it was read first, with the exchange that has it."""

    known: dict[str, tuple[str, Exchange]] = field(default_factory=dict)
    models: dict[str, tuple[str, Exchange]] = field(default_factory=dict)
    """What generations have named as their model, by that which was asked for."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(
        self, findings: Findings, path: str, query: Mapping[str, object], answer: Answer
    ) -> None:
        """Rule on the answer to a native GET, given those before it."""
        key = f"{path}?{sorted(query.items())}" if query else path
        with self.lock:
            if answer.ok:
                form = _form_of(answer)
                known, first = self.known.setdefault(key, (form, answer.exchange))
                if first is not answer.exchange:
                    why = f"GET {key} was {known}, and is {form}"
                    findings.judge(FORM, form == known, why, first, answer)
                    findings.holds(SERVED, first, answer)
            elif key in self.known and _is_gone(answer, named=bool(query) or bool(ONE.match(path))):
                why = f"GET {key} was served, and has status {answer.status} now"
                findings.fails(SERVED, why, self.known[key][1], answer)

    def judge_model(self, findings: Findings, body: Mapping[str, Json], answer: Answer) -> None:
        """Rule on the model that a generation names, given those before it of the same one."""
        asked = body.get("model")
        named = [value["model"] for value in _parts(answer) if isinstance(value.get("model"), str)]
        if findings.edition < SEVENTH or not answer.ok or not named or not isinstance(asked, str):
            return
        with self.lock:
            known, first = self.models.setdefault(asked, (named[0], answer.exchange))
        why = f"a generation of {brief(asked)} named {brief(known)}, and names {brief(named[0])}"
        findings.judge(MODEL, named[0] == known, why, first, answer)


def _parts(answer: Answer) -> Iterator[dict[str, Json]]:
    """Yield the object that an answer is, or those of its events."""
    streamed = answer.media_type == "text/event-stream"
    values = [e.value for e in read(answer.body).events] if streamed else [answer.json_object()]
    yield from (value for value in values if isinstance(value, dict))


def _is_gone(answer: Answer, *, named: bool) -> bool:
    """Whether a status says that there is no such route; one thing may have been forgotten."""
    return answer.status in _NOT_SERVED and not (named and answer.status in _FORGOTTEN)


def _form_of(answer: Answer) -> str:
    try:
        value = answer.json()
    except NotJson:
        return "no JSON"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else "a single value"


def judge_openai(findings: Findings, method: str, path: str, body: Json, answer: Answer) -> None:
    """Rule on a successful answer below /v1, whichever check asked for it."""
    streams = isinstance(body, dict) and body.get("stream") is True
    whole, chunk = GENERATED.get(path, ("", ""))
    if method == "GET" and path == MODELS:
        whole = NAMES[0]
    elif method == "GET" and path.startswith(f"{MODELS}/"):
        whole = NAMES[1]
    if not answer.ok or not whole:
        return
    if streams and answer.media_type == "text/event-stream":
        chunks = [event.value for event in read(answer.body).events]
        for value in chunks if chunk else ():
            if isinstance(value, dict) and "error" not in value:
                judge_shape(findings, chunk, value, answer)
        return
    document = answer.json_object()
    if not streams:
        why = f"the answer is {brief(answer.body[:60].decode('utf-8', 'replace'))}, no object"
        findings.judge(OBJECT, document is not None, why, answer)
    if document is not None and not streams:
        judge_shape(findings, whole, document, answer)
        listed = document.get("data") if whole == NAMES[0] else None
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict):
                judge_shape(findings, NAMES[1], entry, answer)
