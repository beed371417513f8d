"""Interface 2.1, 4.1 and 5: requests that say the same and are written in another way.

JSON leaves white space, the order of keys and the escaping of letters to whoever writes it, a query
the order and the encoding of its parameters, and HTTP the case of the names of headers, the length
of a body and a charset beside its media type. So what was accepted once is accepted in each form.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from conformance.catalogue import Effect
from conformance.checks.config import nested, patch, read_config
from conformance.checks.history import rows_of
from conformance.checks.money import TRIES, Comparison, read_money
from conformance.checks.node_reads import AUTH_READS, TRANSACTIONS
from conformance.checks.wallet import AMOUNT
from conformance.context import Context
from conformance.editions import FIFTH, SIXTH
from conformance.findings import Skipped
from conformance.httprequest import USUAL, Written, encoded
from conformance.httpwire import Answer
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import Json, brief, is_number

BODY, SENT, QUERY, NAMES = "NA-FORM-001", "NA-FORM-002", "NA-FORM-003", "NA-FORM-004"
# More than what some servers read of a body at first.
WIDE, BLANKS = "NA-FORM-005", 20_000
# Neither the node's strength nor the account's is what is asked for.
OTHER_REASONS = (402, 429)
BATCH = "training.batch_size"
GENERATED = {"prompt": "A node, für 日本", "max_tokens": 3, "temperature": 0, "stream": False}
TOKENS = 3
SMILE = "\U0001f642"


@dataclass(frozen=True)
class Asked:
    """A request with a body, and what its answer has to repeat, whatever form the body has."""

    method: str
    path: str
    body: dict[str, Json]
    repeats: tuple[str, ...]
    cost: float = 0.0


def _forms(body: dict[str, Json]) -> Iterator[tuple[str, bytes]]:
    """Yield the forms of a body, by what is unusual about them."""
    turned = dict(reversed(body.items()))
    yield "its keys in another order", encoded(turned)
    yield "white space around everything", f"\r\n\t {json.dumps(body, indent=2)} \n".encode()
    yield "escapes for all letters", _escaped(body).encode()


def _escaped(value: Json) -> str:
    """Return a value as JSON in which each letter of a text is an escape."""
    if isinstance(value, str):
        units = value.encode("utf-16-be").hex()
        escapes = (f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        return f'"{"".join(escapes)}"'
    if isinstance(value, dict):
        return f"{{{','.join(f'{_escaped(k)}:{_escaped(v)}' for k, v in value.items())}}}"
    return json.dumps(value)


def _requests(context: Context) -> Iterator[Asked]:
    yield Asked("POST", "/inference", GENERATED, ("usage.prompt_tokens",))
    own = read_money(context, context.target.valid).document.get("address")
    memo = 'a "word" / für 日本'
    sent: dict[str, Json] = {"to": own, "amount": AMOUNT, "memo": memo}
    yield Asked("POST", "/wallet/send", sent, ("to", "amount", "memo"), AMOUNT)
    if context.edition >= FIFTH:
        # A letter that two escapes make together.
        prompt = {**GENERATED, "prompt": f"A node {SMILE}"}
        yield Asked("POST", "/inference", prompt, ("usage.prompt_tokens",))
        sent = {**sent, "memo": f"a word {SMILE}"}
        yield Asked("POST", "/wallet/send", sent, ("to", "amount", "memo"), AMOUNT)
    if context.target.allows(Effect.MUTATE):
        found = lookup(read_config(context), BATCH)
        if found and patch(context, nested({BATCH: found[0]})).ok:
            yield Asked("PATCH", "/config", nested({BATCH: found[0]}), ("success",))


def _ask(context: Context, asked: Asked, content: bytes, written: Written = USUAL) -> Answer:
    if context.budget.left < asked.cost or context.budget.exhausted:
        raise context.budget.used_up()
    answer = context.api(
        asked.method, asked.path, credential=context.target.valid, content=content,
        timeout_s=context.target.inference_timeout_s, written=written,
    )  # fmt: skip
    if answer.ok and asked.path == "/inference":
        context.budget.charge_stream(TOKENS)
    elif answer.ok:
        context.budget.charge(asked.cost)
    return answer


def _repeated(asked: Asked, answer: Answer) -> list[Json]:
    document = answer.json_object() or {}
    return [value for key in asked.repeats for value in lookup(document, key)]


@requirement(BODY, SENT, WIDE)
def body_forms(context: Context) -> None:
    """POST and PATCH the same bodies in several forms of JSON, and in several of HTTP."""
    for asked in _requests(context):
        control = _ask(context, asked, encoded(asked.body))
        if not control.ok:
            continue
        for name, content in _forms(asked.body):
            answer = _ask(context, asked, content)
            _judge_same(context, BODY, f"with {name}", asked, control, answer)
        for name, written in {
            "with a charset": Written(content_type="application/json; charset=utf-8"),
            "in chunks": Written(chunked=True),
        }.items():
            answer = _ask(context, asked, encoded(asked.body), written)
            _judge_same(context, SENT, name, asked, control, answer)
        if context.edition >= SIXTH:
            answer = _ask(context, asked, encoded(asked.body)[:-1] + b" " * BLANKS + b"}")
            _judge_same(context, WIDE, f"with {BLANKS} blanks", asked, control, answer)


def _judge_same(
    context: Context, ident: str, form: str, asked: Asked, control: Answer, answer: Answer
) -> None:
    """Rule on an answer that has to be like that to the usual form."""
    if answer.status in OTHER_REASONS:
        return
    expected, found = _repeated(asked, control), _repeated(asked, answer)
    why = f"{asked.method} {asked.path} {form}: status {answer.status}"
    why += f", {brief(found)}; in the usual form {brief(expected)}"
    if asked.path == "/inference" and _is_too_long(answer):
        # A node that generates too much whatever the form is another matter.
        if _is_too_long(control) or _is_too_long(_ask(context, asked, encoded(asked.body))):
            return
        why += f", more than {TOKENS} tokens"
        found = []
    context.judge(ident, answer.ok and found == expected, why, control, answer)


def _is_too_long(answer: Answer) -> bool:
    made = lookup(answer.json_object() or {}, "tokens_generated")
    return bool(made) and is_number(made[0]) and made[0] > TOKENS


@requirement(QUERY)
def query_forms(context: Context) -> None:
    """GET a page of the history by queries that are written in several ways."""
    compared = Comparison(context)
    for _ in range(TRIES):
        first, again = (_page(context, "limit=2&offset=1") for _ in range(2))
        wrong: list[tuple[str, Answer]] = []
        for query in ("offset=1&limit=2", "limit=%32&offset=%31", "%6Cimit=2&offse%74=1"):
            answer = _page(context, query)
            if not answer.ok or _rows(answer) != _rows(first):
                wrong.append((f"?{query}: status {answer.status}, {brief(_rows(answer))}", answer))
        if first.ok and _rows(first) == _rows(again):
            why = f"{wrong[0][0]}, and not {brief(_rows(first))}" if wrong else ""
            compared.note(QUERY, not wrong, why, first, *(answer for _, answer in wrong))
        if compared.clean:
            break
    compared.conclude()


def _page(context: Context, query: str) -> Answer:
    return context.api("GET", f"{TRANSACTIONS.path}?{query}", credential=context.target.valid)


def _rows(answer: Answer) -> list[Json]:
    document = answer.json_object() or {}
    return [document.get("limit"), *(row.get("id") for row in rows_of(document))]


@requirement(NAMES)
def header_names(context: Context) -> None:
    """GET and POST with the names of all headers in small letters, and in capitals."""
    for resource, spelt in product(AUTH_READS, _spellings(context)):
        usual, other = (
            context.api("GET", resource.path, credential=context.target.valid, written=written)
            for written in (USUAL, Written(spelt=spelt))
        )
        if usual.ok and other.status not in OTHER_REASONS:
            name = spelt("Authorization")
            why = f"GET {resource.path} with {name} for Authorization: {other.status}"
            context.judge(NAMES, other.ok, why, usual, other)
    asked = Asked("POST", "/inference", GENERATED, ("usage.prompt_tokens",))
    control = _ask(context, asked, encoded(asked.body))
    if not control.ok:
        raise Skipped(f"POST /inference was answered with status {control.status}")
    for spelt in _spellings(context):
        answer = _ask(context, asked, encoded(asked.body), Written(spelt=spelt))
        what = f"with the names of headers like {spelt('Authorization')}"
        _judge_same(context, NAMES, what, asked, control, answer)


def _spellings(context: Context) -> tuple[Callable[[str], str], ...]:
    """Return ways to write the name of a header."""
    return (str.lower, str.upper) if context.edition >= SIXTH else (str.lower,)
