"""The toy's answers over gRPC: dictionaries of fields, or the name of a status."""

import hashlib
import struct
import threading
from contextlib import suppress
from typing import Any

import grpc

from conformance import messages
from conformance.messages import SERVICE
from conformance.target import GRPC_PORT_OFFSET

# The only signature that the toy accepts.
SIGNED = "signed by a peer of the toy"
CHECKPOINT = {"version": 3, "model_hash": "a" * 64, "phase": "early"}
# An LZ4 frame with one block, which is stored as it is.
WEIGHTS = b"weights of the toy, " * 4
DATA = (
    b"\x04\x22\x4d\x18\x60\x70\x73"
    + (len(WEIGHTS) | 1 << 31).to_bytes(4, "little")
    + WEIGHTS
    + bytes(4)
)
KNOWN, CLOSEST, PORTS = 7, 3, 65536
SHAPE, VALUE_BYTES = [1, 2, 8], 4
# So many sequences the toy computes together, and so many positions of each.
MOST_ROWS, MOST_POSITIONS = 20, 100
# The layers of the model, those that the toy has, and the numbers of its two parts of the model.
LAYERS, HELD, PARTS = 4, (2, 3), (0, 2)


def trained(operation: str, request: Any) -> Any:
    """Answer about checkpoints, weights and gradients."""
    if operation == "GetCheckpointInfo":
        return {**CHECKPOINT, "params": 1_200_000, "loss": 2.5}
    if operation == "GetCheckpoint":
        if request.min_version > 3 or request.model_hash not in ("", "a" * 64):
            return {"success": False, "error_message": "no such checkpoint"}
        return {**CHECKPOINT, "success": True, "checkpoint_data": DATA, "total_size": len(DATA)}
    if operation == "GetWeights":
        return _weights(request.shard_range)
    # Of zeros, so that nothing follows from it.
    empty = request.round_id == 3 and request.model_hash == "a" * 64 and request.layer_gradients
    if request.signature == SIGNED or (empty and not request.signature):
        return {"accepted": True, "current_round": 3}
    return {"accepted": False, "reason": "another model", "current_round": 3}


def _weights(named: str) -> Any:
    """Serve one layer, like 2, or all from one to another, like 2-3, or two, like 2,3."""
    begin, dash, end = named.replace(",", "-").partition("-")
    if not begin.isdecimal() or (dash and not end.isdecimal()):
        return "INVALID_ARGUMENT"
    layers = range(int(begin), int(end or begin) + 1)
    if not layers or not all(layer in HELD for layer in layers):
        return "NOT_FOUND"
    return {"weights_data": "".join(f"weights of {layer}" for layer in layers).encode()}


def _pass_on(url: str, request: Any) -> None:
    with suppress(grpc.RpcError):
        pass_on(url, request)


def pass_on(url: str, request: Any) -> None:
    """Send a gradient to where its pass came from, a gRPC address or a node's URL.

    Raises `grpc.RpcError` if it is refused.
    """
    scheme, _, address = url.rpartition("//")
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    where = f"{host}:{int(port) + (GRPC_PORT_OFFSET if scheme else 0)}"
    # Those of its layers are others than what came: here they are the same values, turned round.
    request.grad_output = request.grad_output[::-1]
    with grpc.insecure_channel(where) as channel:
        channel.unary_unary(f"/{SERVICE}/PipelineBackward")(request.SerializeToString(), timeout=5)


class ToyShard:
    """The last layers of a model, whose output depends on the input."""

    def __init__(self) -> None:
        # Where the passes that are kept came from.
        self._graphs: dict[tuple[str, str], str] = {}

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        """Answer one pass."""
        key = (request.session_id, request.request_id)
        if request.target_shard not in PARTS:
            return "NOT_FOUND"
        if operation == "PipelineBackward":
            if key not in self._graphs:
                return {"success": False, "error_message": "no such session"}
            going = threading.Thread(target=_pass_on, args=(self._graphs.pop(key), request))
            going.start()
            return {"success": True}
        answer = {"request_id": request.request_id}
        fault = _fault(request)
        if fault:
            return {**answer, "success": False, "error_message": fault}
        if "training" in metadata:
            self._graphs[key] = request.sender_url
            shape = list(request.hidden_shape)
            data = {"hidden_states": request.hidden_states, "hidden_shape": shape}
            return {**answer, "success": True, **data}
        done = {**answer, "success": True, "is_final": True}
        if request.training_labels:
            return {**done, "loss": 2.5 + sum(request.training_labels) / 1000}
        rows, states = request.hidden_shape[0], request.hidden_states
        wide = len(states) // rows
        each = (states[at : at + wide] for at in range(0, len(states), wide))
        cache = b"".join(request.past_key_values)
        logits = b"".join(hashlib.sha256(row + cache).digest()[:8] for row in each)
        seen = hashlib.sha256(b"seen" + states + cache).digest()[:4]
        past = [seen] if request.use_cache or request.past_key_values else []
        return {**done, "logits": logits, "logits_shape": [rows, 1, 2], "past_key_values": past}


def _fault(request: Any) -> str:
    rows, length, width = [*request.hidden_shape, 0, 0, 0][:3]
    if len(request.hidden_shape) != len(SHAPE) or width != SHAPE[-1]:
        return "hidden_states is no tensor"
    if not 1 <= rows <= MOST_ROWS or not 1 <= length <= MOST_POSITIONS:
        return "hidden_states is no tensor"
    if len(request.hidden_states) != rows * length * width * VALUE_BYTES:
        return "hidden_states is no tensor"
    if request.position_ids not in (b"", struct.pack(f"<{length}q", *range(length))):
        return "unknown session"
    return "too many entries" if len(request.past_key_values) > 1 else ""


class ToyTable:
    """One node of a DHT that knows some others."""

    def __init__(self, node_id: bytes) -> None:
        self._stored: dict[bytes, str] = {}
        self._node_id = node_id
        self.listen_at(9000)
        self._others: list[Any] = [
            messages.make("DHTNodeInfo", node_id=hashlib.sha1(bytes([n])).digest(),  # noqa: S324
                          ip=f"192.0.2.{n}", port=9000 + n)
            for n in range(2, 2 + KNOWN)
        ]  # fmt: skip

    def listen_at(self, port: int) -> None:
        """Name this port as its own."""
        me = messages.make("DHTNodeInfo", node_id=self._node_id, ip="192.0.2.1", port=port)
        self._me = me

    def _closest(self, target: bytes) -> list[Any]:
        """Return the nodes that are closest to a target, in no order."""
        wanted = int.from_bytes(target, "big")
        ordered = sorted(
            self._others, key=lambda node: int.from_bytes(node.node_id, "big") ^ wanted
        )
        return ordered[:CLOSEST]

    def _learn(self, sender: Any) -> None:
        others = [node for node in self._others if node.node_id != sender.node_id]
        self._others = [*others, sender] if 0 < sender.port < PORTS else others

    def call(self, operation: str, request: Any) -> Any:
        """Answer one call."""
        answer = {"responder": self._me}
        if len(request.sender.node_id) == len(self._node_id) and request.sender.ip:
            self._learn(request.sender)
        if operation == "DHTPing":
            return answer
        if operation == "DHTFindNode":
            return {**answer, "nodes": self._closest(request.target_id)}
        if operation == "DHTFindValue":
            value = self._stored.get(request.key)
            if value is None:
                return {**answer, "nodes": self._closest(request.key), "found": False}
            return {**answer, "value": value, "found": True}
        self._stored[request.key] = request.value
        return {**answer, "success": True}
