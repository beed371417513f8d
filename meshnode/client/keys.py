"""The user's key: generating, opening and copying it (native network 1.1; decision 0094).

A key file has mode 0600 and is written once: an existing one is never replaced. The passphrase of a
sealed file comes from ``MESHNODE_KEY_PASSPHRASE`` or from a prompt on the terminal. It is never a
command-line argument, which other users of the machine could read.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import stat
import sys
from base64 import b64decode
from binascii import Error as BadBase64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from meshnode.client.errors import Misused
from meshnode.datadir import make_private, sync_folder
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.keyfile import (
    DEFAULT_FORMAT,
    NONCE_BYTES,
    SALT_BYTES,
    KeyFileError,
    PassphraseNeeded,
    key_file_names,
    plain_key_file,
    read_key_file,
    sealed_key_file,
)

KEY_FILE = "key.json"
PASSPHRASE_VARIABLE = "MESHNODE_KEY_PASSPHRASE"  # noqa: S105 - a variable's name
MAX_KEY_FILE = 65_536
_SEED = re.compile(rb"\s*([0-9a-f]{64})\s*")


def new_key() -> NodeKey:
    """Generate a key from the system's randomness."""
    return key_from_seed(secrets.token_hex(32))


def load_key(path: Path) -> NodeKey:
    """Read the key in ``path``, asking for its passphrase if it has one. Raises Misused."""
    data = _read(path)
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        print(f"meshnode: others can read the key file {path}; chmod 600 it", file=sys.stderr)
    try:
        try:
            return read_key_file(data)
        except PassphraseNeeded:
            return read_key_file(data, ask_passphrase(f"passphrase of {path}: "))
    except KeyFileError as error:
        raise Misused(f"{path}: {error}") from None


def public_key_of(path: Path) -> str:
    """The public key that a key file names. A sealed file is not opened."""
    try:
        return key_file_names(_read(path))[1]
    except KeyFileError as error:
        raise Misused(f"{path}: {error}") from None


def import_key(path: Path) -> NodeKey:
    """Read a key from a file that holds a bare seed, or from a key file."""
    seed = _SEED.fullmatch(_read(path))
    return key_from_seed(seed[1].decode("ascii")) if seed else load_key(path)


def save_key(path: Path, key: NodeKey, *, seal: bool, key_format: str = DEFAULT_FORMAT) -> None:
    """Write a new key file. Raises Misused if the file exists."""
    if path.exists() or path.is_symlink():
        raise Misused(f"{path} exists already; choose another file with --key")
    data = plain_key_file(key, key_format)
    if seal:
        passphrase = ask_passphrase("new passphrase: ", repeat=True)
        salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
        data = sealed_key_file(key, passphrase, salt, nonce, key_format)
    try:
        make_private(path.parent)
        # Exclusive: of two concurrent commands, neither may overwrite the other's key.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise Misused(f"cannot write the key file {path}: {error.strerror}") from None


def ask_passphrase(prompt: str, *, repeat: bool = False) -> str:
    """The passphrase from the environment or from a prompt. Raises Misused if there is neither."""
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given is not None:
        passphrase = given
    elif not sys.stdin.isatty():
        raise Misused(f"the key has a passphrase; set {PASSPHRASE_VARIABLE} or use a terminal")
    else:
        passphrase = getpass.getpass(prompt)
        if repeat and passphrase != getpass.getpass("once more: "):
            raise Misused("the two passphrases differ")
    if not passphrase:
        raise Misused("the passphrase is empty")
    return passphrase


def load_consensus_key(path: Path) -> Ed25519PrivateKey:
    """Read an Ed25519 key: a node's ``validator.json``, CometBFT's ``priv_validator_key.json``, or
    64 hex characters."""
    data = _read(path, ": a node that follows the chain makes validator.json in its data folder")
    seed = _SEED.fullmatch(data)
    try:
        if seed:
            return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed[1].decode("ascii")))
        document = json.loads(data)
        if "seed" in document:
            return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(document["seed"]))
        # 64 bytes: the seed, then the public key.
        both = b64decode(document["priv_key"]["value"], validate=True)
        key = Ed25519PrivateKey.from_private_bytes(both[:32])
        matches = key.public_key().public_bytes_raw() == both[32:]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadBase64):
        matches = False
    if not matches:
        raise Misused(f"{path}: not an Ed25519 consensus key") from None
    return key


def _read(path: Path, advice: str = ": make one with 'meshnode key new'") -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_KEY_FILE + 1)
    except FileNotFoundError:
        raise Misused(f"there is no key in {path}{advice}") from None
    except OSError as error:
        raise Misused(f"cannot read the key file {path}: {error.strerror}") from None
    if len(data) > MAX_KEY_FILE:
        raise Misused(f"{path}: not a key file")
    return data
