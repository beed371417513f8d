"""A ledger in a separate process survives SIGKILL at any step, and a full disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes.nodes import environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
WITHIN_S = 300


def program(command: str, folder: Path, *arguments: str) -> list[str]:
    """The command line that runs ``ledger_process``."""
    module = "spec_tests.processes.ledger_process"
    return [sys.executable, "-m", module, command, str(folder), *arguments]


@pytest.mark.slow
def test_killed_at_every_step_of_every_commit(tmp_path: Path) -> None:
    """A kill at any statement, from the first start to the second block, loses nothing."""
    ended = subprocess.run(
        program("kill-everywhere", tmp_path),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["height"] == 2
    # A start and two commits have more steps than this. Fewer would mean that none were counted.
    assert said["steps"] > 40


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        program("run", folder, *arguments),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WITHIN_S)
        process.stdout.close()
        process.stderr.close()


def read(process: subprocess.Popen[str]) -> list[Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    found: list[Any] = json.loads(line)
    return found


def test_what_was_announced_is_there_after_a_kill(tmp_path: Path) -> None:
    known: dict[int, str] = {}
    for turn in range(3):
        with running(tmp_path) as process:
            word, height, block_hash = read(process)
            assert word == "open"
            if known:
                # All announced blocks are there; one that was being written may be there as well.
                assert height >= max(known)
                known[height] = block_hash
            for _ in range(3 + turn):
                word, height, block_hash = read(process)
                assert word == "block"
                assert height > max(known, default=0)
                known[height] = block_hash
            process.send_signal(signal.SIGKILL)
            process.wait(WITHIN_S)
            assert process.stdout is not None
            for line in process.stdout:
                _, height, block_hash = json.loads(line)
                known[height] = block_hash
    said = subprocess.run(
        program("show", tmp_path),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    )
    _, _, hashes = json.loads(said.stdout)
    for height, block_hash in known.items():
        assert hashes[height - 1] == block_hash


def test_a_full_disk_stops_blocks_and_nothing_else(tmp_path: Path) -> None:
    with running(tmp_path, "200000") as process:
        heights: list[int] = []
        trouble: list[tuple[str, int, str]] = []
        assert read(process)[0] == "open"
        while not trouble or heights[-1] <= trouble[0][1] + 1:
            word, height, text = read(process)
            if word == "trouble":
                trouble.append((word, height, text))
            else:
                heights.append(height)
        assert heights == sorted(set(heights))
        assert "the ledger cannot be written" in trouble[0][2]
        process.kill()
        process.wait(WITHIN_S)
    with running(tmp_path) as process:
        word, height, _ = read(process)
        assert (word, height >= heights[-1]) == ("open", True)
