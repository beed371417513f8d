"""Accounts, history, configuration, figures."""

import time, hashlib, random, datetime as dt, os
from decimal import Decimal
from core import fault, pec
import model

UNIT = 1_000_000
FEE = 0 if pec("no-fee") else 12_500
COOLDOWN = 0 if pec("cooldown-zero") else 45 if pec("cooldown-long") else 5
PRICE_IN, PRICE_OUT = (0, 0) if pec("free-inference") else (7, 31)
T0 = time.monotonic()
BOOT = time.time()
UTC = dt.timezone.utc
R = random.Random(77)


def now():
    return dt.datetime.now(UTC)


def iso(t=None):
    t = t or now()
    if isinstance(t, (int, float)):
        t = dt.datetime.fromtimestamp(t, UTC)
    if fault("fld-time-local-offset"):
        return t.astimezone(dt.timezone(dt.timedelta(hours=2))).strftime(
            "%Y-%m-%dT%H:%M:%S.%f+02:00"
        )
    if fault("fld-time-http-form"):
        return t.strftime("%a, %d %b %Y %H:%M:%S GMT")
    if fault("fld-time-compact"):
        return t.strftime("%d.%m.%Y %H:%M:%S")
    if fault("rel-time-two-hours-ahead"):
        t = t + dt.timedelta(hours=2)
    if fault("rel-time-local-as-utc"):
        t = t - dt.timedelta(hours=5)
    s = t.isoformat(timespec="microseconds")
    if pec("time-z"):
        s = s.replace("+00:00", "Z")
    if pec("time-milliseconds"):
        s = t.isoformat(timespec="milliseconds")
    if pec("time-nanoseconds"):
        s = s.replace("+00:00", "000Z")
    return s


def today():
    d = now().date()
    return d


def day(d):
    if fault("fld-date-with-time"):
        return d.isoformat() + "T00:00:00Z"
    if fault("fld-date-slashes"):
        return d.strftime("%Y/%m/%d")
    if fault("fld-date-unpadded"):
        return (
            "%d-%d-%d" % (d.year, d.month, d.day)
            if d.month < 10 or d.day < 10
            else d.strftime("%d-%m-%Y")
        )
    return d.isoformat()


def units(a):
    if fault("fld-money-strings"):
        return "%.6f" % (a / UNIT)
    if fault("rel-money-two-decimals"):
        return round(a / UNIT, 2)
    if fault("rel-money-float-sum"):
        return a / UNIT
    x = a / UNIT
    if pec("money-integers") and x == int(x):
        return int(x)
    return x


def atoms(x):
    if isinstance(x, bool) or not isinstance(x, (int, float, Decimal)):
        return None
    d = Decimal(str(x)) * UNIT
    if not d.is_finite() or d != d.to_integral_value():
        return None
    return int(d)


class Account:
    def __init__(self, name, money):
        h = hashlib.sha256(b"wallet " + name.encode()).hexdigest()
        self.address = "zq1" + h[:34]
        if pec("address-long"):
            self.address = "zq1" + h + h
        self.available, self.staked, self.pending = money, 0, 0
        self.terms = None  # (start, unlock)
        self.releases = []
        self.history = []  # oldest first
        self.cached = None

    def add(self, kind, amount, id=None, at=None, **more):
        e = {"type": kind, "id": id or new_id("t"), "timestamp": iso(at), "amount": units(amount)}
        e.update(more)
        self.history.append(e)
        return e


_n = 0


def new_id(p):
    global _n
    _n += 1
    return p + "-" + hashlib.sha256(b"%d %f" % (_n, BOOT)).hexdigest()[:20]


ACCOUNTS = {}
TOKENS = {}


def seed():
    for tok, name, money in (
        ("tok-a", "anna", 84_000 * UNIT + 250_000),
        ("tok-b", "bert", 3_150 * UNIT + 500_000),
        ("tok-poor", "poor", 0),
    ):
        a = Account(name, money)
        ACCOUNTS[a.address] = a
        TOKENS[tok] = a
    a, b, p = TOKENS["tok-a"], TOKENS["tok-b"], TOKENS["tok-poor"]
    t = BOOT - 40 * 86400
    if not pec("history-empty"):
        for i in range(57):
            t += 50_000 + R.randrange(9000)
            if i % 4 == 3:
                a.add("send", -(100_000 + 1000 * i), at=t, to=b.address, memo="early %d" % i)
                b.add("receive", 100_000 + 1000 * i, at=t, details={"from": a.address})
            else:
                pr = PROOFS[i % len(PROOFS)] if PROOFS else {"id": "pf-0"}
                a.add(
                    "reward",
                    20_000 + 7 * i,
                    at=t,
                    details={"proof_id": pr["id"], "role": "worker" if i % 2 else "validator"},
                )
        for i in range(3):
            b.add(
                "reward", 500_000, at=t + i, details={"proof_id": "pf-%04d" % i, "role": "driver"}
            )
    if not pec("nothing-staked"):
        a.staked = 400 * UNIT
        a.terms = (today() - dt.timedelta(days=12), today() + dt.timedelta(days=48))


PROOFS = []
if not pec("proofs-empty"):
    t = BOOT - 9000
    for i in range(23):
        t -= 611 + R.randrange(300)
        v = i not in (0, 1, 5, 11, 12)
        PROOFS.append(
            {
                "id": "pf-" + hashlib.sha1(b"%d" % i).hexdigest()[:14],
                "layer": sorted(model.HELD)[i % len(model.HELD)],
                "type": "forward" if i % 3 or not pec("proof-types") else "backward",
                "verified": v,
                "reward": (20_000 + 7 * i) / UNIT if v else 0.0,
                "at": t,
            }
        )
    if pec("proof-rewards-unverified"):
        for q in PROOFS:
            q["reward"] = 0.02

NODE_ID = hashlib.sha1(b"a public key of the stranger").hexdigest()
if pec("node-id-long"):
    NODE_ID = "node:" + NODE_ID * 4
CONFIG = {
    "tracker_url": "http://tracker.invalid:7999/announce",
    "training.enabled": not pec("training-off"),
    "training.batch_size": 12,
    "training.learning_rate": 0.00025,
    "training.diloco_steps": 400,
    "resources.max_memory_gb": 14.5,
    "resources.cpu_threads": 6,
}
PENDING = {}  # changes that wait for a restart


class Figures:
    requests = 41
    tokens = 2733
    lat = [61.0, 75.5, 80.25, 133.0]
    times = []
    rpc = 0
    sent = 1_048_201
    recv = 733_120
    grads_in = 18
    grads_ok = 15
    conns = 0


FIG = Figures()
_steps_base, _since = 88_120, T0


def steps():
    global _steps_base, _since
    return _steps_base + (int((time.monotonic() - _since) / 2) if CONFIG["training.enabled"] else 0)


def switch_training(on):
    global _steps_base, _since
    _steps_base = steps()
    _since = time.monotonic()


def loss():
    return round(2.75 - 0.00001 * (steps() % 5000), 6) if not pec("loss-zero") else 0
