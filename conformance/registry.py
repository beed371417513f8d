"""The checks that have been registered, by name, and the requirements that each may rule on.

A check is a function of a `Context`. `@requirement(...)` declares what it proves; ruling on
anything else is a fault of the suite. What the check may do to a target, and what it needs from
one, follows from the requirements that name it in the catalogue. A check that has to wait is a
generator of its pauses, in seconds: others may run meanwhile.

This module imports no check: `suite` brings them together.
"""

import inspect
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cache

from conformance.catalogue import Effect, Profile, Requirement, load
from conformance.context import Context

Pauses = Generator[float, None, None]
CheckFunction = Callable[[Context], Pauses | None]


@dataclass(frozen=True)
class Check:
    """One check. `proves` holds the ids of all requirements that it may rule on."""

    name: str
    function: CheckFunction
    proves: frozenset[str]
    summary: str

    @property
    def pauses(self) -> bool:
        """Whether others may run while the check waits."""
        return inspect.isgeneratorfunction(self.function)

    def begin(self, context: Context) -> Pauses:
        """Return the steps of the check; each ends with the seconds until the next one."""
        steps = self.function(context)
        if steps is not None:
            yield from steps

    def run(self, context: Context) -> None:
        """Run the check from its beginning to its end."""
        for pause_s in self.begin(context):
            time.sleep(pause_s)

    @property
    def own(self) -> tuple[Requirement, ...]:
        """The requirements that name this check in the catalogue."""
        return _by_check().get(self.name, ())

    @property
    def effect(self) -> Effect:
        """What the check does to a target."""
        return max((item.effect for item in self.own), default=Effect.READ)

    @property
    def needs(self) -> frozenset[str]:
        """What a target has to declare before the check can run."""
        return frozenset().union(*(item.needs for item in self.own))

    @property
    def profiles(self) -> frozenset[Profile]:
        """The profiles that the check is part of."""
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
    """Register a function as a check of these requirements; `name` replaces the function's name."""

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


def registered() -> Mapping[str, Check]:
    """Return the checks that have been registered so far, in that order."""
    return dict(_checks)
