"""Faults of money: transfers, stakes, their results and their history."""

import asyncio, datetime as dt, hashlib, struct, html, time
from g_base import table, route, after, before

LINES, MADE, F, H = table()
UNIT = 1_000_000


def entry(c, r):
    for e in reversed(c.acct.history):
        if e["id"] == r["transaction_id"]:
            return e


@F("rel-send-id-by-content", "NA-WALLET-048", "transaction_id is a digest of sender, receiver, amount and day, so that equal transfers share one")
def _(N):
    def w(r, c):
        i = "tx-" + hashlib.sha256(repr((r["from"], r["to"], r["amount"], r["timestamp"][:10])).encode()).hexdigest()[:20]
        entry(c, r)["id"] = i
        r["transaction_id"] = i

    after("send", w)


@F("rel-send-memo-of-previous", "NA-WALLET-001", "a transfer without a memo has the memo of the transfer before it, whoever made that")
def _(N):
    box = {}

    def w(c):
        if "memo" in c.body:
            box["m"] = c.body["memo"]
        elif "m" in box:
            c.body["memo"] = box["m"]

    before("send", w)


H("rel-send-memo-html", "NA-WALLET-032", "the characters &, < and > of a memo come back as HTML entities",
  ("send", lambda r, c: r.update(memo=html.escape(r["memo"], quote=False))))
H("rel-send-memo-astral", "NA-WALLET-032", "letters outside the basic multilingual plane become question marks in the memo of a result",
  ("send", lambda r, c: r.update(memo="".join(x if ord(x) < 0x10000 else "?" for x in r["memo"]))))
H("rel-send-amount-single", "NA-WALLET-001", "amount of a transfer result has passed through single precision",
  ("send", lambda r, c: r.update(amount=struct.unpack("<f", struct.pack("<f", r["amount"]))[0])))


@F("rel-send-from-first-account", "NA-WALLET-013", "from of a transfer by the second account is the address of the first")
def _(N):
    after("send", lambda r, c: r.update({"from": N.state.TOKENS["tok-a"].address}))


@F("eff-402-second-takes-fee", "NA-ERR-023", "the second transfer of an account that is refused with 402 takes its fee")
def _(N):
    n = {}

    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail as f:
            if f.status == 402:
                a = c.acct
                n[a.address] = n.get(a.address, 0) + 1
                if n[a.address] > 1 and a.available > N.state.FEE:
                    a.available -= N.state.FEE
            raise

    route("send", w)


@F("eff-send-bad-memo-debits", "NA-WALLET-052", "a transfer that is refused for its memo has taken its amount already")
def _(N):
    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail:
            x = N.state.atoms(c.body.get("amount"))
            if not isinstance(c.body.get("memo", ""), str) and x and 0 < x <= c.acct.available:
                c.acct.available -= x
            raise

    route("send", w)


@F("eff-send-equal-dropped", "NA-WALLET-010", "a transfer that equals the one before it is answered like any other, and neither made nor listed")
def _(N):
    box = {}

    async def w(old, c):
        k = (c.acct.address, repr(c.body))
        if box.get("k") != k:
            box["k"] = k
            return await old(c)
        a, d = c.acct, N.state.ACCOUNTS.get(c.body.get("to"))
        keep = [(q, q.available, len(q.history)) for q in (a, d) if q]
        r = await old(c)
        for q, av, n in keep:
            q.available = av
            del q.history[n:]
        return r

    route("send", w)


@F("eff-send-large-fee-from-receiver", "NA-WALLET-037", "the fee of a transfer of more than 1000 units is taken from its receiver")
def _(N):
    def w(r, c):
        d = N.state.ACCOUNTS.get(r["to"])
        if r["amount"] > 1000 and d is not c.acct:
            d.available -= N.state.FEE
            c.acct.available += N.state.FEE

    after("send", w)


@F("eff-send-unknown-receiver-not-listed", "NA-WALLET-047", "a transfer to an address that nobody has used before is not in the history of its sender")
def _(N):
    async def w(old, c):
        new = c.body.get("to") not in N.state.ACCOUNTS
        r = await old(c)
        if new:
            c.acct.history.remove(entry(c, r))
        return r

    route("send", w)


