"""A toy with a chain that takes signed inference requests, sound or with one fault.

Its signatures are digests with a secret, its blocks come by the clock. `sign` is its signer, which
`python -m conformance.judging.toy.signing URL KIND` runs.
"""

import hashlib
import json
import sys
import time
import uuid
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.request import urlopen

from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import ToyNode
from conformance.signer import NOT_OFFERED, Kind

SECRET = b"of the toy"
CHAIN, PAYER, OTHER = "toy-1", "02" + "cd" * 32, "02" + "ef" * 32
# So long a response is kept where it should be kept longer.
DROPPED_S = 1.0
BLOCK_S, ANSWERED_S = 0.2, 0.3
PRICE, FEE, FIRST, LIVES, SOON = 1000, 1, 8, 1000, 4
NOBODY = "nobody"
QUEUE = "queue_size"


def _dumped(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _signature(content: bytes) -> str:
    return hashlib.sha256(SECRET + content).hexdigest()


@dataclass
class Job:
    """A request that was accepted, in the block at `height`."""

    ident: str
    hash: str
    text: str
    body: dict[str, Any]
    height: int
    since: float
    # What it came to: empty, `completed` or `expired`.
    end: str = ""
    # Whether a result that came later has taken the place of its response.
    rewritten: bool = False


@dataclass
class SigningToy(ToyNode):
    """The toy; `fault` is one of FAULTS, `frozen`, or empty."""

    fault: str = ""
    jobs: dict[str, Job] = field(default_factory=dict)
    nonces: dict[str, int] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin the chain."""
        super().__init__()

    def reset(self) -> None:
        """Begin anew."""
        super().reset()
        self.jobs, self.signatures = {}, set()
        self.nonces = dict.fromkeys((PAYER, OTHER), 0)
        self.balances = dict.fromkeys((PAYER, OTHER), 1_000_000)
        self.chain_began = time.monotonic()

    @property
    def height(self) -> int:
        """The height of the latest block."""
        return FIRST + int((time.monotonic() - self.chain_began) / BLOCK_S)

    def answer(self, asked: Asked, query: dict[str, list[str]], token: str | None) -> Response:
        """Answer what is about the chain, and leave the rest to the toy."""
        self._end_jobs()
        words = {key: values[0] for key, values in query.items()}
        if asked.path == "/api/network":
            tip = FIRST if self.fault == "frozen" and self.jobs else self.height
            return Response(json={"chain_id": CHAIN, "height": self.height,
                                  "latest_block_hash": f"hash{tip}",
                                  "initial_supply": "1000", "round": self.height})  # fmt: skip
        key = words.get("public_key", "")
        if asked.path == "/api/account" and key in self.nonces:
            locked = 0
            if self.fault != "unlocked":
                locked = PRICE * sum(
                    not job.end for job in self.jobs.values() if self._payer(job.body) == key
                )
            balance = self.balances[key]
            amounts = {"balance": balance, "locked": locked, "total": balance + locked}
            told = {name: str(amount) for name, amount in amounts.items()}
            return Response(json={**told, "next_nonce": self.nonces[key]})
        if asked.path == "/api/inference":
            jobs = self.jobs.values()
            waiting = [job for job in jobs if not job.end or self.fault == "counting"]
            response = super().answer(asked, query, token)
            return replace(response, json={**response.json, QUEUE: len(waiting)})
        if asked.path == "/api/inference/request":
            return self._record(words.get("id", ""))
        if asked.path == "/api/blocks":
            below = min(int(words.get("before", self.height + 1)), self.height + 1)
            heights = range(below - 1, 0, -1)[: int(words.get("limit", 5))]
            return Response(json={"blocks": [{"height": n, "hash": f"hash{n}"} for n in heights]})
        if asked.path.startswith("/api/block/"):
            return self._block(asked.path.rpartition("/")[2])
        if asked.path == "/work/poll" and self.fault == "polling":
            return Response(json={"accepted": True})
        if asked.path == "/work/result" and isinstance(asked.body, dict):
            return self._work(asked.body)
        params = asked.body.get("params") if isinstance(asked.body, dict) else None
        if asked.path == "/rpc" and isinstance(params, dict) and "tx" in params:
            return self._broadcast(params["tx"])
        return super().answer(asked, query, token)

    def _payer(self, body: dict[str, Any]) -> str:
        return PAYER if self.fault == "first pays" else str(body["payer"])

    def _end_jobs(self) -> None:
        for job in self.jobs.values():
            if job.end == "completed" and self.fault == "forgetful":
                job.end = "expired" if self.height > job.body["expires"] else job.end
            if job.end:
                continue
            expires = job.body["expires"] - (LIVES if self.fault == "hasty" else 0)
            past = self.height > expires and self.fault not in ("late", "lasting")
            if past and self.fault == "overdue":
                job.end = "completed"
                continue
            answered = time.monotonic() - job.since > ANSWERED_S and job.body["provider"] != NOBODY
            answered = answered and self.fault != "unanswered"
            if past or (answered and self.fault == "early"):
                job.end = "expired"
                kept = self.fault in ("unrefunded", "unlocked")
                self.balances[self._payer(job.body)] += 0 if kept else PRICE
                self.balances[self._payer(job.body)] += FEE if self.fault == "generous" else 0
            elif answered:
                job.end = "completed"
                self.balances[job.body["payer"]] -= PRICE if self.fault == "unlocked" else 0
                self.balances[job.body["payer"]] += PRICE - FEE if self.fault == "repaid" else 0

    def _record(self, ident: str) -> Response:
        job = self.jobs.get(ident)
        hidden = self.fault == "hidden" and job is not None and not job.end
        if job is None or hidden or self.fault == "unpolled":
            return Response(404, {"error": "no such request"})
        late = time.monotonic() - job.since > DROPPED_S
        ends: dict[str, dict[str, Any]] = {
            "expired": {"refund": str(PRICE * 2 if self.fault == "refunding" else PRICE)},
            "completed": {"response": None if late and self.fault == "dropped" else "It is said."},
        }
        if job.rewritten:
            ends["completed"] = {"response": "It is said by another."}
        prompt = job.body["prompt"][: 20 if self.fault == "cut" else None]
        record = {"id": ident, "status": job.end or "pending", "prompt": prompt}
        record["tx_hash"] = ident if self.fault == "mistaken" else job.hash
        record["expires_height"] = job.body["expires"] - (self.fault == "shortened")
        return Response(json={**record, **ends.get(job.end, {})})

    def _block(self, height: str) -> Response:
        named = int(height) if height.isdecimal() else 0
        if named > self.height:
            return Response(404, {"error": "no such block"})
        jobs: list[Any] = [
            {"hash": job.hash, "request_id": job.ident, "body": job.body}
            for job in self.jobs.values() if job.height == named
        ]  # fmt: skip
        if self.fault == "raw":
            jobs = [hashlib.sha256(_dumped(job)).hexdigest() for job in jobs]
        if self.fault == "encoded":
            jobs = [job.text for job in self.jobs.values() if job.height == named]
        return Response(json={"height": named, "hash": f"hash{named}", "transactions": jobs})

    def _work(self, message: dict[str, Any]) -> Response:
        body = message.get("body")
        fits = message.get("signature") == _signature(_dumped(body))
        job = self.jobs.get(body.get("result", "")) if isinstance(body, dict) else None
        if fits and job is not None:
            revived = self.fault == "revived" and job.end == "expired"
            job.end = "completed" if revived else job.end
            job.rewritten = self.fault == "rewritten"
        if fits or self.fault == "worker":
            return Response(json={"accepted": True})
        return Response(403, {"error": "the signature"})

    def _broadcast(self, text: str) -> Response:
        raw = b64decode(text)
        signed = json.loads(raw)
        body, digest = signed["body"], hashlib.sha256(raw).hexdigest()
        known = self.fault == "forged" or (
            self.fault == "remembering" and signed["signature"] in self.signatures
        )
        wrong = {
            "the signature": signed["signature"] != _signature(_dumped(body)) and not known,
            "the chain": body["chain"] != CHAIN and self.fault != "foreign",
            "the nonce": body["nonce"] != self.nonces[body["payer"]]
            and self.fault not in ("twice", "same nonce", "backwards"),
            "the expiry": body["expires"] <= self.height and self.fault != "late",
            "the day": self.fault == "refusing",
            "the payer": self.fault == "exclusive" and body["payer"] != PAYER,
        }
        why = [name for name, bad in wrong.items() if bad]
        if why:
            code = 0 if self.fault == "whitewashed" else 1
            return Response(json={"result": {"code": code, "log": ", ".join(why)}})
        ident = digest if self.fault == "one id" else signed["id"]
        job = Job(ident, digest, text, body, self.height + 1, time.monotonic())
        self.jobs[ident] = job
        self.signatures.add(signed["signature"])
        payer = self._payer(body)
        self.nonces[body["payer"]] += {"same nonce": 0, "by twos": 2}.get(self.fault, 1)
        self.balances[payer] -= 0 if self.fault in ("free", "unlocked") else PRICE
        self.balances[payer] -= PRICE if self.fault == "greedy" else 0
        named = ident if self.fault == "named otherwise" else digest
        return Response(json={"result": {"code": 0, "hash": named}})


# Each fault, and the requirement that it violates.
FAULTS = {
    "forged": "NT-RULE-046", "foreign": "NT-RULE-047", "late": "NT-RULE-048",
    "same nonce": "NT-RULE-049", "free": "NT-RULE-050", "twice": "NT-RULE-051",
    "raw": "NT-RULE-052", "encoded": "NT-RULE-052", "worker": "NT-RULE-053",
    "one id": "NT-RULE-013", "unpolled": "ST-001", "early": "ST-002", "unrefunded": "ST-004",
    "unlocked": "NT-RULE-071", "unanswered": "NT-RULE-073", "greedy": "NT-RULE-078",
    "lasting": "ST-004", "counting": "NT-RULE-082", "polling": "NT-RULE-053",
    "remembering": "NT-RULE-046", "hidden": "ST-001", "dropped": "NT-RULE-083",
    "first pays": "NT-RULE-085", "cut": "NT-RULE-086",
    "named otherwise": "NT-RULE-092", "hasty": "NT-RULE-096", "forgetful": "NT-RULE-097",
    "generous": "NT-RULE-098",
    "overdue": "NT-RULE-089", "whitewashed": "NT-RULE-090",
    "refusing": "NT-RULE-105", "by twos": "NT-RULE-107", "shortened": "NT-RULE-158",
    "mistaken": "NT-RULE-159", "refunding": "NT-RULE-160",
    "revived": "NT-RULE-101", "rewritten": "NT-RULE-083",
    "repaid": "NT-RULE-173", "exclusive": "NT-RULE-105", "backwards": "NT-RULE-176",
}  # fmt: skip


def sign(url: str, kind: Kind, about: str = "") -> dict[str, Any]:
    """Return the line of the signer, for the toy at a URL."""

    def get(path: str) -> Any:
        with urlopen(url + path, timeout=10) as answer:  # noqa: S310 - the toy
            return json.load(answer)

    if kind is Kind.LATE_RESULT:
        done = {"result": about}
        return {
            "path": "/work/result",
            "body": {"body": done, "signature": _signature(_dumped(done))},
        }
    if kind in (Kind.WORK, Kind.FORGED_WORK, Kind.FORGED_RESULT):
        signature = _signature(_dumped("done") if kind is Kind.WORK else b"another")
        return {"path": "/work/result", "body": {"body": "done", "signature": signature}}
    height = get("/api/network")["height"]
    payer = OTHER if kind is Kind.OTHER else PAYER
    soon = {Kind.UNANSWERED: SOON, Kind.BRIEF: 2 * SOON}
    lives = {Kind.EXPIRED: -1, **soon}.get(kind, LIVES)
    body = {
        "chain": "another" if kind is Kind.FOREIGN else CHAIN,
        "payer": payer, "nonce": get(f"/api/account?public_key={payer}")["next_nonce"],
        "provider": NOBODY if kind is Kind.UNANSWERED else "the toy",
        "prompt": f"Say {uuid.uuid4().hex}.", "expires": height + lives,
    }  # fmt: skip
    signature = _signature(b"another" if kind is Kind.FORGED else _dumped(body))
    ident = uuid.uuid4().hex
    raw = _dumped({"body": body, "signature": signature, "id": ident})
    call = {"jsonrpc": "2.0", "id": 1, "method": "broadcast_tx_sync",
            "params": {"tx": b64encode(raw).decode()}}  # fmt: skip
    return {
        "path": "/rpc", "body": call, "request_id": ident, "public_key": payer,
        "hash": hashlib.sha256(raw).hexdigest(), "prompt": body["prompt"],
        "cost": str(PRICE), "expires": body["expires"],
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[2] not in list(Kind):
        sys.exit(NOT_OFFERED)
    print(json.dumps(sign(sys.argv[1], Kind(sys.argv[2]), *sys.argv[3:])))
