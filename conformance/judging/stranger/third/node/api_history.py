"""The history of the wallet."""

from fastapi import APIRouter, Request

import auth
import core
import errors
import money
from core import fault, nth, peculiar

router = APIRouter()


def shown(account, entry):
    amount = entry["micro"]
    out = {
        "id": entry["id"],
        "type": "send" if fault("fld2-history-stake-as-send") and entry["type"] == "stake" else entry["type"],
        "amount": money.units(amount),
        "timestamp": core.iso(entry["at"]),
    }
    for key in ("details", "to", "from", "memo"):
        if key in entry:
            out[key] = entry[key]
    if "fee" in entry:
        out["fee"] = money.units(entry["fee"])
    return out


@router.get("/api/v1/wallet/transactions")
async def transactions(request: Request):
    account = auth.authorize(request, "history")
    query = request.query_params
    limit = errors.whole(query, "limit", 20, 1, 100)
    offset = errors.whole(query, "offset", 0, 0, 10**12)
    if fault("rou2-history-limit-ignored"):
        limit = 20
    if fault("rou2-history-offset-ignored"):
        offset = 0
    if fault("eff2-history-of-first"):
        account = money.ACCOUNTS["tok-a"]
    entries = list(account.history)
    if peculiar("history-oldest-first"):
        entries.reverse()
    if peculiar("history-no-charges"):
        entries = [entry for entry in entries if entry["type"] != "inference"]
    total = len(entries)
    if fault("rel-history-order-by-page"):
        entries.sort(key=lambda entry: entry["at"].timestamp() if limit > 10 else entry["id"])
    if fault("rel-history-order-alternates") and nth("history") % 2 == 0:
        entries[1:5] = entries[4:0:-1]
    start, end = offset, offset + limit
    if fault("rel-history-offset-pages"):
        start, end = offset * limit, offset * limit + limit
    if fault("rel-history-skip-one") and offset:
        start, end = start + 1, end + 1
    if fault("rel-history-overlap") and offset:
        start, end = start - 1, end - 1
    if fault("lim2-history-one-short") and limit > 1:
        end -= 1
    if fault("lim-history-min-ten"):
        end = max(end, start + 10)
    if fault("lim-history-first-fifty"):
        entries = entries[:50]
    if fault("rou-default-offset-one") and "offset" not in query:
        start, end = start + 1, end + 1
    if fault("rel-history-total-capped"):
        total = min(total, 50)
    if fault("rel-history-dedup-page"):
        page = entries[start:end]
        page = [
            e
            for n, e in enumerate(page)
            if n == 0 or e["type"] != page[n - 1]["type"] or e["micro"] != page[n - 1]["micro"]
        ]
    else:
        page = entries[start:end]
    body = {
        "transactions": [shown(account, entry) for entry in page],
        "total": total,
        "limit": limit,
        "offset": offset,
    }
    return errors.reply("history", body)
