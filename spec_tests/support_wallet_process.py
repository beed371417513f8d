"""Runs the wallet's part of a node in a process of its own, for tests that kill it.

``python support_wallet_process.py DATA_DIR`` prints the port it serves on, and then runs until it
is killed. ``MESHNODE_KEY_PASSPHRASE`` is as for a node.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio
from support_http import TOKEN, Answer, Client, FakeExecutor
from support_wallet import WALLET, serve_wallet_node

from meshnode.services.ledger import solo

STARTS_WITHIN_S = 300


async def main(data_dir: Path) -> None:
    logging.basicConfig(level=logging.DEBUG)
    solo.EMPTY_S = 0.2
    async with trio.open_nursery() as nursery:
        serve = partial(
            serve_wallet_node,
            data_dir,
            FakeExecutor(),
            settle_every_s=0.05,
            passphrase=os.environ.get("MESHNODE_KEY_PASSPHRASE", ""),
        )
        node = await nursery.start(serve)
        print(node.address[1], flush=True)


@dataclass
class ProcessNode:
    """One that runs, seen from outside; keeps everything that it answered."""

    process: subprocess.Popen[str]
    port: int
    said: list[bytes] = field(default_factory=list)

    async def ask(
        self, method: str, path: str, body: object = None, token: str | None = TOKEN
    ) -> Answer:
        async with Client(await trio.open_tcp_stream("127.0.0.1", self.port)) as client:
            answer = await client.ask(method, path, body, token=token)
        self.said += [answer.body, repr(answer.headers).encode()]
        return answer

    async def infer(self, token: str, max_tokens: int) -> Answer:
        body = {"prompt": "hi", "max_tokens": max_tokens}
        return await self.ask("POST", "/api/v1/inference", body, token)

    async def balance(self, token: str = TOKEN) -> Any:
        return (await self.ask("GET", WALLET + "/balance", token=token)).json

    async def history(self, token: str = TOKEN) -> list[dict[str, Any]]:
        answer = await self.ask("GET", WALLET + "/transactions?limit=100", token=token)
        return list(answer.json["transactions"])


@contextmanager
def wallet_process(
    data_dir: Path, said: list[bytes], passphrase: str = ""
) -> Iterator[ProcessNode]:
    """Start one; it is killed at the end, with signal 9."""
    environment = {**os.environ, "MESHNODE_KEY_PASSPHRASE": passphrase}
    with (data_dir.parent / "wallet.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(data_dir)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=Path(__file__).parent.parent,
        )
    assert process.stdout is not None
    try:
        begun = time.monotonic()
        line = process.stdout.readline()
        assert line, (data_dir.parent / "wallet.log").read_text()
        assert time.monotonic() - begun < STARTS_WITHIN_S
        yield ProcessNode(process, int(line), said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
