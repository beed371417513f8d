"""The checks, by name, and the requirements that each of them can rule on.

A check is a function of a `Context`. `@requirement(...)` declares what it proves; ruling on
anything else is a fault of the suite. What the check may do to a target, and what it needs of one,
follows from the requirements that name it in the catalogue.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from conformance.catalogue import Effect, Profile, Requirement, load

if TYPE_CHECKING:
    from conformance.context import Context

CheckFunction = Callable[["Context"], None]


@dataclass(frozen=True)
class Check:
    """One check. `proves` holds every id that it may rule on."""

    name: str
    run: CheckFunction
    proves: frozenset[str]
    summary: str

    @property
    def own(self) -> tuple[Requirement, ...]:
        """Give the requirements that name this check in the catalogue."""
        return _by_check().get(self.name, ())

    @property
    def effect(self) -> Effect:
        """Say what the check does to a target."""
        return max((item.effect for item in self.own), default=Effect.READ)

    @property
    def needs(self) -> frozenset[str]:
        """Say what a target has to declare before the check can run."""
        return frozenset().union(*(item.needs for item in self.own))

    @property
    def profiles(self) -> frozenset[Profile]:
        """Say of which profiles the check is a part."""
        return frozenset(item.profile for item in self.own)


_checks: dict[str, Check] = {}


@cache
def _by_check() -> Mapping[str, tuple[Requirement, ...]]:
    found: dict[str, list[Requirement]] = {}
    for item in load().values():
        if item.check:
            found.setdefault(item.check, []).append(item)
    return {name: tuple(items) for name, items in found.items()}


def requirement(*ids: str, name: str | None = None) -> Callable[[CheckFunction], CheckFunction]:
    """Declare a function to be a check of these requirements; its name is the check's."""

    def register(function: CheckFunction) -> CheckFunction:
        check_name = name or function.__name__.replace("_", "-")
        add(check_name, function, ids)
        return function

    return register


def add(name: str, function: CheckFunction, ids: tuple[str, ...]) -> None:
    """Register a check under a name."""
    if name in _checks:
        raise ValueError(f"two checks are called {name}")
    summary = (function.__doc__ or "").strip().splitlines()[0] if function.__doc__ else ""
    _checks[name] = Check(name, function, frozenset(ids), summary)


@cache
def checks() -> Mapping[str, Check]:
    """Give all checks in the order in which they run: by effect, then as they are written."""
    import conformance.checks  # noqa: F401 - importing the package registers its checks

    return dict(sorted(_checks.items(), key=lambda pair: pair[1].effect))


def fields_of(resource: str) -> tuple[str, ...]:
    """Give the ids of the catalogue's field entries of one JSON resource."""
    return tuple(
        item.id for item in load().values() if item.field is not None and item.field.of == resource
    )


def fields_of_message(*names: str) -> tuple[str, ...]:
    """Give the ids of the catalogue's field entries of these gRPC messages."""
    return tuple(
        item.id
        for item in load().values()
        if item.message is not None and item.message.name in names
    )
