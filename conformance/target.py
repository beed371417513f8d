"""What is known about a target, from `conformance.toml`, flags and a probe, in that order.

Invariant: what a target does not declare is not applicable, never failed. Flags override the file.
"""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conformance.catalogue import Effect, Profile
from conformance.editions import CURRENT, DRAFT, EDITIONS
from conformance.httprequest import ANONYMOUS, Credential, bearer
from conformance.messagefile import BadFile, MessageFile, read_message
from conformance.shapes import is_path

GRPC_PORT_OFFSET = 1000
DEFAULT_BUDGET = 1.0


class BadConfiguration(Exception):
    """The flags or the file are invalid; the message names the setting."""


FIRST_NAME, SECOND_NAME = "$TOKEN", "$SECOND_TOKEN"


@dataclass(frozen=True)
class Target:
    """One target, and what the run may do to it. Times are in seconds, the budget is in units."""

    url: str
    profiles: frozenset[Profile] = frozenset()
    grpc: str | None = None
    token: str | None = field(default=None, repr=False)
    expired_token: str | None = field(default=None, repr=False)
    second_token: str | None = field(default=None, repr=False)
    # What is shown instead of the token.
    token_name: str = FIRST_NAME
    send_to: str | None = None
    legacy_gone: tuple[str, ...] = ()
    legacy_redirected: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    public_key: str | None = None
    request_id: str | None = None
    artifact: str | None = None
    gradient: MessageFile | None = None
    # How the operator restarts the node: a program and its arguments, without a shell.
    restart_command: str | None = field(default=None, repr=False)
    # How the operator has inference requests signed: a program and its arguments, without a shell.
    signer: str | None = field(default=None, repr=False)
    rpc: str | None = None
    field_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    allow: frozenset[Effect] = frozenset()
    budget: float = DEFAULT_BUDGET
    timeout_s: float = 10.0
    inference_timeout_s: float = 60.0
    max_wait_s: float = 120.0
    burst_s: float = 6.0
    # The model that is asked in OpenAI's form; without it the first one that the target lists.
    model: str | None = None
    examples: int = 20
    seed: int = 0
    edition: int = CURRENT
    # The share of the MUSTs that has to be proved, and the profiles that have to be served.
    require: float | None = None
    require_profiles: frozenset[Profile] = frozenset()
    # Whether settings beyond the address and the token are declared for it.
    declared: bool = False
    # Why a profile is not applicable, where a probe has found it out.
    absent: Mapping[Profile, str] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, str]:
        """Return the secrets by the names that are shown instead of them."""
        named = {
            "TOKEN": self.token,
            "EXPIRED_TOKEN": self.expired_token,
            "SECOND_TOKEN": self.second_token,
        }
        return {name: secret for name, secret in named.items() if secret}

    @property
    def valid(self) -> Credential:
        """Return the credential of the declared token, or an anonymous one if there is none."""
        return bearer(self.token, self.token_name) if self.token else ANONYMOUS

    @property
    def second(self) -> Credential:
        """Return the credential of the second account, or of the first if there is none."""
        return bearer(self.second_token, SECOND_NAME) if self.second_token else self.valid

    def of_second(self) -> "Target":
        """Return the target as it is for whoever has the second token, and no other one."""
        return replace(self, token=self.second_token, token_name=SECOND_NAME, second_token=None)

    @property
    def expired(self) -> Credential:
        """Return the credential of the declared expired token, or an anonymous one."""
        return bearer(self.expired_token, "$EXPIRED_TOKEN") if self.expired_token else ANONYMOUS

    @property
    def has(self) -> frozenset[str]:
        """Return the `needs` that the target meets."""
        met = {
            "token": self.token,
            "expired_token": self.expired_token,
            "grpc": self.grpc,
            "legacy_paths": self.legacy_gone or self.legacy_redirected,
            "pipeline": self.pipeline,
            "field_map": self.field_map,
            "reference": self.reference,
            "public_key": self.public_key,
            "request_id": self.request_id,
            "artifact": self.artifact,
            "gradient": self.gradient,
            "restart": self.restart_words,
            "signer": self.signer,
        }
        return frozenset(need for need, value in met.items() if value)

    @property
    def restart_words(self) -> list[str]:
        """Return the words of the command that restarts the node; none without one."""
        return shlex.split(self.restart_command or "")

    def allows(self, effect: Effect) -> bool:
        """Return whether a check with this effect may run."""
        return effect is Effect.READ or effect in self.allow


