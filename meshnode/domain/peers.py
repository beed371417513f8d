"""Nodes' reports about themselves, and their checks (interface 2.1 and 4.3).

Terms: a *peer* is another node of the network that has answered under its own id. Its *shard info*
is its report about itself (decision 0017), its *capacity* how busy it is (decision 0018). A
*holder* of a layer is a peer that has this layer of the same model as this node.

Reports are not trusted: :func:`check_shard_info` and :func:`check_capacity` check only their form
and size. Whether a peer can do what it reports shows only when it is used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise

from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.errors import InvalidRequest

MAX_VERSIONS = 8
"""Weights that a node may say it computes with: those that drain are few."""
MAX_LAYERS = 1024
MAX_TEXT_CHARS = 256
LARGEST_NUMBER = 2**62

_NODE_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Capacity:
    """How busy a node is. Memory is in bytes; a value that the node does not report is zero."""

    memory_total: int = 0
    memory_used: int = 0
    kv_total: int = 0
    """Bytes of KV cache that sessions may use."""
    kv_used: int = 0
    queue_depth: int = 0
    active_sessions: int = 0
    max_batch: int = 0
    tokens_per_second: float = 0.0
    """Recent speed of one session."""
    session_messages: int = 0
    """Messages of one session that may be sent ahead of its answers (decision 0230)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """A node's report about itself."""

    node_id: str
    """40 hex characters."""
    version: str
    model_name: str
    model_hash: str
    total_layers: int
    layers: tuple[int, ...]
    """The layers held there, ascending."""
    hidden_dim: int
    vocab_size: int
    context_length: int
    capacity: Capacity = field(default_factory=Capacity)
    numeric_class: str = ""
    """Nodes of equal classes compute equal bits (decision 0152); empty if it does not say."""
    origin_hash: str = ""
    """Of the model that it was started with; empty if it does not say (decision 0225)."""
    weights_version: int = 0
    """The round that made the weights in ``model_hash``."""
    model_hashes: tuple[str, ...] = ()
    """Of all weights that it computes with now, ``model_hash`` first."""
    layer_ms: float = 0.0
    """The time of a turn in one of its layers, as it says; 0.0 if it has not measured it."""
    move: range | None = None
    """The layers that it has announced to hold instead (decision 0250)."""
    leaving: bool = False
    """Whether it says that it moves or stops, so that nobody may rely on its layers."""

    @property
    def lineage(self) -> str:
        """The hash of the model that its weights were trained from."""
        return self.origin_hash or self.model_hash

    @property
    def role(self) -> str:
        """The role, derived from the layers; a role that the node claims is ignored."""
        return role_of(self.layers, self.total_layers)

    @property
    def has_embedding(self) -> bool:
        """Whether the node can take tokens as input: the embedding goes with the first layer."""
        return 0 in self.layers

    @property
    def has_head(self) -> bool:
        """Whether the node can produce logits: the head goes with the last layer."""
        return self.total_layers - 1 in self.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another node of the network, with what this node knows about it."""

    node_id: str
    """40 hex characters."""
    host: str
    """An IP address, at which it has answered."""
    port: int
    """The port of its HTTP interface."""
    role: str
    layers: tuple[int, ...]
    total_layers: int
    model_hash: str
    latency_ms: float
    """Average latency of a small call; recent ones count most."""
    connected_since: float
    """When its current run of answered calls began, in seconds since 1970."""
    capacity: Capacity | None = None
    numeric_class: str = ""
    origin_hash: str = ""
    """Of the model that it was started with; empty if it does not say (decision 0225)."""
    weights_version: int = 0
    """The round that made the weights in ``model_hash``."""
    model_hashes: tuple[str, ...] = ()
    """Of all weights that it computes with now, ``model_hash`` first."""
    layer_ms: float = 0.0
    """The time of a turn in one of its layers, as it says; 0.0 if it has not measured it."""
    move: range | None = None
    """The layers that it has announced to hold instead (decision 0250)."""
    leaving: bool = False
    """Whether it says that it moves or stops, so that nobody may rely on its layers."""

    @property
    def lineage(self) -> str:
        """The hash of the model that its weights were trained from."""
        return self.origin_hash or self.model_hash

    def computes(self, model_hash: str) -> bool:
        """Whether it can compute with the weights of a model now."""
        return model_hash == self.model_hash or model_hash in self.model_hashes

    @property
    def grpc_port(self) -> int:
        """The port of its gRPC interface."""
        return self.port + GRPC_PORT_OFFSET

    @property
    def address(self) -> str:
        """``host:port`` of its HTTP interface; IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def role_of_claim(layer: int, held: range, total: int) -> str:
    """The role of the holder that claims a hop which begins at ``layer`` (decision 0156).

    ``held`` are the layers that it holds now, empty if that is not known.
    """
    layers = range(layer, held.stop) if layer in held else range(layer, layer + 1)
    return role_of(tuple(layers), total)


def role_of(layers: tuple[int, ...], total: int) -> str:
    """The role that follows from the layers held (interface 2.3: "driver only", "validator").

    The driver has the embedding, which goes with the first layer; the validator has the head, which
    goes with the last. A node that holds all layers drives.
    """
    if 0 in layers:
        return "driver"
    return "validator" if total - 1 in layers else "worker"


_TEXTS = ("version", "model_name", "model_hash", "numeric_class", "origin_hash")


def check_shard_info(info: ShardInfo) -> None:
    """Raise InvalidRequest unless the report is well-formed and plausible."""
    check_node_id("node_id", info.node_id)

    # Texts are short and printable, since they are shown to operators and kept for every peer.
    texts = [(name, getattr(info, name)) for name in _TEXTS]
    for name, text in [*texts, *(("model_hashes", each) for each in info.model_hashes)]:
        if len(text) > MAX_TEXT_CHARS or not text.isprintable():
            raise InvalidRequest(name, f"is printable text of at most {MAX_TEXT_CHARS} characters")

    # Sizes are plausible for a model.
    for name in ("total_layers", "hidden_dim", "vocab_size", "context_length", "weights_version"):
        if not 0 <= getattr(info, name) < 2**31:
            raise InvalidRequest(name, "is not below zero")
    if info.total_layers > MAX_LAYERS:
        raise InvalidRequest("total_layers", f"is at most {MAX_LAYERS}")
    if len(info.model_hashes) > MAX_VERSIONS:
        raise InvalidRequest("model_hashes", f"are at most {MAX_VERSIONS}")

    # The layers belong to the model, each listed once and in order.
    check_layers(info.layers, info.total_layers)
    check_capacity(info.capacity)
    if not math.isfinite(info.layer_ms) or not 0 <= info.layer_ms <= LARGEST_NUMBER:
        raise InvalidRequest("layer_ms", "is a number that is not below zero")

    # A node moves to a range of layers that the model has.
    move = info.move
    if move is not None and not (move and move.start >= 0 and move.stop <= info.total_layers):
        raise InvalidRequest("move", "is a range of the model's layers")


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
    """Raise InvalidRequest unless every value is a number that is not negative."""
    for name in Capacity.__dataclass_fields__:
        value = getattr(capacity, name)
        if not math.isfinite(value) or not 0 <= value <= LARGEST_NUMBER:
            raise InvalidRequest(name, "is a number that is not below zero")


def parameters_text(count: int) -> str:
    """A number of parameters as people write it: ``1.96M``, ``7.24B``, ``512``."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        # A count that would round up to 1000 of one unit is shown as 1 of the next.
        if count >= size * 0.999995:
            return f"{count / size:.2f}{unit}"
    return str(count)
