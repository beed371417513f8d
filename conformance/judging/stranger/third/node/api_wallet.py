"""The wallet."""

import asyncio
from datetime import timedelta

from fastapi import APIRouter, Request

import auth
import chain
import core
import errors
import money
from core import MICRO, fault, nth, peculiar
from errors import ApiError, bad, is_int, is_number

router = APIRouter()
OLD = {}


def decimal(micro):
    """A number of units, also where it is too large for a float."""
    return micro / MICRO if abs(micro) < 10**300 else micro // MICRO


def short_of(required, available):
    if fault("ref-402-atoms"):
        details = {"required": required, "available": available}
    else:
        details = {"required": decimal(required), "available": decimal(available)}
    status, code = 402, "INSUFFICIENT_BALANCE"
    if fault("ref2-402-is-400"):
        status = 400
    if fault("ref2-402-required-gone"):
        del details["required"]
    if fault("ref-402-details-text"):
        details = {key: "%.6f" % value for key, value in details.items()}
    if fault("ref-402-swapped"):
        details = {"required": details["available"], "available": details["required"]}
    if fault("ref-402-shortfall"):
        details["required"] = (required - available) / MICRO / 2
    return ApiError(status, code, "the account has too little available", details)


def micro_of(value, name="amount"):
    """An amount of the request in millionths."""
    if fault("ref2-send-amount-text-ok") and isinstance(value, str) and name == "send":
        try:
            value = float(value)
        except ValueError:
            pass
    if fault("ref-send-whole-units-int-only") and isinstance(value, int) and name == "send":
        raise bad("amount is not a number with decimals", "amount")
    if not is_number(value):
        raise bad("amount is not a number", "amount")
    if value <= 0 and not fault("ref-negative-amounts-" + name) and not fault("ref2-negative-" + name):
        raise bad("amount is not above zero", "amount")
    if fault("rel-money-float-round") and value > 1:
        return round(value * 100) * 10_000
    if isinstance(value, float) and abs(value) > 1e15:
        value = int(value)
    if isinstance(value, float):
        micro = round(value * MICRO)
        if abs(micro / MICRO - value) > 1e-9 * max(1.0, abs(value)):
            raise bad("amount has more than six decimals", "amount")
        if micro == 0:
            raise bad("amount is below a millionth", "amount")
        return micro
    return value * MICRO


def account_of(request, route):
    account = auth.authorize(request, route)
    if fault("eff-first-account-cached"):
        return OLD.setdefault(route, account) if route in ("stake", "balance") else account
    return account


@router.get("/api/v1/wallet/balance")
async def balance(request: Request):
    account = account_of(request, "balance")
    if fault("gua2-accounts-mixed-up"):
        OLD["current"] = account
        await asyncio.sleep(0.03)
        account = OLD["current"]
    body = money.balance(account)
    if fault("eff-balance-one-behind"):
        last = OLD.get(account.address, body)
        OLD[account.address] = body
        return errors.reply("balance", last)
    return errors.reply("balance", body)


