"""Settings: one table gives the name of each, its valid values and whether it can be changed.

The names in the table are those of the document's Configuration (2.1) where it has one. A setting
``training.batch_size`` is the key ``batch_size`` of the table ``[training]`` in a TOML file, the
variable ``MESHNODE_TRAINING_BATCH_SIZE``, and the same path in ``PATCH /config``. A later source
wins: defaults, TOML file, changes made through ``PATCH /config``, environment, flags
(decision 0003).

Invariant: every ``Config`` in existence has passed every check of the table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from meshnode.domain.addresses import DEFAULT_PORT, GRPC_PORT_OFFSET, NODE_URLS_OR_EMPTY
from meshnode.domain.chain_settings import (
    ENGINE_NAMES,
    ENGINES,
    HOST_PORT,
    SOLO,
    TRUST,
    ChainConfig,
)
from meshnode.domain.checks import AboveZero, Anything, Between, Check, LayerRange, Matches
from meshnode.domain.errors import InvalidRequest
from meshnode.domain.forwarded import Networks
from meshnode.domain.pipeline_settings import PipelineConfig
from meshnode.domain.sites import NAMES, ORIGINS

type_names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}

Value = bool | int | float | str


class Change(Enum):
    """The effect of a change through ``PATCH /config``."""

    NEVER = "never"
    """Shown in ``GET /config`` but not changeable there."""
    LIVE = "live"
    RESTART = "restart"
    HIDDEN = "hidden"
    """Not part of the document's Configuration: neither shown nor changeable."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    key: str
    kind: type[Value]
    default: Value
    check: Check
    change: Change = Change.HIDDEN

    @property
    def variable(self) -> str:
        """The environment variable that sets it, such as MESHNODE_TRACKER for --tracker."""
        return "MESHNODE_" + self.key.removesuffix("_url").upper().replace(".", "_")

    def schema(self) -> dict[str, Any]:
        """The valid values, as JSON Schema."""
        names = {bool: "boolean", int: "integer", float: "number", str: "string"}
        return {"type": names[self.kind], **self.check.keywords()}


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _default_data_dir() -> str:
    return str(Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "meshnode")


AUTO = "auto"
"""For ``layers``: choose by the memory available and by what the network lacks."""
NETWORK_MODEL = "network"
"""For ``model``: that of the trackers, fetched from the nodes that hold it."""
FREE_TO = "must be 'none', 'loopback' or 'all'"
_LAYERS = LayerRange(("all", AUTO))

_GRADIENTS = ("auto|sparse|int8|float32", "must be 'auto', 'sparse', 'int8' or 'float32'")
_SERVE = ("off|latest|better", "must be 'off', 'latest' or 'better'")
_FORMATS = "auto, float32, bfloat16, float16, int8 or int4"
_DTYPES = ("auto|float32|bfloat16|float16|int8|int4", f"must be {_FORMATS}")
_DEVICES = ("auto|cpu|cuda(:[0-9]{1,2})?", "must be auto, cpu, cuda or cuda:N")

_TOKEN = (r"[A-Za-z0-9._~+/-]*=*", "must be a bearer token: letters, digits and ._~+/-=")
_TRACKERS = (NODE_URLS_OR_EMPTY, "must be http://HOST:PORT, or several with commas in between")
_SHA256 = ("([0-9a-f]{64})?", "must be 64 lowercase hex characters")

