"""Amounts of money: decimal units in the node API's JSON, atoms inside the node (interface 2.2).

Terms: an *atom* is the smallest amount, one *unit* is 1,000,000 atoms. Inside the node, amounts are
integer atoms; only a body's JSON numbers are units (decision 0082).

Invariants: an amount is read exactly as the client wrote it or refused, and never rounded. It is
written as the nearest double, which reads back as the same number of atoms below 2**33 units.
"""

from __future__ import annotations

from decimal import Decimal

from meshnode.domain.errors import InvalidRequest

ATOMS_PER_UNIT = 1_000_000
DECIMALS = 6
MAX_ATOMS = 2**60
"""The largest integer in a transaction of the ledger."""


def units(atoms: int) -> float:
    """Atoms as a JSON number of whole units."""
    # Dividing integers rounds once, so reading the double's shortest text gives the same atoms.
    return atoms / ATOMS_PER_UNIT


def read_amount(value: object, field: str, low: int = 1, high: int = MAX_ATOMS) -> int:
    """Atoms of a JSON number of whole units, from ``low`` to ``high`` atoms.

    ``value`` comes from a body that was read with exact numbers: an int or a Decimal. Raises
    :class:`InvalidRequest` about ``field`` for another type, a seventh decimal, or a value out of
    range.
    """
    # In Python a bool is an int, and a float has lost the exact number that the client wrote.
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise InvalidRequest(field, "must be a number")
    atoms = value * ATOMS_PER_UNIT if isinstance(value, int) else _scaled(value, field)
    if not low <= atoms <= high:
        raise InvalidRequest(field, f"must be from {text(low)} to {text(high)}")
    return atoms


def text(atoms: int) -> str:
    """Atoms as decimal text of whole units, without trailing zeros."""
    sign, (whole, rest) = "-" if atoms < 0 else "", divmod(abs(atoms), ATOMS_PER_UNIT)
    decimals = f"{rest:0{DECIMALS}}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"


def parse_amount(words: str, field: str) -> int:
    """Atoms of an amount typed on a command line, at least one."""
    try:
        # Plain notation only: Decimal would also take underscores, NaN and other scripts' digits.
        if not words.isascii() or words.strip("0123456789.") or len(words) > 32:
            raise ValueError(words)
        value = Decimal(words)
    except (ValueError, ArithmeticError):
        raise InvalidRequest(field, "must be a number of units, such as 2.5") from None
    return read_amount(value, field)


def _scaled(value: Decimal, field: str) -> int:
    """The number of atoms by integer arithmetic, which no decimal context rounds."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidRequest(field, "must be a number")
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    if not significant:
        return 0
    zeros = exponent + DECIMALS + len(written) - len(significant)
    if zeros < 0:
        raise InvalidRequest(field, f"must have at most {DECIMALS} decimals")
    # A number of more digits than 2**60 is out of range; huge powers of ten are not computed.
    if len(significant) + zeros > len(str(MAX_ATOMS)):
        atoms = MAX_ATOMS + 1
    else:
        atoms = int(significant) * 10**zeros
    return -atoms if sign else atoms
