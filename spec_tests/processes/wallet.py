"""The wallet of a node in a separate process, for tests that kill it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from meshnode.services.ledger import solo
from spec_tests.edges.http_server import TOKEN, Answer, Client, FakeExecutor
from spec_tests.processes import forking
from spec_tests.processes.forking import ForkedProcess
from spec_tests.services.wallet.wallet_node import WALLET, serve_wallet_node

STARTS_WITHIN_S = 300


def main(data_dir: str) -> None:
    """Print the port, and serve until the process is killed."""
    logging.basicConfig(level=logging.DEBUG)
    solo.EMPTY_S = 0.2
    solo.INTERVAL_S = 0.01
    trio.run(_serve, Path(data_dir))


async def _serve(data_dir: Path) -> None:
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
    """A running wallet process, used over HTTP. ``said`` has everything that it answered."""

    process: ForkedProcess
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
    """Start a wallet process, and kill it with SIGKILL at the end."""
    environment = {**os.environ, "MESHNODE_KEY_PASSPHRASE": passphrase}
    with (data_dir.parent / "wallet.log").open("ab") as log:
        process = forking.start([partial(main, data_dir=str(data_dir))], (), environment, log)
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
