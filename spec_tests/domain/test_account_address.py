"""An account's address is its public key with a prefix and a checksum (decision 0111)."""

import pytest

from meshnode.domain.account_address import address_of, read_account
from meshnode.domain.bech32m import encode
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.identity import key_from_seed

KEY = key_from_seed("0" * 64).public_key
ADDRESS = address_of(KEY)


def test_both_forms_name_the_account() -> None:
    assert len(ADDRESS) == 64
    assert ADDRESS.startswith("mesh1")
    for text in (KEY, ADDRESS, ADDRESS.upper()):
        assert read_account(text) == KEY


@pytest.mark.parametrize("place", range(len("mesh1"), 64))
def test_one_changed_character_is_found(place: int) -> None:
    wrong = ADDRESS[:place] + ("q" if ADDRESS[place] != "q" else "p") + ADDRESS[place + 1 :]
    with pytest.raises(InvalidRequest, match="does not match its checksum"):
        read_account(wrong)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be an account"),
        (KEY[:-1], "must be an account"),
        (KEY.upper(), "must be an account"),
        (encode("bc", bytes.fromhex(KEY)), "must be an account"),
        (encode("mesh", b""), "names no public key"),
        (encode("mesh", bytes(33)), "names no public key"),
        (encode("mesh", bytes.fromhex(KEY)[:-1]), "names no public key"),
        ("mesh1" + "q" * 100, "is too long"),
    ],
)
def test_malformed_accounts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        read_account(text, "to")
    assert caught.value.field == "to"
