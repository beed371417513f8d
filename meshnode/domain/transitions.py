"""State machines whose transition tables are data.

A table maps every state to the states that may follow it. A machine changes its state only in
``_enter``, which calls :func:`checked` first, so code and table cannot disagree. The tests compare
each table with the one in the module's docstring, and with the transitions that were seen in tests
(``spec_tests/domain/transition_tables.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

StateType = TypeVar("StateType", bound=Enum)


class IllegalTransition(RuntimeError):
    """A machine tried to enter a state that its table does not allow: an error in its code."""


def checked(
    table: Mapping[StateType, frozenset[StateType]], old: StateType, new: StateType
) -> StateType:
    """Return ``new``. Raises IllegalTransition if ``table`` does not allow it after ``old``."""
    if new not in table[old]:
        raise IllegalTransition(f"{old.name} is never followed by {new.name}")
    return new
