"""Moving money between an account and everything else.

Every function here takes atoms from one place; its caller puts the same number somewhere else. The
block's audit (:mod:`meshnode.domain.chain.blocks`) stops the node if a caller did not.
"""

from __future__ import annotations

from dataclasses import replace

from meshnode.domain.chain.errors import InsufficientFunds, LedgerBroken
from meshnode.domain.chain.records import Account, Supply
from meshnode.domain.chain.view import Effect, View


def read_account(view: View, owner: str) -> Account:
    """The account; one that was never used is empty and its next nonce is 0."""
    return view.find(Account, owner) or Account()


def write_account(view: View, owner: str, account: Account) -> None:
    """Store the account, and count it when it is new."""
    if view.find(Account, owner) is None:
        supply = view.get(Supply)
        view.put(replace(supply, accounts=supply.accounts + 1))
    view.put(account, owner)


def credit(view: View, owner: str, amount: int) -> None:
    """Add to what the account can spend."""
    account = read_account(view, owner)
    write_account(view, owner, replace(account, available=account.available + amount))


def pay(view: View, owner: str, amount: int, reason: str, reference: str = "") -> None:
    """Credit, with a note for the account's history: rewards, payments and refunds have no sender.

    ``reference`` is the application id or the key that the payment is about.
    """
    credit(view, owner, amount)
    view.note(Effect(owner, amount, reason, reference))


def debit(view: View, owner: str, amount: int) -> None:
    """Take from what the account can spend; InsufficientFunds when that is less."""
    account = read_account(view, owner)
    # Locked money is not available: every kind of spending comes through here.
    if account.available < amount:
        raise InsufficientFunds
    write_account(view, owner, replace(account, available=account.available - amount))


def lock(view: View, owner: str, amount: int) -> None:
    """Set aside a job's budget; InsufficientFunds when it is not available."""
    debit(view, owner, amount)
    account = read_account(view, owner)
    write_account(view, owner, replace(account, locked=account.locked + amount))


def take_locked(view: View, owner: str, amount: int) -> None:
    """Take a job's budget, to pay it out or to give it back."""
    account = read_account(view, owner)
    if account.locked < amount:
        raise LedgerBroken("a job's budget is not locked at its owner")
    write_account(view, owner, replace(account, locked=account.locked - amount))


def burn(view: View, amount: int) -> None:
    """Destroy what the caller took."""
    supply = view.get(Supply)
    view.put(replace(supply, burned=supply.burned + amount))


def issue(view: View, amount: int) -> None:
    """Create what the caller gives."""
    supply = view.get(Supply)
    view.put(replace(supply, issued=supply.issued + amount))
