"""A validator in a process of its own, with a real engine and without a model or an edge.

    python -m spec_tests.processes.comet.validator DOCUMENT

DOCUMENT is JSON: ``folder``, ``genesis`` (a path), ``seed`` of the consensus key, ``p2p`` and
``peers`` for the engine, ``pause_s`` between blocks. The tests' build of the application has
switches that no node has:

====================  ==========================================================================
``die_at``            kill this process at a point (see POINTS), in the block ``die_height``
``kill_engine_at``    the same for its engine
``freeze_engine_at``  stop its engine there with SIGSTOP
``wrong_from``        compute another state from this height on
``lies_from``         propose a transaction that is invalid from this height on
``snapshot_every``    blocks between two snapshots
``chunk_bytes``       bytes of entries in a chunk of a snapshot
``false_chunks``      give other nodes chunks with false contents
``rpc``               a port where light clients may ask the engine
``trust``             height and hash of a block, from which on ``servers`` are believed: state sync
``answer_s``          let the model take so many seconds for an answer
``node_seed``         another key for connections, for a second engine with the same consensus key
====================  ==========================================================================
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.application import Application, Finalized
from meshnode.domain.chain.blocks import Block
from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.records import Job
from meshnode.services.engine.child import Engine
from meshnode.services.engine.home import (
    HOME,
    RPC_SOCKET,
    EngineSettings,
    StateSync,
    node_key,
)
from meshnode.services.engine.light import serve_questions
from meshnode.services.engine.program import find_program
from meshnode.services.engine.rpc import EngineRefused, EngineRpc
from meshnode.services.engine.service import EngineSetup, serve_ordered_ledger
from meshnode.services.engine.standing import STILL_S
from meshnode.services.ledger.database import LedgerDatabase, create_ledger
from meshnode.services.ledger.decided import DecidedKeeper
from meshnode.services.ledger.ordered import OrderedLedger
from meshnode.services.ledger.restoring import Restoring
from meshnode.services.ledger.snapshots import PinnedState, SnapshotStore
from meshnode.services.ledger.validator_key import ValidatorKey
from spec_tests.domain.chain.net import FakeModel

POINTS = (
    "before decide",
    "after decide",
    "before write",
    "after write",
    "after commit",
    "before complete",
    "after complete",
)
"""Points around FinalizeBlock and Commit, in the order in which a block passes them."""
SYNC_POINTS = ("before chunk", "after exchange")
"""Points of state sync. Their height is the number of the chunk, and that of the snapshot."""

engines: list[Engine] = []


def _signal_engine(number: int) -> None:
    for engine in engines:
        try:
            os.kill(engine.pid, number)
        except ProcessLookupError:
            continue


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Switch:
    """Calls ``act`` once, at a point of a block."""

    def __init__(self, point: str, height: int, act: Callable[[], None]) -> None:
        self.point, self.height, self.act = point, height, act

    def __call__(self, point: str, height: int) -> None:
        if point == self.point and height >= self.height:
            self.point = ""
            self.act()


class SlowModel(FakeModel):
    """A model that takes some seconds for each answer, whatever else the machine does."""

    def __init__(self, answer_s: float) -> None:
        super().__init__()
        self.answer_s = answer_s

    def answer(self, job_id: str, job: Job) -> dict[str, Json]:
        time.sleep(self.answer_s)
        return super().answer(job_id, job)


def put_points_in(reached: Callable[[str, int], None]) -> None:
    """Have the application say which points it passes."""
    decide, commit = DecidedKeeper.decide, DecidedKeeper.commit
    write, complete = LedgerDatabase.write_decided, DecidedKeeper.complete

    def deciding(keeper: DecidedKeeper, block: Block, block_hash: bytes) -> Finalized:
        reached("before decide", block.frame.height)
        finalized = decide(keeper, block, block_hash)
        reached("after decide", block.frame.height)
        return finalized

    def writing(database: LedgerDatabase, decided: Any, *more: Any) -> None:
        reached("before write", decided.height)
        write(database, decided, *more)
        reached("after write", decided.height)

    def committing(keeper: DecidedKeeper) -> int:
        height = commit(keeper)
        reached("after commit", height)
        return height

    def completing(keeper: DecidedKeeper, block: Any, votes: Any) -> Any:
        reached("before complete", block.header.height)
        stored = complete(keeper, block, votes)
        reached("after complete", block.header.height)
        return stored

    add, adopt = Restoring.add, DecidedKeeper.adopt

    def adding(restoring: Restoring, index: int, data: bytes) -> None:
        reached("before chunk", index)
        add(restoring, index, data)

    def adopting(keeper: DecidedKeeper, staged: Path) -> None:
        adopt(keeper, staged)
        reached("after exchange", keeper.state_height)

    for owner, name, replacement in (
        (Restoring, "add", adding),
        (DecidedKeeper, "adopt", adopting),
        (DecidedKeeper, "decide", deciding),
        (DecidedKeeper, "commit", committing),
        (DecidedKeeper, "complete", completing),
        (LedgerDatabase, "write_decided", writing),
    ):
        setattr(owner, name, replacement)


def compute_otherwise(height: int) -> None:
    """From ``height`` on, have the application compute another root."""
    finalize = Application.finalize

    def wrong(app: Application, block: Block) -> Finalized:
        finalized = finalize(app, block)
        if block.frame.height >= height:
            changes = dict(finalized.changes)
            record = changes.get("supply") or app._store.get("supply") or b""
            changes["supply"] = record.replace(b'"burned":', b'"burned":1')
            nodes = app._tree.fresh(app._store, changes)
            root = app._tree.root_with(nodes)
            finalized = Finalized(
                finalized.block,
                finalized.results,
                finalized.validator_updates,
                finalized.effects,
                root,
                changes,
                nodes,
            )
            assert app._candidate is not None
            app._candidate.finalized = finalized
        return finalized

    setattr(Application, "finalize", wrong)  # noqa: B010 - a patch


def lie(height: int) -> None:
    """From ``height`` on, propose bytes that are no transaction."""
    propose = DecidedKeeper.propose

    def lying(keeper: DecidedKeeper, frame: Any, candidates: Any, room: int) -> Any:
        chosen = propose(keeper, frame, candidates, room)
        return (*chosen, b"not a transaction") if frame.height >= height else chosen

    setattr(DecidedKeeper, "propose", lying)  # noqa: B010 - a patch


def offer_falsely() -> None:
    """Change a byte of every chunk that is given to others."""
    load = SnapshotStore.load

    def false(store: SnapshotStore, height: int, index: int) -> bytes:
        content = bytearray(zlib.decompress(load(store, height, index)))
        content[len(content) // 2] ^= 1
        return zlib.compress(bytes(content))

    setattr(SnapshotStore, "load", false)  # noqa: B010 - a patch


def cut_into(chunk_bytes: int) -> None:
    """Make chunks of about this size."""
    take = SnapshotStore.take

    def taking(store: SnapshotStore, pinned: PinnedState) -> Any:
        return take(store, pinned, chunk_bytes)

    setattr(SnapshotStore, "take", taking)  # noqa: B010 - a patch


def switch_on(document: dict[str, Any]) -> None:
    """Put in what the document asks for."""
    begin = Engine.__init__

    def beginning(engine: Engine, program: str, home: Path) -> None:
        begin(engine, program, home)
        engines.append(engine)

    setattr(Engine, "__init__", beginning)  # noqa: B010 - a patch
    height = document.get("die_height", 0)
    if point := document.get("die_at"):
        put_points_in(Switch(point, height, _die))
    if point := document.get("kill_engine_at"):
        put_points_in(Switch(point, height, partial(_signal_engine, signal.SIGKILL)))
    if point := document.get("freeze_engine_at"):
        put_points_in(Switch(point, height, partial(_signal_engine, signal.SIGSTOP)))
    if document.get("false_chunks"):
        offer_falsely()
    if chunk_bytes := document.get("chunk_bytes"):
        cut_into(chunk_bytes)
    if height := document.get("wrong_from"):
        compute_otherwise(height)
    if height := document.get("lies_from"):
        lie(height)


class Gateway:
    """The engine's own answers, for light clients."""

    def __init__(self, rpc: EngineRpc) -> None:
        self._rpc = rpc

    async def answer(self, body: bytes) -> dict[str, Any]:
        question = json.loads(body)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            found = await self._rpc.call(question["method"], **question["params"])
        except EngineRefused as refusal:
            return {**answer, "error": json.dumps(refusal.error)}
        return {**answer, "result": found}


