"""The wallet over HTTP (interface 2.1, 3 and 4.1; decisions 0082, 0084 to 0086).

Amounts in bodies are whole units with at most six decimals; everything behind this edge counts
atoms. Checks come in the order of the document's fields, all of them before money is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio
from quart import request

from meshnode.domain.account_address import read_account
from meshnode.domain.amounts import read_amount, units
from meshnode.domain.errors import InvalidRequest, Unavailable
from meshnode.domain.tokens import Scope
from meshnode.domain.units import SECOND_NS
from meshnode.http.access import bearer
from meshnode.http.app import Response, json_response
from meshnode.http.body import read_json_object
from meshnode.http.routes import Route
from meshnode.http.values import query_integer, timestamp, timestamp_now
from meshnode.http.wallet_bodies import (
    LIMIT,
    MAX_DAYS,
    MAX_MEMO_CHARS,
    OFFSET,
    BalanceAnswer,
    SendRequest,
    StakeRequest,
    StakeResult,
    Staking,
    TransactionEntry,
    Transactions,
    TransferResult,
    UnstakeRequest,
    UnstakeResult,
)
from meshnode.services.wallet.service import date_of

if TYPE_CHECKING:
    from meshnode.services.index.entries import HistoryEntry
    from meshnode.services.signer.accounts import AccountState
    from meshnode.services.signer.submission import Submission
    from meshnode.services.wallet.service import Wallet
    from meshnode.supervise import Drain

BASE = "/api/v1/wallet"
CONFIRM_WITHIN_S = 20.0
"""Deadline for a transaction to be in a block; usually a block comes within a second."""
EXAMPLE_ACCOUNT = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"


class ClaimedRole(Protocol):
    """The role in which the work of a claim was done (decision 0156)."""

    def __call__(self, layer: int, *, own: bool) -> str:
        """``layer`` is the claim's; ``own`` says whether this node made the claim."""


