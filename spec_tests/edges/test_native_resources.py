"""Interface 4.2, resources: the bodies that clients of the public network read."""

import base64
import hashlib
import itertools
import json
from pathlib import Path

import pytest
import trio

from meshnode.domain.chain.envelope import transaction_hash
from meshnode.services.gateway import reader
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    FEE,
    LOSS,
    PROFILE,
    ROOT,
    VALIDATOR,
    next_root,
)
from spec_tests.edges.native_gateway import DATASET, NODE_ID, WORKERS, Gateway, start_gateway


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


NETWORK = {
    "chain_id",
    "height",
    "time_ns",
    "round",
    "model_root",
    "serving_root",
    "issued",
    "burned",
    "initial_supply",
    "last_training_loss_hex",
    "validation_loss_hex",
    "serving_loss_hex",
    "params",
    "profile",
    "lease",
    "last_training_evaluation",
    "validator_count",
    "total_voting_power",
    "account_count",
    "manifest_hash",
    "app_hash",
    "pending_inference",
    "ready",
    "stalled",
    "seconds_since_block",
    "catching_up",
    "genesis_sha256",
    "node_id",
    "engine",
    "earliest_block_height",
    "bootstrap_peers",
    "latest_block_height",
    "latest_block_hash",
    "latest_block_time",
    "observation",
    "reason",
    "trouble",
}
PARAMS = {
    "activation_blocks",
    "atom_scale",
    "bond_unit",
    "epoch_blocks",
    "evidence_blocks",
    "evidence_seconds",
    "fee",
    "inference_blocks",
    "inference_token_price",
    "lease_blocks",
    "max_training_tasks",
    "max_tx_bytes",
    "reservation_bond",
    "task_budget",
    "worker_budget",
}


async def test_network_has_identity_state_supply_and_readiness(gateway: Gateway) -> None:
    network = await gateway.get("/api/network")
    assert set(network) == NETWORK
    assert network["genesis_sha256"] == hashlib.sha256(gateway.ledger.genesis_bytes).hexdigest()
    assert (network["node_id"], network["bootstrap_peers"]) == (NODE_ID, ["127.0.0.1:9000"])
    assert network["ready"] is True
    assert (network["reason"], network["stalled"], network["catching_up"]) == ("ok", False, False)
    assert set(network["params"]) == PARAMS
    # Amounts are text; only those of the parameters and of the lease stay integers.
    assert all(type(value) is int for value in network["params"].values())
    assert [type(network[name]) for name in ("issued", "burned", "initial_supply")] == [str] * 3
    assert (network["lease"], network["last_training_loss_hex"]) == (None, None)
    assert network["last_training_evaluation"] is None
    assert network["app_hash"] == network["app_hash"].lower()


async def test_network_shows_the_lease_with_money_as_integers(gateway: Gateway) -> None:
    task_id, _ = await gateway.do(
        ALICE,
        "reserve",
        task_kind="train",
        parent=ROOT,
        round=0,
        workers=[worker.key for worker in WORKERS],
        request={},
        price=0,
    )
    lease = (await gateway.get("/api/network"))["lease"]
    names = ("task_id", "owner", "workers", "task_kind", "request", "price", "escrow")
    assert set(lease) == {*names, "expires", "parent", "round"}
    assert (lease["task_id"], lease["price"], lease["escrow"]) == (task_id, 0, 2_000_000)


async def test_network_shows_a_block_and_the_state_that_it_made(gateway: Gateway) -> None:
    async def spend() -> None:
        await gateway.next_block(10)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        nursery.start_soon(spend)
        while True:
            network = await gateway.get("/api/network")
            assert network["latest_block_height"] == network["height"]
            block = await gateway.get(f"/api/block/{network['height']}")
            assert network["latest_block_hash"] == block["hash"]
            assert network["latest_block_time"] == block["time"]
    following = await gateway.ledger.wait_beyond(network["height"])
    header = await gateway.get(f"/api/block/{network['height'] + 1}")
    assert following > network["height"]
    assert header["app_hash"] == network["app_hash"]
    assert header["app_state_height"] == network["height"]


