"""The genesis document: read back exactly, or refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from meshnode.domain.chain.application import Application
from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.errors import InvalidGenesis, MalformedJson
from meshnode.domain.chain.genesis import (
    Genesis,
    genesis_document,
    initial_root,
    initial_state,
    parse_genesis,
)
from meshnode.domain.chain.profile import NATIVE_KINDS, NetworkProfile, Params
from meshnode.domain.chain.statetree import MemoryStore
from spec_tests.domain.chain.net import ALICE, BOB, UNIT, VALIDATOR, FakeModel, Net, genesis


def document(start: Genesis | None = None) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(encode(genesis_document(start or genesis())))
    return data


def test_a_genesis_is_read_back_as_it_was_written() -> None:
    start = genesis(extra={"model": {"max_new_tokens": 64}, "rate": 0.02})
    assert parse_genesis(encode(genesis_document(start))) == start


def test_the_document_has_cometbft_s_shape() -> None:
    shape = document()
    assert set(shape) == {
        "app_hash",
        "app_state",
        "chain_id",
        "consensus_params",
        "genesis_time",
        "initial_height",
        "validators",
    }
    (validator,) = shape["validators"]
    assert (validator["address"], validator["power"]) == (VALIDATOR.address, "8")
    assert shape["app_hash"] == initial_root(genesis()).hex().upper()
    assert len(shape["app_state"]["manifest"]["params"]) == 15


def test_the_first_state_is_the_genesis_s() -> None:
    net = Net()
    assert net.app.app_hash == initial_root(genesis())
    assert net.app.height == 0
    supply = 8 * UNIT + 10_000_000 + 5_000_000 + 3_000_000
    assert net.query("/summary")["initial_supply"] == supply


def test_the_public_network_s_values_fit_a_profile() -> None:
    # The network's strings occur here and in its genesis, not in the node's code.
    profile = NetworkProfile(
        name="llm-testnet",
        kinds=NATIVE_KINDS,
        bond_domain="neuroshard/validator-bond/v2",
        work_domain="neuroshard/outbound-work/v1",
        batch_domain="neuroshard/adapter-batch/v1",
        key_format="neuroshard-key-v1",
        checkpoint_format="neuroshard-checkpoint-v1",
        params=Params(),
    )
    start = genesis(profile)
    assert parse_genesis(encode(genesis_document(start))).profile == profile


def test_every_value_of_the_manifest_is_in_the_state_root() -> None:
    base = genesis()
    others = [
        genesis(extra={"model": "another"}),
        genesis(replace(base.profile, params=replace(base.profile.params, fee=1001))),
        genesis(chain_id="test-chain-2"),
        genesis(accounts=((ALICE.key, 5_000_000), (BOB.key, 3_000_001))),
    ]
    roots = {initial_root(start) for start in [base, *others]}
    assert len(roots) == 5


Edit = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.pop("app_state"),
        lambda d: d.update(extra=1),
        lambda d: d.update(app_hash="00" * 32),
        lambda d: d.update(initial_height="2"),
        lambda d: d.update(chain_id=5),
        lambda d: d.update(genesis_time=5),
        lambda d: d.update(genesis_time=""),
        lambda d: d.update(genesis_time="2026-02-30T00:00:00Z"),
        lambda d: d.update(genesis_time="1969-12-31T23:59:59.9Z"),
        lambda d: d["app_state"].update(validators=[]),
        lambda d: d["app_state"].update(accounts=None),
        lambda d: d["app_state"]["validators"][0].update(bond=UNIT + 1),
        lambda d: d["app_state"]["validators"][0].update(bond=True),
        lambda d: d["app_state"]["validators"][0].pop("liquid"),
        lambda d: d["app_state"]["validators"].append(d["app_state"]["validators"][0]),
        lambda d: d["app_state"]["accounts"][0].update(liquid=-1),
        lambda d: d["app_state"]["accounts"][0].update(owner="nobody"),
        lambda d: d["app_state"]["manifest"].pop("network"),
        lambda d: d["app_state"]["manifest"]["params"].pop("fee"),
        lambda d: d["app_state"]["manifest"]["params"].update(fee="1000"),
        lambda d: d["app_state"]["manifest"]["params"].update(fee=2**61),
        lambda d: d["app_state"]["manifest"]["params"].update(worker_budget=1_000_001),
        lambda d: d["app_state"]["manifest"]["params"].update(bond_unit=0),
        lambda d: d["app_state"]["manifest"]["network"]["kinds"].append("mint"),
        lambda d: d["app_state"]["manifest"]["network"].update(unknown=1),
        lambda d: d["app_state"]["manifest"].update(initial_model_root="0"),
        lambda d: d["app_state"]["manifest"].update(initial_validation_loss_hex="4.0"),
        lambda d: d["app_state"]["manifest"].update(initial_validation_loss_hex="inf"),
        lambda d: d["validators"][0].update(power="9"),
    ],
)
def test_anything_else_is_refused(edit: Edit) -> None:
    changed = document()
    edit(changed)
    with pytest.raises(InvalidGenesis):
        parse_genesis(encode(changed))


@pytest.mark.parametrize("value", [[], None, 5, "x"])
def test_other_shapes_are_refused(value: Json) -> None:
    with pytest.raises(InvalidGenesis):
        parse_genesis(encode(value))
    with pytest.raises(MalformedJson):
        parse_genesis(b"{")


def test_accounts_of_the_genesis_add_up_when_named_twice() -> None:
    start = genesis(accounts=((ALICE.key, 1), (ALICE.key, 2)))
    store = MemoryStore()
    store.write(initial_state(start))
    app = Application(start, store, FakeModel())
    assert json.loads(app.query("/account", encode({"public_key": ALICE.key})).value)["total"] == 3
