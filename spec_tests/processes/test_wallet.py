"""A wallet that is killed at any moment loses no payment and repeats none (decision 0083)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from meshnode.services.keystore import Keystore
from meshnode.services.tokens import TokenStore
from spec_tests.edges.http_server import TOKEN
from spec_tests.processes.wallet import ProcessNode, wallet_process
from spec_tests.services.wallet.wallet_node import FEE, PRICE, STRANGER, WALLET

pytestmark = pytest.mark.process

ATOMS = 1_000_000
PASSPHRASE = "correct horse battery staple"


async def until_settled(node: ProcessNode, token: str) -> tuple[int, list[dict[str, Any]]]:
    """Wait until at most a fee is pending and the index has caught up.

    Returns the pending atoms and the history.
    """
    with trio.fail_after(180):
        while True:
            balances = (await node.balance(token))["balances"]
            history = await node.history(token)
            pending = round(balances["pending"] * ATOMS)
            liquid = round(balances["available"] * ATOMS) + pending
            moved = sum(round(entry["amount"] * ATOMS) for entry in history)
            if pending <= FEE and moved == liquid:
                return pending, history
            await trio.sleep(0.1)


async def test_kill_9_at_any_moment_loses_and_makes_no_atom(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    said: list[bytes] = []
    record, alice = TokenStore(data).issue("alice")
    account = Keystore(data).account(record.id).public_key
    sent: dict[int, bool] = {}
    inferred: dict[int, bool] = {}

    async def send(node: ProcessNode, number: int) -> None:
        sent[number] = False
        body = {"to": STRANGER, "amount": (1 << number) / ATOMS}
        sent[number] = await answered(node.ask("POST", WALLET + "/send", body, alice))

    async def infer(node: ProcessNode, number: int) -> None:
        inferred[number] = False
        inferred[number] = await answered(node.infer(alice, 1 << (number % 9)))

    with wallet_process(data, said) as node:
        body = {"to": account, "amount": 1000}
        assert (await node.ask("POST", WALLET + "/send", body)).json["status"] == "confirmed"
    for number, delay in enumerate((0.01, 0.03, 0.06, 0.1, 0.17)):
        with wallet_process(data, said) as node:
            async with trio.open_nursery() as clients:
                for one in range(3):
                    clients.start_soon(send, node, number * 3 + one)
                    clients.start_soon(infer, node, number * 3 + one)
                await trio.sleep(delay)
                node.process.kill()
    with wallet_process(data, said) as node:
        owed, history = await until_settled(node, alice)
    to_stranger = [
        round(-entry["amount"] * ATOMS) for entry in history if entry.get("to") == STRANGER
    ]
    assert len(set(to_stranger)) == len(to_stranger)
    assert {1 << number for number, known in sent.items() if known} <= set(to_stranger)
    settled = [
        round(-entry["amount"] * ATOMS) + FEE
        for entry in history
        if entry["type"] == "send" and entry["to"] != STRANGER
    ]
    tokens, rest = divmod(sum(settled) + owed, PRICE)
    known = sum(1 << (number % 9) for number, answer in inferred.items() if answer)
    every = sum(1 << (number % 9) for number in inferred)
    assert rest == 0
    assert known <= tokens <= every


async def answered(question: Any) -> bool:
    try:
        found: bool = (await question).status == 200
        return found
    except (OSError, h11.RemoteProtocolError, AssertionError, trio.BrokenResourceError):
        return False


@pytest.mark.parametrize("passphrase", ["", PASSPHRASE])
async def test_no_secret_is_in_anything_that_was_written_or_answered(
    tmp_path: Path, passphrase: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    said: list[bytes] = []
    keys = Keystore(data, passphrase, cost=2**10)
    record, alice = TokenStore(data).issue("alice")
    account = keys.account(record.id).public_key
    seeds = [keys.node_key.seed, keys.signer(account).seed]
    with wallet_process(data, said, passphrase) as node:
        for token, to in ((TOKEN, account), (alice, keys.node_key.public_key)):
            body = {"to": to, "amount": 50}
            assert (await node.ask("POST", WALLET + "/send", body, token)).status in (200, 402)
            stake = {"amount": 2, "duration_days": 1}
            for path, wrong in (("/stake", stake), ("/unstake", {"amount": 1}), ("/send", {})):
                await node.ask("POST", WALLET + path, wrong, token)
            assert (await node.infer(token, 9)).status == 200
            await node.balance(token)
            await node.history(token)
        await node.ask("POST", WALLET + "/send", {"to": seeds[0], "amount": 1})
        await node.ask("GET", WALLET + "/balance", token="mn_" + "x" * 43)
        await until_settled(node, alice)
    hidden = [PASSPHRASE, alice, TOKEN]
    for seed in seeds:
        scalar = hashlib.sha256(seed.encode()).digest()
        hidden += [seed, scalar.hex(), bytes.fromhex(seed).decode("latin-1")]
        hidden += [scalar.decode("latin-1"), str(int.from_bytes(scalar))]
    files = [path for path in data.rglob("*") if path.is_file()]
    key_files = {data / "key.json", *(data / "accounts").iterdir()}
    assert key_files < set(files)
    log = tmp_path / "wallet.log"
    texts = {str(path): path.read_bytes() for path in [*files, log] if path not in key_files}
    texts["answers"] = b"\n".join(said)
    assert len(texts["answers"]) > 1000
    assert log.stat().st_size > 0
    for name, text in texts.items():
        for secret in hidden:
            assert secret.encode("latin-1") not in text, name
    sealed = [path.read_bytes() for path in key_files]
    assert any(seed.encode() in text for seed in seeds for text in sealed) is (not passphrase)
    own = [*key_files, data / "wallet.journal", data / "tokens.json", data / "orders" / "lock"]
    for file in own:
        assert file.stat().st_mode & 0o077 == 0, file