def _state_sync(document: dict[str, Any]) -> StateSync | None:
    if "trust" not in document:
        return None
    height, found = document["trust"]
    return StateSync(tuple(document["servers"]), height, found)


async def run(document: dict[str, Any]) -> None:
    """Validate until SIGTERM."""
    setup = EngineSetup(
        program=find_program(),
        validator=ValidatorKey.of(bytes.fromhex(document["seed"])),
        node_key=node_key(document.get("node_seed", document["seed"])),
        settings=EngineSettings(
            document["p2p"],
            document.get("peers", ""),
            block_pause_s=document.get("pause_s", 1.0),
            state_sync=_state_sync(document),
        ),
        snapshot_every=document.get("snapshot_every", 0),
        still_s=document.get("still_s", STILL_S),
    )
    folder = Path(document["folder"])
    genesis = await trio.to_thread.run_sync(Path(document["genesis"]).read_bytes)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            ledger: OrderedLedger = await nursery.start(
                serve_ordered_ledger,
                folder,
                genesis,
                SlowModel(document.get("answer_s", 0.0)),
                setup,
            )
            print("open", ledger.state_height, flush=True)
            if port := document.get("rpc"):
                gateway = Gateway(EngineRpc(folder / HOME / RPC_SOCKET))
                limit = trio.CapacityLimiter(16)
                serve = partial(serve_questions, gateway, limit)
                nursery.start_soon(partial(trio.serve_tcp, serve, port, host="127.0.0.1"))
            async for _ in signals:
                nursery.cancel_scope.cancel()


def main() -> None:
    """Read the document, and run."""
    document = json.loads(sys.argv[1])
    logging.basicConfig(level=document.get("log", "WARNING"), format="%(asctime)s %(message)s")
    folder = Path(document["folder"])
    folder.mkdir(exist_ok=True)
    if not (folder / "ledger.sqlite").exists():
        create_ledger(folder, Path(document["genesis"]).read_bytes())
    switch_on(document)
    trio.run(run, document)


if __name__ == "__main__":
    main()
