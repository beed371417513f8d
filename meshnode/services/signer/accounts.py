"""What an account has on the ledger: its balance and its stake, at one height."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshnode.services.ledger.asking import ChainLedger


@dataclass(frozen=True, slots=True)
class AccountState:
    """An account on the ledger, at one height, with its stake. Amounts are atoms."""

    height: int
    time_ns: int
    """Time of the block at that height; 0 before the first block."""
    nonce: int
    """The nonce for the account's next transaction."""
    available: int
    locked: int
    staked: int
    cooling: int
    duration_days: int
    start_ns: int
    unlock_ns: int
    multiplier_millionths: int


async def read_account(ledger: ChainLedger, account: str) -> AccountState:
    """An account's balance and stake, as they were together. Raises Unavailable."""
    options = {"public_key": account}
    money = await ledger.query("/account", options)
    while True:
        stake = await ledger.query("/stake", options)
        if stake.height != money.height:
            # Whatever changes a stake changes the balance too: if the balance is the same after,
            # so was the stake. Blocks can come faster than a busy machine answers.
            before, money = money, await ledger.query("/account", options)
            if money.value != before.value:
                continue
        time_ns = await read_block_time(ledger, stake.height)
        return _state(stake.height, time_ns, json.loads(money.value), json.loads(stake.value))


async def read_next_nonce(ledger: ChainLedger, account: str) -> int:
    """The nonce that the ledger expects of the account next. Raises Unavailable."""
    answer = await ledger.query("/account", {"public_key": account})
    return int(json.loads(answer.value)["nonce"])


async def read_block_time(ledger: ChainLedger, height: int) -> int:
    """The time of a block in nanoseconds; 0 when there is no such block. Raises Unavailable."""
    block = await ledger.block(height)
    return block.time_ns if block is not None else 0


def _state(
    height: int, time_ns: int, account: dict[str, int], stake: dict[str, Any]
) -> AccountState:
    cooling: Sequence[tuple[int, int]] = stake["cooling"]
    return AccountState(
        height=height,
        time_ns=time_ns,
        nonce=account["nonce"],
        available=account["balance"],
        locked=account["locked"],
        staked=stake["amount"],
        cooling=sum(amount for amount, _ in cooling),
        duration_days=stake["duration_days"],
        start_ns=stake["start_ns"],
        unlock_ns=stake["unlock_ns"],
        multiplier_millionths=stake["multiplier_millionths"],
    )
