"""The validator's Ed25519 key: a private file beside the node's own key (decision 0073).

Invariants: the file has mode 0600; a damaged file is refused and never overwritten; the seed never
appears in a message.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from meshnode.datadir import write_private
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.checksums import dump_checked, read_checked
from meshnode.domain.errors import StartupError

VALIDATOR_FILE = "validator.json"
VALIDATOR_FORMAT = "meshnode-validator-v1"


@dataclass(frozen=True, slots=True)
class ValidatorKey:
    """``seed`` is the private key's 32 bytes; ``public_key`` 64 lowercase hex characters."""

    seed: bytes = field(repr=False)
    public_key: str

    @property
    def address(self) -> str:
        """40 uppercase hex characters."""
        return validator_address(self.public_key)

    @classmethod
    def of(cls, seed: bytes) -> ValidatorKey:
        """The key with this seed. Raises ValueError unless it has 32 bytes."""
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
        return cls(seed, public.public_bytes_raw().hex())

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature: 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def load_or_create_validator_key(data_dir: Path) -> ValidatorKey:
    """Read the key, or make one. Raises StartupError for a file that cannot be trusted."""
    path = data_dir / VALIDATOR_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        key = ValidatorKey.of(secrets.token_bytes(32))
        document = {
            "format": VALIDATOR_FORMAT,
            "seed": key.seed.hex(),
            "public_key": key.public_key,
        }
        try:
            write_private(path, dump_checked(document))
        except OSError as error:
            raise StartupError(f"cannot write {path}: {error.strerror}") from None
        return key
    except OSError as error:
        raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None
    try:
        document = read_checked(text)
        key = ValidatorKey.of(bytes.fromhex(document["seed"]))
        whole = document["format"] == VALIDATOR_FORMAT and document["public_key"] == key.public_key
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        # No detail: an exception's text could carry the seed.
        raise StartupError(f"the key file {path} is damaged; restore it, or move it away") from None
    return key
