"""The pure core of proofs: signed statements, the draw, checks without data (decision 0098)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import encode
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import key_from_seed
from meshnode.domain.proofs.drawing import chosen, drawn
from meshnode.domain.proofs.judging import (
    MAX_AGE_NS,
    MAX_SKEW_NS,
    Claimed,
    Terms,
    Verdict,
    judge_words,
    validate_gossiped,
)
from meshnode.domain.proofs.statements import (
    ForwardProof,
    Signed,
    Vote,
    WorkOrder,
    read_order,
    read_proof,
    read_vote,
    sign,
    sign_order,
    sign_proof,
    sign_vote,
    tensor_hash,
)
from spec_tests.domain.chain.net import ALICE, BOB, CAROL, Actor

NOW = 1_800_000_000 * 10**9
ORDER = WorkOrder(
    chain_id="chain-1",
    requester=ALICE.key,
    holder=key_from_seed(BOB.seed).node_id,
    request_id="request",
    model_hash="ab" * 32,
    first_layer=2,
    input_hash="cd" * 32,
    time_ns=NOW,
)
TEXT = sign_order(ORDER, key_from_seed(ALICE.seed))
TERMS = Terms("chain-1", frozenset({"ab" * 32}), 4)


def proof_by(who: Actor, order: WorkOrder = ORDER, orderer: Actor = ALICE) -> Signed:
    envelope = read_order(sign_order(order, key_from_seed(orderer.seed)))[1]
    return sign_proof(envelope, 3, "ef" * 32, NOW, key_from_seed(who.seed))


def claimed(**changes: Any) -> Claimed:
    fields: dict[str, Any] = {
        "proof_id": "12" * 32,
        "owner": BOB.key,
        "work_kind": "forward",
        "layer": 2,
        "statement": ORDER.claim,
        "created_ns": NOW,
        "expires": 100,
        **changes,
    }
    return Claimed(**fields)


def test_an_order_fits_metadata_and_is_read_back() -> None:
    order, envelope = read_order(TEXT)
    assert order == ORDER
    assert encode(envelope).decode() == TEXT
    assert len(TEXT) <= 1024
    assert TEXT.isprintable()


def test_a_proof_and_a_vote_are_read_back() -> None:
    signed = proof_by(BOB)
    proof = read_proof(signed)
    assert (proof.order, proof.prover, proof.layers) == (ORDER, BOB.key, range(2, 4))
    assert len(signed.body) < 2048
    vote = Vote(
        chain_id="chain-1",
        proof_id="12" * 32,
        claim=ORDER.claim,
        voter=CAROL.key,
        consensus_key="34" * 32,
        approve=False,
    )
    assert read_vote(sign_vote(vote, key_from_seed(CAROL.seed))) == vote


@given(st.data())
def test_whatever_is_altered_is_refused(data: st.DataObject) -> None:
    signed = proof_by(BOB)
    part = data.draw(st.sampled_from(["body", "public_key", "signature"]))
    raw = bytearray(getattr(signed, part))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidRequest):
        read_proof(replace(signed, **{part: bytes(raw)}))


@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_reason(noise: bytes) -> None:
    for read in (read_proof, read_vote):
        with pytest.raises(InvalidRequest):
            read(Signed(noise, noise, noise))
    with pytest.raises(InvalidRequest):
        read_order(noise.decode("latin-1"))


@pytest.mark.parametrize(
    "change",
    [
        {"domain": "meshnode/validation-vote/v1"},
        {"kind": "backward"},
        {"last_layer": 1},
        {"last_layer": True},
        {"last_layer": 4096},
        {"output_hash": "EF" * 32},
        {"time_ns": -1},
        {"more": 1},
        {"order": {}},
    ],
)
def test_a_signature_does_not_make_nonsense_a_proof(change: dict[str, Any]) -> None:
    envelope = read_order(TEXT)[1]
    body: dict[str, Any] = {
        "domain": "meshnode/forward-proof/v1",
        "kind": "forward",
        "order": envelope,
        "last_layer": 3,
        "output_hash": "ef" * 32,
        "time_ns": NOW,
    }
    key = key_from_seed(BOB.seed)
    assert read_proof(sign(body, key)).prover == BOB.key
    with pytest.raises(InvalidRequest):
        read_proof(sign({**body, **change}, key))


def test_another_form_of_the_same_statement_is_refused() -> None:
    signed = proof_by(BOB)
    with pytest.raises(InvalidRequest, match="canonical"):
        read_proof(replace(signed, body=signed.body + b" "))


def test_an_order_has_one_claim_whatever_is_signed_over_it() -> None:
    claims = {read_proof(proof_by(who)).order.claim for who in (BOB, CAROL)}
    assert claims == {ORDER.claim}
    assert replace(ORDER, request_id="other").claim != ORDER.claim
    assert replace(ORDER, requester=CAROL.key).claim != ORDER.claim


def test_the_hash_of_a_tensor_tells_shapes_apart() -> None:
    assert tensor_hash([1, 4], b"abcd") != tensor_hash([4, 1], b"abcd")
    assert tensor_hash([1, 4], b"abcd") == tensor_hash((1, 4), b"abcd")


def proof_of(**changes: Any) -> ForwardProof:
    return replace(read_proof(proof_by(BOB)), **changes)


@pytest.mark.parametrize(
    ("proof", "entry", "reason"),
    [
        (proof_of(order=replace(ORDER, chain_id="other")), claimed(), "another chain"),
        (proof_of(order=replace(ORDER, model_hash="00" * 32)), claimed(), "another model"),
        (proof_of(last_layer=4), claimed(), "beyond the model"),
        (proof_of(), None, "no such open proof"),
        (proof_of(prover=CAROL.key), claimed(), "neither by the claimant"),
    ],
)
def test_what_is_not_passed_on(proof: ForwardProof, entry: Claimed | None, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        validate_gossiped(proof, entry, TERMS)


@pytest.mark.parametrize(
    ("proof", "entry", "verdict"),
    [
        (proof_of(), claimed(owner=CAROL.key), Verdict.REFUSE),
        (proof_of(prover=CAROL.key), claimed(), Verdict.ABSTAIN),
        (proof_of(order=replace(ORDER, requester=BOB.key)), claimed(), Verdict.REFUSE),
        (proof_of(), claimed(layer=1), Verdict.REFUSE),
        (proof_of(), claimed(work_kind="training"), Verdict.REFUSE),
        (proof_of(), claimed(created_ns=NOW + MAX_AGE_NS + 1), Verdict.ABSTAIN),
        (proof_of(), claimed(created_ns=NOW - MAX_SKEW_NS - 1), Verdict.ABSTAIN),
    ],
)
def test_what_words_alone_decide(proof: ForwardProof, entry: Claimed, verdict: Verdict) -> None:
    judgement = judge_words(proof, entry)
    assert judgement is not None
    assert judgement.verdict is verdict
    assert judgement.reason


def test_an_honest_proof_has_to_be_computed_again() -> None:
    validate_gossiped(proof_of(), claimed(), TERMS)
    assert judge_words(proof_of(), claimed()) is None


POWERS = st.dictionaries(st.text("0123456789abcdef", min_size=1), st.integers(0, 10**9), max_size=9)
IDS = st.binary(min_size=32, max_size=32)


@given(IDS, IDS, POWERS, st.randoms())
def test_the_draw_has_everybody_with_power_once_in_one_order(
    name: bytes, block: bytes, powers: dict[str, int], random: Any
) -> None:
    order = drawn(name.hex(), block, powers)
    assert sorted(order) == sorted(key for key, power in powers.items() if power)
    shuffled = list(powers.items())
    random.shuffle(shuffled)
    assert drawn(name.hex(), block, dict(shuffled)) == order


@given(IDS, IDS, POWERS)
def test_the_chosen_have_just_over_two_thirds_of_the_power(
    name: bytes, block: bytes, powers: dict[str, int]
) -> None:
    first, total = chosen(name.hex(), block, powers), sum(powers.values())
    assert first == drawn(name.hex(), block, powers)[: len(first)]
    if total:
        assert 3 * sum(powers[key] for key in first) > 2 * total
        assert 3 * sum(powers[key] for key in first[:-1]) <= 2 * total


def test_the_draw_goes_by_power_and_depends_on_proof_and_block() -> None:
    powers = {"a": 900, "b": 50, "c": 50}
    firsts = [drawn(number.to_bytes(32).hex(), b"block", powers)[0] for number in range(1000)]
    assert 850 < firsts.count("a") < 950
    orders = {tuple(drawn("00" * 32, block.to_bytes(), powers)) for block in range(100)}
    assert len(orders) > 1
