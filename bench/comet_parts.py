"""What a validator's processor time for a transfer is spent on: ``python -m bench.comet_parts``.

Each part is measured by itself in this process, in microseconds of processor time for a transfer;
their sum is what a node takes that checks a transfer once, proposes it, and executes the block as
it was proposed. A validator that did not propose the block executes it instead, at the same cost.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.comet import LIMITS
from bench.comet_load import ACCOUNTS, CONNECTIONS, transfers
from meshnode.domain.chain.blocks import Block, BlockFrame
from meshnode.domain.chain.canonical import JsonLimits, encode, parse
from meshnode.domain.chain.envelope import account_key, decode_transaction, open_envelope
from meshnode.domain.chain.genesis import genesis_document
from meshnode.services.abci.frames import FrameReader, frame
from meshnode.services.ledger.decided import DecidedKeeper
from meshnode.wire import abci_pb2 as pb
from spec_tests.domain.chain.net import PROFILE, FakeModel, actor, genesis

COUNT = 2000
START_NS = 1_767_225_600 * 10**9
STRICT = JsonLimits(PROFILE.params.max_tx_bytes, PROFILE.limits.transaction_depth, fractions=False)


def spent(call: Callable[[], object]) -> float:
    """Processor time for each of COUNT transfers, in microseconds."""
    begun = time.process_time()
    call()
    return 1e6 * (time.process_time() - begun) / COUNT


def socket_us(raws: Sequence[bytes]) -> float:
    """Frames, messages and a local socket, in groups of as many as there are connections."""
    ours, theirs = socket.socketpair()
    checks = [
        frame(pb.Request(check_tx=pb.RequestCheckTx(tx=raw)).SerializeToString()) for raw in raws
    ]
    groups = [
        b"".join(checks[first : first + CONNECTIONS]) for first in range(0, COUNT, CONNECTIONS)
    ]

    def answer() -> None:
        reader = FrameReader()
        for group in groups:
            theirs.sendall(group)
            found = [pb.Request.FromString(one) for one in reader.feed(ours.recv(1 << 18))]
            answers = [pb.Response(check_tx=pb.ResponseCheckTx(code=0)) for _ in found]
            ours.sendall(b"".join(frame(one.SerializeToString()) for one in answers))
            theirs.recv(1 << 18)

    with ours, theirs:
        return spent(answer)


def parts(folder: Path) -> dict[str, float]:
    """Microseconds of each part."""
    lists = transfers(COUNT)
    raws = [one[place] for place in range(COUNT // CONNECTIONS) for one in lists]
    for index in range(ACCOUNTS):
        # Keys are decoded once for an account.
        account_key(actor(f"sender {index}").key)
    values = [parse(raw, STRICT) for raw in raws]
    decoding = spent(lambda: [encode(parse(raw, STRICT)) for raw in raws])
    opening = spent(lambda: [open_envelope(value) for value in values])
    for raw in raws:
        decode_transaction(raw, STRICT.size, STRICT.depth)
    start = genesis(
        profile=replace(PROFILE, limits=LIMITS),
        accounts=tuple(sorted((actor(f"sender {i}").key, 10**9) for i in range(ACCOUNTS))),
    )
    keeper = DecidedKeeper(folder, encode(genesis_document(start)), FakeModel())
    frame_of_block = BlockFrame(1, START_NS)
    checks = spent(lambda: [keeper.check(raw, again=False) for raw in raws])
    propose = spent(lambda: keeper.propose(frame_of_block, raws, LIMITS.block_bytes))
    block = Block(frame_of_block, tuple(raws))
    outcome = spent(lambda: keeper.process(block))
    keeper.decide(block, bytes(32))
    commit = spent(keeper.commit)
    keeper.close()
    return {
        "decoding": decoding,
        "signature": opening,
        "state, check": checks,
        "state, proposal": propose,
        "root and changes": outcome,
        "commit": commit,
        "messages and socket": socket_us(raws),
    }


def main() -> None:
    """Measure three times, and print the smallest time of each part."""
    found: list[dict[str, float]] = []
    for _ in range(3):
        folder = Path(tempfile.mkdtemp(prefix="comet-bench-"))
        found.append(parts(folder))
        shutil.rmtree(folder)
    best = {name: round(min(one[name] for one in found), 1) for name in found[0]}
    print(json.dumps({**best, "all": round(sum(best.values()), 1)}))


if __name__ == "__main__":
    main()
