"""The chain that a node creates at its first start, and the validator's key (decision 0073)."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.genesis import genesis_document, parse_genesis
from meshnode.domain.chain.profile import NetworkProfile
from meshnode.domain.errors import StartupError
from meshnode.services.ledger import (
    GenesisFacts,
    load_or_create_genesis,
    load_or_create_validator_key,
)
from meshnode.services.ledger.genesis import chain_profile
from meshnode.services.ledger.validator_key import VALIDATOR_FILE, ValidatorKey
from spec_tests.domain.chain.net import ALICE, BOB, LOSS, ROOT, FakeModel
from spec_tests.services.ledger.ledgers import account, eventually, running_ledger, send

FACTS = GenesisFacts(ROOT, LOSS, {"model": "tiny", "dataset_root": "00" * 32})
UNITS = 1_000_000


async def test_the_owner_has_everything(tmp_path: Path) -> None:
    key = load_or_create_validator_key(tmp_path)
    document = load_or_create_genesis(tmp_path, ALICE.key, key, FACTS)
    async with running_ledger(tmp_path, key, document=document) as ledger:
        assert ledger.genesis_bytes == document
        summary = json.loads((await ledger.query("/summary")).value)
        assert summary["initial_supply"] == 1_000_000 * UNITS
        assert summary["validator_count"] == 1
        assert (await account(ledger, ALICE))["balance"] == 900_000 * UNITS
        await eventually(lambda: ledger.readiness().ready)
        await send(ledger)


def test_later_starts_find_the_same_chain(tmp_path: Path) -> None:
    key = load_or_create_validator_key(tmp_path)
    first = load_or_create_genesis(tmp_path, ALICE.key, key, FACTS)
    assert load_or_create_genesis(tmp_path, ALICE.key, key, FACTS) == first
    # Another owner is ignored: the stored chain stays as it is.
    assert load_or_create_genesis(tmp_path, BOB.key, key, FACTS) == first
    start = parse_genesis(first)
    assert encode(genesis_document(start)) == first
    assert start.extra == FACTS.extra


def test_two_new_chains_have_different_names(tmp_path: Path) -> None:
    names = set()
    for turn in ("a", "b"):
        (tmp_path / turn).mkdir()
        key = load_or_create_validator_key(tmp_path / turn)
        document = load_or_create_genesis(tmp_path / turn, ALICE.key, key, FACTS)
        names.add(parse_genesis(document).chain_id)
    assert len(names) == 2


@pytest.mark.parametrize(
    "facts",
    [
        GenesisFacts("ab" * 32, LOSS, FACTS.extra),
        GenesisFacts(ROOT, (2.0).hex(), FACTS.extra),
        GenesisFacts(ROOT, LOSS, {**FACTS.extra, "model": "other"}),
    ],
)
def test_another_model_is_refused(tmp_path: Path, facts: GenesisFacts) -> None:
    key = load_or_create_validator_key(tmp_path)
    load_or_create_genesis(tmp_path, ALICE.key, key, FACTS)
    with pytest.raises(StartupError, match="another model"):
        load_or_create_genesis(tmp_path, ALICE.key, key, facts)


def test_a_chain_that_was_followed_is_not_continued_alone(tmp_path: Path) -> None:
    key = load_or_create_validator_key(tmp_path)
    load_or_create_genesis(tmp_path, ALICE.key, key, FACTS)
    with pytest.raises(StartupError, match="another validator"):
        load_or_create_genesis(tmp_path, ALICE.key, ValidatorKey.of(bytes(32)), FACTS)


# The profile of a chain that this node starts (decision 0103).


SHORT = """
name = "private"
bond_domain = "private/bond"
[params]
evidence_blocks = 6
[staking]
shortest_days = 2
"""


def profile_file(tmp_path: Path, text: str = SHORT) -> str:
    path = tmp_path / "profile.toml"
    path.write_text(text)
    return str(path)


def test_a_file_changes_the_values_that_it_names_in_the_usual_profile(tmp_path: Path) -> None:
    usual = chain_profile(tmp_path)
    assert usual == NetworkProfile()
    assert chain_profile(tmp_path, profile_file(tmp_path)) == replace(
        usual,
        name="private",
        bond_domain="private/bond",
        params=replace(usual.params, evidence_blocks=6),
        staking=replace(usual.staking, shortest_days=2),
    )


def test_a_chain_keeps_its_profile(tmp_path: Path) -> None:
    key, file = load_or_create_validator_key(tmp_path), profile_file(tmp_path)
    profile = chain_profile(tmp_path, file)
    document = load_or_create_genesis(tmp_path, ALICE.key, key, FACTS, profile)
    assert parse_genesis(document).profile == profile
    # The same file or none is accepted; another file is refused.
    assert chain_profile(tmp_path, file) == chain_profile(tmp_path) == profile
    with pytest.raises(StartupError, match=r"whose profile is not that of .*profile\.toml"):
        chain_profile(tmp_path, profile_file(tmp_path, "name = 'other'"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name =", "is not TOML"),
        ("\udcff", "is not TOML"),
        ("colour = 1", "colour: is not part of a profile"),
        ("[params]\nevidence = 1", "params.evidence: is not part of a profile"),
        ("[params.fee]\na = 1", "params.fee: must be like 1000"),
        ("params = 1", "params: must be like"),
        ("[params]\nfee = 1.5", "params.fee: must be like 1000"),
        ("[params]\nfee = true", "params.fee: must be like 1000"),
        ("[params]\nfee = 0", "numbers are from 1"),
        ("name = ''", "texts have 1 to 128 characters"),
        ("kinds = ['mint']", "kinds are those of the node"),
    ],
)
def test_a_malformed_profile_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StartupError, match="network profile") as caught:
        chain_profile(tmp_path, str(path))
    assert reason in str(caught.value)


def test_a_profile_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot read the network profile"):
        chain_profile(tmp_path, str(tmp_path / "missing.toml"))


# The validator's key.


def test_the_key_is_kept_and_private(tmp_path: Path) -> None:
    key = load_or_create_validator_key(tmp_path)
    assert load_or_create_validator_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / VALIDATOR_FILE).stat().st_mode) == 0o600
    assert key.seed.hex() not in repr(key)
    assert len(key.sign(b"message")) == 64


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b"\xff", b'{"format":"meshnode-validator-v1","seed":"00","public_key":""}'],
)
def test_a_damaged_key_is_refused_and_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / VALIDATOR_FILE
    path.write_bytes(text)
    with pytest.raises(StartupError, match="is damaged"):
        load_or_create_validator_key(tmp_path)
    assert path.read_bytes() == text


def test_a_key_whose_halves_differ_is_refused(tmp_path: Path) -> None:
    load_or_create_validator_key(tmp_path)
    path = tmp_path / VALIDATOR_FILE
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "public_key": "00" * 32}))
    with pytest.raises(StartupError, match="is damaged") as caught:
        load_or_create_validator_key(tmp_path)
    assert document["seed"] not in str(caught.value)


async def test_the_key_is_in_no_log_and_in_no_file_but_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = load_or_create_validator_key(tmp_path)
    document = load_or_create_genesis(tmp_path, ALICE.key, key, FACTS)
    async with running_ledger(tmp_path, key, document=document, model=FakeModel()) as ledger:
        await send(ledger)
    for path in tmp_path.iterdir():  # noqa: ASYNC240 - nothing else runs
        if path.name != VALIDATOR_FILE:
            content = path.read_bytes()
            assert key.seed not in content
            assert key.seed.hex().encode() not in content
    assert key.seed.hex() not in caplog.text
