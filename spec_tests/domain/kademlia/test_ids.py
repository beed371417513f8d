"""Node ids and the exclusive-or metric (interface 2.3 and 8)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import InvalidRequest
from meshnode.domain.kademlia.node_id import (
    ID_BITS,
    NodeId,
    bucket_of,
    distance,
    id_in_bucket,
    key_of,
    parse_id,
)
from meshnode.domain.kademlia.refusals import BadIdLength, OwnId
from spec_tests.domain.kademlia.network import id_of, node_ids


@given(st.binary(max_size=64).filter(lambda raw: len(raw) != 20))
def test_an_id_has_20_bytes(raw: bytes) -> None:
    with pytest.raises(BadIdLength) as refusal:
        parse_id(raw)
    assert isinstance(refusal.value, InvalidRequest)
    assert refusal.value.field == "node_id"


def test_a_key_is_the_sha1_of_its_name() -> None:
    assert key_of("layer:3") == hashlib.sha1(b"layer:3").digest()


@given(node_ids, node_ids, node_ids)
def test_distance_is_a_metric(a: NodeId, b: NodeId, c: NodeId) -> None:
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


@given(node_ids, node_ids)
def test_a_bucket_holds_a_range_of_distances(own: NodeId, other: NodeId) -> None:
    if own == other:
        with pytest.raises(OwnId):
            bucket_of(own, other)
    else:
        bucket = bucket_of(own, other)
        assert 2**bucket <= distance(own, other) < 2 ** (bucket + 1)


@given(node_ids, st.integers(0, ID_BITS - 1), st.integers(0, 2**200))
def test_a_random_id_of_a_bucket_is_in_it(own: NodeId, bucket: int, random_bits: int) -> None:
    assert bucket_of(own, id_in_bucket(own, bucket, random_bits)) == bucket


def test_every_id_of_a_bucket_can_be_drawn() -> None:
    drawn = {id_in_bucket(id_of(0), 3, bits) for bits in range(16)}
    assert drawn == {id_of(number) for number in range(8, 16)}