SETTINGS: tuple[Setting, ...] = (
    Setting("host", str, "127.0.0.1", Matches(r"[0-9A-Za-z.:_-]+", "must be a host or address")),
    Setting("host_names", str, "", Matches(NAMES, "must be names with commas in between")),
    Setting("cors_origins", str, "", Matches(ORIGINS, "must be http(s)://HOST, several, or *")),
    Setting("port", int, DEFAULT_PORT, Between(1, 65535 - GRPC_PORT_OFFSET), Change.NEVER),
    Setting("data_dir", str, _default_data_dir(), Matches(r"[^\0]+", "must be a path")),
    Setting("token", str, "", Matches(*_TOKEN)),
    Setting("model", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("model_hash", str, "", Matches(*_SHA256)),
    Setting("draft", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("layers", str, "all", _LAYERS),
    Setting("dtype", str, AUTO, Matches(*_DTYPES), Change.NEVER),
    Setting("device", str, "cpu", Matches(*_DEVICES), Change.NEVER),
    Setting("tracker_url", str, "", Matches(*_TRACKERS), Change.RESTART),
    Setting("chain.model", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("genesis_sha256", str, "", Matches(*_SHA256)),
    Setting("network_profile", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("sponsor_tasks", int, 0, Between(0, 1_000_000)),
    Setting("price_per_token_atoms", int, 1000, Between(0, 1_000_000_000)),
    Setting("free_inference", str, "loopback", Matches("none|loopback|all", FREE_TO)),
    Setting("settle_every_s", float, 10.0, AboveZero(86_400)),
    Setting("artifacts_dir", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("reference_dir", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("training_text", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("tls_cert", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("tls_key", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("tls_ca", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("trusted_proxies", str, "", Networks()),
    Setting("public_metrics", bool, False, Anything()),
    Setting("log_requests", bool, True, Anything()),
    Setting("log_format", str, "text", Matches("text|json", "must be 'text' or 'json'")),
    Setting("currency", str, "MESH", Matches(r"[A-Z0-9]{2,12}", "must be 2 to 12 of A-Z, 0-9")),
    Setting("drain_s", float, 10.0, Between(0, 3600)),
    Setting("training.enabled", bool, False, Anything(), Change.LIVE),
    Setting("training.batch_size", int, 8, Between(1, 65536), Change.LIVE),
    Setting("training.learning_rate", float, 1e-4, AboveZero(1), Change.LIVE),
    Setting("training.diloco_steps", int, 500, Between(1, 1_000_000), Change.LIVE),
    Setting("training.gradients", str, "auto", Matches(*_GRADIENTS)),
    Setting("training.upload_mib", float, 0.0, Between(0, 1_000_000)),
    Setting("training.serve", str, "better", Matches(*_SERVE)),
    Setting("training.exchange", bool, False, Anything()),
    Setting("resources.max_memory_gb", float, 4.0, AboveZero(65536), Change.RESTART),
    Setting("resources.cpu_threads", int, _threads(), Between(1, 1024), Change.RESTART),
    Setting("chain.engine", str, SOLO, Matches(*ENGINE_NAMES)),
    Setting("chain.genesis", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("chain.p2p", str, "", Matches(*HOST_PORT)),
    Setting("chain.peers", str, "", Matches(*ENGINES)),
    Setting("chain.state_sync", str, "", Matches(*_TRACKERS)),
    Setting("chain.trust", str, "", Matches(*TRUST)),
    Setting("chain.snapshot_every", int, 1000, Between(0, 1_000_000_000)),
    Setting("pipeline.chain", bool, True, Anything()),
    Setting("pipeline.mixed", bool, True, Anything()),
    Setting("pipeline.checks", float, 1 / 128, Between(0, 1)),
    Setting("pipeline.call_s", float, 5.0, AboveZero(600)),
    Setting("pipeline.speculate", bool, True, Anything()),
    Setting("pipeline.forward", bool, True, Anything()),
    Setting("pipeline.short_cut", bool, True, Anything()),
    Setting("pipeline.convoys", bool, True, Anything()),
    Setting("pipeline.move_layers", bool, False, Anything()),
    Setting("limits.requests_per_second_per_address", float, 200.0, AboveZero(1_000_000)),
    Setting("limits.burst_per_address", int, 200, Between(1, 1_000_000)),
    Setting("limits.requests_per_second_per_token", float, 100.0, AboveZero(1_000_000)),
    Setting("limits.burst_per_token", int, 100, Between(1, 1_000_000)),
    Setting("limits.native_requests_per_minute", int, 240, Between(1, 1_000_000)),
    Setting("limits.max_batch", int, 32, Between(1, 1024)),
    Setting("limits.max_queue", int, 64, Between(0, 65536)),
    Setting("limits.max_body_bytes", int, 1 << 20, Between(1024, 1 << 30)),
)

BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How this node trains (interface 2.1 Configuration)."""

    enabled: bool
    """Whether this node trains with others."""
    batch_size: int
    """Sequences of text in one inner step."""
    learning_rate: float
    """The size of an inner step."""
    diloco_steps: int
    """Inner steps between two outer steps."""
    gradients: str
    """The format of contributions, or ``auto`` (decision 0190)."""
    upload_mib: float
    """MiB that a node sends of sparse contributions in a round, at most; 0 for no bound."""
    serve: str
    """Which trained weights are served: ``off``, ``latest`` or ``better`` (decision 0225)."""
    exchange: bool
    """Whether the pipeline that this node drives trains in rounds with others (decision 0222)."""


@dataclass(frozen=True, slots=True)
class ResourcesConfig:
    """The resources that the node may use (interface 2.1 Configuration)."""

    max_memory_gb: float
    """The process's private memory: weights, KV cache and training, in GiB (decision 0157)."""
    cpu_threads: int
    """Threads that compute."""


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits for clients' requests."""

    requests_per_second_per_address: float
    """Requests of one address that are served in the long run."""
    burst_per_address: int
    """How many of them may come at once."""
    requests_per_second_per_token: float
    """Requests with one bearer token that are served in the long run."""
    burst_per_token: int
    """How many of them may come at once."""
    native_requests_per_minute: int
    """Requests to the public native API that one address may make each minute."""
    max_batch: int
    """The most generations and peers' sessions computed together."""
    max_queue: int
    """The most that may wait for a place in the batch."""
    max_body_bytes: int
    """The largest body of an HTTP request, in bytes."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. Strings are empty where nothing is set."""

    host: str
    """The address to listen on."""
    host_names: str
    """Further names under which clients reach the node, separated by commas; ``*`` for any."""
    cors_origins: str
    """Origins whose pages may use the node, separated by commas; ``*`` for any."""
    port: int
    """The HTTP port; the gRPC port is always this plus 1000."""
    data_dir: str
    """The folder of everything that the node keeps."""
    token: str
    """The operator's token; empty for one that is made at the first start."""
    model: str
    """A directory, a GGUF file, ``smollm2``, or ``network``; empty for the default model."""
    model_hash: str
    """The hash of the only model to accept, fetched or in a directory, if not empty."""
    draft: str
    """The model that guesses tokens ahead (decision 0231); empty: the default model's own one;
    ``int4`` or ``int8``: a copy of the model itself in this format; ``none``: there is none."""
    layers: str
    """The layers to hold: ``all``, ``auto``, one, or FIRST-LAST."""
    dtype: str
    """The format in which weights are kept; ``auto`` is the narrowest that loses nothing."""
    device: str
    """The device that computes; ``auto`` is a CUDA device with room for the weights, or the CPU."""
    tracker_url: str
    """URLs of nodes to join through, separated by commas."""
    genesis_sha256: str
    """The genesis hash of the only chain to follow, if not empty."""
    network_profile: str
    """A TOML file with the profile of a chain that this node starts."""
    sponsor_tasks: int
    """Training tasks on the chain that this node pays for, over its life."""
    price_per_token_atoms: int
    """The price of each generated token; 1000 atoms are 0.001 units."""
    free_inference: str
    """Who generates over gRPC without a token: ``none``, ``loopback`` or ``all``."""
    settle_every_s: float
    """Seconds between two payments of what an account owes."""
    artifacts_dir: str
    """A folder whose manifest lists further files to mirror."""
    reference_dir: str
    """A folder with the export of an older chain, shown read-only."""
    training_text: str
    """A folder of text to train on, or ``chain`` for the chain's data set (decision 0227)."""
    tls_cert: str
    """A PEM file with the certificate of both ports and those that lead to its authority."""
    tls_key: str
    """A PEM file with the certificate's key."""
    tls_ca: str
    """A PEM file with the authorities that sign peers' certificates; peers then need TLS."""
    trusted_proxies: str
    """Addresses and networks of proxies that are believed about their clients."""
    public_metrics: bool
    """Whether ``/metrics`` needs no token, wherever the client is."""
    log_requests: bool
    """Whether the log has a line for each HTTP request."""
    log_format: str
    """``text`` for people, ``json`` for programs."""
    currency: str
    """The code of the currency in answers."""
    drain_s: float
    """Seconds that streams may take to finish after SIGTERM."""
    training: TrainingConfig
    resources: ResourcesConfig
    chain: ChainConfig
    pipeline: PipelineConfig
    limits: LimitsConfig

    @property
    def grpc_port(self) -> int:
        """The HTTP port plus 1000 (interface 1)."""
        return self.port + GRPC_PORT_OFFSET


def validate_value(setting: Setting, value: object) -> Value:
    """Check ``value`` against its row and return it in the row's type.

    An integral float stands for an integer and an integer for a number; a boolean is neither.
    Raises InvalidRequest with the setting's key and the reason.
    """
    kind = setting.kind
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 1e300 else math.inf
    if kind is int and type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidRequest(setting.key, f"must be {type_names[kind]}")
    reason = setting.check(value)
    if reason is not None:
        raise InvalidRequest(setting.key, reason)
    return value


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn nested tables into dotted keys. A table that is no group of settings is a value.

    A name with a dot raises InvalidRequest, since two spellings of one key could conflict."""
    flat: dict[str, object] = {}
    for name, value in tree.items():
        key = prefix + name
        if "." in name:
            raise InvalidRequest(key, "is not a setting; settings in a group are nested objects")
        if isinstance(value, Mapping) and any(known.startswith(key + ".") for known in BY_KEY):
            flat.update(flatten(value, key + "."))
        else:
            flat[key] = value
    return flat


def nest(flat: Mapping[str, Value]) -> dict[str, object]:
    """Turn dotted keys into nested tables: the inverse of :func:`flatten`."""
    tree: dict[str, object] = {}
    for key, value in flat.items():
        table, _, name = key.rpartition(".")
        if table:
            branch = tree.setdefault(table, {})
            assert isinstance(branch, dict)  # noqa: S101 - the table's keys have one dot at most
            branch[name] = value
        else:
            tree[name] = value
    return tree


def build_config(flat: Mapping[str, Value]) -> Config:
    """Make a Config of checked values; a key that is absent takes its default."""
    values = {setting.key: flat.get(setting.key, setting.default) for setting in SETTINGS}
    tree = nest(values)
    groups = {
        "training": TrainingConfig,
        "resources": ResourcesConfig,
        "chain": ChainConfig,
        "pipeline": PipelineConfig,
        "limits": LimitsConfig,
    }
    for name, group in groups.items():
        branch = tree[name]
        assert isinstance(branch, dict)  # noqa: S101 - the table above has these groups
        tree[name] = group(**branch)
    return Config(**tree)  # type: ignore[arg-type]  # each value passed validate_value


def values_of(config: Config) -> dict[str, Value]:
    """Every setting by its dotted key: the inverse of :func:`build_config`."""
    values: dict[str, Value] = {}
    for setting in SETTINGS:
        group, _, name = setting.key.rpartition(".")
        values[setting.key] = getattr(getattr(config, group) if group else config, name)
    return values


def held_layers(config: Config) -> range | None:
    """The configured range of layers; None for ``all`` and ``auto``."""
    if config.layers in ("all", AUTO):
        return None
    first, _, last = config.layers.partition("-")
    return range(int(first), int(last or first) + 1)
