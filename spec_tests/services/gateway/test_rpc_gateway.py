"""Interface 4.2, rules 1 to 6: what ``/rpc`` answers, in CometBFT's shapes."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.comet.commits import verify_commit
from meshnode.domain.chain.comet.jsonform import read_block, read_commit
from meshnode.domain.chain.comet.validators import CometValidator
from meshnode.domain.chain.envelope import application_id, sign_envelope
from meshnode.services.gateway import rpc_calls
from meshnode.services.ledger import Readiness
from spec_tests.domain.chain.net import ALICE, BOB, ROOT, VALIDATOR
from spec_tests.edges.http_server import wait_until
from spec_tests.edges.native_gateway import NODE_ID, Gateway, check_answer, start_gateway


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


def tx(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


async def post(gateway: Gateway, body: object, **headers: str) -> Any:
    """Send a request that must be refused; return the answer's status and error."""
    answer = await gateway.ask("POST", "/rpc", body, headers=headers)
    check_answer(answer)
    assert answer.status >= 400
    return answer.status, answer.json["error"]


async def call(gateway: Gateway, method: str, **params: Any) -> Any:
    return await post(gateway, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


# The results


async def test_rule_1_status_has_the_height_as_text_and_the_hash_in_upper_case(
    gateway: Gateway,
) -> None:
    status = await gateway.rpc("status")
    sync = status["sync_info"]
    height = int(sync["latest_block_height"])
    block = await gateway.get(f"/api/block/{height}")
    assert isinstance(sync["latest_block_height"], str)
    assert (sync["latest_block_hash"], sync["latest_block_time"]) == (block["hash"], block["time"])
    assert sync["catching_up"] is False
    assert status["node_info"]["network"] == gateway.ledger.chain_id
    assert status["node_info"]["id"] == NODE_ID
    assert status["validator_info"]["address"] == VALIDATOR.address
    assert status["validator_info"]["voting_power"] == "8"


async def test_rule_1_blocks_commits_and_validators_prove_one_another(gateway: Gateway) -> None:
    _, height = await gateway.do(ALICE, "transfer", to=BOB.key, amount=1)
    found = await gateway.rpc("block", height=str(height))
    assert found == await gateway.rpc("block", height=height)
    block = read_block(found)
    assert block.header.height == height
    assert found["block"]["header"]["height"] == str(height)
    header, commit = read_commit(await gateway.rpc("commit", height=str(height)))
    assert header == block.header
    page = await gateway.rpc("validators", height=str(height), page="1", per_page="100")
    assert (page["block_height"], page["count"], page["total"]) == (str(height), "1", "1")
    (one,) = page["validators"]
    key = base64.b64decode(one["pub_key"]["value"]).hex()
    validators = (CometValidator(key, int(one["voting_power"])),)
    verify_commit(gateway.ledger.chain_id, validators, height, block.id, commit)
    tip = await gateway.rpc("block")
    assert int(tip["block"]["header"]["height"]) >= height
    assert (await gateway.rpc("block", height=None))["block"]["header"]["chain_id"]


async def test_rule_1_queries_answer_raw_with_money_as_integers(gateway: Gateway) -> None:
    data = encode({"public_key": ALICE.key}).hex()
    answer = await gateway.rpc(
        "abci_query", path="/account", data=data.upper(), height="0", prove=False
    )
    response = answer["response"]
    value = json.loads(base64.b64decode(response["value"]))
    assert response["code"] == 0
    assert int(response["height"]) > 0
    assert (value["public_key"], value["nonce"]) == (ALICE.key, 0)
    assert type(value["balance"]) is int
    summary = (await gateway.rpc("abci_query", path="/summary"))["response"]["value"]
    assert json.loads(base64.b64decode(summary))["serving_root"] == ROOT


async def test_rule_1_job_and_jobs_are_query_paths(gateway: Gateway) -> None:
    name = await gateway.infer(ALICE, BOB)

    async def ask(path: str, **options: str) -> Any:
        data = encode(dict(options)).hex()
        response = (await gateway.rpc("abci_query", path=path, data=data))["response"]
        return json.loads(base64.b64decode(response["value"]))

    (job,) = (await ask("/jobs", provider=BOB.key))["jobs"]
    assert (job["id"], job["price"]) == (name, 8000)
    assert (await ask("/job", id=name))["status"] == "pending"
    assert (await ask("/jobs", provider=ALICE.key))["jobs"] == []


async def test_a_rejected_query_is_an_answer_with_code_1(gateway: Gateway) -> None:
    answer = await gateway.rpc("abci_query", path="/account", data=encode({}).hex())
    assert (answer["response"]["code"], answer["response"]["log"]) == (1, "'public_key'")
    assert answer["response"]["value"] is None


async def test_rules_5_and_6_a_broadcast_is_preliminary_and_its_request_is_found_by_id(
    gateway: Gateway,
) -> None:
    info = await gateway.get("/api/inference")
    body = await gateway.body(
        ALICE,
        "infer",
        provider=BOB.key,
        model_root=info["model_root"],
        request={"prompt": "Hello?", "max_tokens": 1},
        price=1000,
        expires=gateway.ledger.height + 6,
    )
    raw = encode(sign_envelope(body, ALICE.seed))
    # The client knows the id before it sends anything, and queries by it if no answer comes.
    name = application_id(body, ALICE.key)
    sent = await gateway.rpc("broadcast_tx_sync", tx=tx(raw))
    assert set(sent) == {"code", "data", "log", "codespace", "hash"}
    assert (sent["code"], sent["hash"]) == (0, hashlib.sha256(raw).hexdigest().upper())
    # The same bytes again are the same request, not another payment; they may be in a block by now.
    params = {"tx": tx(raw)}
    question = {"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync", "params": params}
    assert (await gateway.ask("POST", "/rpc", question)).status in (200, 400)
    await gateway.ledger.wait_transaction(sent["hash"])
    assert (await gateway.get(f"/api/inference/request?id={name}"))["status"] == "pending"
    assert (await gateway.account(ALICE))["nonce"] == 1


async def test_bytes_that_wait_already_get_the_engines_words(gateway: Gateway) -> None:
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=3))
    gateway.ledger.is_waiting = lambda name: True  # type: ignore[method-assign]
    status, text = await call(gateway, "broadcast_tx_sync", tx=tx(raw))
    assert status == 400
    assert json.loads(text)["data"] == "tx already exists in cache"


