"""Nodes that read one form of a request only, each named by the requirement that says it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from conformance import messages
from conformance.catalogue import Level, load
from conformance.judging.toy.answers import Sent
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome

UNREADABLE = b"\xff"


def no_escapes(sent: Sent) -> Sent:
    """Read an escape as the letters that it is written with."""
    return replace(sent, body=sent.body.replace(b"\\u", b"\\\\u"))


def no_space_before(sent: Sent) -> Sent:
    """Read a body from its first brace on, if that is the first byte."""
    return replace(sent, body=b"{") if sent.body[:1].isspace() else sent


def first_key_first(sent: Sent) -> Sent:
    """Refuse a prompt that is not the first key."""
    late = b'"prompt"' in sent.body and not sent.body.startswith(b'{"prompt"')
    return replace(sent, body=b"{") if late and not sent.body[:1].isspace() else sent


def type_alone(sent: Sent) -> Sent:
    """Refuse a media type with a parameter."""
    return replace(sent, body=b"{") if ";" in sent.header("Content-Type") else sent


def lengths_only(sent: Sent) -> Sent:
    """Read no chunks."""
    return replace(sent, body=b"{") if sent.header("Transfer-Encoding") else sent


def percent_left(sent: Sent) -> Sent:
    """Leave the encoding of a query as it is."""
    return replace(sent, target=sent.target.replace("%", "%25"))


def one_case(sent: Sent) -> Sent:
    """Look for the token under one way to write the name of its header."""
    return replace(sent, headers={k: v for k, v in sent.headers.items() if k != "authorization"})


def in_turn(operation: str, data: bytes) -> bytes:
    """Read fields in the order of their numbers only."""
    numbers = [field.number for field in messages.wire_fields(data)] if data != UNREADABLE else []
    return data if numbers == sorted(numbers) or max(numbers) > 100 else UNREADABLE


def known_only(operation: str, data: bytes) -> bytes:
    """Read messages of known fields only."""
    unknown = any(field.number > 100 for field in messages.wire_fields(data))
    return UNREADABLE if unknown else data


def packed_only(operation: str, data: bytes) -> bytes:
    """Read packed shapes only."""
    if operation != "PipelineForward":
        return data
    shapes = [field for field in messages.wire_fields(data) if field.number == 4]
    return UNREADABLE if len(shapes) > 1 else data


def first_counts(operation: str, data: bytes) -> bytes:
    """Read of several fields with one number the first one; those that are repeated stay."""
    if operation == "PipelineForward":
        return data
    fields: dict[int, messages.WireField] = {}
    for field in messages.wire_fields(data):
        fields.setdefault(field.number, field)
    return b"".join(map(messages.encode_field, fields.values()))


HTTP = [
    ("NA-FORM-001", no_escapes),
    ("NA-FORM-001", no_space_before),
    ("NA-FORM-001", first_key_first),
    ("NA-FORM-002", type_alone),
    ("NA-FORM-002", lengths_only),
    ("NA-FORM-003", percent_left),
    ("NA-FORM-004", one_case),
]
GRPC = [
    ("GR-FORM-001", in_turn),
    ("GR-FORM-001", known_only),
    ("GR-FORM-002", packed_only),
    ("GR-SANE-013", first_counts),
]


def found(judge: Judge, ident: str) -> None:
    run = judge(ident)
    result = next(item for item in run.results if item.requirement.id == ident)
    must = load()[ident].level is Level.MUST
    assert result.outcome is (Outcome.FAIL if must else Outcome.WARN), result


@pytest.mark.parametrize(("ident", "rewrite"), HTTP)
def test_a_form_of_a_request_that_is_not_read(
    ident: str, rewrite: Callable[[Sent], Sent], toy: Serving, judge: Judge
) -> None:
    toy.node.rewrite = rewrite
    found(judge, ident)


@pytest.mark.parametrize(("ident", "rewrite"), GRPC)
def test_a_form_of_a_message_that_is_not_read(
    ident: str, rewrite: Callable[[str, bytes], bytes], toy: Serving, judge: Judge
) -> None:
    toy.node.rewrite_call = rewrite
    found(judge, ident)
