"""A second, simple implementation of the ledger's rules, for comparison with the real one.

It differs from the real one on purpose: it copies the whole state for every transaction, sums
instead of keeping running totals, scans instead of keeping schedules, and pays out cooldowns in the
block in which they end. It sees decoded fields, never bytes or signatures.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from spec_tests.domain.chain.net import DAY, PROFILE, ROOT, SECOND, UNIT, next_root

P, L, S, V = PROFILE.params, PROFILE.limits, PROFILE.staking, PROFILE.proving


class No(Exception):
    """The transaction is refused."""


def need(condition: bool) -> None:
    if not condition:
        raise No


@dataclass
class World:
    """The whole state of the ledger."""

    liquid: dict[str, int]
    bonds: dict[str, dict[str, Any]]
    height: int = 0
    time: int = 0
    nonce: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: list[tuple[str, str]] = field(default_factory=list)
    stakes: dict[str, dict[str, Any]] = field(default_factory=dict)
    cooling: list[tuple[str, int, int]] = field(default_factory=list)
    proofs: dict[str, dict[str, Any]] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    proof_paid: int = 0
    lease: dict[str, Any] | None = None
    round: int = 0
    owed: tuple[int, dict[str, int]] = (0, {})
    burned: int = 0
    issued: int = 0
    root: str = ROOT
    serving: str = ROOT
    best: float = 4.0

    def locked(self, who: str) -> int:
        return sum(int(job["price"]) for job in self.jobs.values() if job["owner"] == who)

    def available(self, who: str) -> int:
        return self.liquid.get(who, 0) - self.locked(who)

    def powers(self, height: int) -> dict[str, int]:
        result = {}
        for key, bond in self.bonds.items():
            power = 0
            for start, value in bond["history"]:
                if start <= height:
                    power = value
            if power:
                result[key] = power
        return result

    def total(self) -> int:
        """The sum of all atoms, burned ones included."""
        return int(
            sum(self.liquid.values())
            + sum(bond["amount"] for bond in self.bonds.values())
            + sum(stake["amount"] for stake in self.stakes.values())
            + sum(amount for _, amount, _ in self.cooling)
            + (self.lease["escrow"] if self.lease else 0)
            + self.owed[0]
            + self.burned
        )

    def spend(self, who: str, amount: int) -> None:
        need(self.available(who) >= amount)
        self.liquid[who] = self.liquid.get(who, 0) - amount

    def gain(self, who: str, amount: int) -> None:
        self.liquid[who] = self.liquid.get(who, 0) + amount

    def owe(self, budget: int) -> None:
        self.owed = (self.owed[0] + budget, self.powers(self.height))

    def punish(self, who: str, left: int) -> None:
        """Burn up to ``left`` atoms: first from the stake, then from cooldowns, latest first."""
        if who in self.stakes:
            taken = min(left, self.stakes[who]["amount"])
            self.stakes[who]["amount"] -= taken
            self.burned += taken
            left -= taken
        for place in reversed(range(len(self.cooling))):
            owner, amount, available = self.cooling[place]
            if owner == who:
                taken = min(left, amount)
                self.cooling[place] = (owner, amount - taken, available)
                self.burned += taken
                left -= taken


class Reference:
    """Applies blocks and transactions to a :class:`World`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def begin(self, seconds: int, committers: set[str]) -> None:
        w = self.world
        w.height += 1
        w.time += seconds * SECOND
        budget, powers = w.owed
        if powers:
            shares = {
                key: budget * power // sum(powers.values())
                for key, power in powers.items()
                if key in committers
            }
            for key, share in shares.items():
                w.gain(w.bonds[key]["owner"], share)
            w.burned += budget - sum(shares.values())
            w.owed = (0, {})
        for bond in w.bonds.values():
            self._membership(bond)
        if w.lease and w.height > w.lease["expires"]:
            w.burned += w.lease["escrow"]
            w.lease = None
        over = [(job["expires"], name) for name, job in w.jobs.items() if w.height > job["expires"]]
        for _, name in sorted(over):
            del w.jobs[name]
            w.ended.append((name, "expired"))
        for name, proof in list(w.proofs.items()):
            if w.height > proof["expires"]:
                w.claimed.discard(proof["statement"])
                del w.proofs[name]
        for who, amount, ready in [entry for entry in w.cooling if entry[2] <= w.time]:
            w.cooling.remove((who, amount, ready))
            w.gain(who, amount)

    def _membership(self, bond: dict[str, Any]) -> None:
        w = self.world
        if bond["emit"] == w.height:
            bond["emit"] = None
            if bond["status"] == "pending":
                bond["status"] = "active"
                bond["history"].append((w.height + 2, bond["amount"] // UNIT))
            else:
                bond["status"] = "cooldown"
                bond["history"].append((w.height + 2, 0))
                bond["removed"] = w.height + 2
        if bond["removed"] == w.height:
            bond["release"] = (
                w.height + P.evidence_blocks,
                w.time + P.evidence_seconds * SECOND,
            )

    def apply(self, who: str, kind: str, name: str, nonce: int, fields: dict[str, Any]) -> bool:
        """Apply a transaction; False if it is refused. ``name`` is its application id."""
        before = copy.deepcopy(self.world)
        try:
            need(nonce == self.world.nonce.get(who, 0))
            if kind not in ("respond", "vote"):
                self.world.spend(who, P.fee)
                self.world.burned += P.fee
            getattr(self, kind)(who, name, nonce, fields)
        except No:
            self.world = before
            return False
        self.world.nonce[who] = nonce + 1
        return True

    def transfer(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        need(f["amount"] >= 1)
        self.world.spend(who, f["amount"])
        self.world.gain(f["to"], f["amount"])

    def infer(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, tokens, prompt = self.world, f["request"]["max_tokens"], f["request"]["prompt"]
        need(1 <= tokens <= L.output_tokens and 1 <= len(prompt.encode()) <= L.prompt_bytes)
        need(f["price"] >= tokens * P.inference_token_price)
        need(w.height + 2 <= f["expires"] <= w.height + P.inference_blocks)
        need(f["model_root"] == w.serving and len(w.jobs) < L.pending_jobs)
        need(w.available(who) >= f["price"])
        w.jobs[name] = {"owner": who, **f}

    def respond(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, job = self.world, self.world.jobs.get(f["job_id"])
        need(job is not None and job["provider"] == who and f["right"])
        assert job is not None
        del w.jobs[f["job_id"]]
        paid = math.floor(Fraction(job["price"]) * Fraction(4, 5))
        w.spend(job["owner"], job["price"])
        w.gain(who, paid)
        w.owe(job["price"] - paid)
        w.ended.append((f["job_id"], "completed"))

    def stake(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w = self.world
        stake = w.stakes.setdefault(who, {"amount": 0, "unlock": 0})
        need(S.shortest_days <= f["duration_days"] <= S.longest_days)
        need(f["amount"] >= 1 and stake["amount"] + f["amount"] >= S.minimum)
        w.spend(who, f["amount"])
        unlock = w.time + f["duration_days"] * DAY
        stake["unlock"] = max(unlock, stake["unlock"]) if stake["amount"] else unlock
        stake["amount"] += f["amount"]

    def unstake(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w = self.world
        stake = w.stakes.get(who, {"amount": 0, "unlock": 0})
        need(1 <= f["amount"] <= stake["amount"] and w.time >= stake["unlock"])
        need(sum(owner == who for owner, _, _ in w.cooling) < L.cooldowns)
        left = stake["amount"] - f["amount"]
        need(left == 0 or left >= S.minimum)
        stake["amount"] = left
        w.cooling.append((who, f["amount"], w.time + S.cooldown_days * DAY))

    def bond(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w = self.world
        need(f["amount"] >= UNIT and f["amount"] % UNIT == 0)
        need(f["consensus_key"] not in w.bonds and f["agreed"])
        w.spend(who, f["amount"])
        emit = math.ceil(Fraction(w.height + P.activation_blocks, P.epoch_blocks)) * P.epoch_blocks
        w.bonds[f["consensus_key"]] = {
            "owner": who,
            "amount": f["amount"],
            "status": "pending",
            "history": [],
            "emit": emit,
            "removed": None,
            "release": None,
        }

    def unbond(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, bond = self.world, self.world.bonds.get(f["consensus_key"])
        need(bond is not None and bond["owner"] == who and bond["status"] == "active")
        assert bond is not None
        need(sum(other["status"] == "active" for other in w.bonds.values()) > 1)
        bond["status"] = "leaving"
        bond["emit"] = math.ceil(Fraction(w.height + 1, P.epoch_blocks)) * P.epoch_blocks

    def withdraw(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, bond = self.world, self.world.bonds.get(f["consensus_key"])
        need(bond is not None and bond["owner"] == who and bond["status"] == "cooldown")
        assert bond is not None
        need(bond["release"] is not None)
        need(w.height >= bond["release"][0] and w.time > bond["release"][1])
        w.gain(who, bond["amount"])
        bond["amount"], bond["status"] = 0, "withdrawn"

    def reserve(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w = self.world
        need(w.lease is None and f["parent"] == w.root and f["round"] == w.round)
        need(w.round < P.max_training_tasks)
        w.spend(who, P.reservation_bond)
        w.lease = {
            "id": name,
            "owner": who,
            "workers": f["workers"],
            "escrow": P.reservation_bond,
            "expires": w.height + P.lease_blocks,
        }

    def submit(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, lease = self.world, self.world.lease
        need(lease is not None and lease["owner"] == who and lease["id"] == f["task_id"])
        assert lease is not None
        need(f["right"])
        w.lease = None
        w.gain(who, lease["escrow"])
        for worker in lease["workers"]:
            w.gain(worker, P.worker_budget // 2)
        w.issued += P.task_budget
        w.owe(P.task_budget - P.worker_budget)
        w.root = next_root(w.round)
        loss = 4.0 - 0.25 * (w.round % 2 == 0) - w.round / 16
        if loss < w.best:
            w.best, w.serving = loss, w.root
        w.round += 1

    def prove(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w = self.world
        need(f["statement"] not in w.claimed and len(w.proofs) < V.open_proofs)
        mine = sum(proof["owner"] == who for proof in w.proofs.values())
        need(w.stakes.get(who, {"amount": 0})["amount"] >= V.penalty * (mine + 1))
        w.claimed.add(f["statement"])
        expires = w.height + V.open_blocks
        w.proofs[name] = {"owner": who, "expires": expires, "votes": {}, **f}

    def vote(self, who: str, name: str, nonce: int, f: dict[str, Any]) -> None:
        w, proof, key = self.world, self.world.proofs.get(f["proof_id"]), f["consensus_key"]
        powers = w.powers(w.height)
        need(proof is not None and key in powers and w.bonds[key]["owner"] == who)
        assert proof is not None
        need(proof["owner"] != who and key not in proof["votes"])
        powers = {k: n for k, n in powers.items() if w.bonds[k]["owner"] != proof["owner"]}
        proof["votes"][key] = f["approve"]
        for_it = sum(powers.get(k, 0) for k, yes in proof["votes"].items() if yes)
        against = sum(powers.get(k, 0) for k, yes in proof["votes"].items() if not yes)
        if Fraction(for_it, sum(powers.values())) > Fraction(2, 3):
            staked = w.stakes.get(proof["owner"], {"amount": 0})["amount"]
            multiplier = 1 + math.log2(1 + staked / P.atom_scale / 1000) / 10
            reward = min(math.floor(V.reward * multiplier), V.budget - w.proof_paid)
            w.proof_paid += reward
            w.issued += reward
            w.gain(proof["owner"], reward)
            del w.proofs[f["proof_id"]]
        elif Fraction(against, sum(powers.values())) >= Fraction(1, 3):
            w.claimed.discard(proof["statement"])
            del w.proofs[f["proof_id"]]
            w.punish(proof["owner"], V.penalty)