async def test_status_has_what_cometbfts_clients_require(gateway: Gateway) -> None:
    status = await gateway.rpc("status")
    assert status["node_info"]["listen_addr"].startswith("tcp://")
    assert status["node_info"]["moniker"]
    first = await gateway.rpc("block", height=1)
    assert status["sync_info"]["earliest_block_hash"] == first["block_id"]["hash"]
    assert status["sync_info"]["earliest_block_height"] == "1"
    assert status["validator_info"]["voting_power"] == "8"


async def test_broadcast_commit_waits_for_the_block(gateway: Gateway) -> None:
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=3))
    done = await gateway.rpc("broadcast_tx_commit", tx=tx(raw))
    assert (done["check_tx"]["code"], done["tx_result"]["code"]) == (0, 0)
    height = int(done["height"])
    (shown,) = (await gateway.get(f"/api/block/{height}"))["transactions"]
    assert shown["hash"] == done["hash"]


async def test_a_transaction_that_fails_its_check_is_code_1_with_a_log(gateway: Gateway) -> None:
    body = await gateway.body(ALICE, "transfer", to=BOB.key, amount=1)
    raw = ALICE.sign({**body, "nonce": 7})
    sent = await gateway.rpc("broadcast_tx_sync", tx=tx(raw))
    assert (sent["code"], sent["log"]) == (1, "Wrong account nonce")
    done = await gateway.rpc("broadcast_tx_commit", tx=tx(raw))
    assert (done["check_tx"]["code"], done["height"]) == (1, "0")


