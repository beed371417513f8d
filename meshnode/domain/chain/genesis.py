"""The first state: balances, validators, and the network's fixed values (native network 5).

The genesis document has CometBFT's shape; its ``app_state`` holds the ``manifest`` (profile, model,
anything else that the network fixes), the ``validators`` with their bonds, and ``accounts`` that
start with money. The document is pinned by its SHA-256; the state root covers the manifest.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field

from meshnode.domain.chain.accounts import credit
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.canonical import Json, JsonLimits, digest, parse
from meshnode.domain.chain.comet.times import parse_time
from meshnode.domain.chain.comet.validators import validator_set
from meshnode.domain.chain.envelope import account_key
from meshnode.domain.chain.errors import InvalidGenesis, MalformedBlock, Rejected
from meshnode.domain.chain.profile import NetworkProfile, profile_manifest, read_profile
from meshnode.domain.chain.records import (
    Chain,
    Clock,
    FinishedJobs,
    Jobs,
    Members,
    Supply,
    Training,
    Validator,
)
from meshnode.domain.chain.statetree import MemoryStore, StateTree
from meshnode.domain.chain.values import consensus_key, integer, sha256_hex
from meshnode.domain.chain.view import Committed, View
from meshnode.domain.units import SECOND_NS

GENESIS_LIMITS = JsonLimits(size=16 * 1024 * 1024)
MAX_CHAIN_ID = 50
"""Characters, as in CometBFT."""


@dataclass(frozen=True, slots=True)
class GenesisValidator:
    """An initial validator; ``liquid`` is credited to its owner's account."""

    owner: str
    consensus_key: str
    bond: int
    liquid: int = 0


@dataclass(frozen=True, slots=True)
class GenesisFacts:
    """What a genesis records about the chain's model; ``extra`` goes into the manifest."""

    model_root: str
    validation_loss_hex: str
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Genesis:
    """The contents of a genesis document. ``extra`` has further members of the manifest."""

    chain_id: str
    genesis_time: str
    model_root: str
    validation_loss_hex: str
    validators: tuple[GenesisValidator, ...]
    accounts: tuple[tuple[str, int], ...] = ()
    profile: NetworkProfile = field(default_factory=NetworkProfile)
    extra: dict[str, Json] = field(default_factory=dict)

    @property
    def manifest(self) -> dict[str, Json]:
        """The manifest: the profile, the first adapter, and the network's further members."""
        return {
            **self.extra,
            **profile_manifest(self.profile),
            "initial_model_root": self.model_root,
            "initial_validation_loss_hex": self.validation_loss_hex,
        }


def initial_state(genesis: Genesis) -> dict[str, bytes | None]:
    """The entries of the first state, for an empty store; InvalidGenesis for a wrong value."""
    view = View(Committed(MemoryStore()))
    try:
        _fill(view, genesis)
    except InvalidGenesis:
        raise
    except Rejected:
        raise InvalidGenesis from None
    if view.imbalance() != 0:
        raise InvalidGenesis
    return view.changes()


def initial_root(genesis: Genesis) -> bytes:
    """The state root before the first block."""
    tree = StateTree()
    return tree.root_with(tree.fresh(MemoryStore(), initial_state(genesis)))


