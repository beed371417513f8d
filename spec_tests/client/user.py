"""A user of a chain, who runs commands in this process against a gateway that tests control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from meshnode.client import commands, follow, payments
from meshnode.client.gateway import Patience
from meshnode.client.outbox import Outbox
from meshnode.client.session import Session
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file
from spec_tests.client.gateway import ChainGateway, run_client, serving
from spec_tests.domain.chain.net import ALICE

DONE, REFUSED, MISUSED, UNKNOWN = 0, 1, 2, 3
PATIENT_S = 120.0
"""How long to wait for a gateway in this process, on a busy machine."""


class Client:
    """A user of one gateway, with a key whose account has money."""

    def __init__(self, gateway: ChainGateway, folder: Path, capsys: Any) -> None:
        self.gateway, self.folder, self.capsys = gateway, folder, capsys
        (folder / "client").mkdir(parents=True)
        path = folder / "client" / "key.json"
        path.write_bytes(plain_key_file(key_from_seed(ALICE.seed)))
        path.chmod(0o600)

    def do(self, *arguments: str) -> int:
        return run_client(self.folder, *arguments, "--gateway", self.gateway.url)

    def json(self, *arguments: str) -> tuple[int, Any]:
        self.capsys.readouterr()
        status = self.do(*arguments, "--json")
        return status, json.loads(self.capsys.readouterr().out)

    @property
    def states(self) -> list[str]:
        with Outbox(self.folder / "client") as outbox:
            return [entry.state for entry in reversed(outbox.recent(100))]

    def balance(self) -> int:
        return int(self.gateway.net.account(ALICE)["total"])


def be_patient(monkeypatch: Any, broadcast_s: float) -> None:
    """Let clients wait ``broadcast_s`` seconds for the answer to a broadcast."""
    patience = Patience(PATIENT_S, broadcast_s)
    monkeypatch.setattr(commands, "Session", partial(Session, patience=patience))


@contextmanager
def paying_client(folder: Path, capsys: Any, monkeypatch: Any) -> Iterator[Client]:
    """A user who waits long for an answer, and does not wait between attempts."""
    monkeypatch.setattr(payments, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(follow, "FIRST_PAUSE", 0.01)
    be_patient(monkeypatch, PATIENT_S)
    with serving(ChainGateway()) as gateway:
        yield Client(gateway, folder / "home", capsys)
