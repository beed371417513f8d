"""Bearer tokens (interface 5: "an invalid or expired token yields 401").

The document does not show how a token is issued; decision 0028 defines it. Terms: the *secret* is
the text that a client sends; the *record* is the part that the node stores, with only a digest of
the secret.

A token has *scopes*, which say what it may be used for (decision 0161).

Invariants: a secret cannot be derived from a record; neither an answer nor its timing reveals
whether a token is unknown, expired or revoked. The caller supplies randomness and the time, in
seconds since the epoch.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from meshnode.domain.errors import InvalidRequest, MissingScope, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "mn_"
"""Makes a token that leaked recognisable, to people and to secret scanners."""
SECRET_BYTES = 32
ID_BYTES = 6
MAX_BEARER_CHARS = 512
"""A longer bearer text is refused without being hashed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Scope(StrEnum):
    """What a token may be used for."""

    INFER = "infer"
    """Generate text, on both ports."""
    WALLET = "wallet"
    """See and spend the money of the token's account."""
    READ = "read"
    """See what the node shows to its users only: peers, layers, configuration, proofs."""
    ADMIN = "admin"
    """Change the configuration, and see what only the operator should: the log."""


CUSTOMER = (Scope.INFER, Scope.WALLET, Scope.READ)
"""The scopes of a token for which none are named, and of those from before there were any."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The stored part of a token."""

    id: str
    name: str
    digest: str
    """SHA-256 of the secret, in hexadecimal. The secret is random, so it needs no salt."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    scopes: tuple[Scope, ...] = CUSTOMER

    def require(self, scope: Scope) -> None:
        """Raise MissingScope unless the token has ``scope``."""
        if scope not in self.scopes:
            raise MissingScope(str(scope))

    def live(self, now: float) -> bool:
        """Whether the token is accepted at ``now``."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def parse_scopes(text: str) -> tuple[Scope, ...]:
    """The scopes in a text with commas in between. Raises InvalidRequest."""
    names = text.split(",")
    if not set(names) <= set(Scope):
        raise InvalidRequest("scope", f"must be some of {','.join(Scope)}, with commas in between")
    return tuple(scope for scope in Scope if scope in names)


def new_token(
    name: str,
    random: bytes,
    now: float,
    ttl_s: float | None = None,
    scopes: tuple[Scope, ...] = CUSTOMER,
) -> tuple[TokenRecord, str]:
    """Make a token: its record, and its secret, which exists nowhere else.

    ``random`` is ``SECRET_BYTES + ID_BYTES`` random bytes. ``ttl_s`` None means that it does not
    expire. Raises :class:`InvalidRequest` for a bad name or lifetime.
    """
    if len(random) != SECRET_BYTES + ID_BYTES:
        raise ValueError("wrong number of random bytes")
    if not _NAME.fullmatch(name):
        raise InvalidRequest("name", "must be 1 to 64 letters, digits or any of . _ @ -")
    if ttl_s is not None and not 0 < ttl_s < 1e10:
        raise InvalidRequest("ttl", "must be above 0 seconds and below 300 years")
    secret = PREFIX + base64.urlsafe_b64encode(random[:SECRET_BYTES]).rstrip(b"=").decode("ascii")
    record = TokenRecord(
        id=random[SECRET_BYTES:].hex(),
        name=name,
        digest=digest(secret),
        created_at=int(now),
        expires_at=None if ttl_s is None else int(now + ttl_s),
        scopes=scopes,
    )
    return record, secret


def digest(secret: str) -> str:
    """The digest that a record keeps of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_live(records: Iterable[TokenRecord], secret: str, now: float) -> TokenRecord:
    """The live record of a secret, or :class:`Unauthorized`.

    Looks at every record and compares whole digests in constant time.
    """
    wanted = digest(secret)
    found = None
    for record in records:
        if hmac.compare_digest(record.digest, wanted):
            found = record
    if found is None or not found.live(now):
        raise Unauthorized
    return found


def bearer_secret(authorization: str | None) -> str:
    """The token in an ``Authorization`` header, or :class:`Unauthorized`.

    The scheme's case does not matter (RFC 9110, 11.1); one space follows it, then one token of the
    characters of RFC 6750, 2.1.
    """
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthorized("a bearer token is required")
    if len(secret) > MAX_BEARER_CHARS or not _BEARER.fullmatch(secret):
        raise Unauthorized
    return secret
