"""The wallet over HTTP (interface 2.1, 4.1, 7.1): fields are real, refusals precede signing."""

import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from meshnode.edges import http_wallet
from meshnode.edges.http_index import IndexApi
from meshnode.http.openapi import node_section, openapi_document
from meshnode.services.ledger import solo
from spec_tests.edges.http_server import TOKEN, Client
from spec_tests.services.wallet.wallet_node import STRANGER, WALLET, WalletNode, start_wallet_node

pytestmark = pytest.mark.wire

DATE = re.compile(r"\d{4}-\d\d-\d\d")


@pytest.fixture
async def node(nursery: trio.Nursery, tmp_path: Path) -> WalletNode:
    return await start_wallet_node(nursery, tmp_path)


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def later(day: str, days: int) -> str:
    return (datetime.fromisoformat(day) + timedelta(days=days)).strftime("%Y-%m-%d")


async def send(node: WalletNode, amount: object, token: str = TOKEN, **more: Any) -> Any:
    body = {"to": STRANGER, "amount": amount, **more}
    return await node.ask("POST", WALLET + "/send", body, token)


async def test_a_new_account_has_nothing_and_every_field(node: WalletNode) -> None:
    alice = node.issue("alice")
    before = today()
    answer = await node.ask("GET", WALLET + "/balance", token=alice)
    day = answer.json["staking"]["start_date"]
    assert day in (before, today())
    assert answer.json == {
        "address": node.key_of(alice),
        "balances": {"available": 0.0, "staked": 0.0, "pending": 0.0, "total": 0.0},
        "staking": {
            "amount": 0.0,
            "duration_days": 0,
            "start_date": day,
            "unlock_date": day,
            "multiplier": 1.0,
        },
    }
    assert re.fullmatch("0[23][0-9a-f]{64}", answer.json["address"])
    assert await node.history(alice) == []


async def test_a_transfer_is_confirmed_and_both_sides_see_it(node: WalletNode) -> None:
    alice = node.issue("alice")
    await node.fund(alice, 10)
    before = await node.balances()
    answer = await send(node, 2.5, alice, memo="für Öl ✓")
    assert answer.status == 200
    transfer = answer.json
    assert list(transfer) == [
        "transaction_id", "from", "to", "amount", "fee", "memo", "status", "timestamp",
    ]  # fmt: skip
    assert re.fullmatch("[0-9a-f]{64}", transfer["transaction_id"])
    assert transfer["from"] == node.key_of(alice)
    assert (transfer["to"], transfer["amount"], transfer["fee"]) == (STRANGER, 2.5, 0.001)
    assert (transfer["memo"], transfer["status"]) == ("für Öl ✓", "confirmed")
    age = datetime.now(UTC) - datetime.fromisoformat(transfer["timestamp"])
    assert abs(age) < timedelta(hours=1)
    assert await node.balances(alice) == {
        "available": 7.499, "staked": 0.0, "pending": 0.0, "total": 7.499,
    }  # fmt: skip
    assert await node.balances() == before
    sent, fee, received = await node.history(alice)
    if sent["type"] == "fee":
        sent, fee = fee, sent
    assert sent == {
        "id": transfer["transaction_id"],
        "type": "send",
        "amount": -2.5,
        "timestamp": transfer["timestamp"],
        "to": STRANGER,
    }
    assert (fee["type"], fee["amount"]) == ("fee", -0.001)
    assert (received["type"], received["amount"]) == ("receive", 10.0)
    assert received["from"] == node.keys.node_key.public_key


async def test_a_low_balance_is_reported_before_anything_is_signed(node: WalletNode) -> None:
    alice = node.issue("alice")
    await node.fund(alice, 1)
    for amount, required in ((1, 1.001), (0.9999, 1.0009)):
        answer = await send(node, amount, alice)
        assert answer.status == 402
        assert answer.code == "INSUFFICIENT_BALANCE"
        assert answer.details == {"required": required, "available": 1.0}
    assert (await send(node, 0.999, alice)).json["status"] == "confirmed"
    assert (await node.balances(alice))["total"] == 0.0


BAD_TRANSFERS: list[tuple[dict[str, object], str]] = [
    ({}, "to"),
    ({"to": STRANGER}, "amount"),
    ({"to": STRANGER, "amount": None}, "amount"),
    ({"to": STRANGER, "amount": "1"}, "amount"),
    ({"to": STRANGER, "amount": True}, "amount"),
    ({"to": STRANGER, "amount": 0}, "amount"),
    ({"to": STRANGER, "amount": -1}, "amount"),
    ({"to": STRANGER, "amount": 0.0000001}, "amount"),
    ({"to": STRANGER, "amount": 1e300}, "amount"),
    ({"to": STRANGER.upper(), "amount": 1}, "to"),
    ({"to": STRANGER[:-2], "amount": 1}, "to"),
    ({"to": "02" + "f" * 64, "amount": 1}, "to"),
    ({"to": 5, "amount": 1}, "to"),
    ({"to": STRANGER, "amount": 0, "memo": 5}, "amount"),
    ({"to": STRANGER, "amount": 1, "memo": 5}, "memo"),
    ({"to": STRANGER, "amount": 1, "memo": "x" * 257}, "memo"),
    ({"to": STRANGER, "amount": 1, "memo": "\ud800"}, "memo"),
]


