"""What an encoded message holds, found without parsing it (decision 0130).

A parsed message can take forty times its encoded bytes: an empty message of two bytes becomes an
object, a number of one byte becomes one of eight. The scan steps from tag to tag and skips what
fields contain, so it takes time for the number of entries, not for the size of tensors, and it
stops at the limit.

Terms: an *entry* is a field of the message or of a message inside it, known or not, or one number
of a packed field. *Contents* are the bytes inside known ``bytes`` fields, such as tensors; all
other bytes are *overhead*: tags, lengths, numbers, texts and unknown fields.

Invariants: the scan can read whatever protobuf can parse; it looks at ``limits.entries`` entries at
most.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Buffer: TypeAlias = bytes | bytearray


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Bounds of one kind of message."""

    size: int
    """Most bytes of the whole message."""
    entries: int
    overhead: int
    """Most bytes beside the contents of ``bytes`` fields."""


class Malformed(Exception):
    """The bytes are not an encoded message."""


class TooMany(Exception):
    """The message has more entries, or more overhead, than its limits allow."""


VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
"""The wire types of protobuf."""
MAX_VARINT = 10
"""Bytes of the longest varint."""


class Meaning(Enum):
    """What a known length-delimited field holds, if it is neither text nor a message."""

    CONTENT = "bytes"
    VARINTS = "packed numbers of one to ten bytes"
    NUMBERS_32 = "packed numbers of four bytes"
    NUMBERS_64 = "packed numbers of eight bytes"


Plan: TypeAlias = "dict[int, Meaning | Plan]"
"""By tag: the meaning of each known length-delimited field, or the plan of the message in it."""

_PACKED = {
    FieldDescriptor.TYPE_DOUBLE: Meaning.NUMBERS_64,
    FieldDescriptor.TYPE_FIXED64: Meaning.NUMBERS_64,
    FieldDescriptor.TYPE_SFIXED64: Meaning.NUMBERS_64,
    FieldDescriptor.TYPE_FLOAT: Meaning.NUMBERS_32,
    FieldDescriptor.TYPE_FIXED32: Meaning.NUMBERS_32,
    FieldDescriptor.TYPE_SFIXED32: Meaning.NUMBERS_32,
}
_CONTINUED = bytes(range(0x80, 0x100))
"""The bytes of a varint that another one follows."""
_plans: dict[str, Plan] = {}


def scan(data: Buffer, kind: type[Message], limits: MessageLimits) -> list[int]:
    """The offsets at which the fields of a message of ``kind`` begin, if it is within ``limits``.

    Offsets are of fields of the message itself, not of messages inside it. Raises TooMany, or
    Malformed for some of what protobuf cannot parse either.
    """
    try:
        return _scan(data, len(data), _plan(kind.DESCRIPTOR), limits)
    except IndexError:
        raise Malformed from None


def is_excessive(begin: Buffer, size: int, kind: type[Message], limits: MessageLimits) -> bool:
    """Whether a message of ``size`` bytes must be beyond ``limits``, as far as it has arrived.

    False for what protobuf cannot parse, since that shows when the message is complete.
    """
    try:
        _scan(begin, size, _plan(kind.DESCRIPTOR), limits)
    except TooMany:
        return True
    except (Malformed, IndexError):
        return False
    return False


def _scan(data: Buffer, size: int, plan: Plan, limits: MessageLimits) -> list[int]:
    """Scan a message of ``size`` bytes; IndexError where ``data`` has no more of it."""
    # One loop without calls for the common kinds: a hostile message costs the whole limit.
    at, end, left, overhead = 0, size, limits.entries, size
    outer: list[tuple[int, Plan]] = []  # the ends and plans of the messages around this one
    groups = 0  # how many unknown groups are open; what is in them is unknown too
    begins: list[int] = []
    while True:
        while at >= end:
            if at > end or groups:
                raise Malformed
            if not outer:
                if left < 0 or overhead > limits.overhead:
                    raise TooMany
                return begins
            end, plan = outer.pop()
        if not (outer or groups):
            begins.append(at)
        left -= 1
        if left < 0:
            raise TooMany
        tag, at = data[at], at + 1
        if tag > 0x7F:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == DELIMITED:
            size, at = data[at], at + 1
            if size > 0x7F:
                size, at = _varint(data, at - 1)
            if at + size > end:
                raise Malformed
            meaning = None if groups else plan.get(tag)
            if isinstance(meaning, dict) and size:
                outer.append((end, plan))
                end, plan = at + size, meaning
                continue
            if meaning is Meaning.CONTENT:
                overhead -= size
            elif isinstance(meaning, Meaning):
                left -= _count(data, at, size, meaning, left)
            at += size
        elif kind == START_GROUP:
            groups += 1
        elif kind == END_GROUP and groups:
            groups -= 1
        else:
            at = _after_number(data, at, kind)


def _after_number(data: Buffer, at: int, kind: int) -> int:
    """The offset after a number that begins at ``at``."""
    if kind == VARINT:
        first = at
        while data[at] > 0x7F:
            at += 1
            if at - first == MAX_VARINT:
                raise Malformed
        return at + 1
    if kind == FIXED64:
        return at + 8
    if kind == FIXED32:
        return at + 4
    raise Malformed


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """The number at ``at``, and the offset after it."""
    value = 0
    for place in range(MAX_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed


def _count(data: Buffer, at: int, size: int, meaning: Meaning, most: int) -> int:
    """How many numbers a packed field holds; more than ``most`` are not counted exactly."""
    if meaning is not Meaning.VARINTS:
        return size // (4 if meaning is Meaning.NUMBERS_32 else 8)
    if size > MAX_VARINT * most:
        return size
    return len(data[at : at + size].translate(None, _CONTINUED))


def _plan(descriptor: Any) -> Plan:
    plan = _plans.get(descriptor.full_name)
    if plan is None:
        # Registered before it is complete, since a message may contain its own kind.
        plan = _plans[descriptor.full_name] = {}
        for field in descriptor.fields:
            meaning = _meaning(field)
            if meaning is not None:
                plan[field.number << 3 | DELIMITED] = meaning
    return plan


def _meaning(field: Any) -> Meaning | Plan | None:
    if field.message_type is not None:
        return _plan(field.message_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Meaning.CONTENT
    if field.is_repeated and field.type != FieldDescriptor.TYPE_STRING:
        return _PACKED.get(field.type, Meaning.VARINTS)
    return None
