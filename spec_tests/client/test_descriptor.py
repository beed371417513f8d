"""Descriptors and remembered networks: a client checks the chain before it does anything else."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from meshnode.client.descriptor import REQUIRED, load_descriptor
from meshnode.client.errors import Misused
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file
from spec_tests.client.gateway import ChainGateway, before, lying, run_client, serving
from spec_tests.domain.chain.net import ALICE, BOB, CHAIN_ID, Net, actor, genesis

DONE, REFUSED, MISUSED, UNKNOWN = 0, 1, 2, 3


@pytest.fixture
def gateway() -> Iterator[ChainGateway]:
    with serving(ChainGateway()) as gateway:
        yield gateway


@pytest.fixture
def other_chain() -> Iterator[ChainGateway]:
    """A chain that has the same name and another genesis."""
    net = Net(genesis(accounts=((ALICE.key, 9_000_000),)))
    with serving(ChainGateway(net)) as gateway:
        yield gateway


def export(folder: Path, gateway: ChainGateway, *more: str) -> tuple[int, Path]:
    out = folder / "network.json"
    arguments = ("network", "export", "--out", str(out), "--gateway", gateway.url, *more)
    return run_client(folder, *arguments), out


def give_key(folder: Path) -> None:
    path = folder / "client" / "key.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plain_key_file(key_from_seed(ALICE.seed)))
    path.chmod(0o600)


def test_an_export_has_what_clients_ask_for(tmp_path: Path, gateway: Any) -> None:
    status, out = export(tmp_path, gateway, "--url", "https://mesh.example/", "--name", "Mesh")
    value = json.loads(out.read_bytes())
    assert status == DONE
    assert set(REQUIRED) <= set(value)
    assert value["rpc"] == "https://mesh.example/rpc"
    assert (value["name"], value["release"], value["chain_id"]) == ("Mesh", "0.4.0", CHAIN_ID)
    assert value["network_profile"]["key_format"] == "meshnode-key-v1"
    descriptor = load_descriptor(out)
    assert descriptor.identity.genesis_sha256 == gateway.genesis_sha256
    assert descriptor.api == "https://mesh.example"


@pytest.mark.parametrize(
    ("path", "lie"),
    [
        ("/api/network", lambda answer: answer.update(manifest_hash="0" * 64)),
        ("/network/genesis.json", None),
        ("/network/dataset.json", None),
    ],
)
def test_an_export_is_checked_against_the_genesis(
    tmp_path: Path, gateway: Any, path: str, lie: Any
) -> None:
    assert run_client(tmp_path, "status", "--gateway", gateway.url) == DONE
    fault = lying(lie) if lie else before(lambda handler: handler.send(200, b"{}"))
    gateway.fail(path, fault)
    status, out = export(tmp_path, gateway)
    assert status == REFUSED
    assert not out.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"genesis_sha256": "0" * 63},
        {"api": "ftp://x"},
        {"rpc": ""},
        {"chain_id": 1},
        {"peers": None},
    ],
)
def test_malformed_descriptors(tmp_path: Path, gateway: Any, change: dict[str, Any]) -> None:
    _, out = export(tmp_path, gateway)
    value = json.loads(out.read_bytes()) | change
    if change == {"peers": None}:
        del value["peers"]
    out.write_text(json.dumps(value))
    with pytest.raises(Misused):
        load_descriptor(out)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"a":1,"a":2}', b"\xff"])
def test_files_that_are_not_descriptors(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Misused):
        load_descriptor(tmp_path / "x")


def test_a_descriptor_pins_the_chain_whatever_the_gateway(
    tmp_path: Path, gateway: Any, other_chain: Any
) -> None:
    give_key(tmp_path)
    _, out = export(tmp_path, gateway)
    meant = ("--network", str(out))
    assert run_client(tmp_path, "transfer", BOB.key, "1", *meant) == DONE
    elsewhere = (*meant, "--gateway", other_chain.url)
    assert run_client(tmp_path, "transfer", BOB.key, "1", *elsewhere) == MISUSED
    assert other_chain.broadcasts == []


def test_a_gateway_must_stay_on_the_chain_of_the_first_contact(
    tmp_path: Path, gateway: Any, other_chain: Any
) -> None:
    give_key(tmp_path)
    url = gateway.url
    assert run_client(tmp_path, "status", "--gateway", url) == DONE
    gateway.net = other_chain.net
    assert run_client(tmp_path, "transfer", BOB.key, "1", "--gateway", url) == MISUSED
    assert gateway.broadcasts == []
    assert run_client(tmp_path, "network", "forget", url) == DONE
    assert run_client(tmp_path, "transfer", BOB.key, "1", "--gateway", url) == DONE


def test_variables_choose_gateway_network_and_key(
    tmp_path: Path,
    gateway: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MESHNODE_GATEWAY", gateway.url)
    assert run_client(tmp_path, "status") == DONE
    _, out = export(tmp_path, gateway)
    monkeypatch.setenv("MESHNODE_GATEWAY", "http://127.0.0.1:1")
    monkeypatch.setenv("MESHNODE_NETWORK", str(out))
    assert run_client(tmp_path, "status") == DONE
    give_key(tmp_path / "elsewhere")
    monkeypatch.setenv("MESHNODE_KEY", str(tmp_path / "elsewhere" / "client" / "key.json"))
    capsys.readouterr()
    assert run_client(tmp_path, "key", "show") == DONE
    assert ALICE.key in capsys.readouterr().out


def test_a_network_whose_genesis_names_no_domains(
    tmp_path: Path, gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client takes the domains from the descriptor; without them it cannot sign a bond."""
    give_key(tmp_path)
    consensus = tmp_path / "consensus.key"
    consensus.write_text(actor("newcomer").seed)
    _, out = export(tmp_path, gateway)
    value = json.loads(out.read_bytes())
    strings = value.pop("network_profile")
    out.write_text(json.dumps(value))
    bond = ("bond", "0.5", "--consensus-key", str(consensus), "--network", str(out))
    gateway.fail("/network/genesis.json", before(lambda handler: handler.send(200, b"{}")))
    assert run_client(tmp_path, *bond) == REFUSED
    value["network_profile"] = {**strings, "bond_domain": "another/domain"}
    out.write_text(json.dumps(value))
    # The client signs for the descriptor's domain, which this network does not accept.
    assert run_client(tmp_path, *bond) == REFUSED
    assert "possession" in capsys.readouterr().err
    value["network_profile"] = strings
    out.write_text(json.dumps(value))
    assert run_client(tmp_path, *bond) == DONE


def test_many_commands_at_once_pay_as_often_as_they_say(tmp_path: Path, gateway: Any) -> None:
    give_key(tmp_path)
    assert run_client(tmp_path, "status", "--gateway", gateway.url) == DONE

    def pay(number: int) -> int:
        amount = f"0.{number:06}"
        return run_client(tmp_path, "transfer", BOB.key, amount, "--gateway", gateway.url)

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(pay, range(1, 19)))
    assert set(statuses) <= {DONE, REFUSED, UNKNOWN}
    paid = sum(number for number, status in enumerate(statuses, 1) if status == DONE)
    assert paid
    assert int(gateway.net.account(BOB)["total"]) == 3_000_000 + paid
