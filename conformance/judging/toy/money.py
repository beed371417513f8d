"""The accounts of the toy."""

from dataclasses import dataclass, field
from typing import Any

from conformance.judging.toy.answers import Response, day, error


@dataclass
class Account:
    """One account: its money, and its history, the latest entry first."""

    address: str
    available: float
    staked: float = 0.0
    pending: float = 0.0
    staking: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def balance(account: Account) -> dict[str, Any]:
    """Return what the toy shows of an account."""
    total = account.available + account.staked + account.pending
    figures = {"available": account.available, "staked": account.staked,
               "pending": account.pending, "total": total}  # fmt: skip
    staking = {"amount": account.staked, "duration_days": 30, "start_date": "2026-01-01",
               "unlock_date": "2026-01-31", "multiplier": 1.1, **account.staking}  # fmt: skip
    return {"address": account.address, "staking": staking,
            "balances": {key: round(value, 6) for key, value in figures.items()}}  # fmt: skip


def term_of(days: int) -> dict[str, Any]:
    """The terms of a stake that begins today."""
    return {"duration_days": days, "start_date": day(0), "unlock_date": day(days),
            "multiplier": 1.1}  # fmt: skip


def last_of(staking: dict[str, Any], term: dict[str, Any]) -> dict[str, Any]:
    """The terms of all that is staked: none of it is unlocked before the last date."""
    return {**term, "unlock_date": max(term["unlock_date"], staking.get("unlock_date", ""))}


def poor(amount: float, account: Account) -> Response:
    """Refuse to spend more than there is."""
    why = "too little"
    return error(402, "INSUFFICIENT_BALANCE", why, required=amount, available=account.available)


def body_fault(body: Any, *texts: str) -> str:
    """What is wrong with the body of a route that moves money; ``texts`` are its strings."""
    if not isinstance(body, dict) or not _is_number(body.get("amount")) or not body["amount"] > 0:
        return "amount must be a number above zero"
    if not isinstance(body.get("duration_days", 1), int) or body.get("duration_days", 1) < 0:
        return "duration_days must be a whole number"
    return "" if all(isinstance(body.get(key, ""), str) for key in texts) else "this is no text"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
