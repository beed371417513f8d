"""Clients of the node's own gateway: ours, and one made from the facts about release 0.4.0.

The second sends and requires the same as the public network's client: canonical bodies, ``id`` 1,
hex queries without ``data`` for the summary, strict base64, no ``error`` member.
"""

import base64
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.chain.canonical import encode
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file
from spec_tests.client.gateway import run_client
from spec_tests.domain.chain.net import ALICE, BOB, Actor, actor
from spec_tests.edges.native_gateway import Gateway, start_gateway

pytestmark = pytest.mark.wire

DONE, REFUSED = 0, 1
REQUIRED = {
    "chain_id",
    "genesis_sha256",
    "genesis_url",
    "rpc",
    "api",
    "peers",
    "dataset_url",
    "model_mirrors",
}


async def answer_jobs(gateway: Gateway) -> None:
    """Answer all jobs of a provider at each new block."""
    height = 0
    while True:
        height = await gateway.ledger.wait_beyond(height)
        result = await gateway.ledger.query("/jobs", {"provider": BOB.key})
        for job in json.loads(result.value)["jobs"]:
            await gateway.respond(BOB, job["id"])


async def running(nursery: trio.Nursery, folder: Path) -> Gateway:
    await trio.Path(folder).mkdir()
    gateway = await start_gateway(nursery, folder)
    nursery.start_soon(answer_jobs, gateway)
    return gateway


def url_of(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address[1]}"


def give_key(folder: Path, who: Actor) -> None:
    path = folder / "client" / "key.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(plain_key_file(key_from_seed(who.seed)))
    path.chmod(0o600)


