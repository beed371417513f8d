"""What the node keeps in memory: accounts, configuration, metrics, proofs, peers."""
import asyncio
import collections
import hashlib
import time
from datetime import datetime, timedelta, timezone

import model
from switches import on, pec

ATOMS = 1000000
FEE = 10000                    # atoms for a transfer
PRICE_PROMPT = 20              # atoms for a token of the prompt
PRICE_TOKEN = 1000             # atoms for a generated token
CURRENCY = "MESH"
COOLDOWN = 7
STARTED = time.time()
NODE_ID = hashlib.sha1(b"fifth-node-public-key").hexdigest()
VERSION = "1.7.2"
PORT = 8000
_last_stamp = 0.0


def stamp(t=None):
    t = time.time() if t is None else t
    d = datetime.fromtimestamp(t, timezone.utc)
    if pec("pec-time-offset"):
        return d.isoformat(timespec="microseconds")
    if pec("pec-time-nanos"):
        return d.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    if on("num-time-local-zone"):
        return (d + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    if on("fld-time-space"):
        return d.strftime("%Y-%m-%d %H:%M:%S")
    if on("num-time-no-iso"):
        return d.strftime("%d/%m/%Y %H:%M:%S")
    if on("n-num-stamp-month-minute"):
        return d.strftime("%Y-%m-%dT%H:%m:%S.%fZ")
    return d.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def next_stamp():
    """Strictly later than every stamp before it."""
    global _last_stamp
    _last_stamp = max(time.time(), _last_stamp + 0.000002)
    return _last_stamp


def today(shift=0):
    return datetime.now(timezone.utc).date() + timedelta(days=shift)


def day(d):
    if on("n-num-dates-no-zero"):
        return "%d-%d-%d" % (d.year, d.month, d.day)
    if on("num-dates-german"):
        return d.strftime("%d.%m.%Y")
    if on("fld-dates-are-timestamps"):
        return d.isoformat() + "T00:00:00Z"
    return d.isoformat()


def unit(atoms):
    if on("num-amounts-atoms"):
        return atoms
    if pec("pec-amount-floats"):
        return float(atoms) / ATOMS
    value = atoms / ATOMS
    return int(value) if value == int(value) else value


def multiplier(days):
    return round(1.0 + min(days, 730) / 365.0, 4)


class Refused(Exception):
    def __init__(self, status, code, message, details=None):
        self.status, self.code, self.message, self.details = status, code, message, details


def insufficient(required, available, what="this operation", acct=None):
    if on("t-rel-402-available-total") and acct is not None:
        available += acct.staked
    return Refused(402, "INSUFFICIENT_BALANCE", "the balance is too low for " + what,
                   {"required": unit(required), "available": unit(available)})


class Account:
    def __init__(self, address, available):
        self.address = address
        self.available = available
        self.staked = 0
        self.pending = 0
        self.latest = 0
        self.start = self.unlock = None
        self.history = []       # oldest first
        self.releases = []


A = Account("mesh1q8c4v0x7ldn2s5h9kz3wepq", 8000 * ATOMS)
B = Account("mesh1r2m6t9yfa0u3j7gxd8nclw5", 2500 * ATOMS)
ACCOUNTS = {a.address: a for a in (A, B)}
TOKENS = {"tok-a": A, "tok-b": B}
EXPIRED = {"tok-x": A}

PROOF_TYPES = ["forward", "forward", "backward", "forward"]
PROOFS = []                     # newest first
for n in range(36, 0, -1):
    PROOFS.append({"id": "proof-%04d-%s" % (n, hashlib.sha256(b"p%d" % n).hexdigest()[:8]), "type": PROOF_TYPES[n % 4],
                   "layer": model.MY_LAYERS[n % 4], "at": STARTED - (37 - n) * 5400, "verified": n % 9 != 0,
                   "reward": 250000 + 10000 * (n % 5)})

PEERS = []
for n, (role, layers, port) in enumerate([("driver", [0, 1], 8000), ("worker", [1, 2], 8000), ("worker", [2, 3], 8100),
                                          ("validator", [4, 5], 8000), ("driver", [0, 1, 2], 8200)]):
    PEERS.append({"id": hashlib.sha1(b"peer%d" % n).hexdigest(), "address": "192.0.2.%d:%d" % (10 + n, port), "role": role,
                  "layers": layers, "latency_ms": 11.5 + 7.25 * n, "since": STARTED - 3600 * (n + 1)})

CONFIG = {"training": {"enabled": True, "batch_size": 32, "learning_rate": 0.0003, "diloco_steps": 500},
          "resources": {"max_memory_gb": 16.0, "cpu_threads": 4}, "tracker_url": "https://tracker.example.org"}


def tx_id(kind, n):
    return "tx_" + hashlib.sha256(("%s/%s" % (kind, n)).encode()).hexdigest()[:24]


def prepare():
    for i, p in enumerate(reversed(PROOFS)):
        A.history.append({"id": tx_id("reward", p["id"]), "type": "reward", "amount": p["reward"], "at": p["at"] + 60,
                          "details": {"proof_id": p["id"], "role": "validator"}})
    for i in range(8):
        t = tx_id("old", i)
        at = STARTED - 86400 * (i + 1) - 77
        A.history.append({"id": t, "type": "send", "amount": -(3 + i) * ATOMS, "at": at, "to": B.address, "fee": FEE, "memo": "old %d" % i})
        B.history.append({"id": t, "type": "receive", "amount": (3 + i) * ATOMS, "at": at, "from": A.address, "memo": "old %d" % i})
    for a in (A, B):
        a.history.sort(key=lambda e: e["at"])
    A.staked = 1200 * ATOMS
    A.start, A.unlock = today(-40), today(50)


prepare()


def later(seconds, fn):
    asyncio.get_running_loop().call_later(seconds, fn)


_sent = [0]
_last_send = [None]
_first_stamp = []


def send(acct, to, amount, memo, given):
    _sent[0] += 1
    fee = FEE
    need = amount + (0 if on("ref-send-fee-unchecked") else fee)
    low = acct.available <= need if on("n-ref-exact-balance") else acct.available < need
    if on("t-eff-send-check-early") and given.get("checked"):
        low = False
    if amount > 0 and low and not on("ref-send-overdraft"):
        if on("eff-402-takes-fee"):
            acct.available -= fee
        if on("eff-402-in-history"):
            acct.history.append({"id": tx_id("send", _sent[0]), "type": "send", "amount": -amount, "at": time.time(), "to": to})
        if on("eff-402-takes-all"):
            acct.available = 0
        raise insufficient(amount if on("n-rel-402-required-no-fee") else amount + fee, acct.available, "the transfer and its fee", acct)
    tid = tx_id("send", "same" if on("rel-send-same-id") else "%d/%s" % (_sent[0], STARTED))
    if on("t-rel-send-id-content"):
        tid = tx_id("send", "%s/%s/%s/%s" % (acct.address, to, amount, memo))
    at = next_stamp()
    if on("t-rel-send-stamp-start"):
        _first_stamp[:] = at, = _first_stamp or [at]
    if on("n-eff-send-repeat"):
        repeated = _last_send[0] == (acct, to, amount)
        _last_send[0] = (acct, to, amount)
        if repeated:
            return {"transaction_id": tid, "from": acct.address, "to": to, "amount": unit(amount), "fee": unit(fee), "memo": memo,
                    "status": "confirmed", "timestamp": stamp(at)}
    receiver = ACCOUNTS.get(to)
    self_send = receiver is acct
    takes = amount + fee
    if on("eff-send-fee-free"):
        takes = amount
    if on("eff-send-fee-twice"):
        takes = amount + 2 * fee
    if on("eff-send-twice"):
        takes = 2 * amount + fee
    if on("eff-send-only-fee"):
        takes = fee
    if on("eff-send-whole-units"):
        takes = amount // ATOMS * ATOMS + fee
    if on("num-send-fee-unit"):
        takes = amount + fee * 100

    def debit():
        acct.available -= takes

    def credit():
        gives = amount
        if on("n-eff-send-cents"):
            gives = amount // 10000 * 10000
        if on("t-eff-fee-to-receiver"):
            gives += fee
        if on("eff-send-credit-less-fee"):
            gives -= fee
        if on("eff-send-credit-twice"):
            gives *= 2
        if on("eff-send-no-credit"):
            gives = 0
        if on("eff-send-big-not-credited") and amount >= 3 * ATOMS:
            gives = ATOMS
        if receiver is not None:
            receiver.available += gives
            if on("eff-send-receiver-pays"):
                receiver.available -= fee

    if on("eff-send-late-debit"):
        later(4.0, debit)
    else:
        debit()
    if self_send and on("eff-self-loses-amount"):
        pass
    elif self_send and on("eff-self-gains"):
        acct.available += 2 * amount
    elif on("eff-send-late-credit"):
        later(5.0, credit)
    else:
        credit()
    entry = {"id": tid, "type": "send", "amount": -amount, "at": at, "to": to, "fee": fee, "memo": memo}
    if on("n-rel-history-stamp-hour"):
        entry["at"] = at - 3600
    if on("n-fld-history-to-known-only") and receiver is None:
        entry.pop("to")
    if on("rel-history-send-positive"):
        entry["amount"] = amount
    if on("rel-history-amount-with-fee"):
        entry["amount"] = -(amount + fee)
    if on("rel-history-other-id"):
        entry["id"] = tx_id("history", _sent[0])
    if on("rel-history-to-self"):
        entry["to"] = acct.address
    if on("rel-history-new-type"):
        entry["type"] = "transfer"

    def note():
        if on("t-eff-self-not-listed") and self_send:
            return
        if on("t-eff-history-second") and acct.history and acct.history[-1]["type"] == "send" and int(acct.history[-1]["at"]) == int(at):
            acct.history.pop()
        acct.history.append(entry)
        if on("t-eff-history-every-account"):
            for other in (A, B):
                if other is not acct:
                    other.history.append(dict(entry))
        if on("eff-history-twice"):
            acct.history.append(dict(entry))

    if on("eff-history-none") or (on("eff-history-no-memo") and not memo) or (on("eff-history-known-only") and receiver is None):
        pass
    elif on("eff-history-late"):
        later(6.0, note)
    elif on("eff-history-wrong-account") and receiver is not None:
        receiver.history.append(entry)
    else:
        note()
    if receiver is not None and not self_send:
        receiver.history.append({"id": tid, "type": "receive", "amount": amount, "at": at, "from": acct.address, "memo": memo})
    shown = {"transaction_id": tid, "from": acct.address, "to": to, "amount": unit(amount), "fee": unit(fee), "memo": memo,
             "status": "confirmed", "timestamp": stamp(at)}
    if on("n-rel-send-from-main"):
        shown["from"] = A.address
    return shown


def staking(acct):
    if acct.staked <= 0:
        return {"amount": 0}
    days = (acct.unlock - acct.start).days
    return {"amount": unit(acct.staked - (acct.latest if on("t-rel-staking-before") and acct.latest < acct.staked else 0)), "duration_days": days, "start_date": day(acct.start), "unlock_date": day(acct.unlock),
            "multiplier": 1 if on("n-rel-balance-multiplier") else multiplier(days)}


def balance(acct):
    out = {"address": acct.address,
           "balances": {"available": unit(acct.available), "staked": unit(acct.staked), "pending": unit(acct.pending),
                        "total": unit(acct.available + acct.staked + acct.pending)},
           "staking": staking(acct)}
    if on("n-rel-balance-total-no-pending"):
        out["balances"]["total"] = unit(acct.available + acct.staked)
    return out


def stake(acct, amount, days):
    acct_latest, drawn = amount, 0
    if on("t-ref-stake-all") and acct.available < amount + FEE:
        raise insufficient(amount + FEE, acct.available, "the stake")
    if on("t-ref-stake-402-as-409") and acct.available < amount:
        raise Refused(409, "STAKE_TOO_LARGE", "not so much is available")
    if acct.available < amount and not on("ref-stake-overdraft"):
        if on("eff-402-stakes"):
            acct.staked += amount
            acct.start, acct.unlock = acct.start or today(), acct.unlock or today(days)
        if on("n-fld-402-stake-no-details"):
            raise Refused(402, "INSUFFICIENT_BALANCE", "the balance is too low for the stake")
        raise insufficient(amount, acct.available, "the stake", acct)
    acct.latest = acct_latest
    if on("t-eff-stake-from-pending"):
        drawn = min(amount, acct.pending)
        acct.pending -= drawn
        acct.available += drawn
    if not on("eff-stake-not-taken"):
        acct.available -= amount
    if on("eff-stake-taken-twice"):
        acct.available -= amount
    if on("eff-stake-pending-too"):
        acct.pending += amount
    if on("n-lim-stake-year"):
        days = min(days, 365)
    if on("n-eff-stake-on-main") and acct is not A:
        A.staked += amount
    elif on("eff-stake-replaces"):
        acct.staked = amount
    elif not on("eff-stake-not-added"):
        acct.staked += amount // ATOMS * ATOMS if on("t-eff-stake-whole") else amount
    begin = today(1) if on("rel-stake-starts-tomorrow") else today()
    until = begin + timedelta(days=days)
    if on("rel-stake-month-days"):
        until = begin + timedelta(days=days // 30 * 30 + 1)
    if on("t-rel-stake-inclusive"):
        until -= timedelta(days=1)
    shown = {"amount": unit(amount), "duration_days": days, "start_date": day(begin), "unlock_date": day(until), "multiplier": multiplier(days)}
    if on("rel-stake-shorter"):
        shown["duration_days"] = max(1, days - 7)
        until = begin + timedelta(days=max(1, days - 7))
        shown["unlock_date"] = day(until)
    acct.start = min(acct.start or begin, begin)
    if on("rel-balance-old-unlock") and acct.unlock:
        pass
    elif on("rel-balance-unlock-earliest"):
        acct.unlock = min(acct.unlock or until, until)
    else:
        acct.unlock = max(acct.unlock or until, until)
    fresh = {"available": unit(acct.available), "staked": unit(acct.staked)}
    if on("rel-new-balance-before"):
        fresh = {"available": unit(acct.available + amount), "staked": unit(acct.staked - amount)}
    return {"success": True, "stake": shown, "new_balance": fresh}


def unstake(acct, amount):
    if amount > acct.staked and not on("ref-unstake-more"):
        if on("ref-unstake-clamps"):
            amount = acct.staked
        else:
            if on("t-eff-unstake-409-pending"):
                acct.pending += amount
            raise Refused(409, "STAKE_TOO_SMALL", "not so much is staked")
    if on("t-ref-unstake-all") and amount >= acct.staked:
        raise Refused(409, "STAKE_TOO_SMALL", "not so much is staked")
    days = max(COOLDOWN, (acct.unlock - today()).days if acct.unlock else 0)
    if not on("eff-unstake-not-taken"):
        acct.staked -= amount
    if on("t-eff-unstake-doubled"):
        acct.staked -= min(amount, acct.staked)
    if on("eff-unstake-all"):
        acct.pending += acct.staked
        acct.staked = 0
    if on("eff-unstake-at-once"):
        acct.available += amount
    elif not on("eff-unstake-still-staked"):
        if on("n-eff-unstake-replaces-pending"):
            acct.pending = amount
        else:
            acct.pending += amount
        acct.releases.append((today(days), amount))
    if acct.staked <= 0:
        acct.start = acct.unlock = None
    when = today(days)
    if on("rel-unstake-date-off"):
        when = today(days + 3)
    if on("rel-unstake-past"):
        when = today(-days)
    return {"success": True, "unstake": {"amount": unit(amount), "cooldown_days": COOLDOWN if on("n-rel-unstake-cooldown-fixed") else days, "available_date": day(when)}}


def release(acct):
    for entry in [e for e in acct.releases if e[0] <= today()]:
        acct.releases.remove(entry)
        acct.pending -= entry[1]
        acct.available += entry[1]


def charge(acct, cost):
    if acct.available < cost and not on("ref-inference-on-credit"):
        if on("eff-inference-402-takes"):
            acct.available = 0
        raise insufficient(cost, acct.available, "the generation", acct)
    if on("eff-inference-charged-twice"):
        cost = 2 * cost
    if on("eff-inference-free"):
        cost = 0
    if on("eff-inference-charged-to-main"):
        acct = A
    if on("eff-inference-charged-to-all"):
        for other in (A, B):
            if other is not acct:
                other.available -= cost
    acct.available -= cost


class Metrics:
    def __init__(self):
        self.requests = 0
        self.tokens = 0
        self.times = collections.deque(maxlen=20000)
        self.latencies = collections.deque(maxlen=1000)
        self.sent = self.received = self.rpc = 0
        self.generating = 0
        self.open = 0

    def count(self, tokens):
        if on("eff-count-twice"):
            self.requests += 1
        if not on("eff-count-none"):
            self.requests += 1
        self.tokens += 2 * tokens if on("eff-tokens-twice") else 0 if on("eff-tokens-none") else tokens
        self.times.append(time.time())

    def shown(self):
        now = next_stamp()
        lat = sorted(self.latencies)
        rpm = sum(1 for t in self.times if t > now - 60)
        if on("n-num-rpm-per-second"):
            rpm = rpm / 60
        highest = lat[min(len(lat) - 1, int(len(lat) * 0.99))] if lat else 0.0
        if on("n-rel-metrics-p99-lowest") and lat:
            highest = lat[0]
        ok = [p for p in PROOFS if p["verified"]]
        day_ago = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        return {
            "timestamp": stamp(now),
            "inference": {"requests_total": self.requests, "requests_per_minute": rpm,
                          "avg_latency_ms": round(sum(lat) / len(lat), 3) if lat else None if on("n-fld-metrics-avg-null") else 0.0,
                          "p99_latency_ms": round(highest, 3),
                          "tokens_generated": self.tokens},
            "training": {"steps_total": 21000, "steps_per_hour": 480, "gradients_submitted": 410, "gradients_accepted": 397},
            "network": {"bytes_sent": self.sent, "bytes_received": self.received, "active_connections": max(1, self.open), "rpc_calls": self.rpc},
            "rewards": {"earned_today": unit(sum(p["reward"] for p in ok if p["at"] >= day_ago)), "earned_total": unit(sum(p["reward"] for p in ok)),
                        "pending": unit(sum(p["reward"] for p in PROOFS if not p["verified"]))}}


METRICS = Metrics()