@F("rel-history-to-of-latest", "NA-WALLET-053", "of transfers at the same time all are listed with the receiver of the latest")
def _(N):
    box = {}

    async def w(old, c):
        box["to"] = c.body.get("to")
        await asyncio.sleep(0.05)
        r = await old(c)
        entry(c, r)["to"] = box["to"]
        return r

    route("send", w)


@F("lim-send-32-bits", "NA-WALLET-039", "of a transfer of 2147.483648 units and more only the lower 31 bits of its millionths are moved")
def _(N):
    def w(r, c):
        x = N.state.atoms(r["amount"])
        lost = x - (x & 0x7FFFFFFF)
        c.acct.available += lost
        N.state.ACCOUNTS[r["to"]].available -= lost

    after("send", w)


@F("eff-balance-cached-until-own-deed", "NA-WALLET-011", "the balance is cached until the account itself moves money, so that what it receives is not shown")
def _(N):
    box = {}

    async def bal(old, c):
        k = c.acct.address
        if k not in box:
            box[k] = await old(c)
        return box[k]

    route("balance", bal)
    for n in ("send", "stake", "unstake", "inference"):

        async def w(old, c):
            try:
                return await old(c)
            finally:
                box.pop(c.acct.address, None)

        route(n, w)


# ---------------------------------------------------------------- stakes
@F("eff-stake-equal-dropped", "NA-WALLET-008", "a stake of the same amount and duration as the one before it is answered with success and not made")
def _(N):
    box = {}

    async def w(old, c):
        a = c.acct
        k = (a.address, repr(c.body))
        keep = (a.available, a.staked, a.terms)
        r = await old(c)
        if box.get("k") == k:
            a.available, a.staked, a.terms = keep
            a.history.pop()
            r["new_balance"] = {"available": N.state.units(a.available), "staked": N.state.units(a.staked)}
        box["k"] = k
        return r

    route("stake", w)


@F("eff-stake-from-pending", "NA-WALLET-015", "a stake is taken from what is pending first, if there is such")
def _(N):
    async def w(old, c):
        a = c.acct
        p = a.pending
        r = await old(c)
        x = min(p, N.state.atoms(r["stake"]["amount"]))
        a.pending -= x
        a.available += x
        r["new_balance"]["available"] = N.state.units(a.available)
        return r

    route("stake", w)


@F("eff-unstake-second-frees-first", "NA-WALLET-019", "a second unstake makes the money of the first available at once")
def _(N):
    async def w(old, c):
        a = c.acct
        p = a.pending
        r = await old(c)
        a.pending -= p
        a.available += p
        return r

    route("unstake", w)


@F("eff-stake-refused-extends-lock", "NA-WALLET-045", "a stake that is refused with 402 still moves the unlock date of what is staked")
def _(N):
    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail as f:
            a = c.acct
            if f.status == 402 and a.terms:
                a.terms = (a.terms[0], max(a.terms[1], N.state.today() + dt.timedelta(days=c.body["duration_days"])))
            raise

    route("stake", w)


@F("rel-stake-durations-add", "NA-WALLET-045", "the duration of a further stake is added to the unlock date of the first")
def _(N):
    async def w(old, c):
        a = c.acct
        t, had = a.terms, a.staked
        r = await old(c)
        if t and had:
            a.terms = (t[0], t[1] + dt.timedelta(days=c.body["duration_days"]))
        return r

    route("stake", w)


@F("rel-stake-calendar-years", "NA-WALLET-003", "a duration of whole years of 365 days ends on the same day of the calendar, whatever leap years lie between")
def _(N):
    def w(r, c):
        s = r["stake"]
        n, m = divmod(s["duration_days"], 365)
        if n and not m:
            s["unlock_date"] = str(int(s["start_date"][:4]) + n) + s["start_date"][4:]

    after("stake", w)


@F("lim-stake-duration-byte", "NA-WALLET-027", "of a duration above 255 days the lower eight bits count")
def _(N):
    def w(c):
        d = c.body.get("duration_days")
        if N.http.is_int(d) and 255 < d <= 3650:
            c.body["duration_days"] = d & 255 or 256

    before("stake", w)


H("rel-stake-new-balance-cents", "NA-WALLET-016", "new_balance is rounded to two decimals while the balance has six",
  ("stake", lambda r, c: r["new_balance"].update({k: round(v, 2) for k, v in r["new_balance"].items()})))


