"""The wallet over HTTP (document, sections 2.1, 3 and 4.1; decisions/0082, 0084 to 0086).

Amounts in bodies are whole units with at most six decimals; everything behind this edge counts
atoms. Checks come in the order of the document's fields, all of them before money is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import trio
from quart import request

from meshnode.domain.amounts import read_amount, units
from meshnode.domain.chain.envelope import account_key
from meshnode.domain.chain.errors import InvalidPublicKey
from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.http.access import bearer
from meshnode.http.app import Response, json_response
from meshnode.http.body import read_json_object
from meshnode.http.routes import Route
from meshnode.http.values import query_integer, timestamp, timestamp_now
from meshnode.services.wallet.service import SECOND_NS, date_of

if TYPE_CHECKING:
    from meshnode.services.index.entries import HistoryEntry
    from meshnode.services.wallet.sending import Facts, Work
    from meshnode.services.wallet.service import Wallet
    from meshnode.supervise import Drain

BASE = "/api/v1/wallet"
CONFIRM_WITHIN_S = 20.0
"""For a transaction to be in a block; a block comes within a second where the chain is well."""
MAX_MEMO_CHARS = 256
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_OFFSET = 2**31 - 1
MAX_DAYS = 36_500
"""Longest duration that is looked at; the network's own limit is below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletApi:
    """The routes, and whom they ask."""

    wallet: Wallet
    drain: Drain

    async def get_balance(self) -> Response:
        """Balance (2.1)."""
        balance = await self.wallet.balance(bearer())
        return json_response(
            {
                "address": balance.account,
                "balances": {
                    "available": units(balance.available),
                    "staked": units(balance.facts.staked),
                    "pending": units(balance.pending),
                    "total": units(balance.total),
                },
                "staking": _staking(balance.facts),
            }
        )

    async def post_send(self) -> Response:
        """Pay another account; answers when it is in a block, or says that it is not yet."""
        fields = await self._read()
        to = _account(fields)
        atoms = read_amount(_required(fields, "amount"), "amount")
        memo = _memo(fields)
        work = self.wallet.send(bearer(), to, atoms)
        confirmed = await _confirm(work)
        time = timestamp(work.time_ns) if confirmed else timestamp_now()
        return json_response(
            {
                "transaction_id": work.transaction_id,
                "from": work.account,
                "to": to,
                "amount": units(atoms),
                "fee": units(self.wallet.fee),
                "memo": memo,
                # A 503 would be taken as leave to pay again.
                "status": "confirmed" if confirmed else "pending",
                "timestamp": time,
            }
        )

    async def get_transactions(self) -> Response:
        """The account's history, newest first."""
        limit = query_integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        offset = query_integer("offset", 0, 0, MAX_OFFSET)
        entries, total = await self.wallet.transactions(bearer(), limit, offset)
        return json_response(
            {
                "transactions": [_entry(entry) for entry in entries],
                "total": total,
                "limit": limit,
                "offset": offset,
            }
        )

    async def post_stake(self) -> Response:
        """Stake for a number of days (Stake result, 2.1)."""
        fields = await self._read()
        atoms = read_amount(_required(fields, "amount"), "amount")
        days = _integer(_required(fields, "duration_days"), "duration_days", 1, MAX_DAYS)
        await _require_confirmed(self.wallet.stake(bearer(), atoms, days))
        balance = await self.wallet.balance(bearer())
        return json_response(
            {
                "success": True,
                "stake": _staking(balance.facts),
                "new_balance": {
                    "available": units(balance.available),
                    "staked": units(balance.facts.staked),
                },
            }
        )

    async def post_unstake(self) -> Response:
        """Start a cooldown (Unstake result, 2.1)."""
        fields = await self._read()
        atoms = read_amount(_required(fields, "amount"), "amount")
        work = self.wallet.unstake(bearer(), atoms)
        await _require_confirmed(work)
        days = self.wallet.cooldown_days
        available = datetime.fromtimestamp(work.time_ns // SECOND_NS, UTC) + timedelta(days=days)
        return json_response(
            {
                "success": True,
                "unstake": {
                    "amount": units(atoms),
                    "cooldown_days": days,
                    "available_date": available.strftime("%Y-%m-%d"),
                },
            }
        )

    async def _read(self) -> dict[str, object]:
        if self.drain.draining:
            raise Unavailable("the node is draining")
        return await read_json_object(request, exact=True)


ROUTES = (
    Route("GET", BASE + "/balance", WalletApi.get_balance, auth=True),
    Route("POST", BASE + "/send", WalletApi.post_send, auth=True),
    Route("GET", BASE + "/transactions", WalletApi.get_transactions, auth=True),
    Route("POST", BASE + "/stake", WalletApi.post_stake, auth=True),
    Route("POST", BASE + "/unstake", WalletApi.post_unstake, auth=True),
)


async def _confirm(work: Work) -> bool:
    """Wait for the block, within reason. What is signed by then goes on without the caller."""
    try:
        with trio.move_on_after(CONFIRM_WITHIN_S):
            await work.wait()
            return True
    finally:
        # Also for a client that has gone: what nobody waits for is not begun any more.
        withdrawn = work.withdraw()
    if withdrawn:
        raise Unavailable("nothing was signed: the account's last transaction is still under way")
    return False


async def _require_confirmed(work: Work) -> None:
    if not await _confirm(work):
        raise Unavailable(
            f"transaction {work.transaction_id} is signed and not in a block yet: "
            "look at the balance before you try again"
        )


def _staking(facts: Facts) -> dict[str, object]:
    """The ``staking`` object. Without a stake: nothing, free since the latest block."""
    start_ns, unlock_ns = facts.start_ns, facts.unlock_ns
    if not facts.staked:
        start_ns = unlock_ns = facts.time_ns
    return {
        "amount": units(facts.staked),
        "duration_days": facts.duration_days if facts.staked else 0,
        "start_date": date_of(start_ns),
        "unlock_date": date_of(unlock_ns),
        "multiplier": facts.multiplier_millionths / 1_000_000,
    }


def _entry(entry: HistoryEntry) -> dict[str, object]:
    shown: dict[str, object] = {
        "id": entry.id,
        "type": entry.kind,
        "amount": units(entry.amount),
        "timestamp": timestamp(entry.time_ns),
    }
    if entry.kind == "reward":
        details = entry.details
        shown["details"] = {"proof_id": details["proof_id"], "role": details["role"]}
    elif entry.kind == "send":
        shown["to"] = entry.counterparty
    elif entry.kind == "receive":
        shown["from"] = entry.counterparty
    return shown


def _required(fields: Mapping[str, object], name: str) -> object:
    value = fields.get(name)
    if value is None:
        raise InvalidRequest(name, "is required")
    return value


def _account(fields: Mapping[str, object]) -> str:
    value = _required(fields, "to")
    try:
        return account_key(value if isinstance(value, str) else "")
    except InvalidPublicKey:
        reason = "must be an account: a compressed public key, 66 lowercase hex characters"
        raise InvalidRequest("to", reason) from None


def _memo(fields: Mapping[str, object]) -> str:
    memo = fields.get("memo", "")
    if not isinstance(memo, str):
        raise InvalidRequest("memo", "must be a string")
    if len(memo) > MAX_MEMO_CHARS:
        raise InvalidRequest("memo", f"must be at most {MAX_MEMO_CHARS} characters")
    # JSON escapes can spell half of a surrogate pair, which is no character.
    if any("\ud800" <= character <= "\udfff" for character in memo):
        raise InvalidRequest("memo", "must be valid Unicode: it has a lone surrogate")
    return memo


def _integer(value: object, name: str, low: int, high: int) -> int:
    # JSON has one number type: 30.0 is an integer value. A bool is a number only in Python.
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(name, "must be an integer")
    if not low <= value <= high:
        raise InvalidRequest(name, f"must be from {low} to {high}")
    return value
