"""Every shell line of the documentation, run as a reader would run it, page by page."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from spec_tests.docs.pages import ROOT, is_run, name_of, pages, steps
from spec_tests.docs.sandbox import Sandbox

pytestmark = [pytest.mark.slow, pytest.mark.process]

FRESH = {"docs/tutorials/first-node.md"}
"""Pages whose nodes are started from nothing; other nodes are forked, which saves seconds each."""
WITH_COMMANDS = {
    name_of(page): page for page in pages() if any(map(is_run, steps(page.read_text("utf-8"))))
}


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_of_a_page_do_what_it_says(name: str, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, fresh=name in FRESH)
    missing: dict[int, str] = {}
    try:
        for step in steps((ROOT / name).read_text(encoding="utf-8")):
            if step.word == "needs" and not there(step.value):
                missing[step.section] = f"line {step.line} needs {step.value}"
            wanted = is_run(step) or step.word in ("file", "output", "stop")
            if not wanted or (step.section in missing and step.word != "stop"):
                continue
            try:
                sandbox.take(step)
            except AssertionError as error:
                raise AssertionError(f"{name}:{step.line}: {error}") from None
    finally:
        sandbox.close()
    if missing:
        pytest.skip("all the rest did: " + "; ".join(missing.values()))


def there(name: str) -> bool:
    """Whether a program or a package is installed."""
    return shutil.which(name) is not None or find_spec(name) is not None