def documented_grpc_address(url: str) -> str:
    """Return host:port of the gRPC server that belongs to an HTTP address (interface 1)."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{_bracketed(parts.hostname or '')}:{port + GRPC_PORT_OFFSET}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_TYPES: dict[str, type | tuple[type, ...]] = {
    "url": str,
    "profiles": list,
    "grpc": str,
    "token": str,
    "expired_token": str,
    "second_token": str,
    "send_to": str,
    "legacy_gone": list,
    "legacy_redirected": list,
    "reference": list,
    "public_key": str,
    "request_id": str,
    "artifact": str,
    "gradient": str,
    "restart_command": str,
    "signer": str,
    "rpc": str,
    "model": str,
    "field_map": dict,
    "pipeline": dict,
    "allow": list,
    "budget": (int, float),
    "timeout_s": (int, float),
    "inference_timeout_s": (int, float),
    "max_wait_s": (int, float),
    "burst_s": (int, float),
    "examples": int,
    "seed": int,
    "edition": int,
    "require": (int, float),
    "require_profiles": list,
}


def read_file(path: Path) -> dict[str, Any]:
    """Read the table `[target]` of a `conformance.toml`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadConfiguration(f"{path}: {error}") from None
    unknown = set(document) - {"target"}
    if unknown:
        raise BadConfiguration(
            f"{path}: unknown tables {sorted(unknown)}; there are only [target],"
            " [target.field_map] and [target.pipeline]"
        )
    table = document.get("target", {})
    if not isinstance(table, dict):
        raise BadConfiguration(f"{path}: [target] is not a table")
    gradient = table.get("gradient")
    if isinstance(gradient, str):
        # A path in the file is relative to the file.
        table["gradient"] = str(path.parent / gradient)
    return table


def make_target(settings: Mapping[str, Any]) -> Target:
    """Validate settings named as in `conformance.toml` and make a target from them."""
    unknown = set(settings) - set(_TYPES)
    if unknown:
        raise BadConfiguration(f"unknown settings: {', '.join(sorted(unknown))}")
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
            raise BadConfiguration(f"{name}: {value!r} has the wrong type")
    url = settings.get("url")
    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadConfiguration(f"url: {url!r} is not http://HOST:PORT")
    try:
        known = {
            **settings,
            "profiles": frozenset(Profile(name) for name in settings.get("profiles", ())),
            "require_profiles": frozenset(
                Profile(name) for name in settings.get("require_profiles", ())
            ),
            "allow": frozenset(Effect.named(name) for name in settings.get("allow", ())),
            "legacy_gone": tuple(settings.get("legacy_gone", ())),
            "legacy_redirected": tuple(settings.get("legacy_redirected", ())),
            "reference": tuple(settings.get("reference", ())),
            "field_map": {
                name: (paths,) if isinstance(paths, str) else tuple(paths)
                for name, paths in settings.get("field_map", {}).items()
            },
        }
    except (KeyError, ValueError, AttributeError) as error:
        raise BadConfiguration(f"profiles or allow: {error}") from None
    _validate_tables(settings)
    for name in ("restart_command", "signer"):
        _validate_command(name, settings.get(name))
    if "gradient" in settings:
        known["gradient"] = _gradient(settings["gradient"])
    target = Target(**known)
    if target.edition not in (*EDITIONS, DRAFT):
        frozen = ", ".join(map(str, EDITIONS))
        raise BadConfiguration(f"edition: there are only {frozen}, and the draft of {DRAFT}")
    if target.require is not None and not 0 <= target.require <= 1:
        raise BadConfiguration("require: must be a share from 0 to 1, such as 0.9")
    for name in ("timeout_s", "inference_timeout_s", "examples"):
        if getattr(target, name) <= 0:
            raise BadConfiguration(f"{name}: must be above zero")
    for name in ("token", "expired_token", "second_token"):
        secret = getattr(target, name)
        if secret is not None and not (secret.isascii() and secret.isprintable() and secret):
            raise BadConfiguration(f"{name}: a bearer token is one line of visible ASCII")
    if target.profiles & {Profile.GRPC, Profile.DHT, Profile.PIPELINE} and not target.grpc:
        target = replace(target, grpc=documented_grpc_address(target.url))
    return target


