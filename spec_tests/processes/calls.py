"""Describe what a test's process does by a list of functions with their arguments.

To change something in a node's process, a test lists a function that is called there first; the
last function is the program. ``python -m spec_tests.processes.calls CALLS ARGUMENT...`` runs such a
list in a fresh process. The functions are in modules, where linters and mypy read them.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from meshnode.cli import main

Call = partial[Any]
"""A function at the top level of a module, with keyword arguments that JSON can hold."""

NODE = partial(main)
"""The node's command line, with the arguments of the process."""


def dump(calls: Sequence[Call]) -> str:
    """The calls as JSON text for :func:`run`."""
    return json.dumps([[c.func.__module__, c.func.__name__, c.keywords] for c in calls])


def run(text: str) -> None:
    """Make the calls that :func:`dump` wrote, in their order."""
    for module, function, keywords in json.loads(text):
        getattr(importlib.import_module(module), function)(**keywords)


def command(calls: Sequence[Call], *arguments: str) -> list[str]:
    """The command line of a fresh process that makes these calls."""
    return [sys.executable, "-m", __spec__.name, dump(calls), *arguments]


if __name__ == "__main__":
    wanted = sys.argv.pop(1)
    run(wanted)
