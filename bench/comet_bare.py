"""An application in a process of its own that accepts everything and keeps nothing.

``python -m bench.comet_bare SOCKET`` serves one. Beside ``kvstore``, which is a part of the engine,
it shows what talking to another process costs engine and application, before any rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from meshnode.services.abci.server import serve_abci
from meshnode.wire import abci_pb2 as pb

ACCEPTED = pb.Response(check_tx=pb.ResponseCheckTx())
FLUSHED = pb.Response(flush=pb.ResponseFlush())


class AcceptEverything:
    """Answers as :class:`meshnode.services.abci.calls.Calls` does, without a ledger."""

    async def run(self, request: pb.Request) -> pb.Response:
        """Answer one request that is no CheckTx."""
        return TABLE[str(request.WhichOneof("value"))](request)

    def answer_checks(self, group: Sequence[pb.Request]) -> list[pb.Response]:
        """Answer checks and the flushes among them."""
        return [ACCEPTED if one.WhichOneof("value") == "check_tx" else FLUSHED for one in group]


def _propose(request: pb.Request) -> pb.Response:
    chosen, room = [], request.prepare_proposal.max_tx_bytes
    for raw in request.prepare_proposal.txs:
        room -= len(raw) + 8
        if room < 0:
            break
        chosen.append(raw)
    return pb.Response(prepare_proposal=pb.ResponsePrepareProposal(txs=chosen))


def _finalize(request: pb.Request) -> pb.Response:
    results = [pb.ExecTxResult()] * len(request.finalize_block.txs)
    return pb.Response(finalize_block=pb.ResponseFinalizeBlock(tx_results=results))


_YES = pb.ResponseProcessProposal(status=pb.ResponseProcessProposal.ACCEPT)
TABLE: dict[str, Callable[[pb.Request], pb.Response]] = {
    "echo": lambda one: pb.Response(echo=pb.ResponseEcho(message=one.echo.message)),
    "flush": lambda _: FLUSHED,
    "info": lambda _: pb.Response(info=pb.ResponseInfo()),
    "init_chain": lambda _: pb.Response(init_chain=pb.ResponseInitChain()),
    "prepare_proposal": _propose,
    "process_proposal": lambda _: pb.Response(process_proposal=_YES),
    "finalize_block": _finalize,
    "commit": lambda _: pb.Response(commit=pb.ResponseCommit()),
}


if __name__ == "__main__":
    trio.run(serve_abci, AcceptEverything(), Path(sys.argv[1]))
