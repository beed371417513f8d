"""``transfer``: pay another account. Fields ``to`` (public key), ``amount`` (at least one atom)."""

from __future__ import annotations

from meshnode.domain.chain.accounts import credit, debit
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.envelope import account_key
from meshnode.domain.chain.values import integer

TRANSFER_FIELDS = frozenset({"to", "amount"})


def apply_transfer(context: Context, transaction: Transaction) -> None:
    """Move ``amount`` from the sender to ``to``, which may be the sender."""
    recipient = account_key(transaction.body["to"])
    amount = integer(transaction.body["amount"], 1)
    debit(context.view, transaction.sender, amount)
    credit(context.view, recipient, amount)
