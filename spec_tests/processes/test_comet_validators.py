"""Validators under CometBFT: they come by bond, are paid for commits, and lose bonds for fraud."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.chain.bonds import possession_message
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import application_id
from meshnode.domain.chain.errors import OwnProof
from spec_tests.domain.chain.net import CHAIN_ID, PROFILE, UNIT, Actor
from spec_tests.ports import free_port
from spec_tests.processes.comet.cluster import (
    Validator,
    cluster,
    missing,
    outcomes_of,
    require_one_chain,
    wait_until,
)
from spec_tests.processes.comet.jobs import PRICE, Inferences
from spec_tests.processes.comet.stream import nonce_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


def record(validator: Validator, key: str) -> dict[str, Any]:
    with sqlite3.connect(f"file:{validator.folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        (value,) = file.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    file.close()
    return dict(json.loads(value))


def keys_of(validator: Validator, prefix: str) -> list[str]:
    """The keys of the state that begin with a prefix."""
    with sqlite3.connect(f"file:{validator.folder / 'ledger.sqlite'}?mode=ro", uri=True) as file:
        found = file.execute("SELECT key FROM state WHERE key >= ?1 AND key < ?1 || '~'", (prefix,))
        keys = [str(key) for (key,) in found]
    file.close()
    return keys


def ask(by: Validator, who: Actor, kind: str, **fields: Json) -> tuple[str, str]:
    """The application id of a transaction, and why its check refused it, if it did."""
    common: dict[str, Json] = {"kind": kind, "chain_id": CHAIN_ID, "nonce": nonce_of(by, who)}
    body = {**common, **fields}
    raw = base64.b64encode(who.sign(body)).decode()
    return application_id(body, who.key), str(by.call("broadcast_tx_sync", tx=raw)["log"])


def send(by: Validator, who: Actor, kind: str, **fields: Json) -> str:
    """The application id of a transaction that is in a block."""
    nonce = nonce_of(by, who)
    name, refusal = ask(by, who, kind, **fields)
    assert not refusal
    wait_until(lambda: nonce_of(by, who) > nonce, f"{kind} in a block")
    return name


def payments(validator: Validator, reason: str) -> Iterator[tuple[int, str, int, str]]:
    """Height, account, amount and reference of the payments for a reason."""
    for height, outcome in outcomes_of(validator.folder):
        results = [effect for result in outcome["results"] for effect in result[6]]
        for account, amount, why, reference in (*outcome["effects"], *results):
            if why == reason:
                yield height, account, amount, reference


def signers(by: Validator, height: int) -> set[str]:
    """Addresses that signed a block's commit."""
    commit = by.call("commit", height=str(height))["signed_header"]["commit"]
    return {one["validator_address"] for one in commit["signatures"] if one["block_id_flag"] == 2}