# The refusals


async def test_rules_2_and_3_what_is_not_in_the_tables_is_refused(gateway: Gateway) -> None:
    refused = "RPC method is not public"
    for method in ("net_info", "genesis", "unsafe_flush_mempool", "tx", "broadcast_evidence", ""):
        assert await call(gateway, method) == (400, refused)
    for method in ("dial_seeds", "subscribe", "block_search", "dump_consensus_state", "health"):
        assert await call(gateway, method) == (400, refused)
    assert await post(gateway, {"method": 5}) == (400, refused)
    assert await post(gateway, {"method": "status", "params": []}) == (400, refused)
    assert await call(gateway, "status", height=1) == (400, "Unsupported RPC parameter")
    assert await call(gateway, "block", page=1) == (400, "Unsupported RPC parameter")
    only = "Only supported current-state queries are public"
    for path in ("/status", "/store", "/p2p/filter/addr/1", "account", "/account/", "", None):
        assert (await call(gateway, "abci_query", path=path))[1] in (only, "Invalid RPC parameter")
    assert await call(gateway, "abci_query", path="/summary", height=1) == (400, only)
    assert await call(gateway, "abci_query", path="/summary", height=False) == (400, only)
    assert await call(gateway, "abci_query", path="/summary", prove=True) == (400, only)
    assert await call(gateway, "abci_query", path="/summary", data="0x00") == (
        400,
        "Invalid RPC parameter",
    )
    many = "At most 100 validators per page"
    assert await call(gateway, "validators", per_page=101) == (400, many)


async def test_only_one_object_at_a_time(gateway: Gateway) -> None:
    one = {"jsonrpc": "2.0", "id": 1, "method": "status"}
    envelope = (400, "Invalid RPC envelope")
    assert await post(gateway, [one]) == envelope
    assert await post(gateway, [one, one]) == envelope
    assert await post(gateway, []) == envelope
    for body in (b"null", b"1", b'"status"'):
        assert await post(gateway, body) == envelope
    assert await post(gateway, {**one, "extra": 1}) == envelope
    assert await post(gateway, {**one, "jsonrpc": "1.0"}) == envelope
    identifiers: list[Any] = [{}, [], True, 1e300]
    for identifier in identifiers:
        assert await post(gateway, {**one, "id": identifier}) == envelope
    twice = b'{"method":"status","method":"block"}'
    assert await post(gateway, twice) == (400, "Duplicate JSON key")
    inner = b'{"method":"block","params":{"height":1,"height":2}}'
    assert await post(gateway, inner) == (400, "Duplicate JSON key")
    assert await post(gateway, b'{"id":NaN,"method":"status"}') == (400, "Nonfinite JSON number")
    assert (await post(gateway, b'{"method":"status"'))[0] == 400
    assert (await post(gateway, b'\xff{"method":"status"}'))[0] == 400


async def test_ids_are_echoed(gateway: Gateway) -> None:
    for identifier in (None, 0, -5, "", "abc", 2**53, "x" * 10_000):
        body = {"id": identifier, "method": "status"}
        answer = await gateway.ask("POST", "/rpc", body)
        assert (answer.status, answer.json["id"]) == (200, identifier)
    # CometBFT cuts fractions off.
    for fraction, whole in ((1.5, 1), (-0.5, 0)):
        answer = await gateway.ask("POST", "/rpc", {"id": fraction, "method": "status"})
        assert (answer.status, answer.json["id"]) == (200, whole)
    answer = await gateway.ask("POST", "/rpc", {"method": "status"})
    assert answer.json["id"] is None


