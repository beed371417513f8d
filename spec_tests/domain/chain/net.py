"""A small chain for tests: keys, a genesis, a model without weights, and signing clients.

``Net`` drives an application as an engine does, and asks it for nonces as a client would.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from meshnode.domain.chain.application import Application, Finalized
from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.bonds import Misbehaviour, possession_message
from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.comet.validators import validator_address
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import InvalidPrompt
from meshnode.domain.chain.genesis import Genesis, GenesisValidator
from meshnode.domain.chain.jobs import request_root
from meshnode.domain.chain.profile import Limits, NetworkProfile, Params, Proving, Staking
from meshnode.domain.chain.records import Job, Lease
from meshnode.domain.chain.statetree import MemoryStore
from meshnode.domain.identity import key_from_seed

CHAIN_ID = "test-chain-1"
UNIT = 250_000
SECOND = 1_000_000_000
DAY = 86_400 * SECOND

PROFILE = NetworkProfile(
    name="test",
    params=Params(
        activation_blocks=2,
        epoch_blocks=4,
        evidence_blocks=6,
        evidence_seconds=6,
        inference_blocks=8,
        lease_blocks=5,
        max_training_tasks=5,
    ),
    limits=Limits(pending_jobs=3, finished_jobs=4, cooldowns=2),
    staking=Staking(minimum=1000, shortest_days=1, longest_days=30, cooldown_days=2),
    proving=Proving(reward=10_000, penalty=1500, budget=25_000, open_blocks=4, open_proofs=3),
)
"""Every period is short, so that each rule applies within a few blocks."""


@dataclass(frozen=True)
class Actor:
    """A key holder; its account key and consensus key come from the same seed."""

    seed: str

    @cached_property
    def key(self) -> str:
        return key_from_seed(self.seed).public_key

    @cached_property
    def consensus(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.seed))

    @cached_property
    def consensus_key(self) -> str:
        return self.consensus.public_key().public_bytes_raw().hex()

    @property
    def address(self) -> str:
        return validator_address(self.consensus_key)

    def sign(self, body: dict[str, Json]) -> bytes:
        return encode(sign_envelope(body, self.seed))

    def possession(self, amount: int, nonce: int, chain_id: str = CHAIN_ID) -> str:
        message = possession_message(
            PROFILE.bond_domain, chain_id, self.key, self.consensus_key, amount, nonce
        )
        return self.consensus.sign(message).hex()


def actor(name: str) -> Actor:
    return Actor(hashlib.sha256(name.encode()).hexdigest())


VALIDATOR, SECOND_VALIDATOR = actor("validator"), actor("second validator")
ALICE, BOB, CAROL = actor("alice"), actor("bob"), actor("carol")
ROOT = digest({"adapter": 0})
LOSS = (4.0).hex()


def genesis(profile: NetworkProfile = PROFILE, **changes: Any) -> Genesis:
    start = Genesis(
        chain_id=CHAIN_ID,
        genesis_time="2026-01-01T00:00:00Z",
        model_root=ROOT,
        validation_loss_hex=LOSS,
        validators=(
            GenesisValidator(VALIDATOR.key, VALIDATOR.consensus_key, 8 * UNIT, 10_000_000),
        ),
        accounts=((ALICE.key, 5_000_000), (BOB.key, 3_000_000)),
        profile=profile,
    )
    return replace(start, **changes)


@dataclass
class FakeModel:
    """Gives answers that depend on the request only, and records the requests."""

    asked: list[str] = field(default_factory=list)

    def check_request(self, prompt: str, max_tokens: int) -> None:
        if len(prompt.split()) > 256:
            raise InvalidPrompt

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        self.asked.append(job_id)
        return answer_to(job.prompt, job.max_tokens, job.model_root)

    def train(self, lease: Lease) -> TrainingReplay:
        self.asked.append(lease.task_id)
        bodies = receipt_bodies(lease.task_id, lease.parent, lease.round)
        return TrainingReplay(
            result_root=next_root(lease.round),
            loss_hex=(3.5 - lease.round / 8).hex(),
            # Every other step makes the validation loss worse.
            validation_loss_hex=(4.0 - 0.25 * (lease.round % 2 == 0) - lease.round / 16).hex(),
            receipts=bodies,
        )

    def describe_task(self, round_number: int, model_root: str) -> dict[str, Json]:
        return {"input_ids": [round_number], "weights": {"root": model_root}}


def answer_to(prompt: str, max_tokens: int, model_root: str) -> dict[str, Json]:
    return {
        "text": prompt.upper(),
        "token_ids": [len(prompt), max_tokens],
        "model_root": model_root,
        "request_root": request_root(prompt, max_tokens),
    }


def next_root(round_number: int) -> str:
    return digest({"adapter": round_number + 1})


def receipt_bodies(task_id: str, parent: str, round_number: int) -> tuple[dict[str, Json], ...]:
    common: dict[str, Json] = {"task_id": task_id, "model_root": parent}
    second = {**common, "stage": 1, "result_root": next_root(round_number)}
    return ({**common, "stage": 0}, second)


class Net:
    """One application and the blocks that it has processed."""

    def __init__(self, start: Genesis | None = None) -> None:
        self.model = FakeModel()
        self.store = MemoryStore()
        self.app = Application(start or genesis(), self.store, self.model)
        self.blocks: list[Block] = []
        self.committers = frozenset({VALIDATOR.address})

    def body(self, who: Actor, kind: str, **fields: Json) -> dict[str, Json]:
        nonce = self.account(who)["nonce"]
        return {"kind": kind, "chain_id": CHAIN_ID, "nonce": nonce, **fields}

    def tx(self, who: Actor, kind: str, **fields: Json) -> bytes:
        return who.sign(self.body(who, kind, **fields))

    def block(
        self,
        transactions: Iterable[bytes] = (),
        seconds: int = 1,
        misbehaviour: tuple[Misbehaviour, ...] = (),
    ) -> Finalized:
        time_ns = self.app.time_ns + seconds * SECOND
        frame = BlockFrame(self.app.height + 1, time_ns, self.committers, misbehaviour)
        block = Block(frame, tuple(transactions))
        finalized = self.app.finalize(block)
        self.app.commit()
        self.blocks.append(block)
        return finalized

    def do(self, who: Actor, kind: str, **fields: Json) -> str:
        """Send one transaction in its own block; return its application id."""
        (result,) = self.block([self.tx(who, kind, **fields)]).results
        assert result.code == 0, result.log
        assert result.id is not None
        return result.id

    def refused(self, who: Actor, kind: str, **fields: Json) -> str:
        """Return why a transaction is refused, and check that its block is like an empty one."""
        raw = self.tx(who, kind, **fields)
        frame = BlockFrame(self.app.height + 1, self.app.time_ns + SECOND, self.committers)
        without = self.app.finalize(Block(frame)).app_hash
        finalized = self.block([raw])
        assert finalized.results[0].code == 1
        assert finalized.app_hash == without
        return finalized.results[0].log

    def skip(self, blocks: int, seconds: int = 1) -> None:
        for _ in range(blocks):
            self.block(seconds=seconds)

    def query(self, path: str, **options: Json) -> dict[str, Any]:
        result = self.app.query(path, encode(options))
        assert result.code == 0, result.log
        value: dict[str, Any] = json.loads(result.value)
        return value

    def account(self, who: Actor) -> dict[str, Any]:
        return self.query("/account", public_key=who.key)

    def infer(self, who: Actor, provider: Actor, /, **changes: Json) -> dict[str, Json]:
        """The fields of an inference request."""
        fields: dict[str, Json] = {
            "provider": provider.key,
            "model_root": self.query("/summary")["serving_root"],
            "request": {"prompt": "What is the capital of France?", "max_tokens": 8},
            "price": 8000,
            "expires": self.app.height + 4,
        }
        return {**fields, **changes}

    def result_root(self, job_id: str) -> str:
        job = self.query("/job", id=job_id)
        request = job["request"]
        return digest(answer_to(request["prompt"], request["max_tokens"], job["model_root"]))


FEE = PROFILE.params.fee
Body = dict[str, Json]


def balance(net: Net, who: Actor) -> int:
    """The atoms that an account may spend, without the locked ones."""
    return int(net.account(who)["balance"])
