"""The page of the gRPC service, from the descriptors and the comments of ``proto/node.proto``."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from meshnode.wire import node_pb2
from tools.reference.tables import code, table

SOURCE = Path(__file__).resolve().parents[2] / "proto/node.proto"
KINDS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}
_MESSAGE = re.compile(
    r"((?:^//[^\n]*\n)*)^message (\w+) \{(.*?)^\}|^message (\w+) \{\}", re.M | re.S
)
_FIELD = re.compile(r"(\w+) = \d+;(?:[ \t]*// ?(.*))?")


def page() -> str:
    """The page."""
    file = node_pb2.DESCRIPTOR
    service = file.services_by_name["NodeService"]
    above, beside = comments()
    rows = [
        (
            code(method.name),
            _link(method.input_type, streams=method.client_streaming),
            _link(method.output_type, streams=method.server_streaming),
        )
        for method in service.methods
    ]
    parts = [
        "# gRPC\n\n"
        f"The service `{service.full_name}` is served on the HTTP port plus 1000, with the "
        "standard health and reflection services\nbeside it. Who may call what is in "
        "[Who may do what](../access.md#other-nodes-and-strangers-over-grpc); the definitions "
        "are in\n[node.proto](../../proto/node.proto).\n",
        table(("operation", "request", "response"), rows),
        "## Messages\n",
    ]
    for name, message in file.message_types_by_name.items():
        fields = [
            (str(field.number), code(field.name), _type(field), beside.get((name, field.name), ""))
            for field in message.fields
        ]
        parts.append(f"### {name}\n")
        if above.get(name):
            parts.append(above[name] + "\n")
        head = ("number", "field", "type", "meaning")
        parts.append(table(head, fields) if fields else "It has no fields.\n")
    return "\n".join(parts)


def comments() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The comments above each message, and beside each field."""
    above, beside = {}, {}
    for match in _MESSAGE.finditer(SOURCE.read_text(encoding="utf-8")):
        name = match[2] or match[4]
        above[name] = " ".join(re.findall(r"// ?(.*)", match[1] or "")).strip()
        for field, text in _FIELD.findall(match[3] or ""):
            beside[name, field] = text.strip()
    return above, beside


def _link(message: Descriptor, *, streams: bool) -> str:
    return f"{'stream of ' if streams else ''}[{message.name}](#{message.name.lower()})"


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map of {_type(key)} to {_type(value)}"
    kind = KINDS.get(field.type, "")
    if field.message_type is not None:
        kind = _link(field.message_type, streams=False)
    if field.is_repeated:
        return f"repeated {kind}"
    optional = field.has_presence and field.message_type is None
    return f"optional {kind}" if optional else kind
