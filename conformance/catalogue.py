"""The requirements: one for each testable statement of the document, read from `requirements/`.

Terms: `level` says how binding a statement is; `origin` says whether the document states it
(stated), it follows by good sense (derived), or the document leaves it open (silent); `effect` is
what testing it does to the target; `needs` is what the target has to declare first; `check` names
the check that tests it; `shown_when` names the state of a target in which the check can see
anything, where a target may conform without ever being in that state.

Invariants, enforced on loading: ids are unique; only a stated requirement is a MUST; a silent one
is OBSERVE; every other one names its check or the reason why it is unchecked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from importlib import resources
from typing import Any, cast

import yaml

from conformance.strictjson import TYPES


class Level(StrEnum):
    """How binding a statement is."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"
    OBSERVE = "OBSERVE"


class Origin(StrEnum):
    """Where a statement comes from."""

    STATED = "stated"
    DERIVED = "derived"
    SILENT = "silent"


class Profile(StrEnum):
    """A part of the interface that a target serves completely or not at all."""

    NODE_API = "node-api"
    TRAINING = "training"
    NATIVE_API = "native-api"
    GRPC = "grpc"
    DHT = "dht"
    PIPELINE = "pipeline"
    OPENAI = "openai"
    # What a node does as a client of others, which only a peer sees.
    PEER = "peer"


# What a run judges from outside, without a node of its own.
SERVED = frozenset(Profile) - {Profile.PEER}


class Effect(IntEnum):
    """What testing a statement does to the target, from harmless to unpleasant."""

    READ = 0
    MUTATE = 1
    SPEND = 2
    INTRUSIVE = 3

    @classmethod
    def named(cls, name: str) -> "Effect":
        """Return the effect with this name."""
        return cls[name.upper()]

    def __str__(self) -> str:
        """Return the name as the catalogue spells it."""
        return self.name.lower()


NEEDS = frozenset(
    {
        "token", "expired_token", "grpc", "legacy_paths", "pipeline", "field_map", "reference",
        "public_key", "request_id", "artifact", "gradient", "peer", "callback", "restart",
        "signer",
    }
)  # fmt: skip
SCALARS = frozenset({"string", "bytes", "bool", "int32", "int64", "double"})


class CatalogueError(Exception):
    """The catalogue breaks its own rules: a fault of the suite."""


@dataclass(frozen=True)
class Condition:
    """A field is judged only if another field equals this value, or is above it."""

    path: str
    equals: Any = None
    above: float | None = None


@dataclass(frozen=True)
class FieldRule:
    """One field of a JSON resource: that it is present, or its type."""

    of: str
    path: str
    aspect: str
    format: str | None = None
    when: Condition | None = None


@dataclass(frozen=True)
class MessageRule:
    """One field of a gRPC message: its number and type."""

    name: str
    field: str
    number: int
    type: str
    repeated: bool = False


@dataclass(frozen=True)
class Requirement:
    """One testable statement of the document, in the suite's own words."""

    id: str
    section: str
    level: Level
    origin: Origin
    text: str
    profile: Profile
    effect: Effect
    needs: frozenset[str]
    check: str | None
    unchecked: str | None
    shown_when: str | None
    field: FieldRule | None
    message: MessageRule | None
    source: str
    # Why a SHOULD is not a MUST.
    why: str | None = None
    # The first edition that scores it, where older ones list it without a check.
    since: int = 1


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a duplicate key in a mapping is an error."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = [(loader.construct_object(k, deep=True), v) for k, v in node.value]
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise CatalogueError(f"{node.start_mark}: key {key!r} occurs twice")
    return {key: loader.construct_object(value, deep=True) for key, value in pairs}


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)

_FILE_KEYS = {"section", "defaults", "requirements"}
_ENTRY_KEYS = {
    "id", "section", "level", "origin", "text", "profile", "effect", "needs",
    "check", "unchecked", "shown_when", "field", "message", "why", "since",
}  # fmt: skip


def parse_file(text: str, source: str) -> list[Requirement]:
    """Read one file of the catalogue. Raises `CatalogueError`, or `YAMLError` if it is not YAML."""
    document = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader with one more rule
    if not isinstance(document, dict) or set(document) != _FILE_KEYS:
        raise CatalogueError(f"{source}: needs exactly the keys {sorted(_FILE_KEYS)}")
    return [
        _entry({"section": document["section"], **document["defaults"], **item}, source)
        for item in document["requirements"]
    ]


