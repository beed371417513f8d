"""A network's values, which differ from one chain to the next and are fixed by its genesis.

Terms: *params* are the fifteen integers that the native API shows under that name; *domains* are
the strings that make a signature or a hash valid for one purpose only; *formats* are the names of
file formats; *kinds* are the kinds of transaction that the network accepts. Amounts are in atoms,
heights in blocks.

Invariant: no rule contains a value of a particular network. Every node reads the profile from the
genesis manifest, and the state root commits to it (decision 0057).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.errors import InvalidGenesis

MAX_INTEGER = 2**60
"""Largest integer in a transaction or a profile, so that sums of a few stay within 64 bits."""

NATIVE_KINDS = ("transfer", "bond", "unbond", "withdraw", "reserve", "submit", "infer", "respond")
"""The kinds of the public network."""
NODE_KINDS = (*NATIVE_KINDS, "stake", "unstake", "prove", "vote")
"""The kinds of the public network, and those that only the node API needs."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Params:
    """The native API's ``params``; names and defaults as on the public network."""

    activation_blocks: int = 60
    atom_scale: int = 1_000_000
    bond_unit: int = 250_000
    epoch_blocks: int = 60
    evidence_blocks: int = 172_800
    evidence_seconds: int = 172_800
    fee: int = 1000
    inference_blocks: int = 240
    inference_token_price: int = 1000
    lease_blocks: int = 240
    max_training_tasks: int = 10_000
    max_tx_bytes: int = 16_384
    reservation_bond: int = 2_000_000
    task_budget: int = 1_000_000
    worker_budget: int = 800_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that keep a block, a queue or a record small."""

    block_bytes: int = 1_048_576
    block_transactions: int = 1000
    transaction_depth: int = 32
    prompt_bytes: int = 2048
    output_tokens: int = 64
    pending_jobs: int = 32
    finished_jobs: int = 128
    cooldowns: int = 16


@dataclass(frozen=True, slots=True)
class Staking:
    """Terms of ``stake`` and ``unstake`` (decision 0063)."""

    minimum: int = 1_000_000
    shortest_days: int = 1
    longest_days: int = 1460
    cooldown_days: int = 7


@dataclass(frozen=True, slots=True)
class Proving:
    """Terms of ``prove`` and ``vote`` (decision 0064). ``budget`` caps all rewards together."""

    reward: int = 10_000
    penalty: int = 100_000
    """Burned from the prover's stake for a proof that is refused."""
    budget: int = 1_000_000_000_000
    open_blocks: int = 240
    open_proofs: int = 64


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """All values of one network except its chain id, which the genesis document holds."""

    name: str = "meshnode-local"
    kinds: tuple[str, ...] = NODE_KINDS
    bond_domain: str = "meshnode/validator-bond/v1"
    work_domain: str = "meshnode/outbound-work/v1"
    batch_domain: str = "meshnode/adapter-batch/v1"
    key_format: str = "meshnode-key-v1"
    checkpoint_format: str = "meshnode-checkpoint-v1"
    params: Params = Params()
    limits: Limits = Limits()
    staking: Staking = Staking()
    proving: Proving = Proving()


def profile_manifest(profile: NetworkProfile) -> dict[str, Json]:
    """The profile as members of a genesis manifest: ``profile``, ``params`` and ``network``."""
    document = asdict(profile)
    name, params = document.pop("name"), document.pop("params")
    document["kinds"] = list(profile.kinds)
    return {"profile": name, "params": params, "network": document}


def read_profile(manifest: Mapping[str, Json]) -> NetworkProfile:
    """The profile in a genesis manifest; InvalidGenesis if it is missing or malformed."""
    network = manifest.get("network")
    if not isinstance(network, dict):
        raise InvalidGenesis
    groups = {"limits": Limits, "staking": Staking, "proving": Proving}
    texts = {field.name for field in fields(NetworkProfile) if field.type == "str"} - {"name"}
    # Unknown members are refused: a node must not silently ignore a rule.
    if set(network) != texts | groups.keys() | {"kinds"}:
        raise InvalidGenesis
    kinds = network["kinds"]
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(NODE_KINDS):
        raise InvalidGenesis
    return NetworkProfile(
        name=_text(manifest.get("profile")),
        kinds=tuple(map(str, kinds)),
        bond_domain=_text(network["bond_domain"]),
        work_domain=_text(network["work_domain"]),
        batch_domain=_text(network["batch_domain"]),
        key_format=_text(network["key_format"]),
        checkpoint_format=_text(network["checkpoint_format"]),
        params=_integers(Params, manifest.get("params")),
        limits=_integers(Limits, network["limits"]),
        staking=_integers(Staking, network["staking"]),
        proving=_integers(Proving, network["proving"]),
    )


def _text(value: Json) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 128:
        raise InvalidGenesis
    return value


def _integers(group: type[T], value: Json) -> T:
    names = {field.name for field in fields(group)}  # type: ignore[arg-type]
    if not isinstance(value, dict) or set(value) != names:
        raise InvalidGenesis
    for number in value.values():
        if type(number) is not int or not 1 <= number <= MAX_INTEGER:
            raise InvalidGenesis
    return group(**value)
