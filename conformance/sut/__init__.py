"""Known implementations: how each is installed and started, so that anybody can judge it again.

`recipes.yaml` has one entry for each. Terms: a *recipe* is what a user would type; `{port}`,
`{token}`, `{data}`, `{bin}`, `{python}` and `{source}` stand for a free port, a token made for this
run, an empty folder, the folder of installed programs, the interpreter, and a checkout.

Invariants: everything is installed into an environment of its own below the cache, and never into
the one that the suite runs in; the implementation runs in an empty home, on 127.0.0.1 where it can
be told so, and is stopped at the end; nothing of it is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, cast

import yaml


@dataclass(frozen=True)
class Recipe:
    """How one implementation is installed and started. Times are seconds."""

    name: str
    title: str
    about: str
    # Where the version is: a string, or "source" for what the implementation says of itself.
    version: str
    start: tuple[str, ...]
    ready: str
    ready_s: float
    # Arguments of `pip install`, one call each.
    install: tuple[tuple[str, ...], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    # What its `conformance.toml` would have.
    target: Mapping[str, Any] = field(default_factory=dict)
    # A file of an installed package, by a glob below site-packages, as {file}.
    file: str | None = None


@cache
def recipes() -> Mapping[str, Recipe]:
    """Return all recipes by name."""
    text = (resources.files("conformance") / "sut" / "recipes.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return {
        name: Recipe(
            name=name,
            **{
                **cast("dict[str, Any]", entry),
                "start": tuple(entry["start"]),
                "install": tuple(tuple(call) for call in entry.get("install", ())),
            },
        )
        for name, entry in found.items()
    }