async def test_a_bad_transfer_names_its_field(node: WalletNode) -> None:
    for body, field in BAD_TRANSFERS:
        answer = await node.ask("POST", WALLET + "/send", body)
        assert (answer.status, answer.details["field"]) == (400, field), body


async def test_a_seventh_decimal_is_refused_and_the_sixth_is_exact(node: WalletNode) -> None:
    alice = node.issue("alice")
    await node.fund(alice, 1)
    body = b'{"to": "%s", "amount": 0.1000000000000000055}' % STRANGER.encode()
    refused = await _raw(node, body, alice)
    assert refused.details["field"] == "amount"
    body = b'{"to": "%s", "amount": 1e-6}' % STRANGER.encode()
    assert (await _raw(node, body, alice)).json["amount"] == 1e-6
    assert (await node.balances(alice))["available"] == 0.998999


async def _raw(node: WalletNode, body: bytes, token: str) -> Any:
    async with Client(await trio.open_tcp_stream(*node.address)) as client:
        headers = {"Content-Type": "application/json"}
        return await client.ask("POST", WALLET + "/send", body, token=token, headers=headers)


async def test_staking_and_unstaking(node: WalletNode) -> None:
    alice = node.issue("alice")
    await node.fund(alice, 1001)
    body = {"amount": 1000, "duration_days": 30}
    before = today()
    answer = await node.ask("POST", WALLET + "/stake", body, alice)
    day = answer.json["stake"]["start_date"]
    assert day in (before, today())
    stake = {
        "amount": 1000.0,
        "duration_days": 30,
        "start_date": day,
        "unlock_date": later(day, 30),
        "multiplier": 1.1,
    }
    new = {"available": 0.999, "staked": 1000.0}
    assert answer.json == {"success": True, "stake": stake, "new_balance": new}
    balance = (await node.ask("GET", WALLET + "/balance", token=alice)).json
    assert balance["staking"] == stake
    assert balance["balances"] == {**new, "pending": 0.0, "total": 1000.999}
    # Nothing can be unstaked before the unlock date, and never more than was staked.
    locked = await node.ask("POST", WALLET + "/unstake", {"amount": 1}, alice)
    assert (locked.status, locked.code) == (409, "FUNDS_LOCKED")
    assert locked.details == {"unlock_date": later(day, 30)}
    poor = await node.ask("POST", WALLET + "/unstake", {"amount": 1000.5}, alice)
    assert (poor.status, poor.details) == (402, {"required": 1000.5, "available": 1000.0})
    assert [entry["type"] for entry in await node.history(alice)].count("stake") == 1


async def test_unstaked_money_cools_down_and_is_pending(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solo, "EMPTY_S", 0.3)
    ahead_ns = 0

    def clock_ns() -> int:
        return int(datetime.now(UTC).timestamp() * 1e9) + ahead_ns

    node = await start_wallet_node(nursery, tmp_path, clock_ns=clock_ns)
    alice = node.issue("alice")
    await node.fund(alice, 100)
    body = {"amount": 50, "duration_days": 1}
    assert (await node.ask("POST", WALLET + "/stake", body, alice)).status == 200
    ahead_ns = 86_400 * 10**9
    await node.ledger.wait_beyond(node.ledger.height + 2)
    few = await node.ask("POST", WALLET + "/unstake", {"amount": 49.5}, alice)
    assert (few.status, few.details["field"]) == (400, "amount")
    before = today()
    answer = await node.ask("POST", WALLET + "/unstake", {"amount": 20}, alice)
    day = answer.json["unstake"]["available_date"]
    assert day in (later(before, 8), later(today(), 8))
    assert answer.json == {
        "success": True,
        "unstake": {"amount": 20.0, "cooldown_days": 7, "available_date": day},
    }
    assert await node.balances(alice) == {
        "available": 49.998, "staked": 30.0, "pending": 20.0, "total": 99.998,
    }  # fmt: skip


