"""``stake`` and ``unstake`` (interface 2.1 "Stake result", interface 3; decisions 0062 and 0063).

An account has at most one stake. Staking again adds to it and may move its unlock date later, never
earlier. From the unlock date on, any part can be unstaked; it cools down for ``cooldown_days`` and
is then available again. Cooled amounts are credited when the account next sends a transaction, so
that a block never has to search for them.

The multiplier is 1 + 0.1 * log2(1 + stake / 1000), with the stake in whole units. It raises the
rewards for proofs (:mod:`meshnode.domain.chain.proofs`) and is computed with integers only.
"""

from __future__ import annotations

from dataclasses import replace

from meshnode.domain.chain.accounts import debit, pay
from meshnode.domain.chain.context import Context, Transaction
from meshnode.domain.chain.errors import (
    InsufficientStake,
    StakeLocked,
    StakeTooSmall,
    TooManyCooldowns,
)
from meshnode.domain.chain.records import Stake
from meshnode.domain.chain.values import integer
from meshnode.domain.chain.view import View
from meshnode.domain.units import DAY_NS

STAKE_FIELDS = frozenset({"amount", "duration_days"})
UNSTAKE_FIELDS = frozenset({"amount"})

MULTIPLIER_ONE = 1_000_000
"""A multiplier of 1.0: multipliers are millionths, rounded down."""

_FRACTION_BITS = 62
_LOG_BITS = 32


def stake_multiplier(amount: int, atom_scale: int) -> int:
    """The multiplier of ``amount`` staked atoms, in millionths; never falls as ``amount`` rises."""
    thousand = 1000 * atom_scale
    logarithm = _log2(thousand + amount, thousand)
    return MULTIPLIER_ONE + (logarithm * (MULTIPLIER_ONE // 10) >> _LOG_BITS)


def _log2(numerator: int, denominator: int) -> int:
    """log2 of a ratio of at least 1, with 32 bits after the point, rounded down bit by bit.

    Each squaring doubles the logarithm; whenever the value reaches 2, the next bit is one.
    Where the results of two ratios first differ in a bit, the greater ratio has the 1, so the
    result is monotone.
    """
    whole = (numerator // denominator).bit_length() - 1
    value = (numerator << _FRACTION_BITS) // (denominator << whole)
    bits = 0
    for _ in range(_LOG_BITS):
        value = value * value >> _FRACTION_BITS
        bit = value >> (_FRACTION_BITS + 1)
        value >>= bit
        bits = bits << 1 | bit
    return whole << _LOG_BITS | bits


def apply_stake(context: Context, transaction: Transaction) -> None:
    """Move ``amount`` from the sender's balance into its stake."""
    view, terms = context.view, context.profile.staking
    amount = integer(transaction.body["amount"], 1)
    days = integer(transaction.body["duration_days"], terms.shortest_days, terms.longest_days)
    stake = view.find(Stake, transaction.sender) or Stake()
    if stake.amount + amount < terms.minimum:
        raise StakeTooSmall
    debit(view, transaction.sender, amount)
    unlock_ns = context.time_ns + days * DAY_NS
    # Adding to a stake must not shorten its lock: the later unlock date holds for all of it.
    if not stake.amount or stake.unlock_ns < unlock_ns:
        stake = replace(stake, duration_days=days, start_ns=context.time_ns, unlock_ns=unlock_ns)
    view.put(replace(stake, amount=stake.amount + amount), transaction.sender)


def apply_unstake(context: Context, transaction: Transaction) -> None:
    """Move ``amount`` from the sender's stake into its cooldown."""
    view, terms = context.view, context.profile.staking
    amount = integer(transaction.body["amount"], 1)
    stake = view.find(Stake, transaction.sender) or Stake()
    if amount > stake.amount:
        raise InsufficientStake
    if context.time_ns < stake.unlock_ns:
        raise StakeLocked
    if len(stake.cooling) >= context.profile.limits.cooldowns:
        raise TooManyCooldowns
    # The remaining stake must be zero or at least the minimum.
    if 0 < stake.amount - amount < terms.minimum:
        raise StakeTooSmall
    available_ns = context.time_ns + terms.cooldown_days * DAY_NS
    cooling = (*stake.cooling, (amount, available_ns))
    view.put(replace(stake, amount=stake.amount - amount, cooling=cooling), transaction.sender)


def settle_cooldowns(view: View, owner: str, time_ns: int) -> None:
    """Credit the owner with the amounts whose cooldown has ended by ``time_ns``."""
    stake = view.find(Stake, owner)
    if stake is None or not stake.cooling or stake.cooling[0][1] > time_ns:
        return
    cooled = sum(amount for amount, available_ns in stake.cooling if available_ns <= time_ns)
    cooling = tuple(entry for entry in stake.cooling if entry[1] > time_ns)
    pay(view, owner, cooled, "unstaked")
    if stake.amount or cooling:
        view.put(replace(stake, cooling=cooling), owner)
    else:
        view.drop(Stake, owner)
