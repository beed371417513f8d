"""The engine's folder: what is written at each start, and what never is."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

from meshnode.services.engine.home import (
    EngineSettings,
    StateSync,
    config_text,
    engine_id,
    node_key,
    write_home,
)
from spec_tests.services.ledger.ledgers import GENESIS, KEY

SEED = "0" * 64
SETTINGS = EngineSettings("127.0.0.1:10000", "a@b:1")


def test_the_folder_has_the_nodes_own_keys_and_genesis(tmp_path: Path) -> None:
    home = write_home(tmp_path, GENESIS, KEY, node_key(SEED), SETTINGS)
    assert (home / "config" / "genesis.json").read_bytes() == GENESIS
    key = json.loads((home / "config" / "priv_validator_key.json").read_text())
    private = base64.b64decode(key["priv_key"]["value"])
    assert (private[:32], private[32:].hex()) == (KEY.seed, KEY.public_key)
    assert key["address"] == KEY.address
    assert base64.b64decode(key["pub_key"]["value"]).hex() == KEY.public_key


def test_only_this_user_can_read_the_keys(tmp_path: Path) -> None:
    home = write_home(tmp_path, GENESIS, KEY, node_key(SEED), SETTINGS)
    for path in [home, *home.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_was_signed_is_never_overwritten(tmp_path: Path) -> None:
    home = write_home(tmp_path, GENESIS, KEY, node_key(SEED), SETTINGS)
    signed = home / "data" / "priv_validator_state.json"
    assert json.loads(signed.read_text()) == {"height": "0", "round": 0, "step": 0}
    signed.write_text('{"height": "7", "round": 1, "step": 3}')
    write_home(tmp_path, GENESIS, KEY, node_key(SEED), SETTINGS)
    assert json.loads(signed.read_text())["height"] == "7"


def test_the_configuration_is_toml_and_opens_no_port_but_the_one_for_engines() -> None:
    found = tomllib.loads(config_text(SETTINGS))
    assert found["proxy_app"] == "unix://abci.sock"
    assert found["rpc"]["laddr"] == "unix://rpc.sock"
    assert found["p2p"]["laddr"] == "tcp://127.0.0.1:10000"
    assert found["p2p"]["persistent_peers"] == "a@b:1"
    assert found["statesync"]["enable"] is False


def test_a_moniker_cannot_break_out_of_its_text() -> None:
    nasty = EngineSettings("127.0.0.1:1", moniker='a"\n[rpc]\nunsafe = true')
    assert tomllib.loads(config_text(nasty))["moniker"] == 'a"\n[rpc]\nunsafe = true'


def test_state_sync_is_named_with_what_is_trusted() -> None:
    sync = StateSync(("http://a", "http://b"), 7, "AB" * 32, 3600)
    found = tomllib.loads(config_text(EngineSettings("127.0.0.1:1", state_sync=sync)))
    assert found["statesync"]["enable"] is True
    assert found["statesync"]["rpc_servers"] == "unix://light-0.sock,unix://light-1.sock"
    assert found["statesync"]["trust_period"] == "3600s"
    assert found["statesync"]["trust_height"] == 7
    assert found["statesync"]["trust_hash"] == "AB" * 32


def test_the_engines_id_depends_on_the_nodes_key_alone() -> None:
    assert engine_id(node_key(SEED)) == engine_id(node_key(SEED))
    assert engine_id(node_key(SEED)) != engine_id(node_key("1" * 64))
    assert len(engine_id(node_key(SEED))) == 40
