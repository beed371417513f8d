"""The signatures that are found in signed messages, in each form in which a message holds them."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest

from conformance.checks.signatures import borrowed, unsigned
from conformance.strictjson import Json

TEXT = "a message that is long enough to be one"


def message(signature: str) -> dict[str, Json]:
    return {"body": {"prompt": TEXT, "signed": "by nobody"}, "signature": signature}


def as_base64(signature: str) -> Json:
    # With white space, which has to stay: it may be signed.
    raw = json.dumps(message(signature), indent=1).encode()
    return {"method": "broadcast", "params": {"tx": b64encode(raw).decode()}}


def as_hex(signature: str) -> Json:
    return [{"tx": json.dumps(message(signature)).encode().hex()}]


def as_text(signature: str) -> Json:
    return {"tx": json.dumps(message(signature))}


@pytest.mark.parametrize("form", [message, as_base64, as_hex, as_text])
def test_a_message_borrows_the_signature_of_another_one(form: Callable[[str], Json]) -> None:
    assert borrowed(form("of this"), form("of another")) == form("of another")


@pytest.mark.parametrize(
    ("body", "lender"),
    [
        ({"x": "of this"}, {"x": "of another"}),
        (message("the same"), message("the same")),
        (message("of this"), {"x": 1}),
        ({"tx": b64encode(b"no JSON, " * 20).decode()}, as_base64("of another")),
    ],
)
def test_where_no_signature_is_found_nothing_is_borrowed(body: Json, lender: Json) -> None:
    assert borrowed(body, lender) is None


def test_what_is_beside_a_borrowed_signature_stays_to_the_byte() -> None:
    made = borrowed(as_base64("of this"), as_base64("of another"))
    assert isinstance(made, dict)
    params = made["params"]
    assert isinstance(params, dict)
    raw = b64decode(str(params["tx"]))
    assert raw == json.dumps(message("of another"), indent=1).encode()


@pytest.mark.parametrize("instead", ["", None])
def test_a_signature_is_taken_out(instead: Json) -> None:
    assert unsigned(message("of this"), instead) == {**message(""), "signature": instead}
