"""JSON Schemas of the types of bodies and parameters, for the OpenAPI document.

A body's type is a ``TypedDict``, so that mypy holds the code that makes an answer to the type that
describes it. Ranges, patterns and defaults stand in ``Annotated[..., Limits(...)]``. An object has
the keys of its type and no others, unless the type is marked with :func:`extensible`: requests in
which unknown keys are ignored, and answers that show a part of the chain's state.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Json = dict[str, Any]
Kind = Any
"""A type, annotated or not, or a :class:`NamedSchema`."""

_Class = TypeVar("_Class")

_PLAIN: dict[Any, Json] = {
    str: {"type": "string"},
    bytes: {"type": "string", "format": "binary"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a type's values are limited to, and what a reader should know of them."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    max_items: int | None = None
    pattern: str | None = None
    format: str | None = None
    default: bool | float | str | tuple[()] | None = None
    description: str | None = None

    def keywords(self) -> Json:
        """The limits as keywords of JSON Schema."""
        default: Any = [] if self.default == () else self.default
        every = {
            "minimum": self.minimum,
            "exclusiveMinimum": self.above,
            "maximum": self.maximum,
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "maxItems": self.max_items,
            "pattern": self.pattern,
            "format": self.format,
            "default": default,
            "description": self.description,
        }
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema that no Python type expresses. ``uses`` are the types that it refers to by name."""

    name: str
    schema: Json
    uses: tuple[Kind, ...] = ()


def extensible(kind: type[_Class]) -> type[_Class]:
    """Mark a TypedDict whose objects may have further keys."""
    kind.__extensible__ = True  # type: ignore[attr-defined]
    return kind


def reference(name: str) -> Json:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


class Schemas:
    """Collects the schemas of a document: objects by name, everything else in place."""

    def __init__(self) -> None:
        self.named: Json = {}
        self._kinds: dict[str, Kind] = {}

    def of(self, kind: Kind) -> Json:
        """The schema of ``kind``, or a reference to it."""
        if isinstance(kind, NamedSchema):
            if self._claim(kind.name, kind):
                self.named[kind.name] = kind.schema
                for used in kind.uses:
                    self.of(used)
            return reference(kind.name)
        if is_typeddict(kind):
            if self._claim(kind.__name__, kind):
                self.named[kind.__name__] = self._object(kind)
            return reference(kind.__name__)
        origin: Any = get_origin(kind)
        arguments = get_args(kind)
        if origin is Annotated:
            schema = dict(self.of(arguments[0]))
            for limits in arguments[1:]:
                schema.update(limits.keywords())
            return schema
        if origin is Literal:
            return {"enum": list(arguments)} if len(arguments) > 1 else {"const": arguments[0]}
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in arguments]}
        return dict(_PLAIN[kind])

    def _claim(self, name: str, kind: Kind) -> bool:
        """Whether ``kind`` is new here. Two types of one name could not be distinguished."""
        known = self._kinds.setdefault(name, kind)
        if known is not kind:
            raise ValueError(f"two schemas have the name {name}")
        if name in self.named:
            return False
        self.named[name] = {}
        return True

    def _object(self, kind: Kind) -> Json:
        properties, required = {}, []
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if get_origin(hint) is NotRequired:
                properties[name] = self.of(get_args(hint)[0])
            else:
                properties[name] = self.of(hint)
                required.append(name)
        schema: Json = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        if not getattr(kind, "__extensible__", False):
            schema["additionalProperties"] = False
        return schema
