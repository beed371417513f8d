"""The few protobuf encodings that hashes and signatures are made over.

Protobuf has many encodings of one message; these are the ones that CometBFT hashes: fields in
order, defaults left out unless a message is always present. Readers accept what writers produce.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshnode.domain.chain.errors import MalformedBlock
from meshnode.domain.units import SECOND_NS

VARINT, FIXED64, BYTES = 0, 1, 2

ZERO_TIME_NS = -62_135_596_800 * SECOND_NS
"""The start of the year 1, which stands for an absent time."""


def varint(number: int) -> bytes:
    """Base-128; negative numbers as 64-bit two's complement."""
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer_field(field: int, number: int) -> bytes:
    """A varint field; left out when zero."""
    return varint(field << 3 | VARINT) + varint(number) if number else b""


def fixed_field(field: int, number: int) -> bytes:
    """An sfixed64 field; left out when zero."""
    if not number:
        return b""
    return varint(field << 3 | FIXED64) + number.to_bytes(8, "little", signed=True)


def bytes_field(field: int, value: bytes) -> bytes:
    """A bytes or text field; left out when empty."""
    return message_field(field, value) if value else b""


def message_field(field: int, value: bytes) -> bytes:
    """A message field, written even when it is empty."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def delimited(value: bytes) -> bytes:
    """A message with its length in front."""
    return varint(len(value)) + value


def timestamp(time_ns: int) -> bytes:
    """google.protobuf.Timestamp of nanoseconds since 1970."""
    seconds, nanos = divmod(time_ns, SECOND_NS)
    return integer_field(1, seconds) + integer_field(2, nanos)


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values; MalformedBlock for bytes that are not a message."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        field, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == VARINT:
            value, position = _read_varint(data, position)
        elif wire in (FIXED64, BYTES):
            length, position = (8, position) if wire == FIXED64 else _read_varint(data, position)
            value = data[position : position + length]
            position += length
            if position > len(data):
                raise MalformedBlock
        else:
            raise MalformedBlock
        yield field, value


def read_timestamp(data: bytes) -> int:
    """Nanoseconds since 1970."""
    seconds = nanos = 0
    for field, value in read_fields(data):
        if field == 1:
            seconds = signed(value)
        elif field == 2:
            nanos = signed(value)
    return seconds * SECOND_NS + nanos


def signed(value: int | bytes) -> int:
    """A varint as a signed 64-bit number."""
    if not isinstance(value, int):
        raise MalformedBlock
    return value - (1 << 64) if value >> 63 else value


def octets(value: int | bytes) -> bytes:
    """A length-delimited value, or the eight bytes of an sfixed64."""
    if not isinstance(value, bytes):
        raise MalformedBlock
    return value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise MalformedBlock
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
