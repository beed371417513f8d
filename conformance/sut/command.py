"""`meshnode-conformance sut NAME`: install, start and judge a known implementation.

It is ours alone and stopped afterwards, so everything is allowed unless `--allow` says otherwise.
"""

import argparse
import json
import os
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance import results, session
from conformance.options import add_target_options
from conformance.sut import Recipe, recipes
from conformance.sut.running import install, started
from conformance.target import BadConfiguration, Target, make_target

ALLOW = ("mutate", "spend", "intrusive")
# Of an instance that nobody else uses.
BUDGET = 1000.0
ITSELF = "itself"


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="one of those that are listed without a name"
    )
    command.add_argument(
        "--source", type=Path, metavar="DIR", help="checkout of the implementation; default: here"
    )
    command.add_argument(
        "--python", type=Path, metavar="FILE",
        help="interpreter in which it is installed already, instead of one of its own",
    )  # fmt: skip
    command.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="add the report to a table of results"
    )
    add_target_options(command)
    session.add_run_options(command)
    command.set_defaults(url=None)


def run(options: argparse.Namespace) -> int:
    """Install, start and judge; return the exit code of the run."""
    if options.name is None:
        for recipe in recipes().values():
            print(f"{recipe.name:20} {recipe.version:10} {recipe.about}")
        return 0
    if options.name not in recipes():
        raise BadConfiguration(f"no recipe {options.name!r}; there are {', '.join(recipes())}")
    recipe = recipes()[options.name]
    source = _source(recipe, options.source)
    python = options.python or install(recipe, cache(), source)
    # A relative path would be looked for in the implementation's own folder.
    python = Path(os.path.abspath(python))
    with started(recipe, python, source) as settings:
        target = session.asked(_target(settings, options))
        built = session.judge(target, options)
        version = _version(target) if recipe.version == ITSELF else recipe.version
    if options.publish:
        of = results.Implementation(recipe.name, version, how(recipe))
        for path in results.publish(built, of, options.publish):
            print(path, file=sys.stderr)
    return session.conclude(built)


def cache() -> Path:
    """Return the folder in which implementations are installed."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "meshnode-conformance"


def how(recipe: Recipe) -> str:
    """Return how the implementation is started, for the table."""
    return f"{recipe.about}; `meshnode-conformance sut {recipe.name}`"


def _source(recipe: Recipe, given: Path | None) -> Path | None:
    if not any("{source}" in word for call in recipe.install for word in call):
        return None
    source = (given or Path.cwd()).resolve()
    if not (source / "pyproject.toml").is_file():
        raise BadConfiguration(f"{recipe.name}: {source} is no checkout; name one with --source")
    return source


def _target(settings: dict[str, Any], options: argparse.Namespace) -> Target:
    given = session.given(options)
    known = {"allow": list(ALLOW), "budget": BUDGET, **settings, **given}
    return replace(make_target(known), declared=len(settings) > len(("url", "token")))


def _version(target: Target) -> str:
    """Return the version that a node reports of itself."""
    with urllib.request.urlopen(target.url + "/api/v1/status", timeout=10) as answer:  # noqa: S310 - our own URL
        return str(json.load(answer).get("version") or "unknown")
