"""The pytest plugin: `pytest --pyargs conformance --node-url URL` runs the suite once.

Each requirement becomes one test: a MUST that is violated or stays open fails, a requirement that
is not judged is skipped, and below MUST a violated or open one passes with a warning. The options
are those of the command line, with the prefix `--node-`.
"""

import argparse
import os
import warnings
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conformance import baseline
from conformance.catalogue import CatalogueError
from conformance.report import document, text
from conformance.run import Runner
from conformance.session import LOG, target_from, write_reports
from conformance.target import BadConfiguration

# The name of the installed entry point, so that the plugin is not registered twice.
NAME = "conformance"
ENTRY = "test_target.py"
PREFIX = "--node-"


class ConformanceWarning(UserWarning):
    """A requirement below MUST that is violated or stays open."""


class _Options:
    """Adds a prefix to the command line's options, so that they cannot clash with pytest's."""

    names: ClassVar[list[str]] = ["url"]
    """The options that a target is made from, as the command line names them."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def addoption(self, flag: str, **settings: Any) -> None:
        """Add one option."""
        self.names.append(flag[2:].replace("-", "_"))
        flag = flag.replace("--", PREFIX, 1)
        self._group.addoption(flag, dest=flag[2:].replace("-", "_"), **settings)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the target."""
    from conformance.options import add_target_options

    group = parser.getgroup("conformance", "conformance of a node")
    group.addoption("--node-url", metavar="URL", help="the node to judge: http://HOST:PORT")
    group.addoption("--node-out", metavar="DIR", help="folder for the reports")
    group.addoption("--node-baseline", metavar="FILE", help="known failures")
    add_target_options(_Options(group))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the target's tests if there is a target, else the suite's own tests."""
    here = Path(__file__).parent
    if here not in collection_path.parents:
        return None
    is_entry = collection_path.name == ENTRY
    if config.getoption("node_url"):
        return None if is_entry else True
    return True if is_entry else None


def _settings(config: pytest.Config) -> argparse.Namespace:
    given = {name: config.getoption(f"node_{name}") for name in _Options.names}
    return argparse.Namespace(**given)


@pytest.fixture(scope="session")
def conformance_report(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Run the suite once and return its report."""
    try:
        target = target_from(_settings(pytestconfig), os.environ)
        path = pytestconfig.getoption("node_baseline")
        known = baseline.read(Path(path)) if path else None
    except (BadConfiguration, CatalogueError) as error:
        pytest.exit(f"meshnode-conformance: {error}", returncode=4)
    out = Path(folder) if (folder := pytestconfig.getoption("node_out")) else None
    if out:
        out.mkdir(parents=True, exist_ok=True)
    runner = Runner(target, log=out / LOG if out else None, baseline=known)
    built = document.build(runner.run())
    if out:
        write_reports(built, out)
    return built


def judge_item(built: dict[str, Any], ident: str) -> None:
    """Turn the outcome of one requirement into the outcome of a test."""
    item = next(entry for entry in built["requirements"] if entry["id"] == ident)
    shown = text.render_item(built, item)
    outcome = item["outcome"]
    if outcome == "fail" and item["known"]:
        pytest.xfail(shown)
    if outcome == "fail" or (outcome == "open" and item["level"] == "MUST"):
        pytest.fail(shown, pytrace=False)
    if outcome in ("warn", "open"):
        warnings.warn(ConformanceWarning(shown), stacklevel=2)
    if outcome in ("skip", "note"):
        pytest.skip(item["reason"] or item["standing"])
