"""The stored form of a record: its key, and its fields as canonical JSON.

Invariant: ``decode_record(key, encode_record(record)) == record``. Tuples are written as lists and
read back as tuples; a JSON value inside a record is left as it is.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import cast

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.records import (
    Account,
    Chain,
    Claim,
    Clock,
    Due,
    Evidence,
    FinishedJob,
    FinishedJobs,
    Job,
    Jobs,
    Lease,
    Members,
    Proof,
    Proofs,
    Record,
    Stake,
    Supply,
    Training,
    Validator,
    VerifierReward,
)

_TABLES: tuple[type[Record], ...] = (
    *(Account, Stake, Validator, Members, Due, Evidence, Job, Jobs, FinishedJob, FinishedJobs),
    *(Lease, VerifierReward, Training, Proof, Proofs, Claim, Clock, Supply, Chain),
)
_KINDS = {kind.table: kind for kind in _TABLES}


def key_of(record: type[Record], name: str = "") -> str:
    """The state key of a table's record."""
    return f"{record.table}/{name}" if name else record.table


def encode_record(record: Record) -> bytes:
    """Canonical JSON of a record."""
    return encode(
        {field.name: cast("Json", getattr(record, field.name)) for field in fields(record)}
    )


def decode_record(key: str, value: bytes) -> Record:
    """The record that :func:`encode_record` wrote under ``key``; LedgerBroken for anything else."""
    try:
        kind = _KINDS[key.partition("/")[0]]
        return kind(**{name: _freeze(member) for name, member in json.loads(value).items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LedgerBroken(f"the record {key} is damaged") from None


def _freeze(value: Json) -> Json:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
