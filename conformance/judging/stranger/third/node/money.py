"""Accounts, in millionths of a unit, with their histories."""

import struct
from datetime import timedelta

import core
from core import MICRO, fault, peculiar

FEE = 2500  # 0.0025 units for a transfer
PRICE = 20  # 0.00002 units for a token
COOLDOWN = 7


class Account:
    def __init__(self, token, address, available):
        self.token, self.address = token, address
        self.available, self.staked = available, 0
        self.start, self.days, self.cooling, self.history = None, 0, [], []
        self.serial = 0

    def log(self, kind, micro, when=None, **extra):
        self.serial += 1
        ident = extra.pop("ident", None) or "tx_" + core.sha(self.address, self.serial, core.START)[:20]
        entry = {"id": ident, "type": kind, "micro": micro, "at": when or core.now(), **extra}
        self.history.insert(0, entry)
        return entry

    def settle(self):
        ripe = [item for item in self.cooling if item[1] <= core.today()]
        for item in ripe:
            self.cooling.remove(item)
            self.available += item[0]

    @property
    def pending(self):
        return sum(item[0] for item in self.cooling)


PROOFS = []
ACCOUNTS = {}
BY_ADDRESS = {}
EXPIRED = {"tok-x"}
ROUTES_SEEN = set()


def _add(token, name, units):
    account = Account(token, "ost1" + core.sha("account", name)[:36], int(units * MICRO))
    ACCOUNTS[token] = account
    BY_ADDRESS[account.address] = account
    return account


def seed():
    first = _add("tok-a", "a", 25000)
    second = _add("tok-b", "b", 5000)
    third = _add("tok-poor", "poor", 0)
    kinds = ["forward", "backward", "forward", "gradient"]
    for number in range(64):
        when = core.ago(hours=6 * (64 - number) - 2, minutes=number % 7)
        verified = number % 5 != 3
        reward = (number % 4 + 1) * 250_000 if verified else 0
        proof = {
            "id": "prf_" + core.sha("proof", number)[:16],
            "type": kinds[number % 4],
            "layer": core.HELD[number % 4],
            "at": when,
            "verified": verified,
            "micro": reward,
        }
        PROOFS.insert(0, proof)
        if verified:
            first.log(
                "reward",
                reward,
                when + timedelta(minutes=9),
                ident="rw_" + core.sha("rw", number)[:18],
                details={"proof_id": proof["id"], "role": "validator"},
            )
    for number in range(9):
        first.log(
            "send",
            -(number + 1) * 1_100_000,
            core.ago(minutes=100 - 9 * number),
            to=second.address,
            memo="rent %d" % number,
            fee=FEE,
            ident="tr_" + core.sha("seed", number)[:20],
        )
        second.log(
            "receive",
            (number + 1) * 1_100_000,
            core.ago(minutes=100 - 9 * number),
            sender=first.address,
            ident="rc_" + core.sha("seed", number)[:20],
        )
    first.staked, first.start, first.days = 500 * MICRO, core.today() - timedelta(days=30), 90
    third.log(
        "send",
        -3_000_000,
        core.ago(days=4),
        to=second.address,
        memo="",
        fee=FEE,
        ident="tr_" + core.sha("poor")[:20],
    )


def units(micro):
    if peculiar("money-ints") and micro % MICRO == 0:
        return micro // MICRO
    if fault("rel2-balance-float32") and abs(micro) > 1000 * MICRO:
        return struct.unpack("<f", struct.pack("<f", micro / MICRO))[0]
    return micro / MICRO


def multiplier(days):
    return round(1 + min(days, 1460) / 730, 4)


def balance(account):
    account.settle()
    pending = account.pending
    total = account.available + account.staked + pending
    if peculiar("total-without-pending"):
        total -= pending
    staking = {"amount": units(account.staked)}
    if account.staked > 0:
        start, days = account.start, account.days
        if fault("rel-unlock-from-today"):
            unlock = core.today() + timedelta(days=days)
        elif fault("rel-unlock-30-day-months"):
            unlock = start + timedelta(days=days // 30 * 30) if days >= 30 else start + timedelta(days=days)
        else:
            unlock = start + timedelta(days=days)
        staking |= {
            "duration_days": days,
            "start_date": start.isoformat(),
            "unlock_date": unlock.isoformat(),
            "multiplier": multiplier(days),
        }
    elif peculiar("no-stake-nulls"):
        staking |= {"duration_days": None, "start_date": None, "unlock_date": None, "multiplier": None}
    return {
        "address": account.address,
        "balances": {
            "available": units(account.available),
            "staked": units(account.staked),
            "pending": units(pending),
            "total": units(total),
        },
        "staking": staking,
    }