def _entry(item: Mapping[str, Any], source: str) -> Requirement:
    where = f"{source}: {item.get('id')}"
    unknown = set(item) - _ENTRY_KEYS
    if unknown:
        raise CatalogueError(f"{where}: unknown keys {sorted(unknown)}")
    for key in ("id", "section", "text"):
        if not isinstance(item.get(key), str) or not item[key].strip():
            raise CatalogueError(f"{where}: {key} must be a non-empty string")
    try:
        requirement = Requirement(
            id=item["id"],
            section=item["section"],
            level=Level(item["level"]),
            origin=Origin(item["origin"]),
            text=item["text"],
            profile=Profile(item["profile"]),
            effect=Effect.named(item["effect"]),
            needs=frozenset(item.get("needs", ())),
            check=item.get("check"),
            unchecked=item.get("unchecked"),
            shown_when=item.get("shown_when"),
            field=_field_rule(item["field"]) if "field" in item else None,
            message=MessageRule(**item["message"]) if "message" in item else None,
            source=source,
            why=item.get("why"),
            since=item.get("since", 1),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise CatalogueError(f"{where}: {error!r}") from None
    _validate_entry(requirement, where)
    return requirement


def _field_rule(raw: Mapping[str, Any]) -> FieldRule:
    when = raw.get("when")
    rule = FieldRule(
        of=raw["of"],
        path=raw["path"],
        aspect=raw["is"],
        format=raw.get("format"),
        when=Condition(**when) if when else None,
    )
    if rule.aspect != "present" and rule.aspect not in TYPES:
        raise ValueError(f"unknown type {rule.aspect!r}")
    if rule.format not in (None, "timestamp", "date"):
        raise ValueError(f"unknown format {rule.format!r}")
    return rule


def _validate_entry(requirement: Requirement, where: str) -> None:
    silent = requirement.origin is Origin.SILENT
    if requirement.level is Level.MUST and requirement.origin is not Origin.STATED:
        raise CatalogueError(f"{where}: only a stated requirement is a MUST")
    # A silent requirement is reported, never failed.
    if silent and requirement.level is not Level.OBSERVE:
        raise CatalogueError(f"{where}: a silent requirement is OBSERVE")
    if requirement.check and requirement.unchecked:
        raise CatalogueError(f"{where}: has a check and a reason why it has none")
    if requirement.shown_when and not requirement.check:
        raise CatalogueError(f"{where}: shown_when without a check")
    if not silent and not requirement.check and not requirement.unchecked:
        raise CatalogueError(f"{where}: has neither a check nor a reason why it has none")
    if (requirement.level is Level.SHOULD) != bool(requirement.why):
        raise CatalogueError(f"{where}: a SHOULD, and nothing else, says why it is no MUST")
    unknown = requirement.needs - NEEDS
    if unknown:
        raise CatalogueError(f"{where}: unknown needs {sorted(unknown)}")
    if not requirement.text.endswith("."):
        raise CatalogueError(f"{where}: the text must be a sentence")


@cache
def load() -> Mapping[str, Requirement]:
    """Read the whole catalogue of the suite, by id, in the order of its files."""
    found: dict[str, Requirement] = {}
    folder = resources.files("conformance") / "requirements"
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not path.name.endswith(".yaml"):
            continue
        for requirement in parse_file(path.read_text(encoding="utf-8"), path.name):
            if requirement.id in found:
                raise CatalogueError(f"{path.name}: {requirement.id} occurs twice")
            found[requirement.id] = requirement
    return cast("Mapping[str, Requirement]", found)


@cache
def fields_of(resource: str) -> tuple[str, ...]:
    """Return the ids of the field entries of one JSON resource."""
    return tuple(
        item.id for item in load().values() if item.field is not None and item.field.of == resource
    )


@cache
def fields_of_message(*names: str) -> tuple[str, ...]:
    """Return the ids of the field entries of these gRPC messages."""
    return tuple(
        item.id
        for item in load().values()
        if item.message is not None and item.message.name in names
    )


def section_key(section: str) -> tuple[int, ...]:
    """Return a sort key for a section number, so that 4.2 comes before 4.10."""
    return tuple(int(part) for part in section.split("."))
