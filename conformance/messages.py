"""Interface 2.3: the gRPC messages, as classes for requests and as wire fields for answers.

Requests are made with classes from the suite's own descriptor. Answers are read field by field from
the wire, since a library would silently skip a documented number that has another type.
"""

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from conformance.catalogue import SCALARS, MessageRule
from conformance.node_descriptor import DESCRIPTOR

_file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(DESCRIPTOR))
_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file)

SERVICE = "node.NodeService"
MESSAGES: Mapping[str, type[Message]] = {
    item.name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"node.{item.name}"))
    for item in _file.message_type
}
OPERATIONS: Mapping[str, tuple[str, str]] = {
    item.name: (item.input_type.rpartition(".")[2], item.output_type.rpartition(".")[2])
    for item in _file.service[0].method
}

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
_WIRE_TYPES = {
    "int32": VARINT, "int64": VARINT, "bool": VARINT, "double": FIXED64,
    "string": LENGTH, "bytes": LENGTH,
}  # fmt: skip


class BadMessage(Exception):
    """The bytes are not a protobuf message, or have a group, which no documented message has."""


@dataclass(frozen=True)
class WireField:
    """One field as it is on the wire. `value` is an int or bytes."""

    number: int
    wire_type: int
    value: int | bytes


def make(name: str, **fields: Any) -> Message:
    """Make a message; the value of a nested field is another message."""
    return MESSAGES[name](**fields)


def parse(name: str, data: bytes) -> Any:
    """Parse an answer with the documented fields, or raise `BadMessage`."""
    try:
        return MESSAGES[name].FromString(data)
    except DecodeError as error:
        raise BadMessage(str(error)) from None


def wire_fields(data: bytes) -> list[WireField]:
    """Read the fields of a message without any description of it, or raise `BadMessage`."""
    fields: list[WireField] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        value: int | bytes
        if number == 0:
            raise BadMessage("field number 0")
        if wire_type == VARINT:
            value, at = _varint(data, at)
        elif wire_type in (FIXED64, FIXED32):
            value, at = _take(data, at, 8 if wire_type == FIXED64 else 4)
        elif wire_type == LENGTH:
            size, at = _varint(data, at)
            value, at = _take(data, at, size)
        else:
            raise BadMessage(f"field {number} has the wire type {wire_type}")
        fields.append(WireField(number, wire_type, value))
    return fields


def encode_field(field: WireField) -> bytes:
    """Return a field as it is on the wire."""
    head = encode_varint(field.number << 3 | field.wire_type)
    if isinstance(field.value, int):
        return head + encode_varint(field.value)
    sized = encode_varint(len(field.value)) if field.wire_type == LENGTH else b""
    return head + sized + field.value


def encode_varint(number: int) -> bytes:
    """Return a number in the base 128 of protobuf."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadMessage("an unterminated varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise BadMessage("a field that is longer than the message")
    return data[at : at + size], at + size


def field_fault(rule: MessageRule, found: WireField) -> str | None:
    """Return why the field on the wire does not have the documented type, or None."""
    if rule.type not in SCALARS:
        expected = LENGTH
    elif rule.repeated and found.wire_type == LENGTH and _WIRE_TYPES[rule.type] != LENGTH:
        return None if _is_packed(found, rule.type) else f"not packed {rule.type}"
    else:
        expected = _WIRE_TYPES[rule.type]
    if found.wire_type != expected:
        return f"wire type {found.wire_type} instead of {expected}"
    if rule.type == "bool" and found.value not in (0, 1):
        return f"a bool that is {found.value!r}"
    if rule.type == "string" and isinstance(found.value, bytes):
        try:
            found.value.decode()
        except UnicodeDecodeError:
            return "not UTF-8"
    return None


def _is_packed(found: WireField, scalar: str) -> bool:
    data = found.value if isinstance(found.value, bytes) else b""
    if _WIRE_TYPES[scalar] == FIXED64:
        return len(data) % struct.calcsize("d") == 0
    at = 0
    try:
        while at < len(data):
            _, at = _varint(data, at)
    except BadMessage:
        return False
    return True
