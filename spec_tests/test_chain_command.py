"""What ``meshnode chain`` refuses; ``processes/`` has chains that it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshnode.chain_command import run_chain_command
from meshnode.cli import command_parser
from meshnode.domain.errors import InvalidRequest
from meshnode.sources import load_config


def test_a_genesis_of_nobody_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "genesis.json"
    options = command_parser().parse_args(
        ["chain", "init", "--validators", ",,", "--out", str(out)]
    )
    with pytest.raises(InvalidRequest, match="names no validator"):
        run_chain_command(options, load_config({}, {}, None), "")
    assert not out.exists()
