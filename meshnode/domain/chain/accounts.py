"""Movements of money into and out of accounts.

Each function here changes one side of a movement of money; its caller must make the matching change
elsewhere. The block's audit (:mod:`meshnode.domain.chain.blocks`) stops the node if one is missing.
"""

from __future__ import annotations

from dataclasses import replace

from meshnode.domain.chain.errors import InsufficientFunds, LedgerBroken
from meshnode.domain.chain.records import Account, Supply
from meshnode.domain.chain.view import Effect, View


def read_account(view: View, owner: str) -> Account:
    """The account of ``owner``; a new account is empty and its next nonce is 0."""
    return view.find(Account, owner) or Account()


def write_account(view: View, owner: str, account: Account) -> None:
    """Store the account, and count it when it is new."""
    if view.find(Account, owner) is None:
        supply = view.get(Supply)
        view.put(replace(supply, accounts=supply.accounts + 1))
    view.put(account, owner)


def credit(view: View, owner: str, amount: int) -> None:
    """Add ``amount`` to the account's available balance."""
    account = read_account(view, owner)
    write_account(view, owner, replace(account, available=account.available + amount))


def pay(view: View, owner: str, amount: int, reason: str, reference: str = "") -> None:
    """Credit the account and note the payment in its history; used where no account is the sender.

    ``reference`` is the application id or the key that the payment is about.
    """
    credit(view, owner, amount)
    view.note(Effect(owner, amount, reason, reference))


def debit(view: View, owner: str, amount: int) -> None:
    """Take ``amount`` from the available balance; InsufficientFunds if that is too small."""
    account = read_account(view, owner)
    # Locked money cannot be spent: every kind of spending passes through this check.
    if account.available < amount:
        raise InsufficientFunds
    write_account(view, owner, replace(account, available=account.available - amount))


def lock(view: View, owner: str, amount: int) -> None:
    """Move a job's budget from available to locked; InsufficientFunds if that is too small."""
    debit(view, owner, amount)
    account = read_account(view, owner)
    write_account(view, owner, replace(account, locked=account.locked + amount))


def take_locked(view: View, owner: str, amount: int) -> None:
    """Take a job's budget out of the locked balance. LedgerBroken if less than that is locked."""
    account = read_account(view, owner)
    if account.locked < amount:
        raise LedgerBroken("a job's budget is not locked at its owner")
    write_account(view, owner, replace(account, locked=account.locked - amount))


def burn(view: View, amount: int) -> None:
    """Add ``amount`` to the total burned; the caller has debited it elsewhere."""
    supply = view.get(Supply)
    view.put(replace(supply, burned=supply.burned + amount))


def issue(view: View, amount: int) -> None:
    """Add ``amount`` to the total issued; the caller credits it elsewhere."""
    supply = view.get(Supply)
    view.put(replace(supply, issued=supply.issued + amount))