def genesis_document(genesis: Genesis) -> dict[str, Json]:
    """The published document; its canonical form is ``genesis.json``."""
    params, limits = genesis.profile.params, genesis.profile.limits
    powers = {one.consensus_key: one.bond // params.bond_unit for one in genesis.validators}
    return {
        "app_hash": initial_root(genesis).hex().upper(),
        "app_state": {
            "manifest": genesis.manifest,
            "validators": [
                {
                    "owner": one.owner,
                    "consensus_key": one.consensus_key,
                    "bond": one.bond,
                    "liquid": one.liquid,
                }
                for one in genesis.validators
            ],
            "accounts": [{"owner": owner, "liquid": liquid} for owner, liquid in genesis.accounts],
        },
        "chain_id": genesis.chain_id,
        "consensus_params": {
            "block": {"max_bytes": str(limits.block_bytes), "max_gas": "-1"},
            "evidence": {
                "max_age_num_blocks": str(params.evidence_blocks),
                "max_age_duration": str(params.evidence_seconds * SECOND_NS),
                "max_bytes": "65536",
            },
            "validator": {"pub_key_types": ["ed25519"]},
            "version": {"app": "0"},
            "abci": {"vote_extensions_enable_height": "0"},
        },
        "genesis_time": genesis.genesis_time,
        "initial_height": "1",
        "validators": [
            {
                "address": one.address,
                "name": "",
                "power": str(one.power),
                "pub_key": {
                    "type": "tendermint/PubKeyEd25519",
                    "value": base64.b64encode(bytes.fromhex(one.consensus_key)).decode(),
                },
            }
            for one in validator_set(powers)
        ],
    }


def parse_genesis(data: bytes) -> Genesis:
    """Read a genesis document; InvalidGenesis unless writing it again gives the same document."""
    document = parse(data, GENESIS_LIMITS)
    try:
        genesis = _read(document)
        # No member may be unknown or contradict the others.
        if genesis_document(genesis) != document:
            raise InvalidGenesis
    except (KeyError, TypeError, AttributeError):
        raise InvalidGenesis from None
    return genesis


def _read(document: Json) -> Genesis:
    if not isinstance(document, dict) or not isinstance(document["app_state"], dict):
        raise InvalidGenesis
    state = document["app_state"]
    manifest, validators, accounts = state["manifest"], state["validators"], state["accounts"]
    if not isinstance(manifest, dict):
        raise InvalidGenesis
    if not isinstance(validators, list) or not isinstance(accounts, list):
        raise InvalidGenesis
    profile = read_profile(manifest)
    known = set(profile_manifest(profile)) | {"initial_model_root", "initial_validation_loss_hex"}
    return Genesis(
        chain_id=_text(document["chain_id"]),
        genesis_time=_time(document["genesis_time"]),
        model_root=_text(manifest["initial_model_root"]),
        validation_loss_hex=_text(manifest["initial_validation_loss_hex"]),
        validators=tuple(_validator(one) for one in validators),
        accounts=tuple(_account(one) for one in accounts),
        profile=profile,
        extra={name: value for name, value in manifest.items() if name not in known},
    )


def _validator(value: Json) -> GenesisValidator:
    if not isinstance(value, dict):
        raise InvalidGenesis
    owner, key = _text(value["owner"]), _text(value["consensus_key"])
    return GenesisValidator(owner, key, _number(value["bond"]), _number(value["liquid"]))


def _account(value: Json) -> tuple[str, int]:
    if not isinstance(value, dict):
        raise InvalidGenesis
    return _text(value["owner"]), _number(value["liquid"])


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidGenesis
    return value


def _time(value: Json) -> str:
    text = _text(value)
    # The first block has this time, and the state's clock cannot be before 1970.
    try:
        valid = parse_time(text) >= 0
    except MalformedBlock:
        valid = False
    if not valid:
        raise InvalidGenesis
    return text


def _number(value: Json) -> int:
    if type(value) is not int:
        raise InvalidGenesis
    return value


def _fill(view: View, genesis: Genesis) -> None:
    params = genesis.profile.params
    unit = params.bond_unit
    # The manifest must state this profile completely, and a task must not pay its workers more
    # than the amount that it issues.
    if (
        read_profile(genesis.manifest) != genesis.profile
        or params.worker_budget > params.task_budget
    ):
        raise InvalidGenesis
    if not 1 <= len(genesis.chain_id) <= MAX_CHAIN_ID or not genesis.chain_id.isascii():
        raise InvalidGenesis
    view.put(Chain(genesis.chain_id, digest(genesis.manifest)))
    view.put(Clock(0, 0))
    view.put(Supply(0, 0, 0, 0))
    view.put(Jobs())
    view.put(FinishedJobs())
    root, loss = sha256_hex(genesis.model_root), _loss(genesis.validation_loss_hex)
    view.put(Training(0, root, root, loss, loss))
    keys: list[str] = []
    supply = 0
    for one in genesis.validators:
        # A bond is a whole number of units, and no key occurs twice.
        key, bond = consensus_key(one.consensus_key), integer(one.bond, unit)
        if bond % unit or key in keys:
            raise InvalidGenesis
        keys.append(key)
        owner = account_key(one.owner)
        view.put(Validator(owner, bond, "active", history=((1, bond // unit),)), key)
        credit(view, owner, integer(one.liquid))
        supply += bond + one.liquid
    for holder, liquid in genesis.accounts:
        credit(view, account_key(holder), integer(liquid))
        supply += liquid
    view.put(Members(tuple(sorted(keys))))
    accounts = view.get(Supply).accounts
    view.put(Supply(integer(supply), 0, 0, accounts))
    # At least one validator must be able to sign the first block.
    if not voting_powers(view, 1):
        raise InvalidGenesis


def _loss(value: str) -> str:
    try:
        loss = float.fromhex(value)
    except (ValueError, OverflowError):
        raise InvalidGenesis from None
    if not math.isfinite(loss) or loss.hex() != value:
        raise InvalidGenesis
    return value
