"""One transaction: the rules that all kinds share, and the table of kinds (native network 1.2).

A transaction is applied to its own layer of the state. Either every rule holds and the layer is
kept, or a rule refuses and nothing changes: no fee is taken and the nonce stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshnode.domain.chain import bonds, jobs, proofs, stakes, tasks, transfers
from meshnode.domain.chain.accounts import take_turn
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.envelope import decode_transaction
from meshnode.domain.chain.errors import InvalidSchema, UnknownKind, WrongChain
from meshnode.domain.chain.values import integer

COMMON_FIELDS = frozenset({"kind", "chain_id", "nonce"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of transaction: its fields, its rule, and whether it costs the fee."""

    fields: frozenset[str]
    apply: Callable[[Context, Transaction], None]
    costs_fee: bool = True


KINDS: dict[str, Kind] = {
    "transfer": Kind(transfers.TRANSFER_FIELDS, transfers.apply_transfer),
    "bond": Kind(bonds.BOND_FIELDS, bonds.apply_bond),
    "unbond": Kind(bonds.UNBOND_FIELDS, bonds.apply_unbond),
    "withdraw": Kind(bonds.WITHDRAW_FIELDS, bonds.apply_withdraw),
    "reserve": Kind(tasks.RESERVE_FIELDS, tasks.apply_reserve),
    "submit": Kind(tasks.SUBMIT_FIELDS, tasks.apply_submit),
    "infer": Kind(jobs.INFER_FIELDS, jobs.apply_infer),
    # No fee: a provider may own nothing yet, and a validator should not pay to vote.
    "respond": Kind(jobs.RESPOND_FIELDS, jobs.apply_respond, costs_fee=False),
    "stake": Kind(stakes.STAKE_FIELDS, stakes.apply_stake),
    "unstake": Kind(stakes.UNSTAKE_FIELDS, stakes.apply_unstake),
    "prove": Kind(proofs.PROVE_FIELDS, proofs.apply_prove),
    "vote": Kind(proofs.VOTE_FIELDS, proofs.apply_vote, costs_fee=False),
}
_ALL_FIELDS = {name: COMMON_FIELDS | kind.fields for name, kind in KINDS.items()}


def apply_transaction(context: Context, raw: bytes) -> Transaction:
    """Apply a raw transaction to the context's state; a :class:`Rejected` leaves it as it was."""
    transaction = read_transaction(context, raw)
    attempt = context.layer()
    _apply(attempt, transaction)
    context.view.absorb(attempt.view)
    return transaction


def read_transaction(context: Context, raw: bytes) -> Transaction:
    """Check the rules that need only the bytes, the profile and the chain id."""
    limits = context.profile.limits
    max_bytes = context.profile.params.max_tx_bytes
    envelope = decode_transaction(raw, max_bytes, limits.transaction_depth)
    body = envelope.body
    # The network must accept this kind.
    name = body.get("kind")
    if not isinstance(name, str) or name not in context.profile.kinds:
        raise UnknownKind
    # The body must have exactly the common fields and those of its kind.
    if body.keys() != _ALL_FIELDS[name]:
        raise InvalidSchema
    # It must be signed for this chain.
    if body["chain_id"] != context.chain_id:
        raise WrongChain
    return Transaction.of(envelope, name, integer(body["nonce"]))


def _apply(context: Context, transaction: Transaction) -> None:
    view, sender = context.view, transaction.sender
    kind = KINDS[transaction.kind]
    stakes.settle_cooldowns(view, sender, context.time_ns)
    fee = context.profile.params.fee if kind.costs_fee else 0
    take_turn(view, sender, transaction.nonce, fee)
    kind.apply(context, transaction)
