"""A committed block, and the validators that headers name, as the ledger keeps and reads them.

Terms: *effects* are payments that have no transaction of their own. A block has effects, which
happened before its transactions, and so has each result. They serve histories and are not part of
the state.

Invariant: a row is read as it was written; one whose checksum or hash differs raises LedgerBroken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meshnode.domain.chain.blocks import TransactionResult
from meshnode.domain.chain.comet.commits import BlockId, Commit
from meshnode.domain.chain.comet.headers import CometBlock, Header, results_hash
from meshnode.domain.chain.comet.validators import CometValidator, validators_hash
from meshnode.domain.chain.errors import LedgerBroken, MalformedBlock
from meshnode.domain.chain.view import Effect

CHECKSUM_BYTES = 16
_NO_OUTCOME = json.dumps({"effects": [], "results": []}).encode()
"""The outcome of a block without transactions or effects; most blocks have none."""


@dataclass(frozen=True)
class StoredBlock:
    """One block, its outcome, and the commit that decided it."""

    block: CometBlock
    commit: Commit
    results: tuple[TransactionResult, ...]
    effects: tuple[Effect, ...] = ()

    @property
    def height(self) -> int:
        """The block's height; the first block has height 1."""
        return self.block.header.height

    @property
    def header(self) -> Header:
        """The header; its ``app_hash`` is the state's root before this block."""
        return self.block.header

    @property
    def time_ns(self) -> int:
        """The block's time: nanoseconds since 1970."""
        return self.block.header.time_ns

    @cached_property
    def hash(self) -> bytes:
        """The header's hash."""
        return self.block.header.hash

    @property
    def block_id(self) -> BlockId:
        """The id that the commit's votes name."""
        return self.commit.block_id

    @property
    def transactions(self) -> tuple[bytes, ...]:
        """Raw transactions, in order; ``results`` has as many."""
        return self.block.transactions

    @property
    def last_commit(self) -> Commit:
        """The commit of the block before."""
        return self.block.last_commit

    @property
    def results_hash(self) -> bytes:
        """The hash of the results, as the next header has it."""
        return results_hash([result.code for result in self.results])


Row = tuple[int, bytes, bytes, bytes, bytes, bytes]
"""Height, hash, block, commit, results with effects, checksum."""


@dataclass(frozen=True, slots=True)
class DecidedBlock:
    """The outcome of a block that a consensus engine decided, until the block itself is stored."""

    height: int
    hash: bytes
    results: tuple[TransactionResult, ...]
    effects: tuple[Effect, ...]

    def to_row(self) -> tuple[int, bytes, bytes, bytes]:
        """Height, hash, results with effects, checksum."""
        outcome = _outcome_json(self.results, self.effects)
        return (self.height, self.hash, outcome, _checksum((self.hash, outcome)))

    @classmethod
    def of_row(cls, row: tuple[int, bytes, bytes, bytes]) -> DecidedBlock:
        """What :meth:`to_row` wrote. Raises LedgerBroken when the row is damaged."""
        height, block_hash, outcome, checksum = row
        try:
            if _checksum((block_hash, outcome)) != checksum:
                raise ValueError
            return cls(height, block_hash, *_read_outcome(outcome))
        except (ValueError, TypeError, KeyError):
            raise LedgerBroken(f"the outcome of block {height} is damaged") from None


def to_row(stored: StoredBlock) -> Row:
    """The block as columns."""
    outcome = _outcome_json(stored.results, stored.effects)
    parts = (stored.block.encode(), stored.commit.encode(), outcome)
    return (stored.height, stored.hash, *parts, _checksum(parts))


def from_row(row: Row) -> StoredBlock:
    """The block that :func:`to_row` wrote. Raises LedgerBroken when the row is damaged."""
    height, block_hash, block, commit, outcome, checksum = row
    try:
        if _checksum((block, commit, outcome)) != checksum:
            raise MalformedBlock
        stored = StoredBlock(
            CometBlock.decode(block), Commit.decode(commit), *_read_outcome(outcome)
        )
        whole = stored.height == height and stored.hash == block_hash
    except (MalformedBlock, ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise LedgerBroken(f"the stored block {height} is damaged")
    return stored


def read_names(height: int, parts: Sequence[bytes], checksum: bytes) -> list[bytes]:
    """Hashes of a row's transactions. Raises LedgerBroken when the row is damaged.

    ``parts`` are block, commit and results. This is much cheaper than decoding the whole block.
    """
    if _checksum(parts) != checksum:
        raise LedgerBroken(f"the stored block {height} is damaged")
    if parts[2] == _NO_OUTCOME:
        return []
    return [bytes.fromhex(result[2]) for result in json.loads(parts[2])["results"]]


def validators_text(validators: Iterable[CometValidator]) -> str:
    """A validator set as the text that :func:`read_validators` reads."""
    return json.dumps([[one.consensus_key, one.power] for one in validators])


def read_validators(set_hash: bytes, text: bytes) -> tuple[CometValidator, ...]:
    """The validator set in ``text``. Raises LedgerBroken unless its hash is ``set_hash``."""
    try:
        found = tuple(CometValidator(key, power) for key, power in json.loads(text))
        # A set has exactly one form, although hexadecimal keys could be in either case.
        whole = (
            validators_hash(found) == set_hash and validators_text(found).lower() == text.decode()
        )
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise LedgerBroken("a stored set of validators is damaged")
    return found


def _checksum(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()[:CHECKSUM_BYTES]


def _outcome_json(results: Iterable[TransactionResult], effects: Iterable[Effect]) -> bytes:
    outcome = {
        "effects": _effects_json(effects),
        "results": [
            [one.code, one.log, one.hash, one.id, one.kind, one.sender, _effects_json(one.effects)]
            for one in results
        ],
    }
    return json.dumps(outcome).encode()


def _read_outcome(data: bytes) -> tuple[tuple[TransactionResult, ...], tuple[Effect, ...]]:
    document = json.loads(data)
    results = tuple(_result(one) for one in document["results"])
    return results, _effects(document["effects"])


def _effects_json(effects: Iterable[Effect]) -> list[Any]:
    return [[one.account, one.amount, one.reason, one.reference] for one in effects]


def _effects(value: Iterable[list[Any]]) -> tuple[Effect, ...]:
    return tuple(Effect(*one) for one in value)


def _result(value: list[Any]) -> TransactionResult:
    code, log, name, application_id, kind, sender, effects = value
    return TransactionResult(code, log, name, application_id, kind, sender, _effects(effects))