def _validate_command(name: str, command: str | None) -> None:
    try:
        words = shlex.split(command) if command is not None else ["none"]
    except ValueError as error:
        raise BadConfiguration(f"{name}: {error}") from None
    if not words:
        raise BadConfiguration(f"{name}: is empty")


def _gradient(path: str) -> MessageFile:
    try:
        return read_message(path, "GossipGradientRequest")
    except BadFile as error:
        raise BadConfiguration(f"gradient: {error}") from None


# What a native resource is to contain, by its path: interface 2.2 says that, and names no fields.
CONTENTS: Mapping[str, tuple[str, ...]] = {
    "/api/network": ("chain", "genesis", "round", "readiness"),
    "/api/model": ("parameters", "revision", "roots", "losses", "profile"),
    "/api/model/checkpoint.json": ("adapter", "chain", "root"),
    "/api/training": ("loss", "roots", "progress"),
    "/api/blocks": ("results",),
    "/api/validators": ("owners", "power"),
    "/api/inference": ("chain", "genesis", "root", "provider", "heartbeat", "queue"),
    "/work/status": ("stages", "attempts"),
}
# Values in native answers whose field names the document does not give. A path has dots, and [] for
# every entry of an array.
MAPPED = frozenset(
    {
        *(f"{path} {name}" for path, names in CONTENTS.items() for name in names),
        "/api/network height", "/api/network hash", "/api/network money",
        "/api/blocks height", "/api/block height", "/api/block hash",
        "/api/training round", "/api/account money", "/api/account nonce", "/api/validators money",
        "/api/inference money",
    }
)  # fmt: skip
_PIPELINE: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "shard": int,
    "absent_shard": int,
    "hidden_shape": list,
    "last": bool,
    "past_entries": int,
    "training": bool,
    "backward_metadata": dict,
}
FORMATS = ("float32", "bfloat16")
RPC = "jsonrpc"


def _validate_tables(settings: Mapping[str, Any]) -> None:
    for name, value in settings.get("field_map", {}).items():
        if name not in MAPPED:
            raise BadConfiguration(f"field_map: {name!r} is not one of {', '.join(sorted(MAPPED))}")
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
            raise BadConfiguration(f"field_map: {name} must be a path or an array of paths")
        for path in (one for one in paths if not is_path(one)):
            why = "keys with dots between them, such as blocks[].height, in an object"
            raise BadConfiguration(f"field_map: {name} = {path!r} is no path: {why}")
    if settings.get("rpc", RPC) != RPC:
        raise BadConfiguration(f"rpc: the suite supports only {RPC!r}")
    pipeline = settings.get("pipeline", {})
    for name, value in pipeline.items():
        if name not in _PIPELINE or not isinstance(value, _PIPELINE[name]):
            raise BadConfiguration(f"pipeline: {name} = {value!r} is unknown or has the wrong type")
    if pipeline and not {"shard", "hidden_shape"} <= set(pipeline):
        raise BadConfiguration("pipeline: needs at least shard and hidden_shape")
    for name, value in pipeline.get("backward_metadata", {}).items():
        if name != name.lower() or not isinstance(value, str):
            raise BadConfiguration(
                f"pipeline: backward_metadata: {name} = {value!r}: names must be in lower case,"
                " and values must be strings"
            )
    if pipeline.get("format", FORMATS[0]) not in FORMATS:
        raise BadConfiguration(f"pipeline: format must be one of {', '.join(FORMATS)}")
