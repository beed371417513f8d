"""Validators: ``bond``, ``unbond``, ``withdraw``, evidence, and power over time (decision 0060).

States of a validator, and what moves it:

==========  =======================================  ===========
from        by                                       to
==========  =======================================  ===========
(none)      ``bond``                                 pending
pending     its activation height                    active
active      ``unbond``                               leaving
leaving     its exit height                          cooldown
active,     evidence of a double signature; each     jailed
leaving     burns a quarter of what is left, also
            in cooldown and when jailed already
cooldown,   ``withdraw`` after the evidence window   withdrawn
jailed
==========  =======================================  ===========

A change announced in block H takes effect in H+2, as in CometBFT. Invariants: an active validator's
power is its bond divided by ``bond_unit``; a consensus key is used once; at least one validator
always has power.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidSignature as BadSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from meshnode.domain.chain.accounts import burn, debit, pay
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.errors import (
    BondNotActive,
    BondStillExposed,
    ConsensusKeyUsed,
    InvalidBondAmount,
    InvalidEvidence,
    InvalidPossession,
    LastValidator,
    NotBondOwner,
    NoVotingPowerLeft,
)
from meshnode.domain.chain.records import Due, Evidence, Members, Validator
from meshnode.domain.chain.values import consensus_key, integer
from meshnode.domain.chain.view import View
from meshnode.domain.units import SECOND_NS

BOND_FIELDS = frozenset({"consensus_key", "amount", "possession"})
UNBOND_FIELDS = WITHDRAW_FIELDS = frozenset({"consensus_key"})

EFFECT_DELAY = 2
"""Blocks from the announcement of a change to the first block in which it is effective."""


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """A proven offence, as the consensus engine reports it.

    ``kind`` is 1 for a double vote and 2 for a light-client attack.
    """

    kind: int
    address: str
    height: int


def next_epoch(height: int, epoch_blocks: int) -> int:
    """The first multiple of ``epoch_blocks`` that is not below ``height``."""
    return -(-height // epoch_blocks) * epoch_blocks


def power_at(validator: Validator, height: int) -> int:
    """The validator's voting power at ``height``; 0 if it has none."""
    return next((power for start, power in reversed(validator.history) if start <= height), 0)


def voting_powers(view: View, height: int) -> dict[str, int]:
    """Consensus keys with power at ``height``, sorted by key."""
    powers = {key: power_at(view.get(Validator, key), height) for key in view.get(Members).keys}
    return {key: power for key, power in powers.items() if power}


def possession_message(
    domain: str, chain_id: str, owner: str, key: str, amount: int, nonce: int
) -> bytes:
    """The bytes that the consensus key signs to show that its holder agrees to this one bond."""
    return encode(
        {
            "domain": domain,
            "chain_id": chain_id,
            "owner": owner,
            "consensus_key": key,
            "amount": amount,
            "nonce": nonce,
        }
    )


def apply_bond(context: Context, transaction: Transaction) -> None:
    """Bond ``amount`` to a new consensus key, which becomes active at a later epoch."""
    view, params, body = context.view, context.profile.params, transaction.body
    key = consensus_key(body["consensus_key"])
    amount = integer(body["amount"], params.bond_unit)
    # Power is counted in whole units.
    if amount % params.bond_unit:
        raise InvalidBondAmount
    # A key is never bonded again, even after a withdrawal: old evidence must not hit a new bond.
    if view.find(Validator, key) is not None:
        raise ConsensusKeyUsed
    # The key's holder must agree: otherwise anyone could bond, and later jail, another's key.
    message = possession_message(
        context.profile.bond_domain,
        context.chain_id,
        transaction.sender,
        key,
        amount,
        transaction.nonce,
    )
    try:
        possession = bytes.fromhex(str(body["possession"]))
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(possession, message)
    except (ValueError, BadSignature):
        raise InvalidPossession from None
    debit(view, transaction.sender, amount)
    emit_at = next_epoch(context.height + params.activation_blocks, params.epoch_blocks)
    view.put(Validator(transaction.sender, amount, "pending", emit_at=emit_at), key)
    view.put(Members(tuple(sorted((*view.get(Members).keys, key)))))
    _remember_due(view, emit_at, key)


