"""The two ways to write an account: the plain key, and an address with a checksum (decision 0111).

An *address* is the compressed key's 33 bytes as Bech32m with the prefix ``mesh``: 64 characters.
People use it; signed data and messages always have the plain key (interface 2.2).
"""

from __future__ import annotations

from meshnode.domain import bech32m
from meshnode.domain.chain.envelope import AccountKey, account_key
from meshnode.domain.chain.errors import InvalidPublicKey
from meshnode.domain.errors import InvalidRequest

PREFIX = "mesh"


def address_of(public_key: str) -> str:
    """The address of a public key."""
    return bech32m.encode(PREFIX, bytes.fromhex(public_key))


def read_account(text: str, field: str | None = None) -> AccountKey:
    """The account that a person typed, in either form. Raises InvalidRequest about ``field``."""
    if not text.lower().startswith(f"{PREFIX}1"):
        try:
            return account_key(text)
        except InvalidPublicKey:
            raise InvalidRequest(
                field,
                f"must be an account: an address ({PREFIX}1...), or a public key, 66 lowercase "
                "hex characters from 02 or 03",
            ) from None
    try:
        _, data = bech32m.decode(text)
        return account_key(data.hex())
    except bech32m.InvalidText as error:
        raise InvalidRequest(field, f"is not an address: it {error}") from None
    except InvalidPublicKey:
        raise InvalidRequest(field, "is not an address: it names no public key") from None
