"""A chain of the solo engine as CometBFT's own stores, so that it goes on under CometBFT.

Blocks, votes and validator sets of the solo engine are already in CometBFT's formats
(decision 0065). Here they are written as the engine would have written them, had it made them: the
chain has one history, from its first block, in which other engines and light clients find no seam
(decision 0178).

==================  ===========================================================================
store               contents
==================  ===========================================================================
``blockstore.db``   every block: its header and size, its parts with proofs, its commit
``state.db``        validators with their proposer priorities for every height, the parameters,
                    and the state after the last block
``cs.wal/wal``      that the last block is done
==================  ===========================================================================

Invariant: the folder is complete or not there; a killed migration begins again.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from meshnode.datadir import sync_folder
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.comet.headers import BLOCK_PROTOCOL, PART_SIZE
from meshnode.domain.chain.comet.jsonform import COMET_VERSION
from meshnode.domain.chain.comet.merkle import merkle_proof
from meshnode.domain.chain.comet.priorities import RankedSet
from meshnode.domain.chain.comet.proto import (
    bytes_field,
    integer_field,
    message_field,
    timestamp,
)
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.view import Committed, View
from meshnode.domain.errors import StartupError
from meshnode.services.engine.home import HOME, signed_document
from meshnode.services.engine.leveldb import crc32c, write_database
from meshnode.services.ledger.database import LedgerReader
from meshnode.services.ledger.signed import LastSigned

if TYPE_CHECKING:
    from meshnode.domain.chain.comet.validators import CometValidator
    from meshnode.domain.chain.genesis import Genesis
    from meshnode.services.ledger.records import StoredBlock

Batch = list[tuple[bytes, bytes]]
PARAMS_HEIGHT = 1
"""The parameters are those of the genesis for good."""


def has_engine(data_dir: Path) -> bool:
    """Whether the chain in ``data_dir`` is, or was, under a consensus engine."""
    return (data_dir / HOME / "data" / "state.db").exists()


def hand_over(data_dir: Path, genesis: Genesis) -> int:
    """Write the engine's stores from the ledger's blocks; returns how many blocks there are.

    Raises StartupError when the ledger lacks a block that this validator has signed, or the disk
    refuses.
    """
    reader = LedgerReader(data_dir)
    try:
        tip = reader.height
        if not tip or has_engine(data_dir):
            return 0
        LastSigned(data_dir).require(genesis.chain_id, tip, reader.block)
        _write(data_dir / HOME, _History(reader, genesis), tip)
    except OSError as error:
        raise StartupError(f"cannot write the engine's stores: {error.strerror}") from None
    finally:
        reader.close()
    return tip


def _write(home: Path, history: _History, tip: int) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    new, data = home / "data.new", home / "data"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    write_database(new / "blockstore.db", history.blocks(tip))
    write_database(new / "state.db", history.states(tip))
    (new / "cs.wal").mkdir(mode=0o700)
    (new / "cs.wal" / "wal").write_bytes(end_of_height(tip, history.time_ns(tip)))
    (new / "priv_validator_state.json").write_bytes(signed_document(tip))
    for path in [*new.rglob("*"), new]:
        _sync(path)
    if data.exists():
        # Made by an earlier start, before any block.
        shutil.rmtree(data)
    new.rename(data)
    sync_folder(home)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _History:
    """The entries of both stores, made from a ledger's blocks."""

    def __init__(self, reader: LedgerReader, genesis: Genesis) -> None:
        self._reader = reader
        self._genesis = genesis

    def time_ns(self, height: int) -> int:
        return self._block(height).time_ns

    def blocks(self, tip: int) -> Iterator[Batch]:
        for height in range(1, tip + 1):
            yield _block_entries(self._block(height))
        state = integer_field(1, 1) + integer_field(2, tip)
        yield [(b"blockStore", state)]

    def states(self, tip: int) -> Iterator[Batch]:
        params = consensus_params(self._genesis)
        info = message_field(1, params) + integer_field(2, PARAMS_HEIGHT)
        yield [(b"consensusParamsKey:1", info)]
        first = self._set(self._block(1).header.validators_hash)
        # The first two heights have the validators of the genesis.
        last, own = RankedSet(), RankedSet.of_genesis(first)
        following = own.follow(own.powers)
        changed = 1
        yield [_validators_entry(1, own, 1), _validators_entry(2, following, 1)]
        pointer = message_field(1, b"") + integer_field(2, PARAMS_HEIGHT)
        for height in range(1, tip + 1):
            # Block H announces the validators of H+2, which the header of H+1 names.
            due = self._powers_after(height, tip)
            after = following.follow(due)
            if due != following.powers:
                changed = height + 2
            last, own, following = own, following, after
            yield [
                _validators_entry(height + 2, following, changed),
                (f"consensusParamsKey:{height + 1}".encode(), pointer),
            ]
        yield [(b"stateKey", self._state(tip, params, (last, own, following), changed))]

    def _powers_after(self, height: int, tip: int) -> dict[str, int]:
        if height < tip:
            name = self._block(height + 1).header.next_validators_hash
            return {one.consensus_key: one.power for one in self._set(name)}
        # The next block is not there yet; the state knows its validators.
        return voting_powers(View(Committed(self._reader)), tip + 2)

    def _state(
        self, tip: int, params: bytes, sets: tuple[RankedSet, RankedSet, RankedSet], changed: int
    ) -> bytes:
        last, own, following = sets
        block = self._block(tip)
        consensus = integer_field(1, BLOCK_PROTOCOL)
        version = message_field(1, consensus) + bytes_field(2, COMET_VERSION.encode())
        return (
            message_field(1, version)
            + bytes_field(2, self._genesis.chain_id.encode())
            + integer_field(3, tip)
            + message_field(4, block.block_id.encode())
            + message_field(5, timestamp(block.time_ns))
            + message_field(6, _set_message(following))
            + message_field(7, _set_message(own))
            + message_field(8, _set_message(last))
            + integer_field(9, changed)
            + message_field(10, params)
            + integer_field(11, PARAMS_HEIGHT)
            + bytes_field(12, block.results_hash)
            + bytes_field(13, self._reader.fact("app_hash"))
            + integer_field(14, 1)
        )

    def _block(self, height: int) -> StoredBlock:
        stored = self._reader.block(height)
        if stored is None:
            raise LedgerBroken(f"the block {height} is missing")
        return stored

    def _set(self, name: bytes) -> tuple[CometValidator, ...]:
        return self._reader.validators(name)


