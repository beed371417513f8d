"""What one block means for the histories (interface 2.2: account, training history).

Terms: an *entry* is one change of what an account can spend. Its amount is in atoms and negative
for money that leaves the account; entries that move nothing (a vote, an unstake that has yet to
cool down) have amount 0.

Invariants: the functions are pure, so an index that is rebuilt equals one that grew block by block;
an account's entries and its balance in the genesis add up to its available balance. An entry's id
is the application id of its transaction, with a suffix if it is not the transaction itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshnode.domain.chain.blocks import ACCEPTED
from meshnode.domain.chain.canonical import Json, JsonLimits, parse
from meshnode.domain.chain.errors import LedgerBroken
from meshnode.domain.chain.transactions import KINDS

if TYPE_CHECKING:
    from meshnode.domain.chain.blocks import TransactionResult
    from meshnode.domain.chain.profile import NetworkProfile
    from meshnode.domain.chain.view import Effect
    from meshnode.services.ledger.records import StoredBlock

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of an account's available balance; see the table of kinds below."""

    id: str
    kind: str
    amount: int
    """Signed atoms."""
    time_ns: int
    height: int
    counterparty: str | None = None
    details: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcceptedUpdate:
    """An update that a block accepted. The exact loss is hexadecimal."""

    round: int
    height: int
    block_hash: str
    time_ns: int
    transaction_hash: str
    task_id: str
    model_root: str
    loss_hex: str | None
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRecord:
    """A claim of work on the chain; ``reward`` is in atoms, and 0 unless it was verified."""

    id: str
    work_kind: str
    layer: int
    time_ns: int
    verified: bool
    reward: int


@dataclass(frozen=True, slots=True)
class ProofPage:
    """Claims of an account, newest first; the sums are over all, not only those shown."""

    proofs: tuple[ProofRecord, ...]
    submitted: int
    verified: int
    earned: int
    """Atoms."""


@dataclass(frozen=True, slots=True)
class BlockEntries:
    """What a block adds to the index: entries in the order in which they happened, and updates."""

    height: int
    block_hash: str
    entries: tuple[tuple[str, HistoryEntry], ...]
    updates: tuple[AcceptedUpdate, ...]


# What a transaction takes from its sender besides the fee, and what its entry says about it. Other
# code below makes the entries of the kinds "fee", "receive" and those of EFFECTS.
_Meaning = tuple[str, Callable[[Body, "NetworkProfile"], int], tuple[str, ...]]
MEANINGS: dict[str, _Meaning] = {
    "transfer": ("send", lambda body, _: -body["amount"], ()),
    "bond": ("bond", lambda body, _: -body["amount"], ("consensus_key",)),
    "unbond": ("unbond", lambda *_: 0, ("consensus_key",)),
    "withdraw": ("withdraw", lambda *_: 0, ("consensus_key",)),
    "reserve": ("reserve", lambda _, profile: -profile.params.reservation_bond, ("round",)),
    "submit": ("submit", lambda *_: 0, ("task_id", "result_root")),
    "infer": ("inference", lambda body, _: -body["price"], ("model_root", "expires")),
    "respond": ("respond", lambda *_: 0, ("job_id",)),
    "stake": ("stake", lambda body, _: -body["amount"], ("amount", "duration_days")),
    "unstake": ("unstake", lambda *_: 0, ("amount",)),
    "prove": ("prove", lambda *_: 0, ("work_kind", "layer", "statement")),
    "vote": ("vote", lambda *_: 0, ("proof_id", "approve")),
}

# Payments without a transaction of the account's own: the reason, the entry's kind, and the role in
# which it was earned.
EFFECTS: dict[str, tuple[str, str | None]] = {
    "worker reward": ("reward", "worker"),
    "proof reward": ("reward", "worker"),
    "proof refused": ("penalty", None),
    "verifier reward": ("reward", "validator"),
    "provider payment": ("settlement", "driver"),
    "refund": ("refund", None),
    "bond returned": ("bond_return", None),
    "unstaked": ("unstaked", None),
}


