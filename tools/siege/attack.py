"""What an attack is, and the registry: each module in ``attacks`` is one, and has an ``ATTACK``.

A new attack is a new module; nothing else has to be edited. Shared code lies outside ``attacks``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.siege import attacks


@dataclass(frozen=True, slots=True)
class Target:
    """The node that is attacked, as an attacker knows it."""

    host: str
    http_port: int
    grpc_port: int
    token: str
    """The bearer token of a paying customer, who is one of the attackers. Its account is funded."""
    pid: int
    """For faults of the system that no client can cause, such as a lower limit of open files."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack, and the node that it needs."""

    description: str
    """One line: what the attacker does."""
    run: Callable[[Target, Sequence[str]], Awaitable[None]]
    """Attacks until it is cancelled, from the given local addresses. It may raise nothing: an
    attacker whose connection is refused or closed tries again."""
    point: int = 0
    """The point of the list of attacks that it shows; 0 if it is not on that list."""
    files: int = 0
    """``ulimit -n`` of the node, soft and hard; 0 for the limit of whoever starts the siege."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the node, such as MESHNODE_TRAINING_ENABLED."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the node's command line, such as ``--layers 0-3``."""
    peers: tuple[tuple[str, ...], ...] = ()
    """The arguments of further honest nodes, which have the target as their tracker."""
    announces: bool = False
    """Whether ``run`` calls :func:`announce` itself, because it takes a while to get ready."""


BEGUN = "attacking"
"""The line on standard output with which an attack begins."""


def announce() -> None:
    """Tell the siege that the attack begins."""
    print(BEGUN, flush=True)


def attack_names() -> list[str]:
    """The names of all attacks, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(attacks.__path__))


def load_attack(name: str) -> Attack:
    """The attack in the module of that name. ValueError if the module has none."""
    found = getattr(importlib.import_module(f"{attacks.__name__}.{name}"), "ATTACK", None)
    if not isinstance(found, Attack):
        raise ValueError(f"tools/siege/attacks/{name}.py has no ATTACK")
    return found