BAD_STAKES: list[tuple[str, dict[str, object], str]] = [
    ("/stake", {}, "amount"),
    ("/stake", {"amount": 5}, "duration_days"),
    ("/stake", {"amount": 5, "duration_days": 0}, "duration_days"),
    ("/stake", {"amount": 5, "duration_days": 1.5}, "duration_days"),
    ("/stake", {"amount": 5, "duration_days": True}, "duration_days"),
    ("/stake", {"amount": 5, "duration_days": 5000}, "duration_days"),
    ("/stake", {"amount": 5, "duration_days": 1e300}, "duration_days"),
    ("/stake", {"amount": 0.5, "duration_days": 30}, "amount"),
    ("/unstake", {}, "amount"),
    ("/unstake", {"amount": "all"}, "amount"),
]


async def test_bad_stakes_name_their_field(node: WalletNode) -> None:
    for path, body, field in BAD_STAKES:
        answer = await node.ask("POST", WALLET + path, body)
        assert (answer.status, answer.details["field"]) == (400, field), body


def test_the_description_of_a_stake_says_both_limits() -> None:
    document: Any = openapi_document("1", [node_section(http_wallet.ROUTES)])
    days = document["components"]["schemas"]["StakeRequest"]["properties"]["duration_days"]
    assert days["maximum"] == 36_500
    assert "36,500" in days["description"]
    assert "1,460" in days["description"]


async def test_history_is_paged(node: WalletNode) -> None:
    for _ in range(3):
        assert (await send(node, 1)).status == 200
    answer = await node.ask("GET", WALLET + "/transactions?limit=2&offset=1")
    assert (answer.json["limit"], answer.json["offset"], answer.json["total"]) == (2, 1, 6)
    whole = await node.ask("GET", WALLET + "/transactions")
    assert whole.json["limit"] == 20
    assert answer.json["transactions"] == whole.json["transactions"][1:3]
    times = [entry["timestamp"] for entry in whole.json["transactions"]]
    assert times == sorted(times, reverse=True)
    beyond = await node.ask("GET", WALLET + "/transactions?offset=2147483647")
    assert beyond.json["transactions"] == []


BAD_PAGES = [
    ("limit=0", "limit"),
    ("limit=101", "limit"),
    ("limit=-1", "limit"),
    ("limit=%2B1", "limit"),
    ("limit=1_0", "limit"),
    ("limit=", "limit"),
    ("limit=1&limit=2", "limit"),
    ("offset=-1", "offset"),
    ("offset=2147483648", "offset"),
    ("offset=9999999999999", "offset"),
    ("offset=%D9%A1", "offset"),
]


async def test_bad_pages_are_refused(node: WalletNode) -> None:
    for query, field in BAD_PAGES:
        answer = await node.ask("GET", WALLET + "/transactions?" + query)
        assert (answer.status, answer.details["field"]) == (400, field), query


async def test_everything_needs_a_token(node: WalletNode) -> None:
    for method, path in (
        ("GET", "/balance"),
        ("POST", "/send"),
        ("GET", "/transactions"),
        ("POST", "/stake"),
        ("POST", "/unstake"),
    ):
        answer = await node.ask(method, WALLET + path, {} if method == "POST" else None, token=None)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


async def test_answers_and_examples_are_as_described(node: WalletNode) -> None:
    alice = node.issue("alice")
    await node.fund(alice, 100)
    document = IndexApi.of("1", http_wallet.ROUTES).document

    def check(value: object, schema: dict[str, Any]) -> None:
        whole = {**schema, "components": document["components"]}
        Draft202012Validator(whole).validate(value)

    answered = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith(WALLET) or path.endswith("unstake"):
                continue
            body = None
            if method == "post":
                content = operation["requestBody"]["content"]["application/json"]
                body = {**content["example"], "amount": 2.5}
                check(body, content["schema"])
            answer = await node.ask(method.upper(), path, body, alice)
            assert answer.status == 200, answer.json
            described = operation["responses"]["200"]["content"]["application/json"]["schema"]
            check(answer.json, described)
            answered += 1
    assert answered == 4


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=80)
    | st.sampled_from([STRANGER, 1, 0.000001, 2**60, -(2**63), 1e-7, "1", []])
)
BODIES = st.dictionaries(st.sampled_from(["to", "amount", "memo", "duration_days"]), VALUES)


@settings(max_examples=3)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "stake", "unstake"]), BODIES), min_size=30, max_size=60
    )
)
def test_no_body_breaks_it(bodies: list[tuple[str, dict[str, object]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_ask_all, Path(folder), bodies)


async def _ask_all(folder: Path, bodies: list[tuple[str, dict[str, object]]]) -> None:
    async with trio.open_nursery() as nursery:
        node = await start_wallet_node(nursery, folder)
        alice = node.issue("alice")
        for path, body in bodies:
            answer = await node.ask("POST", f"{WALLET}/{path}", body, alice)
            assert answer.code in {"INVALID_REQUEST", "INSUFFICIENT_BALANCE"}, (path, body)
        nursery.cancel_scope.cancel()