def block_entries(block: StoredBlock, profile: NetworkProfile) -> BlockEntries:
    """Everything that ``block`` adds.

    The ``round`` of an update is its number within the block, from 0. The index replaces it by the
    number within the chain, from 1.
    """
    entries: list[tuple[str, HistoryEntry]] = []
    updates: list[AcceptedUpdate] = []
    entries += _effect_entries(block, f"block-{block.height}", block.effects)
    for raw, result in zip(block.transactions, block.results, strict=True):
        # A refused transaction changes nothing, not even the nonce.
        if result.code != ACCEPTED or result.id is None or result.sender is None:
            continue
        body = _body(raw, profile)
        entries += _transaction_entries(block, result, body, profile)
        if result.kind == "submit":
            updates.append(_update(block, result, body, len(updates)))
    return BlockEntries(block.height, block.hash.hex().upper(), tuple(entries), tuple(updates))


def _transaction_entries(
    block: StoredBlock, result: TransactionResult, body: Body, profile: NetworkProfile
) -> Iterator[tuple[str, HistoryEntry]]:
    name, sender = str(result.id), str(result.sender)
    kind, change, shown = MEANINGS[str(result.kind)]
    other = body.get("to") or body.get("provider")
    details: dict[str, Json] = {key: body[key] for key in shown}
    details["transaction_hash"] = result.hash
    # Stakes that have cooled down are paid out before anything else changes the account.
    settled = [one for one in result.effects if one.reason == "unstaked"]
    yield from _effect_entries(block, name + ":settled", settled)
    if KINDS[str(result.kind)].costs_fee:
        fee = -profile.params.fee
        yield sender, HistoryEntry(name + ":fee", "fee", fee, block.time_ns, block.height)
    amount = change(body, profile)
    yield sender, HistoryEntry(name, kind, amount, block.time_ns, block.height, other, details)
    if result.kind == "transfer":
        received = HistoryEntry(
            name + ":received",
            "receive",
            body["amount"],
            block.time_ns,
            block.height,
            sender,
            {"transaction_hash": result.hash},
        )
        yield body["to"], received
    others = [one for one in result.effects if one.reason != "unstaked"]
    yield from _effect_entries(block, name, others)


def _effect_entries(
    block: StoredBlock, name: str, effects: tuple[Effect, ...] | list[Effect]
) -> Iterator[tuple[str, HistoryEntry]]:
    for number, effect in enumerate(effects):
        kind, role = EFFECTS[effect.reason]
        details: dict[str, Json] = {"reason": effect.reason, "reference": effect.reference}
        if role is not None:
            # What earned the payment: a proof, a task, a job, or the key that signed.
            details |= {"role": role, "proof_id": effect.reference}
        entry = HistoryEntry(
            f"{name}:{number}",
            kind,
            effect.amount,
            block.time_ns,
            block.height,
            None,
            details,
        )
        yield effect.account, entry


def _update(
    block: StoredBlock, result: TransactionResult, body: Body, number: int
) -> AcceptedUpdate:
    receipts = body["receipts"]
    loss_hex = receipts[-1]["body"].get("loss_hex")
    return AcceptedUpdate(
        round=number,
        height=block.height,
        block_hash=block.hash.hex().upper(),
        time_ns=block.time_ns,
        transaction_hash=result.hash,
        task_id=body["task_id"],
        model_root=body["result_root"],
        loss_hex=loss_hex if isinstance(loss_hex, str) else None,
        workers=tuple(receipt["public_key"] for receipt in receipts),
    )


def _body(raw: bytes, profile: NetworkProfile) -> Body:
    # Signatures were verified when the block was executed.
    limits = JsonLimits(profile.params.max_tx_bytes, profile.limits.transaction_depth)
    value = parse(raw, limits)
    if not isinstance(value, dict) or not isinstance(value["body"], dict):
        raise LedgerBroken("an accepted transaction is no envelope")
    return value["body"]
