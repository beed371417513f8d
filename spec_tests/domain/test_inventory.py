"""What a folder lacks of its inventory, and files with a checksum of their own (decision 0140)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.checksums import FileDamaged, dump_checked, read_checked
from meshnode.domain.inventory import dump_inventory, extend, find_losses, read_inventory

INVENTORIES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["", "1", "2"]))


@given(INVENTORIES, INVENTORIES)
def test_a_missing_file_is_a_loss_and_a_new_one_is_not(known: dict, present: dict) -> None:  # type: ignore[type-arg]
    losses = find_losses(known, present)
    assert set(losses.missing) == known.keys() - present.keys()
    assert not find_losses({}, present)
    assert not find_losses(present, present)
    # Extending the inventory by new files does not hide a loss.
    extended = extend(known, present)
    assert find_losses(extended, present) == losses
    assert extended.keys() == known.keys() | present.keys()
    assert read_inventory(dump_inventory(extended)) == extended


def test_losses_are_described_in_one_clause() -> None:
    one = find_losses({"key.json": "1"}, {"key.json": "2"})
    assert one.describe() == "key.json is not the one that was here"
    many = find_losses(dict.fromkeys("abcde", ""), {})
    assert many.describe() == "a, b, c and 2 more were here and are missing"
    two = find_losses({"a": "", "b": ""}, {})
    assert two.describe() == "a and b were here and are missing"


DOCUMENT = {"format": "x", "chains": {"net-1": {"height": 25, "hash": "ab"}}, "name": "\u00e9"}


def test_each_flipped_bit_is_seen() -> None:
    data = dump_checked(DOCUMENT)
    assert read_checked(data) == DOCUMENT
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        try:
            found = read_checked(bytes(changed))
        except FileDamaged:
            continue
        # The bit was in the checksum's own name or in white space, so the contents are unchanged.
        assert {name: found[name] for name in DOCUMENT} == DOCUMENT


def test_a_file_of_an_earlier_version_has_no_checksum() -> None:
    assert read_checked(json.dumps(DOCUMENT).encode()) == DOCUMENT


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, bytes(50)])
def test_other_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(FileDamaged):
        read_checked(data)
    with pytest.raises(FileDamaged):
        read_inventory(data)


def test_other_documents_are_not_inventories() -> None:
    for document in ({}, {"format": "meshnode-inventory-v1"}, {"format": "x", "files": {}}):
        with pytest.raises(FileDamaged):
            read_inventory(dump_checked(document))
