"""Signed envelopes and the two identifiers of a transaction (interface 2.2; decision 0056).

Terms: an *envelope* is exactly ``{body, public_key, signature}``. The *application id* is the
digest of ``{body, public_key}``, which stays the same when a body is re-signed or re-formatted;
it identifies requests, tasks and proofs. The *transaction hash* is the uppercase SHA-256 of the
raw bytes that were relayed. The two have different types, and every name says which one is meant.

Invariants: the signature covers the canonical body, so the raw bytes need not be canonical; whether
a signature is accepted depends on the rules below, not on what a library tolerates.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

from coincurve import PublicKey

from meshnode.domain.chain.canonical import Json, JsonLimits, digest, encode, parse
from meshnode.domain.chain.errors import (
    InvalidEnvelope,
    InvalidPublicKey,
    InvalidSignature,
    InvalidSignatureEncoding,
    TransactionTooLarge,
)
from meshnode.domain.identity import private_key

ApplicationId = NewType("ApplicationId", str)
"""64 lowercase hex characters; the request id and the task id of the native API."""
TransactionHash = NewType("TransactionHash", str)
"""64 uppercase hex characters."""
AccountKey = NewType("AccountKey", str)
"""A compressed secp256k1 point, 66 lowercase hex characters; names an account."""

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
MAX_SIGNATURE = 160
"""Hex characters; the longest DER signature on this curve has 144."""

_ACCOUNT = re.compile(r"0[23][0-9a-f]{64}")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body and its signer. An instance exists only after its signature was verified."""

    body: dict[str, Json]
    signer: AccountKey
    signature: str

    @property
    def id(self) -> ApplicationId:
        """The application id: the same for every signature of the same body by the same key."""
        return application_id(self.body, self.signer)


def application_id(body: dict[str, Json], signer: str) -> ApplicationId:
    """The digest of ``{body, public_key}``."""
    return ApplicationId(digest({"body": body, "public_key": signer}))


def transaction_hash(raw: bytes) -> TransactionHash:
    """Uppercase hex SHA-256 of the raw transaction bytes."""
    return TransactionHash(hashlib.sha256(raw).hexdigest().upper())


def account_key(value: Json) -> AccountKey:
    """Check that ``value`` names an account; InvalidPublicKey when it does not."""
    # One account has one name: lowercase hex of the compressed form of a point on the curve.
    if not isinstance(value, str) or not _ACCOUNT.fullmatch(value) or not _is_point(value):
        raise InvalidPublicKey
    return AccountKey(value)


@lru_cache(maxsize=4096)
def _is_point(value: str) -> bool:
    try:
        PublicKey(bytes.fromhex(value))
    except ValueError:
        return False
    return True


def open_envelope(value: Json) -> Envelope:
    """Check the shape and the signature of a decoded envelope."""
    # Exactly three members, so that nothing unsigned travels with a signature.
    if not isinstance(value, dict) or set(value) != {"body", "public_key", "signature"}:
        raise InvalidEnvelope
    body, public_key, signature = value["body"], value["public_key"], value["signature"]
    if not isinstance(body, dict) or not isinstance(signature, str):
        raise InvalidEnvelope
    signer = account_key(public_key)
    if len(signature) > MAX_SIGNATURE or not _HEX.fullmatch(signature):
        raise InvalidSignatureEncoding
    compact = _low_s(*_read_der(bytes.fromhex(signature)))
    if not PublicKey(bytes.fromhex(signer)).verify(compact, encode(body)):
        raise InvalidSignature
    return Envelope(body, signer, signature)


@lru_cache(maxsize=1024)
def decode_transaction(raw: bytes, max_bytes: int, max_depth: int) -> Envelope:
    """Read and verify a raw transaction.

    The result is cached, since check, process and finalize all decode the same bytes. The 1024
    entries hold a full block; at 16 KiB each, with their parsed form, they stay below 100 MiB.
    """
    if len(raw) > max_bytes:
        raise TransactionTooLarge
    # No fractions: everything that the ledger counts is an integer.
    return open_envelope(parse(raw, JsonLimits(max_bytes, max_depth, fractions=False)))


def sign_envelope(body: dict[str, Json], seed: str) -> dict[str, Json]:
    """Sign ``body`` with the key of ``seed`` (see :mod:`meshnode.domain.identity`)."""
    private = private_key(seed)
    return {
        "body": body,
        "public_key": private.public_key.format(compressed=True).hex(),
        "signature": private.sign(encode(body)).hex(),
    }


def _read_der(data: bytes) -> tuple[int, int]:
    """The two integers of ``SEQUENCE { INTEGER r, INTEGER s }``, in their only valid DER form."""
    if len(data) < 2 or data[0] != 0x30 or data[1] != len(data) - 2 or data[1] > 0x7F:
        raise InvalidSignatureEncoding
    r, rest = _read_der_integer(data[2:])
    s, rest = _read_der_integer(rest)
    if rest or not (0 < r < CURVE_ORDER and 0 < s < CURVE_ORDER):
        raise InvalidSignatureEncoding
    return r, s


def _read_der_integer(data: bytes) -> tuple[int, bytes]:
    if len(data) < 2 or data[0] != 0x02:
        raise InvalidSignatureEncoding
    length = data[1]
    content, rest = data[2 : 2 + length], data[2 + length :]
    if not 1 <= length <= 33 or len(content) != length:
        raise InvalidSignatureEncoding
    # The integer must be minimal and not negative.
    padded = content[0] == 0 and length > 1
    if content[0] > 0x7F or (padded and content[1] <= 0x7F):
        raise InvalidSignatureEncoding
    return int.from_bytes(content), rest


def _low_s(r: int, s: int) -> bytes:
    """DER of the signature with the smaller of ``s`` and its negation.

    Both are valid signatures of the same message, and signers of the public network produce
    either; the library verifies only the one with the smaller ``s``.
    """
    parts = b"".join(_der_integer(number) for number in (r, min(s, CURVE_ORDER - s)))
    return bytes([0x30, len(parts)]) + parts


def _der_integer(number: int) -> bytes:
    content = number.to_bytes(number.bit_length() // 8 + 1)
    return bytes([0x02, len(content)]) + content