async def test_manifest_is_that_of_the_genesis(gateway: Gateway) -> None:
    genesis = json.loads(gateway.ledger.genesis_bytes)
    assert await gateway.get("/api/manifest") == genesis["app_state"]["manifest"]


async def test_model_counts_parameters_and_compares_losses(gateway: Gateway) -> None:
    model = await gateway.get("/api/model")
    trained, base = model["trainable_parameter_count"], model["base_parameter_count"]
    assert model["parameter_count"] == trained + base
    assert (model["model_root"], model["serving_root"]) == (ROOT, ROOT)
    loss = float.fromhex(LOSS)
    assert (model["validation_loss"], model["serving_validation_loss"]) == (loss, loss)
    assert model["last_training_loss"] is None
    assert {"chain_id", "height", "round", "genesis_sha256", "model_name"} <= set(model)
    assert {"model_source", "model_revision", "execution", "metric"} <= set(model)
    await gateway.train(ALICE)
    model = await gateway.get("/api/model")
    assert (model["round"], model["last_training_loss"]) == (1, 3.5)
    assert model["model_root"] == next_root(0) == model["last_training_evaluation"]["model_root"]


async def test_checkpoint_is_the_latest_training_adapter(gateway: Gateway) -> None:
    await gateway.train(ALICE)
    checkpoint = await gateway.get("/api/model/checkpoint.json")
    assert checkpoint["format"] == PROFILE.checkpoint_format
    assert checkpoint["model_root"] == next_root(0)
    assert checkpoint["round"] == 1
    assert checkpoint["state_height"] <= gateway.ledger.height
    assert set(checkpoint["weights"]) == {"a", "b"}
    assert base64.b64decode(checkpoint["weights"]["a"]["data"]) == bytes(4)
    names = {"chain_id", "genesis_sha256", "encoding"}
    assert names <= set(checkpoint)


async def test_training_lists_accepted_updates_newest_first(gateway: Gateway) -> None:
    tasks = [await gateway.train(ALICE) for _ in range(3)]
    await gateway.indexed()
    training = await gateway.get("/api/training")
    assert [record["round"] for record in training["records"]] == [3, 2, 1]
    assert [record["task_id"] for record in training["records"]] == [
        task_id for task_id, _ in reversed(tasks)
    ]
    assert (training["indexed_rounds"], training["next_before"]) == (3, None)
    assert training["error"] is None
    assert training["indexed_height"] <= training["chain_height"]
    assert training["chain_id"] == gateway.ledger.chain_id
    newest = training["records"][0]
    assert newest["height"] == tasks[-1][1]
    block = await gateway.get(f"/api/block/{newest['height']}")
    assert (newest["block_hash"], newest["time"]) == (block["hash"], block["time"])
    assert newest["transaction_hash"] == block["transactions"][0]["hash"]
    assert newest["workers"] == [worker.key for worker in WORKERS]
    assert newest["model_root"] == next_root(2)
    assert (newest["loss"], newest["loss_hex"]) == (3.25, (3.25).hex())


async def test_training_before_is_a_round_number(gateway: Gateway) -> None:
    for _ in range(3):
        await gateway.train(ALICE)
    await gateway.indexed()
    page = await gateway.get("/api/training?before=3&limit=1")
    assert [record["round"] for record in page["records"]] == [2]
    assert page["next_before"] == 2
    # Pages continue each other although a newer record was added in between.
    await gateway.train(ALICE)
    await gateway.indexed()
    page = await gateway.get(f"/api/training?before={page['next_before']}&limit=1")
    assert [record["round"] for record in page["records"]] == [1]
    assert page["next_before"] is None
    assert (await gateway.get("/api/training?before=1"))["records"] == []
    assert (await gateway.get("/api/training?before=0"))["records"] == []


