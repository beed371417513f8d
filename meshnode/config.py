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
from meshnode.domain.checks import AboveZero, Anything, Between, Check, LayerRange, Matches
from meshnode.domain.errors import InvalidRequest, StartupError

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
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return str(Path(base).expanduser() / "meshnode")


AUTO = "auto"
"""For ``layers``: choose by the memory available and by what the network lacks."""
NETWORK_MODEL = "network"
"""For ``model``: use the model that the trackers serve, fetched from the nodes that hold it."""
_LAYERS = LayerRange(("all", AUTO))

_SHA256 = ("([0-9a-f]{64})?", "must be 64 lowercase hex characters")

SETTINGS: tuple[Setting, ...] = (
    Setting("host", str, "127.0.0.1", Matches(r"[0-9A-Za-z.:_-]+", "must be a host or address")),
    Setting(
        "host_names",
        str,
        "",
        Matches(r"(\*|[0-9A-Za-z.-]+)?(,[0-9A-Za-z.-]+)*", "must be names with commas in between"),
    ),
    Setting("port", int, DEFAULT_PORT, Between(1, 65535 - GRPC_PORT_OFFSET), Change.NEVER),
    Setting("data_dir", str, _default_data_dir(), Matches(r"[^\0]+", "must be a path")),
    Setting(
        "token",
        str,
        "",
        Matches(r"[A-Za-z0-9._~+/-]*=*", "must be a bearer token: letters, digits and ._~+/-="),
    ),
    Setting("model", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("model_hash", str, "", Matches(*_SHA256)),
    Setting("layers", str, "all", _LAYERS),
    Setting(
        "tracker_url",
        str,
        "",
        Matches(NODE_URLS_OR_EMPTY, "must be http://HOST:PORT, or several with commas in between"),
        Change.RESTART,
    ),
    Setting("genesis_sha256", str, "", Matches(*_SHA256)),
    Setting("network_profile", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("sponsor_tasks", int, 0, Between(0, 1_000_000)),
    Setting("price_per_token_atoms", int, 1000, Between(0, 1_000_000_000)),
    Setting("settle_every_s", float, 10.0, AboveZero(86_400)),
    Setting("artifacts_dir", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("reference_dir", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("training_text", str, "", Matches(r"[^\0]*", "must be a path")),
    Setting("log_requests", bool, True, Anything()),
    Setting("log_format", str, "text", Matches("text|json", "must be 'text' or 'json'")),
    Setting("currency", str, "MESH", Matches(r"[A-Z0-9]{2,12}", "must be 2 to 12 of A-Z, 0-9")),
    Setting("drain_s", float, 10.0, Between(0, 3600)),
    Setting("training.enabled", bool, False, Anything(), Change.LIVE),
    Setting("training.batch_size", int, 8, Between(1, 65536), Change.LIVE),
    Setting("training.learning_rate", float, 1e-4, AboveZero(1), Change.LIVE),
    Setting("training.diloco_steps", int, 500, Between(1, 1_000_000), Change.LIVE),
    Setting("resources.max_memory_gb", float, 4.0, AboveZero(65536), Change.RESTART),
    Setting("resources.cpu_threads", int, _threads(), Between(1, 1024), Change.RESTART),
    Setting("pipeline.chain", bool, True, Anything()),
    Setting("pipeline.call_s", float, 5.0, AboveZero(600)),
    Setting("limits.requests_per_second_per_address", float, 100.0, AboveZero(1_000_000)),
    Setting("limits.burst_per_address", int, 200, Between(1, 1_000_000)),
    Setting("limits.requests_per_second_per_token", float, 50.0, AboveZero(1_000_000)),
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
    batch_size: int
    learning_rate: float
    diloco_steps: int
    """Inner steps between two outer steps."""


@dataclass(frozen=True, slots=True)
class ResourcesConfig:
    """The resources that the node may use (interface 2.1 Configuration)."""

    max_memory_gb: float
    """Weights, KV cache and training together, in GiB."""
    cpu_threads: int


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """How generations run over other nodes."""

    chain: bool
    """Whether holders forward hidden states (SwarmForward); otherwise the driver calls each."""
    call_s: float
    """Deadline of one call to a holder, in seconds (interface 8: 5 s)."""


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Limits for clients' requests."""

    requests_per_second_per_address: float
    burst_per_address: int
    requests_per_second_per_token: float
    burst_per_token: int
    native_requests_per_minute: int
    """Requests to the public native API that one address may make each minute."""
    max_batch: int
    """The most generations and peers' sessions computed together."""
    max_queue: int
    """The most of them that may wait for a place in the batch."""
    max_body_bytes: int


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. Strings are empty where nothing is set."""

    host: str
    host_names: str
    """Further names under which clients reach the node, separated by commas; ``*`` for any."""
    port: int
    data_dir: str
    token: str
    model: str
    """A directory, or ``network``; empty for the default model."""
    model_hash: str
    """The hash of the only model to accept, fetched or in a directory, if not empty."""
    layers: str
    tracker_url: str
    """One or several URLs, separated by commas."""
    genesis_sha256: str
    """The genesis hash of the only chain to follow, if not empty."""
    network_profile: str
    """A TOML file with the profile of a chain that this node starts."""
    sponsor_tasks: int
    """Training tasks on the chain that this node pays for, over its life."""
    price_per_token_atoms: int
    """The price of each generated token; 1000 atoms are 0.001 units."""
    settle_every_s: float
    artifacts_dir: str
    """A folder whose manifest lists further files to mirror."""
    reference_dir: str
    """A folder with the export of an older chain, shown read-only."""
    training_text: str
    """A folder of text to train on; empty for the chain's data set."""
    log_requests: bool
    """Whether the log has a line for each HTTP request."""
    log_format: str
    currency: str
    drain_s: float
    """Seconds that streams in flight may take to finish after SIGTERM."""
    training: TrainingConfig
    resources: ResourcesConfig
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


def parse_text(setting: Setting, text: str) -> Value:
    """Read ``text``, from a flag or the environment, as a value of ``setting``."""
    value: object = text
    try:
        if setting.kind is bool:
            value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        elif setting.kind is not str:
            value = setting.kind(text)
    except (KeyError, ValueError):
        raise InvalidRequest(setting.key, f"must be {type_names[setting.kind]}") from None
    return validate_value(setting, value)


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn nested tables into dotted keys. A table that is not a group of settings is a value.

    Raises InvalidRequest for a name with a dot, since two spellings of one key could conflict.
    """
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


def checked(source: str, tree: Mapping[str, object]) -> dict[str, Value]:
    """Check all values of one source; StartupError names the source and the first fault."""
    values: dict[str, Value] = {}
    try:
        for key, value in flatten(tree).items():
            setting = BY_KEY.get(key)
            if setting is None:
                raise InvalidRequest(key, "is not a setting")
            values[key] = validate_value(setting, value)
    except InvalidRequest as error:
        raise StartupError(f"{source}: {error}") from None
    return values


def held_layers(config: Config) -> range | None:
    """The configured range of layers; None for ``all`` and ``auto``."""
    if config.layers in ("all", AUTO):
        return None
    first, _, last = config.layers.partition("-")
    return range(int(first), int(last or first) + 1)
