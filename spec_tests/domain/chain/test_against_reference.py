"""Compares the ledger with a plain reference, over random histories (design: property list).

After every block: money is conserved and never negative, what is locked equals the pending budgets,
a job ends once and nothing is pending past its expiry, nonces count accepted transactions, and
balances, jobs, stakes, bonds, lease and supply are those of the reference.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.codec import decode_record
from meshnode.domain.chain.envelope import (
    application_id,
    sign_envelope,
    transaction_hash,
)
from meshnode.domain.chain.records import (
    Account,
    Record,
    Stake,
    Supply,
    Validator,
)
from meshnode.domain.chain.statetree import StateTree
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    CHAIN_ID,
    PROFILE,
    SECOND_VALIDATOR,
    UNIT,
    VALIDATOR,
    Actor,
    Net,
    answer_to,
    genesis,
    next_root,
    receipt_bodies,
)
from spec_tests.domain.chain.reference import Reference, World

ACTORS = {who.key: who for who in (ALICE, BOB, CAROL, VALIDATOR, SECOND_VALIDATOR)}
actors = st.sampled_from(list(ACTORS.values()))
spenders = st.sampled_from([ALICE, BOB])
amounts = st.one_of(st.integers(1, 20_000), st.integers(1, 4_000_000), st.integers(0, 2**60))
nonce_slips = st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, -1])
Body = dict[str, Json]


class Ledger(RuleBasedStateMachine):
    """Rules queue transactions; ``end_block`` runs them through both."""

    @initialize(block_size=st.integers(1, 4))
    def start(self, block_size: int) -> None:
        self.block_size = block_size
        start = genesis()
        self.net = Net(start)
        liquid = dict(start.accounts) | {VALIDATOR.key: start.validators[0].liquid}
        bond = {
            "owner": VALIDATOR.key,
            "amount": start.validators[0].bond,
            "status": "active",
            "history": [(1, start.validators[0].bond // UNIT)],
            "emit": None,
            "removed": None,
            "release": None,
        }
        self.reference = Reference(World(liquid, {VALIDATOR.consensus_key: bond}))
        self.created = self.reference.world.total()
        self.queue: list[tuple[bytes, tuple[str, str, str, int, dict[str, Any]] | None]] = []
        self.accepted: list[bytes] = []
        self.ids: set[str] = set()

    def send(self, who: Actor, kind: str, fields: Body, slip: int = 0, **known: Any) -> str:
        world = self.reference.world
        queued = sum(entry is not None and entry[0] == who.key for _, entry in self.queue)
        nonce = max(0, world.nonce.get(who.key, 0) + queued + slip)
        body = {"kind": kind, "chain_id": CHAIN_ID, "nonce": nonce, **fields}
        name = application_id(body, who.key)
        self.queue.append((who.sign(body), (who.key, kind, name, nonce, {**fields, **known})))
        # Blocks are short, since one failing transaction makes the sender's later nonces wrong.
        if len(self.queue) >= self.block_size:
            self.end_block(1)
        return name

    @rule(
        who=actors,
        to=actors,
        amount=amounts,
        slip=nonce_slips,
        near=st.none() | st.integers(-1, 1) | st.integers(0, 100_000),
    )
    def transfer(self, who: Actor, to: Actor, amount: int, slip: int, near: int | None) -> None:
        if near is not None:
            # About the available amount; slightly more may exist but be locked.
            amount = max(0, self.reference.world.available(who.key) - PROFILE.params.fee + near)
        self.send(who, "transfer", {"to": to.key, "amount": amount}, slip)

    @rule(
        who=spenders,
        provider=actors,
        tokens=st.integers(1, 64) | st.integers(0, 70),
        extra=st.integers(0, 5000) | st.integers(-1, 5) | st.integers(0, 1_000_000),
        life=st.integers(2, 8) | st.integers(0, 10),
        prompt=st.text(min_size=1, max_size=8) | st.text(max_size=700),
        answered=st.booleans(),
    )
    def infer(
        self,
        who: Actor,
        provider: Actor,
        tokens: int,
        extra: int,
        life: int,
        prompt: str,
        answered: bool,
    ) -> None:
        world = self.reference.world
        fields: Body = {
            "provider": provider.key,
            "model_root": world.serving,
            "request": {"prompt": prompt, "max_tokens": tokens},
            "price": tokens * PROFILE.params.inference_token_price + extra,
            "expires": world.height + 1 + life,
        }
        name = self.send(who, "infer", fields)
        if answered:
            self.end_block(1)
            if name in self.reference.world.jobs:
                self.answer(name, True, None)

    @precondition(lambda self: self.reference.world.jobs)
    @rule(
        data=st.data(), right=st.sampled_from([True, True, True, False]), other=st.none() | actors
    )
    def respond(self, data: st.DataObject, right: bool, other: Actor | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.reference.world.jobs)))
        self.answer(name, right, other)

    def answer(self, name: str, right: bool, other: Actor | None) -> None:
        job = self.reference.world.jobs[name]
        request = job["request"]
        output = answer_to(request["prompt"], request["max_tokens"], job["model_root"])
        root = digest(output if right else {**output, "text": "wrong"})
        fields: Body = {"job_id": name, "result_root": root}
        self.send(other or ACTORS[job["provider"]], "respond", fields, right=right)

    @rule(who=spenders, amount=amounts, days=st.integers(1, 30) | st.integers(0, 31))
    def stake(self, who: Actor, amount: int, days: int) -> None:
        self.send(who, "stake", {"amount": amount, "duration_days": days})

    @precondition(lambda self: any(s["amount"] for s in self.reference.world.stakes.values()))
    @rule(data=st.data(), patient=st.booleans())
    def unstake(self, data: st.DataObject, patient: bool) -> None:
        stakes = self.reference.world.stakes
        who = ACTORS[data.draw(st.sampled_from(sorted(stakes)))]
        held = stakes[who.key]["amount"]
        amount = data.draw(st.just(held) | st.integers(0, held + 1))
        if patient:
            self.end_block(31 * 86_400)
        self.send(who, "unstake", {"amount": amount})

    @rule(
        who=spenders,
        units=st.integers(1, 9) | st.integers(0, 9),
        off=st.sampled_from([0, 0, 0, 1]),
        patience=st.sampled_from([0, 10]),
    )
    def bond(self, who: Actor, units: int, off: int, patience: int) -> None:
        amount = units * UNIT + off
        queued = sum(entry is not None and entry[0] == who.key for _, entry in self.queue)
        nonce = self.reference.world.nonce.get(who.key, 0) + queued
        fields: Body = {
            "consensus_key": who.consensus_key,
            "amount": amount,
            "possession": who.possession(amount, nonce),
        }
        self.send(who, "bond", fields, agreed=True)
        for _ in range(patience):
            self.end_block(1)

    @rule(
        who=st.sampled_from([VALIDATOR, ALICE, BOB]),
        owner=st.none() | actors,
        kind=st.sampled_from(["unbond", "withdraw"]),
        patience=st.sampled_from([0, 6, 12]),
    )
    def leave(self, who: Actor, owner: Actor | None, kind: str, patience: int) -> None:
        for _ in range(patience):
            self.end_block(1)
        self.send(owner or who, kind, {"consensus_key": who.consensus_key})

    @rule(
        who=st.sampled_from([VALIDATOR, BOB]), workers=st.tuples(actors, actors), done=st.booleans()
    )
    def reserve(self, who: Actor, workers: tuple[Actor, Actor], done: bool) -> None:
        world = self.reference.world
        fields: Body = {
            "task_kind": "train",
            "parent": world.root,
            "round": world.round,
            "workers": [worker.key for worker in workers],
            "request": {},
            "price": 0,
        }
        self.send(who, "reserve", fields)
        if done:
            self.end_block(1)
            if self.reference.world.lease:
                self.submit(True)

    @precondition(lambda self: self.reference.world.lease)
    @rule(right=st.sampled_from([True, True, False]))
    def submit(self, right: bool) -> None:
        world = self.reference.world
        assert world.lease is not None
        bodies = receipt_bodies(world.lease["id"], world.root, world.round)
        signers = [ACTORS[key] for key in world.lease["workers"]]
        if not right:
            signers = [CAROL if signer != CAROL else BOB for signer in signers]
        receipts: list[Json] = [
            sign_envelope(body, signer.seed) for body, signer in zip(bodies, signers, strict=True)
        ]
        fields: Body = {
            "task_id": world.lease["id"],
            "result_root": next_root(world.round),
            "receipts": receipts,
        }
        self.send(ACTORS[world.lease["owner"]], "submit", fields, right=right)

    @rule(who=spenders, number=st.integers(0, 9), approve=st.booleans())
    def prove(self, who: Actor, number: int, approve: bool) -> None:
        fields: Body = {"work_kind": "forward", "layer": number, "statement": digest(number)}
        name = self.send(who, "prove", fields)
        if approve:
            self.end_block(1)
            vote: Body = {
                "proof_id": name,
                "consensus_key": VALIDATOR.consensus_key,
                "approve": True,
            }
            self.send(VALIDATOR, "vote", vote)

    @precondition(lambda self: self.reference.world.proofs)
    @rule(data=st.data(), who=st.sampled_from([VALIDATOR, ALICE, BOB]), approve=st.booleans())
    def vote(self, data: st.DataObject, who: Actor, approve: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.reference.world.proofs)))
        fields: Body = {"proof_id": name, "consensus_key": who.consensus_key, "approve": approve}
        self.send(who, "vote", fields)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """Send an accepted transaction again, or reformatted: it must be refused."""
        raw = data.draw(st.sampled_from(self.accepted))
        self.queue.append((data.draw(st.sampled_from([raw, raw + b" "])), None))

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def flip(self, data: st.DataObject) -> None:
        """Send an accepted transaction with one byte changed: it must be refused."""
        raw = bytearray(data.draw(st.sampled_from(self.accepted)))
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))
        self.queue.append((bytes(raw), None))

    @rule(junk=st.binary(max_size=64))
    def garbage(self, junk: bytes) -> None:
        self.queue.append((junk, None))

    @rule(seconds=st.sampled_from([0, 1, 5, 86_400, 3 * 86_400, 31 * 86_400, 31 * 86_400]))
    def end_block(self, seconds: int) -> None:
        world = self.reference.world
        powers = world.powers(world.height)
        signers = {who.address for who in ACTORS.values() if who.consensus_key in powers}
        self.net.committers = frozenset(signers)
        finalized = self.net.block([raw for raw, _ in self.queue], seconds)
        self.reference.begin(seconds, set(powers))
        for (raw, entry), result in zip(self.queue, finalized.results, strict=True):
            expected = entry is not None and self.reference.apply(*entry)
            assert (result.code == 0) == expected, (entry, result)
            assert result.hash == transaction_hash(raw)
            if expected:
                assert entry is not None
                assert result.id == entry[2]
                # An application id is never the hash of the bytes, and never used twice.
                assert result.id.upper() != result.hash
                assert result.id not in self.ids
                self.ids.add(result.id)
                self.accepted.append(raw)
        self.queue.clear()

    @rule(blocks=st.integers(1, 9))
    def pass_time(self, blocks: int) -> None:
        self.end_block(1)
        for _ in range(blocks):
            self.end_block(1)

    def records(self, kind: type[Record]) -> dict[str, Any]:
        entries = self.net.store.entries().items()
        prefix = kind.table + "/"
        return {
            key.removeprefix(prefix): decode_record(key, value)
            for key, value in entries
            if key.startswith(prefix) or key == kind.table
        }

    @invariant()
    def money_is_conserved(self) -> None:
        records = [decode_record(key, value) for key, value in self.net.store.entries().items()]
        (supply,) = (record for record in records if isinstance(record, Supply))
        others = [record.money for record in records if not isinstance(record, Supply)]
        assert all(money >= 0 for money in others)
        assert sum(others) + supply.burned == supply.initial + supply.issued
        world = self.reference.world
        assert world.total() == self.created + world.issued
        assert (supply.burned, supply.issued) == (world.burned, world.issued)

    @invariant()
    def accounts_agree(self) -> None:
        world = self.reference.world
        for key, who in ACTORS.items():
            account = self.net.account(who)
            assert account["balance"] == world.available(key)
            assert account["locked"] == world.locked(key)
            assert account["total"] == world.liquid.get(key, 0)
            assert account["nonce"] == world.nonce.get(key, 0)
        stored = self.records(Account)
        assert self.net.query("/summary")["account_count"] == len(stored)
        pending = sum(job["price"] for job in world.jobs.values())
        assert sum(account.locked for account in stored.values()) == pending

    @invariant()
    def jobs_agree(self) -> None:
        world, net = self.reference.world, self.net
        for name, job in world.jobs.items():
            assert job["expires"] >= world.height
            assert net.query("/job", id=name)["status"] == "pending"
        assert net.query("/summary")["pending_inference"] == len(world.jobs)
        # Each job ended once, and the latest ended jobs are kept.
        names = [name for name, _ in world.ended]
        assert len(set(names)) == len(names)
        kept = world.ended[-PROFILE.limits.finished_jobs :]
        for name, status in kept:
            assert net.query("/job", id=name)["status"] == status
        for name in names[: -PROFILE.limits.finished_jobs]:
            assert "inspect its native blocks" in net.app.query("/job", encode({"id": name})).log

    @invariant()
    def holdings_agree(self) -> None:
        world = self.reference.world
        held = {key: stake for key, stake in self.records(Stake).items() if stake.amount}
        assert {key: (stake.amount, stake.unlock_ns) for key, stake in held.items()} == {
            k: (s["amount"], s["unlock"]) for k, s in world.stakes.items() if s["amount"]
        }
        bonds = {k: (v.amount, v.status) for k, v in self.records(Validator).items()}
        assert bonds == {k: (b["amount"], b["status"]) for k, b in world.bonds.items()}
        summary = self.net.query("/summary")
        assert summary["total_voting_power"] == sum(world.powers(world.height).values())
        assert (summary["round"], summary["model_root"]) == (world.round, world.root)
        assert summary["serving_root"] == world.serving
        assert (summary["lease"] or {}).get("task_id") == (world.lease or {}).get("id")

    def teardown(self) -> None:
        """The root after updates block by block equals that of a tree rebuilt from the entries."""
        if hasattr(self, "net"):
            tree = StateTree()
            tree.rebuild(self.net.store)
            assert tree.root == self.net.app.app_hash


TestLedger = Ledger.TestCase
TestLedger.settings = settings(stateful_step_count=40)
