"""Transition tables as text: written from the data, and read from a module's docstring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from types import ModuleType
from typing import TypeVar

StateType = TypeVar("StateType", bound=Enum)


def draw(transitions: Iterable[tuple[str, str]]) -> str:
    """The transitions as sorted lines, one for each."""
    return "\n".join(sorted({f"{old} → {new}".lower() for old, new in transitions}))


def pairs(table: Mapping[StateType, frozenset[StateType]]) -> set[tuple[str, str]]:
    """The transitions that a table allows, as pairs of state names."""
    return {(old.name, new.name) for old, following in table.items() for new in following}


def documented(module: ModuleType) -> set[tuple[str, str]]:
    """The transitions that the first table in the module's docstring has, as pairs of names."""
    _, head, body, *_ = re.split(r"^=[= ]+=\n", f"{module.__doc__}\n", flags=re.MULTILINE)
    rule = re.search(r"^=[= ]+=$", f"{module.__doc__}", flags=re.MULTILINE)
    assert rule
    columns = [slice(*column.span()) for column in re.finditer("=+", rule.group())]
    names = [head[column].strip() for column in columns]
    state, following = columns[names.index("state")], columns[names.index("next")]
    rows = [line for line in body.splitlines() if line[state].strip()]
    return {(row[state].strip(), row[following].strip()) for row in rows}