def worker(layer: int, *, own: bool) -> str:
    """The role of a holder of which nothing is known."""
    return "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletApi:
    """The routes, and the services that they use."""

    wallet: Wallet
    drain: Drain
    account: str = ""
    """The node's own public key."""
    claimed_role: ClaimedRole = worker
    """The role in which the work of a claim was done."""

    async def get_balance(self) -> Response:
        """Balance (interface 2.1)."""
        balance = await self.wallet.balance(bearer())
        answer: BalanceAnswer = {
            "address": balance.account,
            "balances": {
                "available": units(balance.available),
                "staked": units(balance.state.staked),
                "pending": units(balance.pending),
                "total": units(balance.total),
            },
            "staking": _staking(balance.state),
        }
        return json_response(answer)

    async def post_send(self) -> Response:
        """Pay another account. A payment that is not in a block in time is answered as pending."""
        fields = await self._read()
        to = _account(fields)
        atoms = read_amount(_required(fields, "amount"), "amount")
        memo = _memo(fields)
        work = self.wallet.send(bearer(), to, atoms)
        confirmed = await _confirm(work)
        time = timestamp(work.time_ns) if confirmed else timestamp_now()
        answer: TransferResult = {
            "transaction_id": work.transaction_id,
            "from": work.account,
            # A transfer result repeats the request, so this is the client's spelling.
            "to": str(fields["to"]),
            "amount": units(atoms),
            "fee": units(self.wallet.fee),
            "memo": memo,
            # After a 503 instead of "pending", a client would pay again.
            "status": "confirmed" if confirmed else "pending",
            "timestamp": time,
        }
        return json_response(answer)

    async def get_transactions(self) -> Response:
        """The account's history, newest first."""
        limit, offset = query_integer(LIMIT), query_integer(OFFSET)
        entries, total = await self.wallet.transactions(bearer(), limit, offset)
        own = self.wallet.account(bearer()) == self.account
        role = partial(self.claimed_role, own=own)
        answer: Transactions = {
            "transactions": [_entry(entry, role) for entry in entries],
            "total": total,
            "limit": limit,
            "offset": offset,
        }
        return json_response(answer)

    async def post_stake(self) -> Response:
        """Stake for a number of days (Stake result, 2.1)."""
        fields = await self._read()
        atoms = read_amount(_required(fields, "amount"), "amount")
        days = _integer(_required(fields, "duration_days"), "duration_days", 1, MAX_DAYS)
        await _require_confirmed(self.wallet.stake(bearer(), atoms, days))
        balance = await self.wallet.balance(bearer())
        answer: StakeResult = {
            "success": True,
            "stake": _staking(balance.state),
            "new_balance": {
                "available": units(balance.available),
                "staked": units(balance.state.staked),
            },
        }
        return json_response(answer)

    async def post_unstake(self) -> Response:
        """Start a cooldown (Unstake result, 2.1)."""
        fields = await self._read()
        atoms = read_amount(_required(fields, "amount"), "amount")
        work = self.wallet.unstake(bearer(), atoms)
        await _require_confirmed(work)
        days = self.wallet.cooldown_days
        available = datetime.fromtimestamp(work.time_ns // SECOND_NS, UTC) + timedelta(days=days)
        answer: UnstakeResult = {
            "success": True,
            "unstake": {
                "amount": units(atoms),
                "cooldown_days": days,
                "available_date": available.strftime("%Y-%m-%d"),
            },
        }
        return json_response(answer)

    async def _read(self) -> dict[str, object]:
        if self.drain.draining:
            raise Unavailable("the node is draining")
        return await read_json_object(request, exact=True)


ROUTES = (
    Route(
        "GET",
        BASE + "/balance",
        WalletApi.get_balance,
        "Balance",
        BalanceAnswer,
        name="getBalance",
        scope=Scope.WALLET,
        errors=(503,),
    ),
    Route(
        "POST",
        BASE + "/send",
        WalletApi.post_send,
        "Pay another account",
        TransferResult,
        name="sendPayment",
        scope=Scope.WALLET,
        body=SendRequest,
        example={"to": EXAMPLE_ACCOUNT, "amount": 2.5, "memo": "thanks"},
        errors=(402, 503),
    ),
    Route(
        "GET",
        BASE + "/transactions",
        WalletApi.get_transactions,
        "The account's history, newest first",
        Transactions,
        name="getTransactions",
        scope=Scope.WALLET,
        query=(LIMIT, OFFSET),
        errors=(503,),
    ),
    Route(
        "POST",
        BASE + "/stake",
        WalletApi.post_stake,
        "Stake for a number of days",
        StakeResult,
        name="stake",
        scope=Scope.WALLET,
        body=StakeRequest,
        example={"amount": 1000, "duration_days": 30},
        errors=(402, 503),
    ),
    Route(
        "POST",
        BASE + "/unstake",
        WalletApi.post_unstake,
        "Start the cooldown of staked money",
        UnstakeResult,
        name="unstake",
        scope=Scope.WALLET,
        body=UnstakeRequest,
        example={"amount": 1000},
        errors=(402, 409, 503),
    ),
)


async def _confirm(work: Submission) -> bool:
    """Wait until the transaction is in a block, and return whether it was in time.

    A transaction that was signed in time goes on afterwards. Any other is withdrawn, and
    Unavailable is raised.
    """
    try:
        with trio.move_on_after(CONFIRM_WITHIN_S):
            await work.wait()
            return True
    finally:
        # This happens too when the client has left and the wait was cancelled.
        withdrawn = work.withdraw()
    if withdrawn:
        raise Unavailable("nothing was signed: the account's last transaction is still under way")
    return False


async def _require_confirmed(work: Submission) -> None:
    if not await _confirm(work):
        raise Unavailable(
            f"transaction {work.transaction_id} is signed and not in a block yet: "
            "look at the balance before you try again"
        )


def _staking(state: AccountState) -> Staking:
    """The ``staking`` object. Without a stake, both dates are that of the latest block."""
    start_ns, unlock_ns = state.start_ns, state.unlock_ns
    if not state.staked:
        start_ns = unlock_ns = state.time_ns
    return {
        "amount": units(state.staked),
        "duration_days": state.duration_days if state.staked else 0,
        "start_date": date_of(start_ns),
        "unlock_date": date_of(unlock_ns),
        "multiplier": state.multiplier_millionths / 1_000_000,
    }


def _entry(entry: HistoryEntry, role_at: Callable[[int], str]) -> TransactionEntry:
    shown: TransactionEntry = {
        "id": entry.id,
        "type": entry.kind,
        "amount": units(entry.amount),
        "timestamp": timestamp(entry.time_ns),
    }
    if entry.kind == "reward":
        details = entry.details
        layer = details.get("layer")
        role = role_at(layer) if isinstance(layer, int) else str(details["role"])
        shown["details"] = {"proof_id": str(details["proof_id"]), "role": role}
    elif entry.kind == "send":
        shown["to"] = entry.counterparty or ""
    elif entry.kind == "receive":
        shown["from"] = entry.counterparty or ""
    return shown


def _required(fields: Mapping[str, object], name: str) -> object:
    value = fields.get(name)
    if value is None:
        raise InvalidRequest(name, "is required")
    return value


def _account(fields: Mapping[str, object]) -> str:
    value = _required(fields, "to")
    return read_account(value if isinstance(value, str) else "", "to")


def _memo(fields: Mapping[str, object]) -> str:
    memo = fields.get("memo", "")
    if not isinstance(memo, str):
        raise InvalidRequest("memo", "must be a string")
    if len(memo) > MAX_MEMO_CHARS:
        raise InvalidRequest("memo", f"must be at most {MAX_MEMO_CHARS} characters")
    # JSON escapes can spell half of a surrogate pair, which is not a character.
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
