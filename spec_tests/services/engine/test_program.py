"""The engine's program: missing, of another version, or fit to be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshnode.domain.errors import StartupError
from meshnode.services.engine.program import find_program


def program(folder: Path, version: str) -> str:
    path = folder / "cometbft"
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("version", ["0.38.25", "v0.38.9", "0.38.0-rc1"])
def test_the_line_that_this_node_speaks_is_taken(tmp_path: Path, version: str) -> None:
    assert find_program(program(tmp_path, version)) == str(tmp_path / "cometbft")


@pytest.mark.parametrize("version", ["0.37.4", "1.0.1", "", "what?", "0.380.1"])
def test_another_version_is_refused_in_one_line(tmp_path: Path, version: str) -> None:
    with pytest.raises(StartupError, match=r"this node needs 0\.38: go install") as caught:
        find_program(program(tmp_path, version))
    assert "\n" not in str(caught.value)


def test_a_missing_program_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"no cometbft is on the PATH: go install"):
        find_program(str(tmp_path))
