"""What nodes tell of themselves, and what is kept of it (document, 2.1: Peer; 4.3: GetShardInfo).

Terms: a *peer* is another node of the network that has answered under its own id. Its *shard info*
is what it says of itself (decisions/0017), its *capacity* how busy it is (decisions/0018). A
*holder* of a layer is a peer that has it, of the very model that this node serves.

Nothing here is trusted further than it goes: a peer's words are checked for form and size by
:func:`check_shard_info` and :func:`check_capacity`, and what they promise shows when it is used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.errors import InvalidRequest

MOST_LAYERS = 1024
LONGEST_TEXT = 256
LARGEST_NUMBER = 2**62

_NODE_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Capacity:
    """How busy a node is. Memory in bytes; zero where a node does not say."""

    memory_total: int = 0
    memory_used: int = 0
    kv_total: int = 0
    """That sessions may hold."""
    kv_used: int = 0
    queue_depth: int = 0
    active_sessions: int = 0
    max_batch: int = 0
    tokens_per_second: float = 0.0
    """Measured lately, of one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """What a node says of itself."""

    node_id: str
    """40 hex characters."""
    version: str
    model_name: str
    model_hash: str
    total_layers: int
    layers: tuple[int, ...]
    """Held there, ascending."""
    hidden_dim: int
    vocab_size: int
    context_length: int
    capacity: Capacity = field(default_factory=Capacity)

    @property
    def role(self) -> str:
        """It follows from the layers, whatever a node calls itself."""
        return role_of(self.layers, self.total_layers)

    @property
    def has_embedding(self) -> bool:
        """Whether tokens can go in there: the embedding goes with the first layer."""
        return 0 in self.layers

    @property
    def has_head(self) -> bool:
        """Whether logits come out there: the head goes with the last layer."""
        return self.total_layers - 1 in self.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another node, as this one knows it."""

    node_id: str
    """40 hex characters."""
    host: str
    """An IP address, at which it has answered."""
    port: int
    """Of its HTTP interface."""
    role: str
    layers: tuple[int, ...]
    total_layers: int
    model_hash: str
    latency_ms: float
    """Of a small call, averaged; the newest count most."""
    connected_since: float
    """Since when it has answered without a break: seconds since 1970."""
    capacity: Capacity | None = None

    @property
    def grpc_port(self) -> int:
        """Where its operations are called."""
        return self.port + GRPC_PORT_OFFSET

    @property
    def address(self) -> str:
        """``host:port`` of its HTTP interface; IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def role_of(layers: tuple[int, ...], total: int) -> str:
    """The role that follows from the layers held (section 2.3: "driver only", "validator").

    The driver has the embedding, which goes with the first layer; the validator has the head, which
    goes with the last. A node that holds all layers drives.
    """
    if 0 in layers:
        return "driver"
    return "validator" if total - 1 in layers else "worker"


def check_shard_info(info: ShardInfo) -> None:
    """Raise InvalidRequest unless a node can be like that."""
    check_node_id("node_id", info.node_id)

    # Texts are short and printable: they are shown to operators and kept for every peer.
    for name in ("version", "model_name", "model_hash"):
        text = getattr(info, name)
        if len(text) > LONGEST_TEXT or not text.isprintable():
            raise InvalidRequest(name, f"is printable text of at most {LONGEST_TEXT} characters")

    # Sizes are of a model that could exist.
    for name in ("total_layers", "hidden_dim", "vocab_size", "context_length"):
        if not 0 <= getattr(info, name) < 2**31:
            raise InvalidRequest(name, "is not below zero")
    if info.total_layers > MOST_LAYERS:
        raise InvalidRequest("total_layers", f"is at most {MOST_LAYERS}")

    # The layers are some of the model's, each once and in order.
    check_layers(info.layers, info.total_layers)
    check_capacity(info.capacity)


def check_node_id(name: str, node_id: str) -> None:
    """Raise InvalidRequest unless this is a node id in hexadecimal."""
    if not _NODE_ID.fullmatch(node_id):
        raise InvalidRequest(name, "is 40 lowercase hexadecimal characters")


def check_layers(layers: tuple[int, ...], total: int) -> None:
    """Raise InvalidRequest unless these are layers of a model of ``total``, ascending."""
    if len(layers) > total or any(not 0 <= layer < total for layer in layers):
        raise InvalidRequest("layers", "are indices below the number of layers")
    if any(a >= b for a, b in pairwise(layers)):
        raise InvalidRequest("layers", "ascend")


def check_capacity(capacity: Capacity) -> None:
    """Raise InvalidRequest unless a node can be so busy."""
    for name in Capacity.__dataclass_fields__:
        value = getattr(capacity, name)
        if not math.isfinite(value) or not 0 <= value <= LARGEST_NUMBER:
            raise InvalidRequest(name, "is a number that is not below zero")


def parameters_text(count: int) -> str:
    """A number of parameters as people write it: ``1.96M``, ``7.24B``, ``512``."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        # What would be rounded up to a thousand of one unit is one of the next.
        if count >= size * 0.999995:
            return f"{count / size:.2f}{unit}"
    return str(count)