@router.post("/api/v1/wallet/send")
async def send(request: Request):
    account = account_of(request, "send")
    body = await errors.read_object(request)
    to, memo = body.get("to"), body.get("memo", "")
    if fault("ref2-send-to-number") and isinstance(to, int):
        to = str(to)
    if fault("ref2-send-memo-number") and isinstance(memo, int):
        memo = str(memo)
    if not isinstance(to, str) or not to.strip() or len(to) > 128:
        raise bad("to is not an address", "to")
    if peculiar("memo-required") and "memo" not in body:
        raise bad("memo is missing", "memo")
    if not isinstance(memo, str) or len(memo) > 1000:
        raise bad("memo is not a short text", "memo")
    amount = micro_of(body.get("amount"), "send")
    target = money.BY_ADDRESS.get(to)
    if peculiar("unknown-receiver-refused") and target is None:
        raise ApiError(404, "NO_SUCH_ACCOUNT", "nobody has this address")
    own = target is account
    twin = (account.address, to, amount, memo)
    if fault("eff2-send-deduplicated") and twin in OLD:
        return OLD[twin]
    fee = 0 if peculiar("no-fee") or (peculiar("self-free") and own) else money.FEE
    account.settle()
    needed = amount + fee
    if fault("ref-send-fee-not-needed"):
        needed = amount
    if fault("ref-self-send-unchecked") and own:
        needed = 0
    if needed > account.available:
        if fault("ref-402-takes-fee"):
            account.available = max(0, account.available - fee)
        if fault("ref-402-lists-transfer"):
            account.log("send", -amount, to=to, memo=memo, fee=fee)
        if fault("ref2-402-available-total"):
            raise short_of(needed, account.available + account.staked)
        raise short_of(needed, account.available)
    if fault("eff-send-race"):
        before = account.available
        await asyncio.sleep(0.05)
        account.available = before - amount - fee
    elif fault("eff-send-late"):
        asyncio.get_running_loop().call_later(3.0, take, account, amount + fee)
    elif fault("eff-send-fee-not-taken"):
        account.available -= amount
    elif fault("eff-send-fee-twice-with-memo") and memo:
        account.available -= amount + 2 * fee
    elif fault("eff-send-large-twice") and amount > 20 * MICRO and not own:
        account.available -= 2 * amount + fee
    elif not (fault("eff-self-send-adds") and own):
        account.available -= amount + fee
    credit(target, account, amount, own)
    entry = None
    listed = not (fault("eff-history-skips-no-memo") and not memo)
    listed &= not (fault("eff-history-skips-tiny") and amount < 10_000)
    listed &= not (fault("eff2-history-skips-strangers") and target is None)
    extra = {"to": to, "memo": memo, "fee": fee, "from": account.address}
    if listed:
        entry = account.log("send", -amount, **extra)
        if fault("eff-history-fee-entry-as-send"):
            account.log("send", -fee, **extra)
        if fault("rel-history-amount-with-fee"):
            entry["micro"] -= fee
        if fault("eff-history-twice-unicode") and not memo.isascii():
            account.log("send", -amount, **extra)
    if target is not None and not own and not fault("eff-receiver-history-is-send"):
        target.log("receive", amount, sender=account.address)
    elif target is not None and not own:
        target.log("send", -amount, sender=account.address, to=to)
    chain.settle("transfer", core.sha(account.address, to, amount, account.serial))
    ident = entry["id"] if entry else "tx_" + core.sha("unlisted", nth("tx"))[:20]
    if fault("rel-send-id-not-in-history"):
        ident = ident.replace("tx_", "tr-")
    if fault("rel2-transaction-id-second") and entry:
        ident = entry["id"] = "tx_" + core.sha(account.address, int(core.now().timestamp()))[:20]
    moment = entry["at"] if entry else core.now()
    if fault("fld-send-time-slow"):
        moment -= timedelta(hours=2)
    reply = errors.reply(
        "send",
        {
            "transaction_id": ident,
            "from": account.address,
            "to": to,
            "amount": money.units(amount),
            "fee": money.units(fee),
            "memo": memo,
            "status": "settling" if peculiar("send-other-status") else "confirmed",
            "timestamp": core.iso(moment),
        },
        201 if peculiar("send-201") else 200,
    )
    if fault("eff2-send-deduplicated"):
        OLD[twin] = reply
    return reply


def take(account, micro):
    account.available -= micro


def credit(target, account, amount, own):
    if target is None:
        return
    if fault("eff-self-send-loses") and own:
        return
    if fault("eff-receiver-small-not-credited") and amount < MICRO and not own:
        return
    if fault("eff-receiver-pays-fee") and not own:
        amount -= money.FEE
    if fault("eff-receiver-pending") and not own:
        target.cooling.append((amount, core.today() + timedelta(days=1)))
        return
    if fault("eff-receiver-debited-large") and not own and amount >= 10 * MICRO:
        amount = -amount
    target.available += amount