async def test_blocks_page_by_height_and_hang_together(gateway: Gateway) -> None:
    await gateway.next_block(4)
    first = await gateway.get("/api/blocks?limit=3")
    await gateway.next_block(2)
    second = await gateway.get(f"/api/blocks?limit=3&before={first['next_before']}")
    blocks = first["blocks"] + second["blocks"]
    top = blocks[0]["height"]
    assert [block["height"] for block in blocks] == list(range(top, top - len(blocks), -1))
    for newer, older in itertools.pairwise(blocks):
        assert newer["previous_hash"] == older["hash"]
    assert (await gateway.get("/api/blocks?before=2&limit=1"))["next_before"] is None
    assert (await gateway.get("/api/blocks?before=1"))["blocks"] == []
    last = await gateway.get("/api/block/1")
    assert last["previous_hash"] == ""
    assert len((await gateway.get("/api/blocks"))["blocks"]) <= 10


async def test_a_block_shows_its_signed_transactions_decoded(gateway: Gateway) -> None:
    name, height = await gateway.do(ALICE, "transfer", to=BOB.key, amount=5)
    block = await gateway.get(f"/api/block/{height}")
    (shown,) = block["transactions"]
    stored = await gateway.ledger.block(height)
    assert stored is not None
    assert shown["hash"] == transaction_hash(stored.transactions[0])
    # The application id of a transaction is not its hash.
    assert shown["id"] == name
    assert shown["hash"].lower() != name
    assert (shown["kind"], shown["sender"], shown["code"]) == ("transfer", ALICE.key, 0)
    # Amounts in a body are text; other numbers, such as the nonce, are not.
    assert (shown["body"]["amount"], shown["body"]["to"]) == ("5", BOB.key)
    assert type(shown["body"]["nonce"]) is int
    assert "signature" not in json.dumps(block)


async def test_account_has_available_locked_total_and_the_next_nonce(gateway: Gateway) -> None:
    before = await gateway.account(ALICE)
    assert set(before) == {"public_key", "balance", "locked", "total", "nonce"}
    assert (before["nonce"], before["locked"]) == (0, "0")
    await gateway.infer(ALICE, BOB)
    after = await gateway.account(ALICE)
    assert (after["nonce"], after["locked"]) == (1, "8000")
    assert int(after["balance"]) == int(before["balance"]) - 8000 - FEE
    assert int(after["total"]) == int(after["balance"]) + 8000
    unknown = await gateway.account(CAROL)
    assert (unknown["balance"], unknown["total"], unknown["nonce"]) == ("0", "0", 0)


async def test_rule_4_validators_page_by_consensus_key(gateway: Gateway) -> None:
    page = await gateway.get("/api/validators")
    (one,) = page["validators"]
    assert set(one) == {"public_key", "power", "owner", "bond"}
    assert (one["public_key"], one["owner"]) == (VALIDATOR.consensus_key, VALIDATOR.key)
    assert (one["power"], one["bond"]) == (8, str(8 * 250_000))
    assert (page["total"], page["next_after"]) == (1, None)
    full = await gateway.get("/api/validators?limit=1")
    assert full["next_after"] == VALIDATOR.consensus_key
    rest = await gateway.get(f"/api/validators?limit=1&after={full['next_after']}")
    assert (rest["validators"], rest["next_after"]) == ([], None)


async def test_inference_says_whom_to_ask_and_what_it_costs(gateway: Gateway) -> None:
    info = await gateway.get("/api/inference")
    assert (info["provider"], info["provider_online"]) == (BOB.key, True)
    assert (info["fee_atoms"], info["price_per_max_token_atoms"]) == ("1000", "1000")
    assert (info["max_tokens"], info["request_lifetime_blocks"]) == (64, 8)
    assert (info["pending_requests"], info["public_prompts"]) == (0, True)
    assert info["model_root"] == ROOT
    names = {"chain_id", "genesis_sha256", "model_name", "verification", "scope"}
    assert names | {"provider_connected", "network_ready", "seconds_since_block"} <= set(info)
    await gateway.infer(ALICE, BOB)
    gateway.provider_online[0] = False
    info = await gateway.get("/api/inference")
    assert (info["pending_requests"], info["provider_online"]) == (1, False)