def test_a_bond_above_a_third_makes_a_validator_which_judges_and_leaves(tmp_path: Path) -> None:
    patient = replace(PROFILE, proving=replace(PROFILE.proving, open_blocks=10_000))
    with cluster(tmp_path, 1, profile=patient) as this:
        (first,), owner = this.validators, this.actors[0]
        this.start(first)
        joining = Validator("joining", tmp_path / "joining", free_port())
        this.validators.append(joining)
        this.start(joining)
        this.wait_height(3)
        # Nobody but the first validator's owner could judge the first validator's work.
        send(first, first.owner, "stake", amount=5000, duration_days=1)
        work: dict[str, Json] = {"work_kind": "forward", "layer": 0, "statement": "ab" * 32}
        proof = send(first, first.owner, "prove", **work)
        vote: dict[str, Json] = {"proof_id": proof, "approve": True}
        _, refusal = ask(first, first.owner, "vote", consensus_key=first.key.public_key, **vote)
        assert refusal == str(OwnProof())
        amount, key = 8 * UNIT, joining.key
        message = possession_message(
            PROFILE.bond_domain, CHAIN_ID, owner.key, key.public_key, amount, 0
        )
        possession = key.sign(message).hex()
        bond: dict[str, Json] = {
            "consensus_key": key.public_key,
            "amount": amount,
            "possession": possession,
        }
        send(joining, owner, "bond", **bond)
        wait_until(lambda: key.address in signers(first, first.height()), "its signature")
        # Without its half of the power nothing is decided, so both take part.
        assert len(first.call("validators")["validators"]) == 2
        send(joining, owner, "vote", consensus_key=key.public_key, **vote)
        # The first validator learns of the block a moment later than the one that was told.
        wait_until(lambda: record(first, f"claim/{work['statement']}")["reward"] > 0, "its reward")
        send(first, owner, "unbond", consensus_key=key.public_key)
        wait_until(lambda: len(first.call("validators")["validators"]) == 1, "its leaving")
        this.stop(joining)
        this.wait_height(first.height() + 3, [first])
        this.stop(first)
        require_one_chain(this.validators)
        assert [one[1:4:2] for one in payments(first, "proof reward")] == [(first.owner.key, proof)]


def test_the_verifiers_that_committed_an_answer_are_paid_for_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 4) as this:
        *present, absent = this.validators
        for one in this.validators:
            this.start(one)
        this.wait_height(3)
        this.stop(absent)
        first, height = present[0], present[0].height()
        this.wait_height(height + 3, present)
        inferences = Inferences(this, random.Random(1))
        inferences.start()
        wait_until(lambda: "completed" in inferences.ended.values(), "a paid answer")
        inferences.stop()
        this.start(absent)
        this.wait_height(this.tip() + 2)
        for one in this.validators:
            assert this.stop(one) == 0, one.log()
        require_one_chain(this.validators)
        (answered, *_), budget = payments(first, "provider payment"), PRICE - PRICE * 4 // 5
        paid = [one for one in payments(first, "verifier reward") if one[0] == answered[0] + 1]
        # The absent one's quarter is burned.
        expected = {(one.owner.key, budget // 4, one.key.public_key) for one in present}
        assert {one[1:] for one in paid} == expected
        assert len(paid) == len(expected)


def test_two_votes_at_a_height_cost_a_quarter_of_the_bond(tmp_path: Path) -> None:
    with cluster(tmp_path, 4) as this:
        for one in this.validators:
            this.start(one)
        this.wait_height(3)
        offender, honest = this.validators[3], this.validators[:3]
        # A second engine with the same consensus key, which knows nothing of the first one's votes.
        twin = Validator(offender.name, tmp_path / "twin", free_port())
        this.start(twin, node_seed="ab" * 32)
        seen = 0

        def evidence() -> bool:
            nonlocal seen
            while seen < honest[0].height():
                seen += 1
                found = honest[0].call("block", height=str(seen))["block"]["evidence"]["evidence"]
                if found:
                    assert found[0]["type"] == "tendermint/DuplicateVoteEvidence"
                    return True
            return False

        wait_until(evidence, "evidence")
        wait_until(lambda: len(honest[0].call("validators")["validators"]) == 3, "the jailing")
        this.wait_height(honest[0].height() + 2, honest)
        assert twin.process is not None
        twin.process.kill()
        twin.process.wait()
        for one in honest:
            assert this.stop(one) == 0, one.log()
        require_one_chain(honest)
        # Until its power is gone, two blocks later, it can sign twice at other heights too.
        offences = keys_of(honest[0], "evidence/")
        assert offences
        assert all(f":{offender.key.address}:" in one for one in offences)
        left = 8 * UNIT
        for _ in offences:
            left -= -(-left // 4)
        bond = record(honest[0], f"validator/{offender.key.public_key}")
        assert (bond["status"], bond["amount"]) == ("jailed", left)
        assert record(honest[0], "supply")["burned"] == 8 * UNIT - left
