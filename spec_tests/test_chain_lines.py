"""``meshnode chain``: lines of validators, a genesis of several, and what is refused."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from meshnode.chain_command import (
    ValidatorLine,
    add_chain_arguments,
    own_line,
    run_chain_command,
)
from meshnode.config import build_config
from meshnode.domain.chain.genesis import GenesisFacts, parse_genesis
from meshnode.domain.errors import InvalidRequest, StartupError
from meshnode.services.engine import trusting
from meshnode.services.engine.home import engine_id, node_key
from meshnode.services.keystore import Keystore
from meshnode.services.ledger.validator_key import load_or_create_validator_key
from meshnode.services.work import execution


class Computing:
    """What the chain's model says of itself. Reading the real one takes seconds."""

    def genesis_facts(self) -> GenesisFacts:
        return GenesisFacts("ab" * 32, (2.5).hex())


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "load_execution", lambda *_: Computing())


def act(folder: Path, *arguments: str) -> None:
    """Run an action as the command line does."""
    common, parser = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser()
    add_chain_arguments(parser, common)
    config = build_config({"data_dir": str(folder)})
    run_chain_command(parser.parse_args(arguments), config, "")


def test_show_prints_what_others_must_know_and_makes_the_keys_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        act(tmp_path, "show", "--address", "10.0.0.7:10000")
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    line = ValidatorLine.parse(first)
    key = Keystore(tmp_path, "").node_key
    assert line.owner == key.public_key
    assert line.consensus_key == load_or_create_validator_key(tmp_path).public_key
    assert line.peer == f"{engine_id(node_key(key.seed))}@10.0.0.7:10000"
    assert ValidatorLine.parse(line.text) == line
    assert key.seed not in first


@pytest.mark.parametrize("address", ["10.0.0.7", "10.0.0.7:", ":1", "a b:1", "host:port"])
def test_an_address_without_a_port_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--address: must be HOST:PORT"):
        act(tmp_path, "show", "--address", address)


def test_init_makes_a_genesis_in_which_all_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [own_line(tmp_path / name, f"{name}:10000", "") for name in ("a", "b", "c")]
    out = tmp_path / "genesis.json"
    act(
        *(tmp_path / "a", "init", "--validators", ",".join(one.text for one in lines)),
        *("--out", str(out)),
    )
    start = parse_genesis(out.read_bytes())
    assert [one.owner for one in start.validators] == [one.owner for one in lines]
    assert len({one.bond for one in start.validators}) == 1
    said = capsys.readouterr().out
    peers = ",".join(one.peer for one in lines)
    assert f'MESHNODE_CHAIN_PEERS="{peers}"' in said
    assert 'MESHNODE_CHAIN_ENGINE="cometbft"' in said
    assert 'MESHNODE_CHAIN_GENESIS="genesis.json"' in said
    # A genesis that others may have already is not replaced.
    with pytest.raises(StartupError, match=r"cannot write .*: File exists"):
        act(tmp_path / "a", "init", "--validators", lines[0].text, "--out", str(out))


@pytest.mark.parametrize("text", ["", "x", "02" * 33, "02" + "a" * 64 + ":" + "b" * 64 + ":c"])
def test_what_is_no_line_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match="--validators"):
        act(tmp_path, "init", "--validators", text, "--out", str(tmp_path / "genesis.json"))
    assert not (tmp_path / "genesis.json").exists()


def test_a_validator_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    line = own_line(tmp_path, "a:1", "").text
    with pytest.raises(InvalidRequest, match="names a validator twice"):
        act(
            *(tmp_path, "init", "--validators", f"{line},{line}"),
            *("--out", str(tmp_path / "genesis.json")),
        )


Answers = dict[str, tuple[int, dict[str, object]]]


def answering(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    async def fetch(url: str, path: str, **options: object) -> tuple[int, bytes]:
        status, answer = answers[url + path]
        return status, json.dumps(answer).encode()

    monkeypatch.setattr(trusting, "fetch", fetch)


def nodes(hashes: dict[str, str], engine: str = "cometbft") -> Answers:
    answers: Answers = {}
    for number, (url, found) in enumerate(hashes.items()):
        answers[f"{url}/api/network"] = 200, {"engine": engine, "latest_block_height": 9 + number}
        answers[f"{url}/api/block/9"] = 200, {"chain_id": "chain", "hash": found}
    return answers


def test_trust_prints_the_settings_of_a_new_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, nodes({"http://a:1": "AB" * 32, "http://b:2": "AB" * 32}))
    act(tmp_path, "trust", "http://a:1/", "http://b:2")
    said = capsys.readouterr().out
    assert 'MESHNODE_CHAIN_STATE_SYNC="http://a:1,http://b:2"' in said
    assert f'MESHNODE_CHAIN_TRUST="9:{"AB" * 32}"' in said
    values = {"chain.state_sync": "http://a:1,http://b:2", "chain.trust": f"9:{'AB' * 32}"}
    assert build_config(dict(values)).chain.trust == values["chain.trust"]


def test_trust_refuses_nodes_that_differ_or_are_not_under_cometbft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, nodes({"http://a:1": "AB" * 32, "http://b:2": "CD" * 32}))
    with pytest.raises(StartupError, match="these nodes differ in block 9"):
        act(tmp_path, "trust", "http://a:1", "http://b:2")
    answering(monkeypatch, nodes({"http://a:1": "AB" * 32, "http://b:2": "AB" * 32}, "solo"))
    with pytest.raises(StartupError, match="http://a:1 is not under CometBFT"):
        act(tmp_path, "trust", "http://a:1", "http://b:2")
    answering(monkeypatch, {"http://a:1/api/network": (503, {"error": "x"})})
    with pytest.raises(StartupError, match="is answered with 503"):
        act(tmp_path, "trust", "http://a:1", "http://b:2")


@pytest.mark.parametrize("urls", [["http://a:1"], ["http://a:1", "http://a:1/"], ["a", "b"]])
def test_trust_compares_two_nodes_at_least(tmp_path: Path, urls: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="URL: "):
        act(tmp_path, "trust", *urls)