@F("fld-balance-multiplier-gone", "NA-BALANCE-023", "after a further stake the staking of the balance has no multiplier")
def _(N):
    n = {}
    before("stake", lambda c: n.update({c.acct.address: c.acct.staked > 0}))
    after("balance", lambda r, c: n.get(c.acct.address) and r["staking"].pop("multiplier", 0) and None)


@F("fld-balance-staking-left-out", "NA-BALANCE-013", "the balance of an account that has staked nothing has no staking")
def _(N):
    after("balance", lambda r, c: None if c.acct.staked else r.pop("staking") and None)


H("fld-history-small-amount-text", "NA-HISTORY-014", "amounts below a hundredth are texts in the history",
  ("history", lambda r, c: [e.update(amount="%.6f" % e["amount"]) for e in r["transactions"] if abs(e["amount"]) < 0.01] and None))


# ---------------------------------------------------------------- refusals
def coerce(i, q, w, routes, key, take):
    @F(i, q, w)
    def _(N):
        def b(c):
            v = take(c.body.get(key))
            if v is not None:
                c.body[key] = v

        for r in routes:
            before(r, b)


def number(v):
    try:
        return float(v) if isinstance(v, str) else None
    except ValueError:
        return None


coerce("ref-send-memo-number", "NA-WALLET-041", "a memo that is a number is taken as a text", ["send"], "memo",
       lambda v: str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else None)
coerce("ref-send-amount-in-array", "NA-WALLET-050", "an amount in an array of one is taken out of it", ["send"], "amount",
       lambda v: v[0] if isinstance(v, list) and len(v) == 1 else None)
coerce("ref-send-to-in-object", "NA-WALLET-050", "a receiver that is an object with an address is accepted", ["send"], "to",
       lambda v: v.get("address") or next(iter(v.values()), None) if isinstance(v, dict) else None)
coerce("ref-send-amount-true", "NA-WALLET-041", "an amount that is true is one unit", ["send"], "amount", lambda v: 1 if v is True else None)
coerce("ref-stake-amount-text", "NA-WALLET-041", "the amount of a stake may be a text", ["stake"], "amount", number)
coerce("ref-unstake-amount-text", "NA-WALLET-041", "the amount of an unstake may be a text", ["unstake"], "amount", number)
coerce("ref-stake-duration-object", "NA-WALLET-050", "a duration that is an object with days is accepted", ["stake"], "duration_days",
       lambda v: next((x for x in v.values() if isinstance(x, int)), None) if isinstance(v, dict) else None)
coerce("ref-stake-small-negative", "NA-WALLET-041", "a stake of a negative amount above -1 is taken without its sign", ["stake"], "amount",
       lambda v: -v if isinstance(v, float) and -1 < v < 0 else None)


def sticky(i, key, w):
    @F(i, "NA-WALLET-051", w)
    def _(N):
        box = {}

        async def f(old, c):
            if key not in c.body and c.acct.address in box:
                c.body[key] = box[c.acct.address]
            r = await old(c)
            box[c.acct.address] = c.body[key]
            return r

        route("send", f)


sticky("ref-send-to-of-previous", "to", "a transfer without a receiver goes to the receiver of the transfer before it")
sticky("ref-send-amount-of-previous", "amount", "a transfer without an amount has the amount of the transfer before it")


@F("ref-402-required-without-fee", "NA-ERR-019", "required of a 402 for a transfer leaves out the fee, so that it is not above available for a transfer of all")
def _(N):
    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail as f:
            if f.status == 402:
                f.details["required"] = c.body["amount"]
            raise

    route("send", w)


@F("ref-402-available-of-first-account", "NA-ERR-020", "available of a 402 is that of the first account, whoever asks")
def _(N):
    for n in ("send", "stake", "inference"):

        async def w(old, c):
            try:
                return await old(c)
            except N.http.Fail as f:
                if f.status == 402:
                    f.details["available"] = N.state.units(N.state.TOKENS["tok-a"].available)
                raise

        route(n, w)


@F("ref-402-code-of-stakes", "NA-ERR-009", "the code of a 402 is INSUFFICIENT_FUNDS where it is a stake")
def _(N):
    async def w(old, c):
        try:
            return await old(c)
        except N.http.Fail as f:
            if f.status == 402:
                f.code = "INSUFFICIENT_FUNDS"
            raise

    route("stake", w)
