"""``meshnode token issue --fund`` and ``token sweep`` (decision 0085), with and without a node."""

import argparse
import errno
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.services.keystore import Keystore
from meshnode.services.wallet import orders
from meshnode.services.wallet.orders import FUND, OperatorRequest, place_order
from meshnode.token_command import run_token_command
from spec_tests.edges.http_server import wait_until
from spec_tests.services.wallet.crashing import Fate, living
from spec_tests.services.wallet.wallet_node import STRANGER, WALLET, WalletNode, start_wallet_node


def command(data_dir: Path, action: str, **options: Any) -> None:
    run_token_command(argparse.Namespace(action=action, **{"days": 90.0, **options}), data_dir)


def modes(data_dir: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in data_dir.rglob("*.json")}


def secret_of(text: str) -> str:
    return text.split("shown this once: ")[1].split()[0]


async def in_thread(data_dir: Path, action: str, **options: Any) -> None:
    await trio.to_thread.run_sync(lambda: command(data_dir, action, **options))


async def available(node: WalletNode, token: str) -> float:
    return (await node.balances(token))["available"]


async def test_a_running_node_funds_at_once(
    nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    await in_thread(tmp_path, "issue", name="alice", fund="10.5")
    text = capsys.readouterr().out
    assert ": 10.5 done" in text
    assert await available(node, secret_of(text)) == 10.5
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == ["lock"]
    await in_thread(tmp_path, "issue", name="bob", fund="900000000")
    assert "refused: the node's account has" in capsys.readouterr().out


async def test_a_node_that_is_started_later_funds_once(
    nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Keystore(tmp_path)
    command(tmp_path, "issue", name="alice", fund="3")
    text = capsys.readouterr().out
    assert "noted: the node will do it when it starts" in text
    assert modes(tmp_path) == {0o600}
    for _ in range(3):
        node = await start_wallet_node(nursery, tmp_path)
        await wait_until(lambda: not any((tmp_path / "orders").glob("*.json")))
        assert await available(node, secret_of(text)) == 3.0
        await node.stop()


async def test_orders_wait_while_their_folder_cannot_be_read(
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    account = Keystore(tmp_path).account("ab" * 6).public_key
    failures = {"glob": 2, "read_bytes": 2}

    def short_at(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Path, *arguments: str) -> Any:
            if "orders" in path.parts and failures[name]:
                failures[name] -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return method(path, *arguments)

        return called

    for name in failures:
        monkeypatch.setattr(Path, name, short_at(name, getattr(Path, name)))
    monkeypatch.setattr(orders, "LOOK_EVERY_S", 0.01)
    order = place_order(tmp_path, OperatorRequest(FUND, account, 2_000_000))
    answer = tmp_path / "orders" / f"{order}.done"
    await wait_until(answer.exists)
    assert answer.read_text() == "committed"
    assert not any(failures.values())
    assert caplog.text.count("cannot read the orders") == 1
    await node.stop()


@pytest.mark.parametrize("at", range(8))
async def test_an_order_is_carried_out_once_whenever_the_node_dies(tmp_path: Path, at: int) -> None:
    account = Keystore(tmp_path).account("ab" * 6).public_key
    name = place_order(tmp_path, OperatorRequest(FUND, account, 2_000_000))
    answer = tmp_path / "orders" / f"{name}.done"
    fate = Fate(at)
    async with living(tmp_path, fate):
        await wait_until(lambda: fate.dead or answer.exists())
    async with living(tmp_path, Fate()) as node:
        await wait_until(answer.exists)
        assert answer.read_text() == "committed"
        result = await node.ledger.query("/account", {"public_key": account})
        assert json.loads(result.value)["total"] == 2_000_000


async def test_the_balance_of_a_revoked_token_can_be_swept(
    nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 5)
    assert (await node.infer(alice, 100)).status == 200  # owed, and not settled yet
    with pytest.raises(InvalidRequest, match="revoke it first"):
        command(tmp_path, "sweep", which="alice")
    account = node.key_of(alice)
    command(tmp_path, "revoke", which="alice")
    assert (await node.ask("GET", WALLET + "/balance", token=alice)).status == 401
    before = await available(node, "test-operator-token")
    await in_thread(tmp_path, "sweep", which="alice")
    assert "sweep done" in capsys.readouterr().out
    assert await available(node, "test-operator-token") == pytest.approx(before + 4.999)
    assert json.loads((await node.ledger.query("/account", {"public_key": account})).value)[
        "total"
    ] == 0  # fmt: skip
    await in_thread(tmp_path, "sweep", which="alice")
    assert "refused: there is nothing to move" in capsys.readouterr().out
    with pytest.raises(InvalidRequest, match="no account"):
        command(tmp_path, "sweep", which="nobody")


async def test_a_sweep_names_the_stake_that_it_leaves(
    nursery: trio.Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_wallet_node(nursery, tmp_path)
    alice = node.issue("alice")
    await node.fund(alice, 5)
    body = {"amount": 2, "duration_days": 30}
    assert (await node.ask("POST", WALLET + "/stake", body, alice)).status == 200
    command(tmp_path, "revoke", which="alice")
    capsys.readouterr()
    for outcome in ("done", "refused: there is nothing to move"):
        await in_thread(tmp_path, "sweep", which="alice")
        said = capsys.readouterr().out
        assert f"sweep {outcome}; staked or cooling down, and left there: 2\n" in said
        assert "meshnode unstake AMOUNT --key" in said


@pytest.mark.parametrize("fund", ["", "0", "-1", "1e3", "x", "0.0000001"])
def test_a_bad_amount_makes_no_token(tmp_path: Path, fund: str) -> None:
    Keystore(tmp_path)
    with pytest.raises(InvalidRequest, match="--fund"):
        command(tmp_path, "issue", name="alice", fund=fund)
    assert not (tmp_path / "tokens.json").exists()


def test_sealed_keys_need_their_passphrase(tmp_path: Path) -> None:
    Keystore(tmp_path, "open sesame", cost=2)
    with pytest.raises(StartupError, match="set MESHNODE_KEY_PASSPHRASE"):
        command(tmp_path, "issue", name="alice", fund="1")
    assert not (tmp_path / "tokens.json").exists()


async def test_a_file_that_is_not_a_valid_order_is_answered_and_removed(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    for number, text in enumerate(
        ["", "[]", "{}", '{"kind": "fund", "account": "x", "atoms": 1}',
         f'{{"kind": "fund", "account": "{STRANGER}", "atoms": -1}}']
    ):  # fmt: skip
        (folder / f"{number:032x}.json").write_text(text)
    node = await start_wallet_node(nursery, tmp_path)
    await wait_until(lambda: len(list(folder.glob("*.done"))) == 5)
    assert await available(node, "test-operator-token") == 900_000.0
