"""Envelopes: the signer, the two identifiers, and the accepted forms of a signature."""

import hashlib
from typing import Any

import pytest
from coincurve import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.envelope import (
    CURVE_ORDER,
    Envelope,
    account_key,
    application_id,
    decode_transaction,
    open_envelope,
    sign_envelope,
    transaction_hash,
)
from meshnode.domain.chain.errors import (
    InvalidEnvelope,
    InvalidPublicKey,
    InvalidSignature,
    InvalidSignatureEncoding,
    NumberOutOfRange,
    Rejected,
    TransactionTooLarge,
)
from spec_tests.domain.chain.net import ALICE, BOB

BODY: dict[str, Json] = {"kind": "transfer", "note": "é", "nonce": 0}
SIGNED = sign_envelope(BODY, ALICE.seed)
RAW = encode(SIGNED)


def decode(raw: bytes) -> Envelope:
    return decode_transaction(raw, 16_384, 32)


def with_signature(signature: str) -> dict[str, Json]:
    return {**SIGNED, "signature": signature}


def integers_of(signature: str) -> tuple[int, int]:
    data = bytes.fromhex(signature)
    end = 4 + data[3]
    return int.from_bytes(data[4:end]), int.from_bytes(data[end + 2 :])


def der(r: int, s: int, pad: bytes = b"") -> str:
    def one(number: int) -> bytes:
        content = pad + number.to_bytes(number.bit_length() // 8 + 1)
        return bytes([2, len(content)]) + content

    both = one(r) + one(s)
    return (bytes([0x30, len(both)]) + both).hex()


def test_an_envelope_names_its_signer_and_both_identifiers() -> None:
    envelope = decode(RAW)
    assert (envelope.signer, envelope.body) == (ALICE.key, BODY)
    assert envelope.id == application_id(BODY, ALICE.key)
    assert transaction_hash(RAW) == hashlib.sha256(RAW).hexdigest().upper()
    assert envelope.id.upper() != transaction_hash(RAW)


def test_the_application_id_is_stable_under_signing_again() -> None:
    private = PrivateKey(hashlib.sha256(ALICE.seed.encode()).digest())
    ids, hashes = set(), set()
    for number in range(8):
        # Another secret nonce gives another signature of the same body.
        nonce = hashlib.sha256(bytes([number])).digest()
        raw = encode(with_signature(sign_with(private, nonce)))
        ids.add(decode(raw).id)
        hashes.add(transaction_hash(raw))
    assert len(ids) == 1
    assert len(hashes) == 8


def sign_with(private: PrivateKey, nonce: bytes) -> str:
    """Textbook ECDSA with a chosen nonce."""
    k = int.from_bytes(nonce) % CURVE_ORDER
    point = PrivateKey.from_int(k).public_key.point()
    r = point[0] % CURVE_ORDER
    z = int.from_bytes(hashlib.sha256(encode(BODY)).digest())
    s = pow(k, -1, CURVE_ORDER) * (z + r * private.to_int()) % CURVE_ORDER
    return der(r, s)


def test_both_halves_of_the_curve_sign() -> None:
    r, s = integers_of(str(SIGNED["signature"]))
    high = with_signature(der(r, CURVE_ORDER - s))
    assert open_envelope(high).id == open_envelope(SIGNED).id


def test_bytes_need_not_be_canonical() -> None:
    loose = (
        b' {"signature":"%s",\n"public_key":"%s",'
        b'"body":{"nonce":0,"note":"\xc3\xa9","kind":"transfer"}}'
    )
    raw = loose % (str(SIGNED["signature"]).encode(), ALICE.key.encode())
    assert decode(raw).id == decode(RAW).id


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**SIGNED, "extra": 1},
        {k: v for k, v in SIGNED.items() if k != "signature"},
        {**SIGNED, "body": []},
        {**SIGNED, "signature": 7},
    ],
)
def test_an_envelope_has_three_members(value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        open_envelope(value)


@pytest.mark.parametrize(
    "key",
    [
        None,
        7,
        [],
        {},
        "",
        ALICE.key.upper(),
        ALICE.key[:-2],
        ALICE.key + "00",
        "04" + ALICE.key[2:],
        "02" + "f" * 64,
        "02" + "0" * 64,
        " " + ALICE.key[1:],
        ALICE.key[:-1] + "\u0661",
    ],
)
def test_an_account_has_one_name(key: Any) -> None:
    with pytest.raises(InvalidPublicKey):
        account_key(key)
    with pytest.raises(InvalidPublicKey):
        open_envelope({**SIGNED, "public_key": key})


R, S = integers_of(str(SIGNED["signature"]))


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "30",
        "zz",
        str(SIGNED["signature"]).upper(),
        str(SIGNED["signature"]) + "00",
        str(SIGNED["signature"])[:-2],
        " " + str(SIGNED["signature"]),
        "3" * 162,
        der(R, S, pad=b"\x00"),
        der(0, S),
        der(R, 0),
        der(CURVE_ORDER, S),
        der(R, CURVE_ORDER),
        "3006" + "0201ff" + "020101",
        "3004" + "0200" + "0200",
        "3009" + "020101" + "020101" + "020101",
        "308106" + "020101" + "020101",
    ],
)
def test_a_signature_has_one_encoding(signature: str) -> None:
    with pytest.raises(InvalidSignatureEncoding):
        open_envelope(with_signature(signature))


@pytest.mark.parametrize(
    "value",
    [
        {**SIGNED, "public_key": BOB.key},
        {**SIGNED, "body": {**BODY, "nonce": 1}},
        with_signature(der(S, R)),
        with_signature(der(1, 1)),
    ],
)
def test_a_wrong_signature_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSignature):
        open_envelope(value)


def test_transactions_are_bounded_and_hold_no_fractions() -> None:
    with pytest.raises(TransactionTooLarge):
        decode(RAW + b" " * (16_385 - len(RAW)))
    assert decode(RAW + b" " * (16_384 - len(RAW))).signer == ALICE.key
    with pytest.raises(NumberOutOfRange):
        decode(encode(sign_envelope({"price": 1.0}, ALICE.seed)))


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_makes_another_transaction(place: int, mask: int) -> None:
    raw = bytearray(RAW)
    raw[place] ^= mask
    try:
        envelope = decode(bytes(raw))
    except Rejected:
        return
    # Only the spelling has changed (an escape in capitals), so the content must be the same.
    assert envelope == decode(RAW)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_a_refusal(raw: bytes) -> None:
    with pytest.raises(Rejected):
        decode(raw)


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_a_verified_transaction_vouches_for_no_other_bytes(place: int, change: int) -> None:
    known = decode(RAW)
    other = bytearray(RAW)
    other[place] ^= change
    for _ in range(2):
        # The second time finds what the first one may have kept.
        try:
            found = decode(bytes(other))
        except Rejected:
            continue
        # White space and the letters of hexadecimal numbers leave the same signed body.
        assert (found.body, found.signer, found.id) == (known.body, known.signer, known.id)


def test_a_known_transaction_still_meets_the_bounds_of_the_one_who_asks() -> None:
    decode(RAW)
    with pytest.raises(TransactionTooLarge):
        decode_transaction(RAW, len(RAW) - 1, 32)
    with pytest.raises(Rejected):
        decode_transaction(RAW, 16_384, 1)
