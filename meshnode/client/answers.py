"""Gateways' answers, parsed strictly (native network 2): one dataclass for each kind of answer.

A field that is missing or has the wrong type raises :class:`GatewayMisbehaves`. Unknown fields are
ignored, since later gateways add some. Money is in atoms, whatever its form on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from meshnode.client.errors import GatewayMisbehaves
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.profile import MAX_INTEGER

_DIGEST = re.compile(r"[0-9a-f]{64}")
_HASH = re.compile(r"[0-9A-F]{64}")
_DECIMAL = re.compile(r"[0-9]{1,19}")

T = TypeVar("T", bool, int, str)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a chain. The genesis hash is needed because anyone can reuse a chain's name."""

    chain_id: str
    genesis_sha256: str


class Fields:
    """One JSON object of an answer. ``what`` names it in error messages."""

    def __init__(self, value: Json, what: str) -> None:
        if not isinstance(value, dict):
            raise GatewayMisbehaves(f"{what}: not an object")
        self.raw = value
        self._what = what

    def integer(self, name: str) -> int:
        """A non-negative integer, such as a height or a nonce."""
        value = self._of(name, int)
        return value if 0 <= value <= MAX_INTEGER else self._complain(name)

    def text(self, name: str) -> str:
        """Any string."""
        return self._of(name, str)

    def flag(self, name: str) -> bool:
        """A boolean."""
        return self._of(name, bool)

    def digest(self, name: str) -> str:
        """64 lowercase hex characters."""
        value = self._of(name, str)
        return value if _DIGEST.fullmatch(value) else self._complain(name)

    def block_hash(self, name: str) -> str:
        """64 uppercase hex characters."""
        value = self._of(name, str)
        return value if _HASH.fullmatch(value) else self._complain(name)

    def atoms(self, name: str) -> int:
        """Money: a decimal string, or an integer as in raw query results."""
        value = self.raw.get(name)
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = int(value)
        if type(value) is not int or not 0 <= value <= 2**63 - 1:
            self._complain(name)
        return value

    def object(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self.raw.get(name), f"{self._what}.{name}")

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise GatewayMisbehaves(f"{self._what}: {name} is not a list")
        return [Fields(item, f"{self._what}.{name}") for item in value]

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise GatewayMisbehaves(f"{self._what}: {name} is not a list")
        return [item if isinstance(item, str) else self._complain(name) for item in value]

    def identity(self) -> Identity:
        """``chain_id`` and ``genesis_sha256``."""
        return Identity(self.text("chain_id"), self.digest("genesis_sha256"))

    def _of(self, name: str, kind: type[T]) -> T:
        value = self.raw.get(name)
        # In Python a bool is an int; in JSON it is not.
        if type(value) is not kind:
            raise GatewayMisbehaves(f"{self._what}: {name} is missing or of another type")
        return value

    def _complain(self, name: str) -> NoReturn:
        raise GatewayMisbehaves(f"{self._what}: {name} has an impossible value")


@dataclass(frozen=True, slots=True)
class Network:
    """``/api/network``. ``fee`` is in atoms; ``max_bytes`` is the size limit of a transaction."""

    identity: Identity
    height: int
    ready: bool
    serving_root: str
    fee: int
    max_bytes: int
    bond_unit: int
    manifest_hash: str
    raw: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Quote:
    """``/api/inference``: the price of an answer, and its provider."""

    identity: Identity
    model_root: str
    model_name: str
    provider: str | None
    provider_online: bool
    fee: int
    price_per_token: int
    max_tokens: int
    lifetime_blocks: int
    raw: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Account:
    """``/api/account``. ``nonce`` is the next one to use."""

    public_key: str
    available: int
    locked: int
    total: int
    nonce: int
    raw: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class BlockTransaction:
    """A transaction as a block shows it; ``nonce`` is None if its body has none."""

    hash: str
    kind: str
    sender: str
    nonce: int | None
    code: int
    log: str


@dataclass(frozen=True, slots=True)
class BlockView:
    """``/api/block/H``."""

    height: int
    hash: str
    time: str
    transactions: tuple[BlockTransaction, ...]
    raw: Mapping[str, Json]


def read_network(value: Json) -> Network:
    """See :class:`Network`."""
    fields = Fields(value, "/api/network")
    params = fields.object("params")
    return Network(
        identity=fields.identity(),
        height=fields.integer("height"),
        ready=fields.flag("ready"),
        serving_root=fields.digest("serving_root"),
        fee=params.integer("fee"),
        max_bytes=params.integer("max_tx_bytes"),
        bond_unit=params.integer("bond_unit"),
        manifest_hash=fields.digest("manifest_hash"),
        raw=fields.raw,
    )


def read_quote(value: Json) -> Quote:
    """See :class:`Quote`."""
    fields = Fields(value, "/api/inference")
    provider = fields.raw.get("provider")
    return Quote(
        identity=fields.identity(),
        model_root=fields.digest("model_root"),
        model_name=fields.text("model_name"),
        provider=None if provider is None else fields.text("provider"),
        provider_online=fields.flag("provider_online"),
        fee=fields.atoms("fee_atoms"),
        price_per_token=fields.atoms("price_per_max_token_atoms"),
        max_tokens=fields.integer("max_tokens"),
        lifetime_blocks=fields.integer("request_lifetime_blocks"),
        raw=fields.raw,
    )


def read_account(value: Json, public_key: str) -> Account:
    """See :class:`Account`; it must be the requested one."""
    fields = Fields(value, "/api/account")
    if fields.text("public_key") != public_key:
        raise GatewayMisbehaves("/api/account: the answer is about another account")
    available, locked = fields.atoms("balance"), fields.atoms("locked")
    total, nonce = fields.atoms("total"), fields.integer("nonce")
    return Account(public_key, available, locked, total, nonce, fields.raw)


def read_block(value: Json) -> BlockView:
    """See :class:`BlockView`."""
    fields = Fields(value, "block")
    return BlockView(
        height=fields.integer("height"),
        hash=fields.block_hash("hash"),
        time=fields.text("time"),
        transactions=tuple(_transaction(one) for one in fields.objects("transactions")),
        raw=fields.raw,
    )


def _transaction(fields: Fields) -> BlockTransaction:
    body = fields.raw.get("body")
    nonce = body.get("nonce") if isinstance(body, dict) else None
    kind, sender = fields.raw.get("kind"), fields.raw.get("sender")
    return BlockTransaction(
        hash=fields.block_hash("hash"),
        # A transaction that could not be parsed has only a hash and a reason for its refusal.
        kind=kind if isinstance(kind, str) else "",
        sender=sender if isinstance(sender, str) else "",
        nonce=nonce if type(nonce) is int else None,
        code=fields.integer("code"),
        log=fields.text("log"),
    )
