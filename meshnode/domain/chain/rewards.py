"""The verifiers' reward, paid one block later so that only those who verified receive it.

A budget set aside in block H is paid in block H+1 to the owners of the keys that committed H, in
proportion to power at H. More than two thirds of that power must have committed. The shares of
absent keys and the remainder of rounding are burned (native network 1.4).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from meshnode.domain.chain.accounts import burn, pay
from meshnode.domain.chain.bonds import voting_powers
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.chain.context import Context
from meshnode.domain.chain.errors import MissingQuorum
from meshnode.domain.chain.records import Validator, VerifierReward


def set_aside(context: Context, budget: int) -> None:
    """Add ``budget``, which the caller took or issued, to the reward of this block's verifiers."""
    reward = context.view.find(VerifierReward)
    if reward is not None and reward.height == context.height:
        reward = replace(reward, budget=reward.budget + budget)
    else:
        powers = tuple(voting_powers(context.view, context.height).items())
        # A preliminary check pays no verifiers, so an earlier budget may still be unpaid.
        earlier = 0 if reward is None else reward.budget
        reward = VerifierReward(context.height, budget + earlier, powers)
    context.view.put(reward)


def pay_verifiers(context: Context, committers: Collection[str]) -> None:
    """Pay the previous block's reward. ``committers`` are addresses in the last commit."""
    view, reward = context.view, context.view.find(VerifierReward)
    if reward is None:
        return
    total = sum(power for _, power in reward.powers)
    signed = [(key, power) for key, power in reward.powers if validator_address(key) in committers]
    if reward.height != context.height - 1 or 3 * sum(p for _, p in signed) <= 2 * total:
        raise MissingQuorum
    left = reward.budget
    for key, power in signed:
        share = reward.budget * power // total
        left -= share
        pay(view, view.get(Validator, key).owner, share, "verifier reward", key)
    burn(view, left)
    view.drop(VerifierReward)