def apply_unbond(context: Context, transaction: Transaction) -> None:
    """Let an active validator leave at the next epoch."""
    view, params = context.view, context.profile.params
    key, validator = _own_validator(context, transaction)
    if validator.status != "active":
        raise BondNotActive
    # Another active validator must remain to sign blocks.
    others = (view.get(Validator, other) for other in view.get(Members).keys if other != key)
    if not any(other.status == "active" for other in others):
        raise LastValidator
    emit_at = next_epoch(context.height + 1, params.epoch_blocks)
    view.put(replace(validator, status="leaving", emit_at=emit_at), key)
    _remember_due(view, emit_at, key)


def apply_withdraw(context: Context, transaction: Transaction) -> None:
    """Return the bond to its owner, once evidence against it can no longer be accepted."""
    view = context.view
    key, validator = _own_validator(context, transaction)
    if (
        validator.status not in ("cooldown", "jailed")
        or validator.release_height is None
        or validator.release_time_ns is None
        or context.height < validator.release_height
        or context.time_ns <= validator.release_time_ns
    ):
        raise BondStillExposed
    pay(view, transaction.sender, validator.amount, "bond returned", key)
    view.put(replace(validator, amount=0, status="withdrawn"), key)
    view.put(Members(tuple(other for other in view.get(Members).keys if other != key)))


def punish(context: Context, offences: Iterable[Misbehaviour]) -> dict[str, int]:
    """Burn a quarter of the bond for each new offence, and jail. Returns new powers by key."""
    view, updates = context.view, dict[str, int]()
    for offence in offences:
        event = f"{offence.kind}:{offence.address}:{offence.height}"
        # Skip an offence that was punished before.
        if view.find(Evidence, event) is not None:
            continue
        keys = [k for k in view.get(Members).keys if validator_address(k) == offence.address]
        # Evidence must name a validator that had power at the offence's height, below this one.
        if offence.kind not in (1, 2) or not 1 <= offence.height < context.height or not keys:
            raise InvalidEvidence
        key = keys[0]
        validator = view.get(Validator, key)
        if not power_at(validator, offence.height):
            raise InvalidEvidence
        penalty = -(-validator.amount // 4)
        burn(view, penalty)
        validator = replace(validator, amount=validator.amount - penalty)
        if validator.status not in ("cooldown", "jailed"):
            removed_at = context.height + EFFECT_DELAY
            validator = _announce(replace(validator, status="jailed"), removed_at, 0)
            _remember_due(view, removed_at, key)
            updates[key] = 0
        view.put(validator, key)
        view.put(Evidence(context.height), event)
    return updates


def apply_due(context: Context) -> dict[str, int]:
    """Apply the changes that are due at this height. Returns new powers by consensus key."""
    view, params, height = context.view, context.profile.params, context.height
    due, updates = view.find(Due, str(height)), dict[str, int]()
    if due is None:
        return updates
    view.drop(Due, str(height))
    for key in due.keys:
        validator = view.get(Validator, key)
        if validator.emit_at == height:
            joins = validator.status == "pending"
            power = validator.amount // params.bond_unit if joins else 0
            status = "active" if joins else "cooldown"
            validator = _announce(replace(validator, status=status), height + EFFECT_DELAY, power)
            updates[key] = power
            if not joins:
                _remember_due(view, height + EFFECT_DELAY, key)
        elif validator.removed_at == height:
            # The key could sign blocks up to height - 1. The evidence window is counted from this
            # block, whose time is not before that of height - 1.
            validator = replace(
                validator,
                release_height=height + params.evidence_blocks,
                release_time_ns=context.time_ns + params.evidence_seconds * SECOND_NS,
            )
        view.put(validator, key)
    return updates


def require_power(context: Context) -> None:
    """Raise NoVotingPowerLeft if nobody would be left to sign blocks."""
    if not voting_powers(context.view, context.height + EFFECT_DELAY):
        raise NoVotingPowerLeft


def _announce(validator: Validator, effective: int, power: int) -> Validator:
    return replace(
        validator,
        history=(*validator.history, (effective, power)),
        emit_at=None,
        removed_at=None if power else effective,
    )


def _own_validator(context: Context, transaction: Transaction) -> tuple[str, Validator]:
    key = consensus_key(transaction.body["consensus_key"])
    validator = context.view.find(Validator, key)
    if validator is None or validator.owner != transaction.sender:
        raise NotBondOwner
    return key, validator


def _remember_due(view: View, height: int, key: str) -> None:
    due = view.find(Due, str(height)) or Due()
    view.put(Due(tuple(sorted({*due.keys, key}))), str(height))
