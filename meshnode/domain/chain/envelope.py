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
    id: ApplicationId
    """The application id: the same for every signature of the same body by the same key."""


def application_id(body: dict[str, Json], signer: str) -> ApplicationId:
    """The digest of ``{body, public_key}``."""
    return ApplicationId(digest({"body": body, "public_key": signer}))


def _id_of(canonical: bytes, signer: AccountKey) -> ApplicationId:
    """The same from the canonical form of the body, which is not made a second time."""
    whole = b'{"body":%b,"public_key":"%b"}' % (canonical, signer.encode())
    return ApplicationId(hashlib.sha256(whole).hexdigest())


def transaction_hash(raw: bytes) -> TransactionHash:
    """Uppercase hex SHA-256 of the raw transaction bytes."""
    return TransactionHash(hashlib.sha256(raw).hexdigest().upper())


def account_key(value: Json) -> AccountKey:
    """Check that ``value`` names an account; InvalidPublicKey when it does not."""
    # One account has one name: lowercase hex of the compressed form of a point on the curve.
    if not isinstance(value, str) or not _ACCOUNT.fullmatch(value) or _point(value) is None:
        raise InvalidPublicKey
    return AccountKey(value)


@lru_cache(maxsize=4096)
def _point(value: str) -> PublicKey | None:
    try:
        return PublicKey(bytes.fromhex(value))
    except ValueError:
        return None


def open_envelope(value: Json) -> Envelope:
    """Check the shape and the signature of a decoded envelope."""
    # Exactly three members, so that nothing unsigned travels with a signature.
    if not isinstance(value, dict) or set(value) != {"body", "public_key", "signature"}:
        raise InvalidEnvelope
    body, public_key, signature = value["body"], value["public_key"], value["signature"]
    if not isinstance(body, dict) or not isinstance(signature, str):
        raise InvalidEnvelope
    signer = account_key(public_key)
    key = _point(signer)
    if len(signature) > MAX_SIGNATURE or not _HEX.fullmatch(signature):
        raise InvalidSignatureEncoding
    low_s, canonical = _low_s(*_read_der(bytes.fromhex(signature))), encode(body)
    if key is None or not key.verify(low_s, canonical):
        raise InvalidSignature
    return Envelope(body, signer, signature, _id_of(canonical, signer))


def decode_transaction(raw: bytes, max_bytes: int, max_depth: int) -> Envelope:
    """Read and verify a raw transaction.

    The result is kept, since check, process and finalize all decode the same bytes.
    """
    if len(raw) > max_bytes:
        raise TransactionTooLarge
    key = (raw, max_depth)
    envelope = _verified.get(key)
    if envelope is None:
        # No fractions: everything that the ledger counts is an integer.
        envelope = open_envelope(parse(raw, JsonLimits(max_bytes, max_depth, fractions=False)))
        _verified.put(key, envelope)
    return envelope


class _Verified:
    """Verified envelopes in two generations; the older one is dropped when the younger is full.

    Any thread may use it: two that verify the same bytes at once only do the work twice.
    """

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._young: dict[tuple[bytes, int], Envelope] = {}
        self._old: dict[tuple[bytes, int], Envelope] = {}
        self._young_bytes = 0

    def get(self, key: tuple[bytes, int]) -> Envelope | None:
        return self._young.get(key) or self._old.get(key)

    def put(self, key: tuple[bytes, int], envelope: Envelope) -> None:
        self._young[key] = envelope
        self._young_bytes += len(key[0])
        if self._young_bytes > self._half:
            self._old, self._young, self._young_bytes = self._young, {}, 0


VERIFIED_BYTES = 8 * 1024 * 1024
"""As much as waits for a block at most; with their parsed forms some 60 MiB."""
_verified = _Verified(VERIFIED_BYTES)


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