async def test_a_request_is_pending_then_completed(gateway: Gateway) -> None:
    name = await gateway.infer(ALICE, BOB)
    pending = await gateway.get(f"/api/inference/request?id={name}")
    assert set(pending) == {
        "id",
        "status",
        "owner",
        "provider",
        "model_root",
        "request",
        "price",
        "expires",
        "created_height",
    }
    assert (pending["status"], pending["price"]) == ("pending", "8000")
    await gateway.respond(BOB, name)
    done = await gateway.get(f"/api/inference/request?id={name}")
    assert set(done) == {
        "id",
        "status",
        "owner",
        "provider",
        "model_root",
        "output",
        "price",
        "provider_paid",
        "height",
    }
    assert (done["status"], done["price"], done["provider_paid"]) == ("completed", "8000", "6400")
    assert set(done["output"]) == {"text", "token_ids", "model_root", "request_root"}


async def test_a_request_without_an_answer_expires_and_is_refunded(gateway: Gateway) -> None:
    before = int((await gateway.account(ALICE))["total"])
    name = await gateway.infer(ALICE, BOB, lifetime=3)
    await gateway.next_block(4)
    expired = await gateway.get(f"/api/inference/request?id={name}")
    assert set(expired) == {"id", "status", "owner", "provider", "model_root", "refunded", "height"}
    assert (expired["status"], expired["refunded"]) == ("expired", "8000")
    account = await gateway.account(ALICE)
    assert (account["locked"], int(account["total"])) == ("0", before - FEE)


async def test_the_latest_finished_requests_are_kept(gateway: Gateway) -> None:
    kept = PROFILE.limits.finished_jobs
    names = []
    for _ in range(kept + 1):
        names.append(await gateway.infer(ALICE, BOB, lifetime=8))
        await gateway.respond(BOB, names[-1])
    for name in names[1:]:
        done = await gateway.get(f"/api/inference/request?id={name}")
        assert done["status"] == "completed"
    forgotten = await gateway.get(f"/api/inference/request?id={names[0]}", 400)
    assert "not found in current state" in forgotten["error"]


async def test_genesis_and_dataset_are_byte_for_byte(gateway: Gateway) -> None:
    genesis = await gateway.ask("GET", "/network/genesis.json")
    assert (genesis.status, genesis.body) == (200, gateway.ledger.genesis_bytes)
    dataset = await gateway.ask("GET", "/network/dataset.json")
    assert (dataset.status, dataset.body) == (200, DATASET)


async def test_without_model_or_index_their_routes_say_so(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    gateway = await start_gateway(nursery, tmp_path, with_index=False, provider=None)
    gateway.reader.execution = None
    for path in ("/api/model", "/api/model/checkpoint.json", "/network/dataset.json"):
        await gateway.get(path, 503)
    await gateway.get("/api/training", 503)
    info = await gateway.get("/api/inference")
    assert (info["provider"], info["provider_online"]) == (None, False)


async def test_a_page_of_full_blocks_ends_early_and_goes_on(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE_BYTES", 600)
    monkeypatch.setattr(reader, "VIEW_IN_THREAD_BYTES", 0)
    await gateway.next_block(5)
    seen, before = [], ""
    while before != "&before=None":
        page = await gateway.get("/api/blocks?limit=20" + before)
        assert len(page["blocks"]) >= 1
        seen += [block["height"] for block in page["blocks"]]
        before = f"&before={page['next_before']}"
    assert seen == list(range(seen[0], 0, -1))
    assert len(seen) > 5
