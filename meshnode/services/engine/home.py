"""The engine's folder: configuration, genesis and keys, written from the node's own at each start.

=====================================  ===========================================================
file                                   comes from
=====================================  ===========================================================
``config/config.toml``                 :func:`config_text`
``config/genesis.json``                the ledger's genesis, byte for byte
``config/priv_validator_key.json``     the validator's key of this node
``config/node_key.json``               derived from the node's key
``data/priv_validator_state.json``     what this validator has signed; the engine's from then on
everything else in ``data``            the engine
=====================================  ===========================================================

Invariants: the folder and the keys can be read by this user only; the file of what was signed is
never overwritten, because a validator that forgets it may sign twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from meshnode.datadir import write_private
from meshnode.domain.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshnode.services.ledger.validator_key import ValidatorKey

HOME = "cometbft"
"""The engine's folder in the data folder."""
ABCI_SOCKET, RPC_SOCKET = "abci.sock", "rpc.sock"
"""Sockets in the engine's folder, which is the engine's working directory: their paths as the
engine sees them are short, whatever the data folder's is."""
NODE_KEY_DOMAIN = b"meshnode/cometbft-node-key/v1:"
PUBLIC_TYPE, PRIVATE_TYPE = "tendermint/PubKeyEd25519", "tendermint/PrivKeyEd25519"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the operator decides about the engine."""

    p2p_address: str
    """HOST:PORT to listen on for other validators' engines."""
    peers: str = ""
    """ID@HOST:PORT of other engines, separated by commas."""
    moniker: str = "meshnode"
    state_sync: StateSync | None = None
    block_pause_s: float = 1.0
    """Pause after a block, in which late votes are still collected."""


@dataclass(frozen=True, slots=True)
class StateSync:
    """Where a new engine gets its first state: not from all blocks, but from a snapshot."""

    servers: tuple[str, ...]
    """URLs of two gateways at least."""
    height: int
    """A block that the operator trusts, and its hash in hex."""
    hash: str
    trust_s: int = 168 * 3600
    """How old that block may be, in seconds: less than a bond is exposed for."""


def node_key(seed: str) -> Ed25519PrivateKey:
    """The engine's key for connections to other engines. ``seed`` is that of the node's key."""
    return Ed25519PrivateKey.from_private_bytes(
        hashlib.sha256(NODE_KEY_DOMAIN + seed.encode()).digest()
    )


def engine_id(key: Ed25519PrivateKey) -> str:
    """The name under which other engines know this one: 40 hex characters."""
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:40]


def write_home(
    data_dir: Path,
    genesis: bytes,
    validator: ValidatorKey,
    key: Ed25519PrivateKey,
    settings: EngineSettings,
) -> Path:
    """Write the folder, and return its path. Raises StartupError when the disk refuses."""
    home = data_dir / HOME
    files = {
        "config/config.toml": config_text(settings).encode(),
        "config/genesis.json": genesis,
        "config/priv_validator_key.json": _document(_validator_document(validator)),
        "config/node_key.json": _document({"priv_key": _private(key)}),
    }
    try:
        for folder in (home, home / "config", home / "data"):
            folder.mkdir(mode=0o700, exist_ok=True)
        for name, content in files.items():
            path = home / name
            # The genesis of a large chain is not written again at each start.
            if not path.exists() or path.read_bytes() != content:
                write_private(path, content)
        signed = home / "data" / "priv_validator_state.json"
        if not signed.exists():
            write_private(signed, signed_document(0))
    except OSError as error:
        raise StartupError(f"cannot write the engine's folder {home}: {error.strerror}") from None
    return home


def signed_document(height: int) -> bytes:
    """What a validator has signed that signs no block up to ``height`` any more."""
    return _document({"height": str(height), "round": 0, "step": 3 if height else 0})


def config_text(settings: EngineSettings) -> str:
    """The engine's configuration; what is not named here has the engine's own default."""
    sync = settings.state_sync
    values: dict[str, dict[str, str | int | bool]] = {
        "": {
            "proxy_app": f"unix://{ABCI_SOCKET}",
            "abci": "socket",
            "moniker": settings.moniker,
            "db_backend": "goleveldb",
            "log_format": "json",
            # At the level "info" it writes several lines for each block.
            "log_level": "error",
        },
        "rpc": {
            "laddr": f"unix://{RPC_SOCKET}",
            # Only this node can reach it.
            "max_open_connections": 64,
            "max_body_bytes": 1 << 20,
        },
        "p2p": {
            "laddr": f"tcp://{settings.p2p_address}",
            "persistent_peers": settings.peers,
            "persistent_peers_max_dial_period": "10s",
            # Validators may share a machine or a private network.
            "addr_book_strict": False,
            "allow_duplicate_ip": True,
            "flush_throttle_timeout": "10ms",
        },
        "mempool": {
            # One full block and what comes until the next; the senders' own limit is the ledger's.
            "size": 10_000,
            "cache_size": 20_000,
            "max_txs_bytes": 64 << 20,
        },
        "statesync": {
            "enable": sync is not None,
            "rpc_servers": light_servers(sync),
            "trust_height": 0 if sync is None else sync.height,
            "trust_hash": "" if sync is None else sync.hash,
            "trust_period": "168h0m0s" if sync is None else f"{sync.trust_s}s",
            "discovery_time": "5s",
        },
        "consensus": {"timeout_commit": f"{int(settings.block_pause_s * 1000)}ms"},
        # The outcome of a block is in the ledger, and nobody asks the engine for it.
        "storage": {"discard_abci_responses": True},
        "tx_index": {"indexer": "null"},
    }
    lines: list[str] = []
    for table, rows in values.items():
        lines += [f"[{table}]"] if table else []
        lines += [f"{name} = {json.dumps(value)}" for name, value in rows.items()]
    return "\n".join(lines) + "\n"


def light_servers(sync: StateSync | None) -> str:
    """Where the engine's light client asks, in its own form."""
    count = 0 if sync is None else len(sync.servers)
    return ",".join(f"unix://{light_socket(index)}" for index in range(count))


def light_socket(index: int) -> str:
    """The name of a gateway's socket in the engine's folder."""
    return f"light-{index}.sock"


def _validator_document(validator: ValidatorKey) -> dict[str, object]:
    public = {"type": PUBLIC_TYPE, "value": _base64(bytes.fromhex(validator.public_key))}
    private = Ed25519PrivateKey.from_private_bytes(validator.seed)
    return {"address": validator.address, "pub_key": public, "priv_key": _private(private)}


def _private(key: Ed25519PrivateKey) -> dict[str, str]:
    # Go's form of a private key: the seed, then the public key.
    whole = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    return {"type": PRIVATE_TYPE, "value": _base64(whole)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _document(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()