async def test_a_request_says_its_length_and_is_bounded(gateway: Gateway) -> None:
    size = (400, "Invalid RPC request size")
    assert await post(gateway, b"") == size
    assert await post(gateway, b" " * 32_769) == size
    chunked = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    answer = await gateway.ask("POST", "/rpc", {"method": "status"}, headers=chunked)
    assert (answer.status, answer.json["error"]) == size
    padded = json.dumps({"method": "status"}).encode().ljust(32_768)
    assert (await gateway.ask("POST", "/rpc", padded)).status == 200


async def test_a_transaction_is_checked_before_it_is_relayed(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise AssertionError("this must not reach the ledger")

    monkeypatch.setattr(gateway.ledger, "submit", never)
    body = await gateway.body(ALICE, "transfer", to=BOB.key, amount=1)
    envelope = sign_envelope(body, ALICE.seed)

    async def refusal(raw: bytes) -> str:
        status, text = await call(gateway, "broadcast_tx_sync", tx=tx(raw))
        assert status == 400
        return str(text)

    padded = encode(envelope)[:-1].ljust(16_384) + b"}"
    assert await refusal(padded) == "Transaction exceeds 16 KiB"
    assert await refusal(encode({**envelope, "extra": 1})) == "Invalid signed envelope"
    assert await refusal(encode({**envelope, "public_key": "zz"})) == "Invalid public key"
    assert await refusal(encode({**envelope, "signature": "zz"})) == "Invalid signature encoding"
    forged = {**envelope, "public_key": BOB.key}
    assert await refusal(encode(forged)) == "Signature verification failed"
    changed = {**envelope, "body": {**body, "amount": 2}}
    assert await refusal(encode(changed)) == "Signature verification failed"
    assert (await refusal(b"{")).startswith("Malformed JSON")
    encoding = (400, "Transaction must be base64 of a signed envelope")
    for value in ("%%%", "zz=", 5, ["AA=="], "AA-_"):
        assert await call(gateway, "broadcast_tx_sync", tx=value) == encoding
    assert await call(gateway, "broadcast_tx_sync") == (400, "Invalid RPC parameter")
    assert await call(gateway, "broadcast_tx_commit", tx=None) == (400, "Invalid RPC parameter")


async def test_heights_that_are_not_there_get_the_engines_error_as_text(gateway: Gateway) -> None:
    for method in ("block", "commit", "validators"):
        status, text = await call(gateway, method, height=10**9)
        assert status == 400
        error = json.loads(text)
        assert error["code"] == -32603
        assert "must be less than or equal to" in error["data"]
    for height in (0, "0", -1, "01", "1e3", 1.5, True, 2**63, [1]):
        assert await call(gateway, "block", height=height) == (400, "Invalid RPC parameter")
    status, text = await call(gateway, "validators", page=2)
    assert status == 400
    assert "page should be within [1, 1] range" in json.loads(text)["data"]


async def test_a_node_that_is_not_ready_takes_no_transactions(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=1))
    state = Readiness(False, "stalled", False, True, 60.0)
    monkeypatch.setattr(gateway.ledger, "readiness", lambda: state)
    status, text = await call(gateway, "broadcast_tx_sync", tx=tx(raw))
    assert (status, text) == (503, "the node is not ready: stalled")


async def test_sixteen_may_wait_for_their_blocks(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_calls, "MAX_WAITING_COMMITS", 0)
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=1))
    status, text = await call(gateway, "broadcast_tx_commit", tx=tx(raw))
    assert status == 503
    assert "broadcast_tx_sync" in text


async def test_a_client_that_leaves_gives_its_place_back(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = trio.Event()

    async def forever(_: str) -> None:
        waiting.set()
        await trio.sleep_forever()

    monkeypatch.setattr(gateway.ledger, "wait_transaction", forever)
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: gateway.rpc("broadcast_tx_commit", tx=tx(raw)))
        with trio.fail_after(120):
            await waiting.wait()
        assert gateway.calls._waiting == 1
        nursery.cancel_scope.cancel()
    await wait_until(lambda: not gateway.calls._waiting)
