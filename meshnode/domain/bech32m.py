"""Bech32m: text with a checksum for bytes that people copy (BIP-173 and BIP-350).

Terms: the *prefix* names the purpose of the text. The *data* are the bytes as groups of 5 bits, one
character each, after the last ``1``. The *checksum* is the last six characters.

Invariants: a text of up to 90 characters with one to four wrong ones is always detected; upper case
is read as lower case, since QR codes are smaller in it, and a mixture is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
MAX_LENGTH = 90
"""Characters. In longer texts, four wrong characters might go undetected."""
CHECKSUM_LENGTH = 6
_FINAL = 0x2BC830A3
"""The remainder that valid text gives; in Bech32 without the m it is 1."""
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


class InvalidText(ValueError):
    """The text is not Bech32m; the message says why."""


def encode(prefix: str, data: bytes) -> str:
    """The text for ``data``; ``prefix`` is lower case."""
    groups = _regroup(data, 8, 5, pad=True)
    remainder = _remainder([*_expanded(prefix), *groups, *[0] * CHECKSUM_LENGTH]) ^ _FINAL
    checksum = [remainder >> 5 * (CHECKSUM_LENGTH - 1 - at) & 31 for at in range(CHECKSUM_LENGTH)]
    return f"{prefix}1" + "".join(ALPHABET[group] for group in [*groups, *checksum])


def decode(text: str) -> tuple[str, bytes]:
    """Prefix and bytes of ``text``. Raises InvalidText."""
    prefix, groups = split(text)
    return prefix, bytes(_regroup(groups, 5, 8, pad=False))


def split(text: str) -> tuple[str, list[int]]:
    """Prefix and 5-bit groups of ``text``, without its checksum. Raises InvalidText."""
    if not all(33 <= ord(character) <= 126 for character in text):
        raise InvalidText("has a character that does not occur there")
    if len(text) > MAX_LENGTH:
        raise InvalidText("is too long")
    if text not in (text.lower(), text.upper()):
        raise InvalidText("mixes upper and lower case")
    prefix, separator, rest = text.lower().rpartition("1")
    if not separator or not prefix:
        raise InvalidText("has no prefix")
    if len(rest) < CHECKSUM_LENGTH:
        raise InvalidText("is too short")
    groups = [ALPHABET.find(character) for character in rest]
    if -1 in groups:
        raise InvalidText("has a character that does not occur there")
    if _remainder([*_expanded(prefix), *groups]) != _FINAL:
        raise InvalidText("does not match its checksum")
    return prefix, groups[:-CHECKSUM_LENGTH]


def _expanded(prefix: str) -> list[int]:
    """The prefix as it goes into the checksum: the high bits of its characters, then the low."""
    codes = prefix.encode("ascii")
    return [*(code >> 5 for code in codes), 0, *(code & 31 for code in codes)]


def _remainder(groups: Iterable[int]) -> int:
    """The remainder of the groups, as a polynomial over GF(32), by the code's generator."""
    remainder = 1
    for group in groups:
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ group
        for bit, term in enumerate(_GENERATOR):
            if top >> bit & 1:
                remainder ^= term
    return remainder


def _regroup(values: Iterable[int], width: int, into: int, *, pad: bool) -> list[int]:
    """The bits in groups of another width.

    Without ``pad``, fewer than ``width`` bits may be left over, and they must be zeros.
    """
    pending = bits = 0
    groups: list[int] = []
    for value in values:
        pending, bits = pending << width | value, bits + width
        while bits >= into:
            bits -= into
            groups.append(pending >> bits)
            pending &= (1 << bits) - 1
    if pad and bits:
        groups.append(pending << into - bits)
    elif not pad and (bits >= width or pending):
        raise InvalidText("has bits left over")
    return groups
