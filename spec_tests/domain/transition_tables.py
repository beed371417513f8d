"""Transition tables as text: written from the data, and read from a module's docstring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from types import ModuleType
from typing import TypeVar

from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

MAX_RUNS = 40
"""Runs of 50 examples after which a transition that never happened is taken for impossible."""

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


def run_until_all_happened(
    machine: type[RuleBasedStateMachine],
    table: Mapping[StateType, frozenset[StateType]],
    taken: set[tuple[str, str]],
    steps: int = 50,
) -> None:
    """Run a machine with one seed after another until ``taken`` has every transition of a table.

    How many runs that takes is up to Hypothesis: it also draws constants that it finds in the
    modules imported so far, and these differ from one test process to the next.
    """
    profile = settings(max_examples=50, stateful_step_count=steps, database=None)
    for number in range(MAX_RUNS):
        # A class of its own, because the seed stays with the class.
        seeded = seed(number)(type(machine.__name__, (machine,), {}))
        run_state_machine_as_test(seeded, settings=profile)
        if taken >= pairs(table):
            break
    assert draw(taken) == draw(pairs(table))
