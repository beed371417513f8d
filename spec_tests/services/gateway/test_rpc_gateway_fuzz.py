"""Interface 4.2, rule 2: only what the tables allow reaches the ledger."""

import base64
import contextlib
import json
from dataclasses import asdict
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.canonical import parse
from meshnode.domain.chain.envelope import decode_transaction, transaction_hash
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.queries import QueryResult
from meshnode.services.gateway.rpc_calls import RpcCalls
from meshnode.services.gateway.rpc_table import (
    METHODS,
    PUBLIC_QUERIES,
    REQUEST_BYTES,
    REQUEST_LIMITS,
    Call,
    parse_call,
)
from meshnode.services.ledger import Readiness
from spec_tests.domain.chain.net import ALICE, CHAIN_ID, genesis

SIGNED = base64.b64encode(ALICE.sign({"kind": "transfer", "chain_id": CHAIN_ID})).decode()

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["0", "1", "/account", "/status", "latest", "0x00", "00", SIGNED, "-1"]),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        *METHODS,
        *("net_info", "genesis", "tx", "unsafe_dial_peers", "check_tx", "broadcast_tx_async"),
        *("Status", "status ", "abci-query", "__class__", ""),
    ]
)
KEYS = st.sampled_from(
    ["height", "page", "per_page", "path", "data", "prove", "tx", "hash", "events"]
)
REQUESTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"method": NAMES | VALUES},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0", 2, None]),
            "id": VALUES,
            "params": st.dictionaries(KEYS, VALUES, max_size=4) | VALUES,
            "extra": VALUES,
        },
    ),
)


def check_call(call: Call) -> None:
    """Check that each argument has its parameter's type and range, whatever was requested."""
    assert call.method in METHODS
    arguments = asdict(call.arguments)
    assert set(arguments) == set(METHODS[call.method])
    assert call.id is None or type(call.id) in (int, str)
    for name, value in arguments.items():
        if name == "height" and call.method == "abci_query":
            assert value == 0
        elif name == "height":
            assert value is None or (type(value) is int and 1 <= value < 2**63)
        elif name == "per_page":
            assert type(value) is int
            assert 1 <= value <= 100
        elif name == "page":
            assert type(value) is int
            assert value >= 1
        elif name == "path":
            assert value in PUBLIC_QUERIES
        elif name == "prove":
            assert value is False
        elif name == "data":
            assert type(value) is bytes
            assert len(value) <= 4096
        else:
            assert name == "tx"
            assert type(value) is bytes
            assert len(value) < REQUEST_BYTES


@given(REQUESTS)
def test_a_value_of_any_shape_is_a_permitted_call_or_refused(value: Any) -> None:
    try:
        call = parse_call(value)
    except Rejected:
        return
    check_call(call)
    assert isinstance(value, dict)


@given(st.sampled_from(sorted(METHODS)), st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_parameters_of_a_known_method(method: str, params: dict[str, Any]) -> None:
    try:
        call = parse_call({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    except Rejected:
        return
    check_call(call)
    assert set(params) <= set(METHODS[method])


@given(st.lists(REQUESTS, max_size=3))
def test_a_batch_is_refused_whatever_it_holds(values: list[Any]) -> None:
    with pytest.raises(Rejected):
        parse_call(values)


@given(st.binary(max_size=200) | REQUESTS.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_permitted_call_or_refused(data: bytes) -> None:
    with contextlib.suppress(Rejected):
        check_call(parse_call(parse(data, REQUEST_LIMITS)))


@given(st.sampled_from(["jsonrpc", "id", "method", "params"]), st.booleans())
def test_a_key_given_twice_is_refused(key: str, inner: bool) -> None:
    if inner:
        text = '{"method":"block","params":{"height":1,"height":1}}'
    else:
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "status", "params": {}})
        text = text[:-1] + f', "{key}": null}}'
    with pytest.raises(Rejected):
        parse_call(parse(text.encode(), REQUEST_LIMITS))


@given(st.integers(REQUEST_BYTES + 1, REQUEST_BYTES + 100))
def test_a_request_above_its_size_is_refused(size: int) -> None:
    with pytest.raises(Rejected):
        parse(b'{"method":"status"}'.ljust(size), REQUEST_LIMITS)


class SpyLedger:
    """Records the calls that reach it."""

    chain_id, height, latest, earliest_height = CHAIN_ID, 5, None, 1
    genesis = genesis()

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def readiness(self) -> Readiness:
        return Readiness(True, "ok", False, False, 0.0)

    async def query(self, path: str, data: bytes) -> QueryResult:
        await trio.lowlevel.checkpoint()
        self.heard.append(("query", (path, data)))
        return QueryResult(0, "", b"{}", 5)

    async def submit(self, raw: bytes) -> TransactionResult:
        await trio.lowlevel.checkpoint()
        self.heard.append(("submit", raw))
        return TransactionResult(1, "no", transaction_hash(raw))

    async def block(self, height: int) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(("block", height))

    async def validators(self, height: int) -> tuple[()]:
        await trio.lowlevel.checkpoint()
        self.heard.append(("validators", height))
        return ()


FORGED = base64.b64encode(
    ALICE.sign({"kind": "transfer", "chain_id": CHAIN_ID}).replace(b"transfer", b"transfex")
).decode()
NEARLY_VALID = st.fixed_dictionaries(
    {"method": st.sampled_from(sorted(METHODS))},
    optional={
        "params": st.dictionaries(
            KEYS, PLAIN | st.sampled_from([SIGNED, FORGED, "/job", "7b7d", 1, "3"]), max_size=2
        ),
    },
)


@given(REQUESTS | NEARLY_VALID)
def test_the_ledger_hears_permitted_calls_and_signed_transactions_alone(value: Any) -> None:
    spy = SpyLedger()
    calls = RpcCalls(spy, "ab" * 20)  # type: ignore[arg-type]
    permitted: Call | None = None
    with contextlib.suppress(Rejected):
        permitted = parse_call(value)
        trio.run(calls.run, permitted)
    for name, heard in spy.heard:
        assert permitted is not None
        if name == "query":
            assert permitted.method == "abci_query"
            assert heard[0] in PUBLIC_QUERIES
            assert isinstance(heard[1], bytes)
        elif name == "submit":
            assert permitted.method.startswith("broadcast_tx_")
            # The transaction was verified: forged or too large ones get no further.
            decode_transaction(heard, 16_384, 32)
        else:
            assert type(heard) is int
            assert heard >= 1


def test_the_tables_hold_what_the_document_names_and_nothing_that_changes_the_node() -> None:
    named = {"status", "block", "validators", "abci_query", "broadcast_tx_sync"}
    assert set(METHODS) == named | {"commit", "broadcast_tx_commit"}
    assert {"/job", "/jobs"} <= PUBLIC_QUERIES
    assert "/status" not in PUBLIC_QUERIES