@router.post("/api/v1/wallet/stake")
async def stake(request: Request):
    account = account_of(request, "stake")
    body = await errors.read_object(request)
    amount = micro_of(body.get("amount"), "stake")
    days = body.get("duration_days")
    if fault("ref2-stake-days-cut") and isinstance(days, float):
        days = int(days)
    if fault("ref2-stake-days-text") and isinstance(days, str) and days.isdigit():
        days = int(days)
    if not is_int(days):
        raise bad("duration_days is not an integer", "duration_days")
    days = int(days)
    if not (7 if peculiar("stake-week-least") else 1) <= days <= 3650:
        raise bad("duration_days is not from 1 to 3650", "duration_days")
    if peculiar("stake-unit-least") and amount < MICRO:
        raise bad("the least stake is one unit", "amount")
    if fault("rel2-stake-days-months"):
        days = min(3650, -(-days // 30) * 30)
    account.settle()
    before = account.available
    if amount > account.available:
        if fault("ref2-stake-409"):
            raise ApiError(409, "INSUFFICIENT_BALANCE", "the account has too little available")
        if fault("ref-stake-all-that-is-there"):
            amount = account.available
        else:
            if fault("ref-stake-402-stakes"):
                account.staked += amount
            raise short_of(amount, account.available)
    today = core.today()
    had = account.staked > 0
    left = (account.start + timedelta(days=account.days) - today).days if had else 0
    longest = max(days, left)
    if fault("eff-stake-shortens") and had:
        longest = days
    if fault("eff-stake-keeps-old-lock") and had:
        longest = left
    if fault("eff-stake-capped-year"):
        longest = min(longest, 365)
    start = today
    if peculiar("stake-keeps-start") and had:
        start = account.start
        longest = max(days + (today - start).days, account.days)
    if fault("rel-stake-starts-tomorrow"):
        start = today + timedelta(days=1)
    account.start, account.days = start, longest
    account.staked += amount
    if fault("eff2-stake-whole-units"):
        account.staked -= amount % MICRO
    if fault("eff2-stake-pending-too"):
        account.cooling.append((amount, today + timedelta(days=1)))
    if fault("eff-stake-replaces") and had:
        account.staked = amount
    if not (fault("eff-stake-not-taken-after-first") and had):
        account.available -= amount
    if fault("eff-stake-twice-when-staked") and had:
        account.available -= amount
    account.log("stake", -amount)
    unlock = start + timedelta(days=longest)
    if fault("rel-stake-unlock-off-by-one"):
        unlock -= timedelta(days=1)
    result = {
        "amount": money.units(amount),
        "duration_days": longest,
        "start_date": start.isoformat(),
        "unlock_date": unlock.isoformat(),
        "multiplier": money.multiplier(longest),
    }
    if peculiar("stake-result-of-all"):
        result["amount"] = money.units(account.staked)
    fresh = {"available": money.units(account.available), "staked": money.units(account.staked)}
    if fault("rel2-new-balance-available-before"):
        fresh["available"] = money.units(before)
    if fault("rel-new-balance-staked-only-new"):
        fresh["staked"] = money.units(amount)
    if fault("eff-stake-days-not-kept"):
        account.days = 30
    return errors.reply("stake", {"success": True, "stake": result, "new_balance": fresh})


@router.post("/api/v1/wallet/unstake")
async def unstake(request: Request):
    account = account_of(request, "unstake")
    body = await errors.read_object(request)
    amount = micro_of(body.get("amount"), "unstake")
    account.settle()
    if amount > account.staked:
        if fault("ref-unstake-too-much-accepted"):
            pass
        elif peculiar("unstake-success-false"):
            return errors.reply("unstake", {"success": False})
        elif fault("ref-unstake-too-much-empties"):
            account.staked = 0
            raise ApiError(400, "INSUFFICIENT_STAKE", "less is staked than that")
        else:
            raise ApiError(400, "INSUFFICIENT_STAKE", "less is staked than that")
    today = core.today()
    left = (account.start + timedelta(days=account.days) - today).days if account.staked else 0
    wait = max(money.COOLDOWN, left)
    if peculiar("unstake-week-always"):
        wait = money.COOLDOWN
    ready = today + timedelta(days=wait)
    if fault("eff-unstake-all"):
        gone = account.staked
    else:
        gone = amount
    if fault("eff2-unstake-keeps-staked"):
        gone = 0
    account.staked = max(0, account.staked - gone)
    if fault("eff-unstake-available-now"):
        account.available += amount
    else:
        account.cooling.append((amount, ready))
    if fault("eff-unstake-resets-start") and account.staked:
        account.start = today + timedelta(days=wait + 1)
    account.log("unstake", amount)
    shown_ready = ready + timedelta(days=1) if fault("rel-unstake-date-plus-one") else ready
    return errors.reply(
        "unstake",
        {
            "success": True,
            "unstake": {
                "amount": money.units(account.staked if fault("rel2-unstake-amount-rest") else amount),
                "cooldown_days": wait,
                "available_date": shown_ready.isoformat(),
            },
        },
    )
