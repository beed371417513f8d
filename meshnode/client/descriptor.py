"""Network descriptors: which chain, and where to reach it (native network 5; decision 0093).

The required members are those that clients of the public network, release 0.4.0, require, so that
they can read a descriptor made here. ``network_profile`` is ours: the strings of the network that
signing and key files need (its domains and formats), taken from its genesis.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshnode.client.answers import Fields, Identity
from meshnode.client.errors import GatewayMisbehaves, Misused
from meshnode.client.gateway import Gateway
from meshnode.client.transport import check_url
from meshnode.domain.chain.canonical import Json, JsonLimits, digest, parse
from meshnode.domain.chain.errors import MalformedJson
from meshnode.domain.chain.genesis import GENESIS_LIMITS

REQUIRED: Final = (
    "chain_id",
    "genesis_sha256",
    "genesis_url",
    "rpc",
    "api",
    "peers",
    "dataset_url",
    "model_mirrors",
)
RELEASE: Final = "0.4.0"
"""The version of the native API that a descriptor promises."""
PROFILE_STRINGS: Final = (
    "bond_domain",
    "work_domain",
    "batch_domain",
    "key_format",
    "checkpoint_format",
)
LIMITS: Final = JsonLimits(size=65_536)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The parts of a descriptor file that a client needs."""

    identity: Identity
    api: str
    rpc: str
    profile: Mapping[str, str] = field(default_factory=dict)


def load_descriptor(path: Path) -> Descriptor:
    """Read a descriptor file. Raises Misused if it is not one."""
    try:
        value = parse(path.read_bytes(), LIMITS)
    except OSError as error:
        raise Misused(f"cannot read the descriptor {path}: {error.strerror}") from None
    except MalformedJson as error:
        raise Misused(f"the descriptor {path} is not JSON: {error}") from None
    missing = [name for name in REQUIRED if not isinstance(value, dict) or name not in value]
    if missing or not isinstance(value, dict):
        raise Misused(f"the descriptor {path} lacks {', '.join(missing)}")
    texts = {name: value[name] for name in ("chain_id", "genesis_sha256", "api", "rpc")}
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise Misused(f"the descriptor {path}: {name} is not a text")
    genesis = str(texts["genesis_sha256"])
    if not _DIGEST.fullmatch(genesis):
        raise Misused(f"the descriptor {path}: genesis_sha256 is not a SHA-256")
    return Descriptor(
        Identity(str(texts["chain_id"]), genesis),
        api=check_url(str(texts["api"])),
        rpc=check_url(str(texts["rpc"])),
        profile=_strings(value.get("network_profile")),
    )


def fetch_genesis(gateway: Gateway, genesis_sha256: str) -> dict[str, Json]:
    """Fetch a gateway's genesis document and check it against its hash."""
    data = gateway.file("/network/genesis.json")
    # Everything else about the network is read from the genesis, so its hash is checked first.
    if hashlib.sha256(data).hexdigest() != genesis_sha256:
        raise GatewayMisbehaves("the published genesis is not the one that the gateway names")
    try:
        document = parse(data, GENESIS_LIMITS)
    except MalformedJson:
        raise GatewayMisbehaves("the published genesis is not JSON") from None
    return Fields(document, "genesis").raw


def genesis_strings(document: Mapping[str, Json]) -> dict[str, str]:
    """The profile strings that a genesis manifest contains."""
    manifest = Fields(dict(document), "genesis").object("app_state").object("manifest")
    return _strings(manifest.raw.get("network"))


def export_descriptor(gateway: Gateway, base: str, name: str | None) -> dict[str, Json]:
    """Describe the network behind ``gateway``, which others reach at the URL ``base``."""
    network = gateway.network()
    identity = network.identity
    document = fetch_genesis(gateway, identity.genesis_sha256)
    genesis = Fields(document, "genesis")
    manifest = genesis.object("app_state").object("manifest")
    # The gateway, its genesis and its state must all belong to the same network.
    if genesis.text("chain_id") != identity.chain_id:
        raise GatewayMisbehaves("the genesis is another chain's")
    if digest(manifest.raw) != network.manifest_hash:
        raise GatewayMisbehaves("the genesis has another manifest than the chain")
    dataset = manifest.raw.get("dataset_sha256")
    content = gateway.file("/network/dataset.json")
    if dataset is not None and hashlib.sha256(content).hexdigest() != dataset:
        raise GatewayMisbehaves("the published data set is not the one of the genesis")
    peers = network.raw.get("bootstrap_peers")
    peers = [peer for peer in peers if isinstance(peer, str)] if isinstance(peers, list) else []
    validators = genesis.object("app_state").objects("validators")
    owners = {one.raw.get("owner") for one in validators}
    return {
        "chain_id": identity.chain_id,
        "genesis_sha256": identity.genesis_sha256,
        "genesis_url": f"{base}/network/genesis.json",
        "dataset_url": f"{base}/network/dataset.json",
        "api": base,
        "rpc": f"{base}/rpc",
        "peers": list(peers),
        "model_mirrors": [f"{base}/artifacts/sha256"],
        "manifest_hash": network.manifest_hash,
        "name": name or identity.chain_id,
        "release": RELEASE,
        "checkpoint_trust": "The exporting node; operators may supply a height and hash of theirs",
        "operator_disclosure": {
            "independent_operators": len(owners),
            "hosts": 1,
            "genesis_validators": len(validators),
            "public_bootstrap_peers": len(peers),
        },
        "network_profile": dict(genesis_strings(document)),
    }


def _strings(value: Json) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    found = {name: value.get(name) for name in PROFILE_STRINGS}
    return {name: text for name, text in found.items() if isinstance(text, str) and text}
