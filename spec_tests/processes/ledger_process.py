"""A ledger in a process of its own, as a program: ``python ledger_process.py COMMAND FOLDER``.

Results are lines of JSON. The commands:

- ``kill-everywhere``: kill the process at each statement of SQLite, start again, compare.
- ``run [BYTES]``: serve the ledger and make blocks; no file may grow beyond BYTES.
- ``show``: print the chain that the folder holds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.services.ledger import serve_ledger
from meshnode.services.ledger.keeper import Keeper
from spec_tests.domain.chain.net import ALICE, BOB, FakeModel
from spec_tests.services.ledger.ledgers import GENESIS, KEY

SECOND = 1_000_000_000
START_NS = 1_800_000_000 * SECOND
HEIGHT = 2
"""Height of the chain that ``kill-everywhere`` makes."""

Chain = tuple[int, str, list[str]]
"""Height, state root, and the hashes of all blocks."""


def transfer(nonce: int) -> bytes:
    """A transfer whose amount depends on its nonce, so that each block differs."""
    fields: dict[str, Json] = {"kind": "transfer", "chain_id": "test-chain-1", "nonce": nonce}
    return ALICE.sign({**fields, "to": BOB.key, "amount": 1000 + nonce})


def reach(folder: Path, height: int) -> Chain:
    """Open the chain, make blocks of one transfer each up to ``height``, and describe it."""
    keeper = Keeper(folder, GENESIS, FakeModel(), KEY)
    done = 0 if keeper.opened.latest is None else keeper.opened.latest.height
    for nonce in range(done, height):
        result = keeper.submit(transfer(nonce))
        assert result.code == 0, result.log
        stored = keeper.make_block(START_NS + nonce * SECOND)
        assert len(stored.transactions) == 1
        done = stored.height
    root = keeper._app.app_hash.hex()
    blocks = [keeper._database.block(at) for at in range(1, done + 1)]
    keeper.close()
    return done, root, [block.hash.hex() for block in blocks if block is not None]


# kill-everywhere


class Connection(sqlite3.Connection):
    """Counts statements, and kills this process before statement number ``kill_at``."""

    count = 0
    kill_at = 0

    def _step(self) -> None:
        Connection.count += 1
        if Connection.count == Connection.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._step()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._step()
        return super().executemany(*arguments)

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        self._step()
        return super().executescript(*arguments)


def _reach_in_child(folder: Path, kill_at: int) -> tuple[int, Chain] | None:
    """Call :func:`reach` in a forked process that is killed at statement ``kill_at``; 0 is never.

    Returns the number of statements and the chain, or None if the process was killed.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            Connection.count, Connection.kill_at = 0, kill_at
            chain = reach(folder, HEIGHT)
            os.write(writing, json.dumps([Connection.count, chain]).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, "the child has failed"
    count, (height, root, hashes) = json.loads(text)
    return count, (height, root, hashes)


def kill_everywhere(folder: Path) -> None:
    """Kill a process at each of its statements. A restart must give the chain of an unharmed one.

    Prints the number of statements and the height.
    """
    sqlite3.connect = partial(sqlite3.connect, factory=Connection)  # type: ignore[assignment]
    unharmed = folder / "unharmed"
    unharmed.mkdir()
    first = _reach_in_child(unharmed, 0)
    assert first is not None
    count, whole = first
    for at in range(1, count + 1):
        killed = folder / str(at)
        killed.mkdir()
        assert _reach_in_child(killed, at) is None
        # Kill some a second time while they recover, a few statements further on.
        if at % 3 == 0:
            _reach_in_child(killed, 5 + at % 7)
        restarted = _reach_in_child(killed, 0)
        assert restarted is not None
        assert restarted[1] == whole, (at, restarted[1], whole)
    print(json.dumps({"steps": count, "height": whole[0]}))


# run


def _limit_files(limit: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if limit < 0 else limit, hard))


async def run(folder: Path) -> None:
    """Make blocks until killed, and print each. After trouble with the disk, lift the limit."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_ledger, folder, GENESIS, FakeModel(), KEY, None)
        ledger = await nursery.start(serve)
        _say("open", ledger.height, ledger.latest and ledger.latest.hash.hex())
        while True:
            result = await ledger.query("/account", {"public_key": ALICE.key})
            sent = await ledger.submit(transfer(json.loads(result.value)["nonce"]))
            with trio.move_on_after(1):
                height, _ = await ledger.wait_transaction(sent.hash)
                stored = await ledger.block(height)
                _say("block", height, stored.hash.hex())
            if ledger.trouble:
                _say("trouble", ledger.height, ledger.trouble)
                _limit_files(-1)


def _say(*values: object) -> None:
    print(json.dumps(values), flush=True)


def main(command: str, folder: str, limit: str = "") -> None:
    """Run one command."""
    if limit:
        _limit_files(int(limit))
    if command == "kill-everywhere":
        kill_everywhere(Path(folder))
    elif command == "run":
        trio.run(run, Path(folder))
    else:
        assert command == "show"
        print(json.dumps(reach(Path(folder), 0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
