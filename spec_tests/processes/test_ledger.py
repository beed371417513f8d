"""A ledger in a separate process survives SIGKILL at any step, a full disk, a second keeper."""

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

CHAIN = """
import hashlib, json, os, resource, signal, sqlite3, sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {root!r})
import trio
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.services.ledger.ledgers import GENESIS, KEY
from meshnode.services.ledger import serve_ledger
from meshnode.services.ledger.keeper import Keeper

SECOND = 1_000_000_000
folder = Path(sys.argv[1])

def transfer(nonce):
    fields = {{"kind": "transfer", "chain_id": "test-chain-1", "nonce": nonce, "to": BOB.key}}
    return ALICE.sign({{**fields, "amount": 1000 + nonce}})

def reach(where, height):
    '''Go on to a height, a transfer a block; what the chain is then.'''
    keeper = Keeper(where, GENESIS, FakeModel(), KEY)
    done = 0 if keeper.opened.latest is None else keeper.opened.latest.height
    for nonce in range(done, height):
        result = keeper.submit(transfer(nonce))
        assert result.code == 0, result.log
        stored = keeper.make_block(1_800_000_000 * SECOND + nonce * SECOND)
        assert len(stored.transactions) == 1
        done = stored.height
    root = keeper._app.app_hash.hex()
    hashes = [keeper._database.block(h).hash.hex() for h in range(1, done + 1)]
    keeper.close()
    return done, root, hashes
"""

EVERY_STEP = """
steps = 0
kill_at = 0

class Connection(sqlite3.Connection):
    '''Every statement is a step; before the chosen one the process is killed.'''

    def step(self):
        global steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, *arguments):
        self.step()
        return super().execute(*arguments)

    def executemany(self, *arguments):
        self.step()
        return super().executemany(*arguments)

    def executescript(self, *arguments):
        self.step()
        return super().executescript(*arguments)

plain = sqlite3.connect
sqlite3.connect = partial(plain, factory=Connection)

def child(where, at, write):
    global kill_at, steps
    kill_at, steps = at, 0
    told = reach(where, 2)
    os.write(write, json.dumps([steps, told]).encode())

def in_child(where, at):
    '''What a fresh process says, or None when it was killed.'''
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(where, at, write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as said:
        text = said.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, "the child has failed"
    return json.loads(text)

(folder / "whole").mkdir()
count, whole = in_child(folder / "whole", 0)
heights = set()
for at in range(1, count + 1):
    where = folder / str(at)
    where.mkdir()
    assert in_child(where, at) is None
    # Killed again while it recovers, a few statements further on.
    if at % 3 == 0:
        in_child(where, 5 + at % 7)
    _, after = in_child(where, 0)
    assert after == whole, (at, after, whole)
print(json.dumps({"steps": count, "height": whole[0]}))
"""

RUNNING = """
async def main():
    async with trio.open_nursery() as nursery:
        serve = partial(serve_ledger, folder, GENESIS, FakeModel(), KEY, None)
        ledger = await nursery.start(serve)
        print(json.dumps(["open", ledger.height, ledger.latest and ledger.latest.hash.hex()]))
        sys.stdout.flush()
        height = ledger.height
        while True:
            result = await ledger.query("/account", {"public_key": ALICE.key})
            sent = await ledger.submit(transfer(json.loads(result.value)["nonce"]))
            with trio.move_on_after(1):
                height, _ = await ledger.wait_transaction(sent.hash)
                stored = await ledger.block(height)
                print(json.dumps(["block", height, stored.hash.hex()]), flush=True)
            if ledger.trouble:
                print(json.dumps(["trouble", ledger.height, ledger.trouble]), flush=True)
                unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))

if len(sys.argv) > 2:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
trio.run(main)
"""


def program(*parts: str) -> str:
    return "\n".join([CHAIN.format(root=str(ROOT)), *parts])


def test_killed_at_every_step_of_every_commit(tmp_path: Path) -> None:
    """A kill at any statement, from the first start to the second block, loses nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", program(EVERY_STEP), str(tmp_path)],
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
        [sys.executable, "-c", program(RUNNING), str(folder), *arguments],
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
    whole = program("print(json.dumps(reach(folder, 0)))")
    said = subprocess.run(
        [sys.executable, "-c", whole, str(tmp_path)],
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