def _block_entries(stored: StoredBlock) -> Batch:
    height, data = stored.height, stored.block.encode()
    parts = [data[start : start + PART_SIZE] for start in range(0, len(data), PART_SIZE)]
    meta = (
        message_field(1, stored.block_id.encode())
        + integer_field(2, len(data))
        + message_field(3, stored.header.encode())
        + integer_field(4, len(stored.transactions))
    )
    return [
        (f"H:{height}".encode(), meta),
        (f"BH:{stored.hash.hex()}".encode(), str(height).encode()),
        *((f"P:{height}:{index}".encode(), _part(index, parts)) for index in range(len(parts))),
        (f"C:{height - 1}".encode(), stored.last_commit.encode()),
        (f"SC:{height}".encode(), stored.commit.encode()),
    ]


def _part(index: int, parts: list[bytes]) -> bytes:
    leaf, aunts = merkle_proof(parts, index)
    proof = (
        integer_field(1, len(parts))
        + integer_field(2, index)
        + bytes_field(3, leaf)
        + b"".join(message_field(4, aunt) for aunt in aunts)
    )
    return integer_field(1, index) + bytes_field(2, parts[index]) + message_field(3, proof)


def _validators_entry(height: int, ranked: RankedSet, changed: int) -> tuple[bytes, bytes]:
    key = f"validatorsKey:{height}".encode()
    return key, message_field(1, _set_message(ranked)) + integer_field(2, changed)


def _set_message(ranked: RankedSet) -> bytes:
    messages = {
        one.consensus_key: bytes_field(1, bytes.fromhex(one.address))
        + message_field(2, bytes_field(1, bytes.fromhex(one.consensus_key)))
        + integer_field(3, one.power)
        + integer_field(4, ranked.priorities[one.consensus_key])
        for one in ranked.validators
    }
    if not messages:
        return b""
    listed = b"".join(message_field(1, one) for one in messages.values())
    total = integer_field(3, sum(ranked.powers.values()))
    return listed + message_field(2, messages[ranked.proposer]) + total


def consensus_params(genesis: Genesis) -> bytes:
    """The parameters of the genesis document (:func:`genesis_document`) as a message."""
    limits, params = genesis.profile.limits, genesis.profile.params
    age = integer_field(1, params.evidence_seconds)
    evidence = (
        integer_field(1, params.evidence_blocks) + message_field(2, age) + integer_field(3, 65536)
    )
    return (
        message_field(1, integer_field(1, limits.block_bytes) + integer_field(2, -1))
        + message_field(2, evidence)
        + message_field(3, bytes_field(1, b"ed25519"))
        + message_field(4, b"")
        + message_field(5, b"")
    )


def end_of_height(height: int, time_ns: int) -> bytes:
    """A write-ahead log of the engine that says that ``height`` is done."""
    message = message_field(4, integer_field(1, height))
    data = message_field(1, timestamp(time_ns)) + message_field(2, message)
    return struct.pack(">II", crc32c(data), len(data)) + data
