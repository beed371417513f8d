"""Movements of money into and out of accounts.

Each function here changes one side of a movement of money; its caller must make the matching change
elsewhere. The block's audit (:mod:`meshnode.domain.chain.blocks`) stops the node if one is missing.
"""

from __future__ import annotations

from dataclasses import replace

from meshnode.domain.chain.errors import InsufficientFunds, LedgerBroken, WrongNonce
from meshnode.domain.chain.records import Account, Supply
from meshnode.domain.chain.view import Effect, View


def read_account(view: View, owner: str) -> Account:
    """The account of ``owner``; a new account is empty and its next nonce is 0."""
    return view.find(Account, owner) or Account()


def take_turn(view: View, owner: str, nonce: int, fee: int) -> None:
    """Use up the account's next nonce, and burn the fee.

    Raises WrongNonce, or InsufficientFunds; then nothing has changed.
    """
    before = view.find(Account, owner)
    account = before or Account()
    # Nonces count accepted transactions: no gaps, no repeats.
    if nonce != account.nonce:
        raise WrongNonce
    if account.available < fee:
        raise InsufficientFunds
    after = Account(account.available - fee, account.locked, account.nonce + 1)
    _store(view, owner, before, after)
    if fee:
        burn(view, fee)


def credit(view: View, owner: str, amount: int) -> None:
    """Add ``amount`` to the account's available balance."""
    before = view.find(Account, owner)
    account = before or Account()
    after = Account(account.available + amount, account.locked, account.nonce)
    _store(view, owner, before, after)


def pay(view: View, owner: str, amount: int, reason: str, reference: str = "") -> None:
    """Credit the account and note the payment in its history; used where no account is the sender.

    ``reference`` is the application id or the key that the payment is about.
    """
    credit(view, owner, amount)
    view.note(Effect(owner, amount, reason, reference))


def debit(view: View, owner: str, amount: int) -> None:
    """Take ``amount`` from the available balance; InsufficientFunds if that is too small."""
    before = view.find(Account, owner)
    account = before or Account()
    # Locked money cannot be spent: every kind of spending passes through this check.
    if account.available < amount:
        raise InsufficientFunds
    after = Account(account.available - amount, account.locked, account.nonce)
    _store(view, owner, before, after)


def lock(view: View, owner: str, amount: int) -> None:
    """Move a job's budget from available to locked; InsufficientFunds if that is too small."""
    debit(view, owner, amount)
    account = view.get(Account, owner)
    view.put(replace(account, locked=account.locked + amount), owner)


def take_locked(view: View, owner: str, amount: int) -> None:
    """Take a job's budget out of the locked balance. LedgerBroken if less than that is locked."""
    account = read_account(view, owner)
    if account.locked < amount:
        raise LedgerBroken("a job's budget is not locked at its owner")
    view.put(replace(account, locked=account.locked - amount), owner)


def burn(view: View, amount: int) -> None:
    """Add ``amount`` to the total burned; the caller has debited it elsewhere."""
    was = view.get(Supply)
    view.put(Supply(was.initial, was.issued, was.burned + amount, was.accounts))


def issue(view: View, amount: int) -> None:
    """Add ``amount`` to the total issued; the caller credits it elsewhere."""
    supply = view.get(Supply)
    view.put(replace(supply, issued=supply.issued + amount))


def _store(view: View, owner: str, before: Account | None, after: Account) -> None:
    """Store the account, and count it when it is new."""
    if before is None:
        supply = view.get(Supply)
        view.put(replace(supply, accounts=supply.accounts + 1))
    view.put(after, owner)
