"""Faults of gRPC: fields at other numbers, of other types, with other values; operations."""

import struct
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from conformance import messages
from conformance.judging.derived.fault import Fault, Wrapper
from conformance.messages import (
    FIXED32,
    FIXED64,
    LENGTH,
    MESSAGES,
    OPERATIONS,
    SERVICE,
    VARINT,
    WireField,
)

# No documented message has a field with this number.
UNUSED = 14
FieldChange = Callable[[WireField], WireField | None]
Scalars = {1: "double", 3: "int64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
WITHOUT_MESSAGES = (
    "StreamInference", "UnaryInference", "GossipProof", "GossipTransaction", "GossipStake",
    "RequestProofValidation", "GossipValidationVote", "GetShardInfo", "SwarmForward",
    "GetSwarmStatus", "UpdatePeerCapacity",
)  # fmt: skip
STATUSES = ("UNIMPLEMENTED", "UNKNOWN", "PERMISSION_DENIED", "INTERNAL", "INVALID_ARGUMENT")


def recode(data: bytes, message: str, wanted: str, change: FieldChange) -> bytes:
    """Return a message in which `change` was made to every field of the messages `wanted`."""
    out = b""
    inner = {
        field.number: field.message_type.name
        for field in MESSAGES[message].DESCRIPTOR.fields
        if field.message_type is not None and field.message_type.name in MESSAGES
    }
    for found in messages.wire_fields(data):
        kept: WireField | None = found
        if found.number in inner and isinstance(found.value, bytes):
            value = recode(found.value, inner[found.number], wanted, change)
            kept = WireField(found.number, found.wire_type, value)
        if message == wanted and kept is not None:
            kept = change(kept)
        if kept is not None:
            out += messages.encode_field(kept)
    return out


def _within(name: str, wanted: str) -> bool:
    fields = MESSAGES[name].DESCRIPTOR.fields
    return name == wanted or any(
        field.message_type is not None
        and field.message_type.name in MESSAGES
        and _within(field.message_type.name, wanted)
        for field in fields
    )


def message_faults() -> Iterator[Fault]:
    """Yield the faults of every field of every message, in answers and in requests."""
    for name, message in MESSAGES.items():
        numbers = [field.number for field in message.DESCRIPTOR.fields]
        for field in message.DESCRIPTOR.fields:
            for kind, change in _changes(field):
                yield from _both(kind, name, field.name, change)
        for one, other in combinations(numbers, 2):
            yield from _both("field numbers swapped", name, f"{one} and {other}", _swap(one, other))


def _both(kind: str, message: str, field: str, change: FieldChange) -> Iterator[Fault]:
    answers = [name for name, (_, answer) in OPERATIONS.items() if _within(answer, message)]
    asks = [name for name, (ask, _) in OPERATIONS.items() if _within(ask, message)]
    if answers:
        yield _answered(kind, f"{message} {field}", message, answers, change)
    # A server that reads a field under another number does not see it.
    if asks and kind in ("field at another number", "field numbers swapped"):
        yield _read(f"{kind}, in requests", f"{message} {field}", message, asks, change)


def _answered(
    kind: str, name: str, message: str, operations: list[str], change: FieldChange
) -> Fault:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation not in operations or isinstance(answer, str):
            return answer
        answered = OPERATIONS[operation][1]
        data = messages.make(answered, **answer).SerializeToString()
        changed = recode(data, answered, message, change)
        return answer if changed == data else changed

    return Fault(kind, name, _touched(operations), lambda node: Wrapper(grpc=hook))


def _read(kind: str, name: str, message: str, operations: list[str], change: FieldChange) -> Fault:
    def call(operation: str, data: bytes) -> bytes:
        if operation not in operations:
            return data
        try:
            return recode(data, OPERATIONS[operation][0], message, change)
        except messages.BadMessage:
            return data

    return Fault(kind, name, _touched(operations), lambda node: Wrapper(call=call))


def _touched(operations: list[str]) -> frozenset[str]:
    return frozenset(f"rpc {name}" for name in operations)


def _changes(field: Any) -> Iterator[tuple[str, FieldChange]]:
    number = field.number

    def only(change: Callable[[WireField], WireField | None]) -> FieldChange:
        return lambda found: change(found) if found.number == number else found

    yield "field at another number", only(lambda f: WireField(UNUSED, f.wire_type, f.value))
    yield "message field missing", only(lambda f: None)
    yield "message field of another type", only(lambda f: WireField(number, *_other(f.wire_type)))
    kind = Scalars.get(field.type)
    if kind in ("int32", "int64") and not field.is_repeated:
        yield "message number of another sign", only(
            lambda f: WireField(number, VARINT, (1 << 64) - f.value)
            if isinstance(f.value, int) else f)  # fmt: skip
        yield (
            "message number off by a factor",
            only(
                lambda f: (
                    WireField(number, VARINT, f.value * 1000) if isinstance(f.value, int) else f
                )
            ),
        )
    if kind == "double":
        yield "message number of another sign", only(lambda f: WireField(number, FIXED64, _times(
            f.value, -1)))  # fmt: skip
    if kind == "bool":
        yield "message bool inverted", only(lambda f: None)
    if kind in ("bytes", "string"):
        yield (
            "message bytes cut",
            only(
                lambda f: (
                    WireField(number, LENGTH, f.value[:-1]) if isinstance(f.value, bytes) else f
                )
            ),
        )


def _other(wire_type: int) -> tuple[int, int | bytes]:
    return (VARINT, 7) if wire_type == FIXED32 else (FIXED32, b"\1\2\3\4")


def _times(value: int | bytes, factor: float) -> int | bytes:
    if not isinstance(value, bytes):
        return value
    return struct.pack("<d", struct.unpack("<d", value)[0] * factor)


def _swap(one: int, other: int) -> FieldChange:
    to = {one: other, other: one}
    return lambda found: WireField(to.get(found.number, found.number), found.wire_type, found.value)


def operation_faults() -> Iterator[Fault]:
    """Yield each operation ending with each status, answering with nothing, or another name."""
    for name in (*OPERATIONS, *WITHOUT_MESSAGES):
        for status in STATUSES:
            kind = "operation missing" if status == "UNIMPLEMENTED" else "operation's other status"
            yield Fault(kind, f"{name} {status}", _touched([name]), _ended(name, status))
    for name in OPERATIONS:
        yield Fault(
            "operation answers with an empty message", name, _touched([name]), _emptied(name)
        )
    for other in ("NodeService", "node.Node", "node.v1.NodeService"):
        yield Fault(
            "service of another name",
            other,
            _touched([*OPERATIONS, *WITHOUT_MESSAGES]),
            lambda node, other=other: Wrapper(operation=_renamed(other)),  # type: ignore[misc]
        )


def _ended(name: str, status: str) -> Callable[[Any], Wrapper]:
    return lambda node: Wrapper(
        grpc=lambda operation, request, answer: status if operation == name else answer
    )


def _emptied(name: str) -> Callable[[Any], Wrapper]:
    def hook(operation: str, request: Any, answer: Any) -> Any:
        return b"" if operation == name and not isinstance(answer, str) else answer

    return lambda node: Wrapper(grpc=hook)


def _renamed(other: str) -> Callable[[str], str | None]:
    def operation_of(path: str) -> str | None:
        service, _, operation = path.removeprefix("/").partition("/")
        return operation if service == other and service != SERVICE else None

    return operation_of