async def test_our_client_does_everything(
    nursery: trio.Nursery, tmp_path: Path, capsys: Any
) -> None:
    home = tmp_path / "home"
    give_key(home, ALICE)
    gateway = await running(nursery, tmp_path / "node")

    async def do(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        more = (*arguments, "--json", "--gateway", url_of(gateway))
        status = await trio.to_thread.run_sync(run_client, home, *more)
        return status, json.loads(capsys.readouterr().out)

    assert (await do("status"))[1]["network"]["ready"] is True
    status, sent = await do("transfer", BOB.key, "2.5")
    assert (status, sent["state"]) == (DONE, "committed")
    status, block = await do("block", str(sent["height"]))
    assert (status, block["transactions"][0]["hash"]) == (DONE, sent["transaction_hash"])
    status, answer = await do("infer", "What is the capital of France?", "--max-tokens", "8")
    assert (status, answer["status"]) == (DONE, "completed")
    assert (await do("request", answer["id"])) == (DONE, answer)
    assert (await do("stake", "1", "--days", "1"))[0] == DONE
    assert (await do("account"))[1]["stake"]["amount"] == 1_000_000
    assert (await do("unstake", "1"))[0] == REFUSED
    assert len((await do("validators"))[1]["validators"]) == 1
    states = [one["state"] for one in (await do("outbox"))[1]]
    assert states == ["refused", "committed", "committed", "committed"]


class ExistingClient:
    """What a client of the public network, release 0.4.0, sends and accepts."""

    def __init__(self, descriptor: dict[str, Any], who: Actor) -> None:
        assert set(descriptor) >= REQUIRED
        self.descriptor, self.who = descriptor, who

    def http(self, url: str, body: Any = None) -> Any:
        assert url.startswith("http://127.0.0.1:")
        data = None if body is None else encode(body)
        headers = {"Content-Type": "application/json", "User-Agent": "NeuroShard/0.4"}
        request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - see above
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - see above
            raw = response.read(8 * 1024 * 1024 + 1)
        return json.loads(raw)

    def rpc(self, method: str, params: dict[str, Any]) -> Any:
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = self.http(self.descriptor["rpc"], envelope)
        assert "error" not in response
        return response["result"]

    def refused(self, method: str) -> tuple[int, Any]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.rpc(method, {})
        with caught.value as answer:
            return answer.code, json.loads(answer.read())["error"]

    def query(self, path: str, data: Any = None) -> Any:
        params: dict[str, Any] = {"path": path, "prove": False}
        if data is not None:
            params["data"] = encode(data).hex()
        response = self.rpc("abci_query", params)["response"]
        assert not response.get("code", 0), response["log"]
        return json.loads(base64.b64decode(response["value"], validate=True))

    def account(self) -> dict[str, int]:
        found: dict[str, int] = self.query("/account", {"public_key": self.who.key})
        return found

    def sign(self, kind: str, **fields: Any) -> tuple[str, bytes]:
        chain_id, nonce = self.descriptor["chain_id"], self.account()["nonce"]
        raw = self.who.sign({"kind": kind, "chain_id": chain_id, "nonce": nonce, **fields})
        envelope = json.loads(raw)
        named = {"body": envelope["body"], "public_key": envelope["public_key"]}
        return hashlib.sha256(encode(named)).hexdigest(), raw

    def broadcast(self, raw: bytes) -> Any:
        result = self.rpc("broadcast_tx_sync", {"tx": base64.b64encode(raw).decode()})
        assert not result.get("code", 0), result["log"]
        return result

    def chat(self, prompt: str) -> str:
        status, info = self.query("/summary"), self.http(self.descriptor["api"] + "/api/inference")
        for name in ("chain_id", "genesis_sha256"):
            assert info[name] == self.descriptor[name]
        assert info["provider_online"] is True
        tokens = 32
        assert 1 <= tokens <= info["max_tokens"]
        price, fee = tokens * int(info["price_per_max_token_atoms"]), int(info["fee_atoms"])
        assert price + fee <= 100_000
        assert self.account()["balance"] >= price + fee
        name, raw = self.sign(
            "infer",
            provider=info["provider"],
            model_root=status["serving_root"],
            request={"prompt": prompt, "max_tokens": tokens},
            price=price,
            expires=status["height"] + min(120, int(info["request_lifetime_blocks"])),
        )
        self.broadcast(raw)
        return name


async def test_a_client_of_the_public_network(nursery: trio.Nursery, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "network.json"
    gateway = await running(nursery, tmp_path / "node")

    async def off(work: Callable[..., Any], *arguments: Any) -> Any:
        return await trio.to_thread.run_sync(work, *arguments)

    export = ("network", "export", "--out", str(out), "--gateway", url_of(gateway))
    assert await off(run_client, home, *export) == DONE
    client = ExistingClient(json.loads(out.read_text()), ALICE)
    summary = await off(client.query, "/summary")
    assert summary["chain_id"] == client.descriptor["chain_id"]
    assert {"height", "round", "serving_root"} <= set(summary)
    assert summary["params"]["fee"] == 1000
    account = await off(client.account)
    assert type(account["balance"]) is int
    assert account["locked"] == 0
    _, raw = await off(lambda: client.sign("transfer", to=actor("eve").key, amount=5))
    result = await off(client.broadcast, raw)
    assert result["hash"] == hashlib.sha256(raw).hexdigest().upper()
    with trio.fail_after(120):
        await gateway.ledger.wait_transaction(result["hash"])
    name = await off(client.chat, "What is the capital of France?")
    with trio.fail_after(120):
        job: dict[str, Any] = {"status": "pending"}
        while job["status"] == "pending":
            await gateway.ledger.wait_beyond(gateway.ledger.height)
            job = await off(client.query, "/job", {"id": name})
    assert job["status"] == "completed"
    assert isinstance(job["output"]["text"], str)
    assert type(job["provider_paid"]) is int
    # The path that the website uses gives money as text.
    shown = await off(client.http, f"{url_of(gateway)}/api/inference/request?id={name}")
    assert shown["provider_paid"] == str(job["provider_paid"])
    # A full node would start with these: the genesis with its hash, the tip, a block.
    genesis = await off(client.http, client.descriptor["genesis_url"])
    assert hashlib.sha256(encode(genesis)).hexdigest() == client.descriptor["genesis_sha256"]
    network = await off(client.http, f"{url_of(gateway)}/api/network")
    height = network["latest_block_height"]
    block = await off(client.rpc, "block", {"height": str(height)})
    assert block["block_id"]["hash"] == network["latest_block_hash"]
    assert (await off(client.rpc, "status", {}))["sync_info"]["catching_up"] is False
    # A refusal is a 400 whose error is a string.
    status, error = await off(client.refused, "tx_search")
    assert (status, type(error)) == (400, str)
