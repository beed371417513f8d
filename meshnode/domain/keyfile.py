"""Key files: a seed with its public key, in the clear or sealed with a passphrase (decision 0094).

The plain form is the backup file of the public network, ``{format, seed, public_key}``
(native network 1.1). In the sealed form ``sealed`` takes the place of ``seed``: AES-256-GCM under
a key that scrypt derives from the passphrase; the fields outside ``sealed`` are authenticated too.
``format`` is a network's name for its key files, and says nothing about how the key is derived.

Invariants: neither seed nor passphrase appears in an error, and no exception that saw them is kept
as a cause; the work that a file can demand is bounded; the public key belongs to the seed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.errors import MalformedJson
from meshnode.domain.errors import MeshnodeError
from meshnode.domain.identity import NodeKey, key_from_seed

DEFAULT_FORMAT: Final = "meshnode-key-v1"
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
COST: Final = 2**17
"""scrypt's N; with r = 8 one derivation takes 128 MiB and over a third of a second."""
MAX_COST: Final = 2**20
BLOCK_SIZE: Final = 8

_FORMAT = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_LIMITS = JsonLimits(size=4096, depth=4)
_SEALED_FIELDS = {"kdf", "n", "r", "p", "salt", "cipher", "nonce", "data"}


class KeyFileError(MeshnodeError):
    """A key file that cannot be used."""


class KeyFileDamaged(KeyFileError):
    """Not a key file, or one whose parts do not belong together."""

    def __init__(self) -> None:
        super().__init__("not a key file, or a damaged one")


class PassphraseNeeded(KeyFileError):
    """The key is sealed."""

    def __init__(self) -> None:
        super().__init__("the key file is sealed with a passphrase")


class WrongPassphrase(KeyFileError):
    """The passphrase does not open the file, or the file was changed: the two look the same."""

    def __init__(self) -> None:
        super().__init__("the passphrase does not open the key file")


def plain_key_file(key: NodeKey, key_format: str = DEFAULT_FORMAT) -> bytes:
    """The file with the seed in the clear; to be written with mode 0600."""
    return encode(_outside(key.public_key, key_format) | {"seed": key.seed}) + b"\n"


def sealed_key_file(
    key: NodeKey,
    passphrase: str,
    salt: bytes,
    nonce: bytes,
    key_format: str = DEFAULT_FORMAT,
    cost: int = COST,
) -> bytes:
    """The file with the seed sealed.

    ``salt`` (16 bytes) and ``nonce`` (12 bytes) must be fresh and random.
    """
    outside = _outside(key.public_key, key_format)
    cipher = AESGCM(_derive(passphrase, salt, cost))
    sealed: dict[str, Json] = {
        "kdf": "scrypt",
        "n": cost,
        "r": BLOCK_SIZE,
        "p": 1,
        "salt": salt.hex(),
        "cipher": "aes-256-gcm",
        "nonce": nonce.hex(),
        "data": cipher.encrypt(nonce, key.seed.encode("ascii"), encode(outside)).hex(),
    }
    return encode(outside | {"sealed": sealed}) + b"\n"


def read_key_file(data: bytes, passphrase: str | None = None) -> NodeKey:
    """The key in a file of either form. Raises :class:`KeyFileError` with the reason."""
    value = _document(data)
    outside = {"format": value["format"], "public_key": value["public_key"]}
    if set(value) == {*outside, "seed"}:
        seed = value["seed"]
    elif set(value) == {*outside, "sealed"}:
        if passphrase is None:
            raise PassphraseNeeded
        seed = _unseal(value["sealed"], passphrase, encode(outside))
    else:
        raise KeyFileDamaged
    try:
        key = key_from_seed(seed if isinstance(seed, str) else "")
    except ValueError:
        raise KeyFileDamaged from None
    # A file whose parts were mixed up must not pay from another account than the one it names.
    if key.public_key != value["public_key"]:
        raise KeyFileDamaged
    return key


def key_file_names(data: bytes) -> tuple[str, str, bool]:
    """Format, public key, and whether the seed is sealed; without opening it."""
    value = _document(data)
    return str(value["format"]), str(value["public_key"]), "sealed" in value


def _document(data: bytes) -> dict[str, Json]:
    try:
        value = parse(data, _LIMITS)
    except MalformedJson:
        raise KeyFileDamaged from None
    if not isinstance(value, dict) or not {"format", "public_key"} <= set(value):
        raise KeyFileDamaged
    name, public_key = value["format"], value["public_key"]
    if not isinstance(name, str) or not _FORMAT.fullmatch(name) or not isinstance(public_key, str):
        raise KeyFileDamaged
    return value


def _outside(public_key: str, key_format: str) -> dict[str, Json]:
    if not _FORMAT.fullmatch(key_format):
        raise KeyFileDamaged
    return {"format": key_format, "public_key": public_key}


def _unseal(value: Json, passphrase: str, outside: bytes) -> str:
    if not isinstance(value, dict) or set(value) != _SEALED_FIELDS:
        raise KeyFileDamaged
    cost = value["n"]
    known = (value["kdf"], value["cipher"], value["r"], value["p"])
    # Only this module's algorithms are read, so that the bound on ``n`` bounds the work.
    if known != ("scrypt", "aes-256-gcm", BLOCK_SIZE, 1):
        raise KeyFileDamaged
    if type(cost) is not int or not 2 <= cost <= MAX_COST or cost & (cost - 1):
        raise KeyFileDamaged
    try:
        salt, nonce, sealed = (
            bytes.fromhex(str(value[name])) for name in ("salt", "nonce", "data")
        )
    except ValueError:
        raise KeyFileDamaged from None
    if len(salt) != SALT_BYTES or len(nonce) != NONCE_BYTES:
        raise KeyFileDamaged
    try:
        return AESGCM(_derive(passphrase, salt, cost)).decrypt(nonce, sealed, outside).decode()
    except (InvalidTag, UnicodeDecodeError):
        raise WrongPassphrase from None


# The keys in a folder that have one passphrase share a salt, so one derivation opens them all.
@lru_cache(maxsize=4)
def _derive(passphrase: str, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=cost, r=BLOCK_SIZE, p=1).derive(
        passphrase.encode("utf-8", "surrogatepass")
    )
