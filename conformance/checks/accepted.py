"""Interface 4, 4.1 and 7.1: requests that say what they accept, and what no route asks for.

Browsers and libraries name kinds of bodies and compressions, and write media types as they like.
Other requests here have a query where none is shown, or another method.
"""

import gzip
import zlib
from itertools import product

from conformance.checks.auth import OPEN_READS, TOO_MANY
from conformance.checks.node_reads import AUTH_READS, CONFIG, LAYERS, STATUS, TRANSACTIONS
from conformance.checks.reading import Resource
from conformance.checks.training import GLOBAL
from conformance.checks.written import GENERATED, TOKENS
from conformance.context import API, Context
from conformance.editions import SEVENTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import ANONYMOUS, USUAL, Written, encoded
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.strictjson import Json, NotJson, brief, is_number, parse

SPOKEN, LETTERS, QUERIED, METHOD = "GEN-030", "GEN-031", "NA-ROUTE-030", "NA-ERR-063"
OTHER_KIND = "NA-ROUTE-037"
ONLY_JSON = Written(accept="application/json")
OF_BROWSERS = Written(accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
IN_YAML = Written(accept="application/yaml")
PACKED = Written(others=(("Accept-Encoding", "gzip, deflate"),))
CAPITALS = Written(content_type="Application/JSON")
# A node that fails for a moment does not do so each time.
TRIES, BUSY = 3, 503
# What caches are kept from, and what programs under development read.
QUERIES = ("_=1", "debug=1")
# Routes that are asked with a method that they have not.
POSTED = (*OPEN_READS, *AUTH_READS)
OUTSIDE = (
    "/api/training/global", "/api/training/verify", "/api/network", "/api/blocks", "/api/model",
    "/api/validators", "/api/inference", "/api/training",
)  # fmt: skip
ACTED = ("/inference", "/wallet/send", "/wallet/stake", "/wallet/unstake")


def _ask(context: Context, resource: Resource, written: Written = USUAL, query: str = "") -> Answer:
    credential = context.target.valid if resource.auth else ANONYMOUS
    path = f"{resource.prefix}{resource.path}{query}"
    return context.http.call("GET", path, credential=credential, written=written)


def _generate(context: Context, written: Written) -> Answer:
    if context.budget.exhausted:
        raise context.budget.used_up()
    answer = context.http.call(
        "POST", f"{API}/inference", credential=context.target.valid, content=encoded(GENERATED),
        timeout_s=context.target.inference_timeout_s, written=written,
    )  # fmt: skip
    if answer.ok:
        context.budget.charge_stream(TOKENS)
    return answer


def _unpacked(answer: Answer, *, strict: bool) -> Json:
    """Return the value in a body, which is packed as its header says; raise `NotJson`.

    If it is not `strict`, a body may be as it is in spite of its header.
    """
    body, packing = answer.body, answer.header("Content-Encoding").strip().lower()
    try:
        if packing in ("gzip", "x-gzip"):
            body = gzip.decompress(body)
        elif packing == "deflate":
            body = zlib.decompress(body)
    except (OSError, EOFError, zlib.error) as reason:
        # Programs do not agree on what deflate is.
        if strict and packing != "deflate":
            raise NotJson(f"its Content-Encoding is {packing}: {reason}") from reason
    return parse(body).value


@requirement(SPOKEN, LETTERS, OTHER_KIND)
def bodies_accepted(context: Context) -> None:
    """GET and POST with other headers Accept, Accept-Encoding and Content-Type."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    asked = [*product((STATUS, CONFIG), (ONLY_JSON, OF_BROWSERS, PACKED))]
    # Servers compress what is long enough.
    asked += [(TRANSACTIONS, PACKED), (LAYERS, PACKED)]
    if context.edition >= SEVENTH:
        every = product((*OPEN_READS, *AUTH_READS), (OF_BROWSERS, PACKED))
        asked += [one for one in every if one not in asked]
    for resource, written in asked:
        control = _ask(context, resource)
        if control.ok and control.json_object() is not None:
            _judge_json(context, written, control, _ask(context, resource, written))
    for resource in (STATUS, CONFIG) if context.edition >= SEVENTH else ():
        control, answer = _ask(context, resource), _ask(context, resource, IN_YAML)
        if control.ok and answer.status < 500 and answer.status != TOO_MANY:
            why = f"GET {resource.path} with Accept: {IN_YAML.accept} has status {answer.status}"
            context.judge(OTHER_KIND, answer.ok, why, control, answer)
    control = _generate(context, USUAL)
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")
    for written in (ONLY_JSON, PACKED):
        _judge_json(context, written, control, _generate(context, written))
    answer = _generate(context, CAPITALS)
    if answer.status < 500:
        why = f"a body of {CAPITALS.content_type} is answered with status {answer.status}"
        context.judge(LETTERS, answer.ok, why, control, answer)


def _judge_json(context: Context, written: Written, control: Answer, answer: Answer) -> None:
    """Rule on an answer that is JSON in the usual form of the request."""
    shown = dict(written.others).get("Accept-Encoding") or f"Accept: {written.accept}"
    if answer.ok:
        try:
            value, fault = _unpacked(answer, strict=context.edition >= SEVENTH), ""
        except NotJson as reason:
            value, fault = None, str(reason)
        why = f"with {shown} the body is no JSON object: {fault}"
        context.judge(SPOKEN, isinstance(value, dict), why, control, answer)
    elif written is ONLY_JSON and answer.status in (404, 406, 415):
        why = f"with {shown} the status is {answer.status}"
        context.fails(SPOKEN, why, control, answer)


@requirement(QUERIED)
def queries_unread(context: Context) -> None:
    """GET routes that have no parameters with a query."""
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    for resource, query in product((*OPEN_READS, *AUTH_READS, GLOBAL), QUERIES):
        for _ in range(TRIES):
            control = _ask(context, resource)
            answer = _ask(context, resource, query=f"?{query}")
            if not control.ok or answer.status < 500:
                break
        if control.ok and answer.status != BUSY:
            why = f"GET {resource.path} with the query {query} has status {answer.status}"
            lacks = _members(control.json_object()) - _members(answer.json_object())
            if answer.ok and lacks:
                why = f"GET {resource.path} with the query {query} lacks {brief(sorted(lacks))}"
            context.judge(QUERIED, answer.ok and not lacks, why, control, answer)


def _members(document: Json, path: str = "") -> set[tuple[str, str]]:
    """Return the paths to all that is in a document but null, each with the type of the value."""
    if isinstance(document, dict):
        found = (_members(value, f"{path}.{key}") for key, value in document.items())
        return set[tuple[str, str]]().union(*found)
    kind = "number" if is_number(document) else type(document).__name__
    return {(path, kind)} if document is not None else set()


@requirement(METHOD)
def methods_absent(context: Context) -> None:
    """POST and DELETE where the document shows a GET only, and GET where it shows a POST.

    From edition 7 on PUT, PATCH and DELETE, too, of all that the document shows another method of,
    and POST and DELETE of what is open outside of the node API.
    """
    if context.edition < SIXTH:
        raise Skipped("later editions ask for it")
    token = context.target.valid
    empty: dict[str, Json] = {}
    asked = [("POST", resource.path, empty) for resource in POSTED]
    asked += [("DELETE", resource.path, empty) for resource in OPEN_READS]
    if context.edition >= SEVENTH:
        reads = [resource.path for resource in POSTED]
        asked += [("PUT", path, empty) for path in (*reads, *ACTED)]
        asked += [("PATCH", path, empty) for path in reads if path != CONFIG.path]
        asked += [("DELETE", resource.path, empty) for resource in AUTH_READS]
    asked = [(method, API + path, body) for method, path, body in asked]
    if context.edition >= SEVENTH:
        asked += [(method, path, empty) for method in ("POST", "DELETE") for path in OUTSIDE]
    for method, path, body in (*asked, *(("GET", API + path, None) for path in ACTED)):
        answer = context.http.call(method, path, credential=token, json_body=body)
        if answer.status < 500 and answer.status != TOO_MANY:
            why = f"{method} {path} is answered with status {answer.status}"
            context.judge(METHOD, not answer.ok, why, answer)
