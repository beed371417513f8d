"""States that a node reaches only with others: accepted updates, a paid proof, other weights.

Each is brought about as users would: by workers, by a stake and an inference, by two nodes that
have trained alone and then meet.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from conformance import messages
from conformance.checks.dht import SENDER
from conformance.grpcwire import GrpcClient
from conformance.journal import Journal
from conformance.judging.nodes import (
    SPONSORED,
    TRAINING,
    NotReady,
    ask,
    environment,
    node,
    run_command,
    until,
)
from conformance.secrecy import Redactor

STAGES = (0, 1)
# A holder needs a stake before it may claim, and two fees.
STAKE, FUNDS = 2, 3
# A round that does not end while somebody looks.
ENDLESS = 1_000_000


def accept_updates(folder: Path, url: str) -> None:
    """Have two workers do the work that the node sponsors, until the chain has accepted it."""
    workers = []
    for stage in STAGES:
        home = folder / f"worker{stage}"
        run_command("key", "new", "--json", "--data-dir", str(home))
        command = [
            sys.executable, "-m", "meshnode", "worker", "--gateway", url, "--stage", str(stage),
            "--tasks", str(SPONSORED), "--data-dir", str(home),
        ]  # fmt: skip
        with (folder / f"worker{stage}.log").open("ab") as log:
            workers.append(
                subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)
            )

    def accepted() -> bool:
        if any(worker.poll() for worker in workers):
            raise NotReady(f"a worker ended: see {folder}/worker*.log")
        records = (ask(url, "GET", "/api/training?limit=5") or {}).get("records", [])
        return len(records) >= SPONSORED

    try:
        until("no updates were accepted", accepted)
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()


@contextmanager
def paid_holder(folder: Path, port: int) -> Iterator[str]:
    """Run a node whose work for another one is on the chain as a proof; give its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    with node(folder / "driver", port, "--layers", "0-1") as driver:
        options = ("--layers", "2-7", "--tracker", driver)
        with node(folder / "holder", port + 1, *options) as holder:
            until("the driver has no peer", lambda: _total(driver))
            balance = until("no wallet", partial(ask, holder, "GET", "/api/v1/wallet/balance"))
            send = {"to": balance["address"], "amount": FUNDS}
            _must(driver, "/api/v1/wallet/send", send)
            until("no money came", lambda: _available(holder) >= FUNDS)
            _must(holder, "/api/v1/wallet/stake", {"amount": STAKE, "duration_days": 1})
            asked = {"prompt": "Once upon a time", "max_tokens": 8}

            def verified() -> bool:
                found = ask(holder, "GET", "/api/v1/proofs") or {}
                return bool(found.get("stats", {}).get("total_verified"))

            _must(driver, "/api/v1/inference", asked)
            until("no proof was verified", verified)
            yield holder


def _must(url: str, path: str, body: Any) -> None:
    if ask(url, "POST", path, body) is None:
        raise NotReady(f"POST {path} was refused")


def _total(url: str) -> int:
    return int((ask(url, "GET", "/api/v1/peers") or {}).get("total", 0))


def _available(url: str) -> float:
    balance = ask(url, "GET", "/api/v1/wallet/balance") or {}
    return float(balance.get("balances", {}).get("available", 0))


@contextmanager
def strangers(folder: Path, port: int) -> Iterator[tuple[str, str]]:
    """Run two nodes that have trained alone, each with weights of its own; give their URLs."""
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**TRAINING, "MESHNODE_TRAINING_ENABLED": "true"}
    with (
        node(folder / "one", port, variables=variables) as one,
        node(folder / "other", port + 1, variables=variables) as other,
    ):
        for url in (one, other):
            until(f"{url} does not train", partial(_rounds, url))
            endless = {"training": {"diloco_steps": ENDLESS}}
            ask(url, "PATCH", "/api/v1/config", endless)
        yield one, other


def _rounds(url: str) -> int:
    found = ask(url, "GET", "/api/training/global") or {}
    return int(found.get("local", {}).get("training_rounds", 0))


def introduce(port: int, to: int) -> None:
    """Ping one node in the name of another: it calls back, and so they know each other."""
    _ping(to, _ping(port, SENDER).responder)


def _ping(port: int, sender: Any) -> Any:
    client = GrpcClient(f"127.0.0.1:{port + 1000}", Journal(Redactor({})), timeout_s=20)
    try:
        reply = client.call("DHTPing", messages.make("DHTPingRequest", sender=sender))
    finally:
        client.close()
    if not reply.ok:
        raise NotReady(f"DHTPing ended with {reply.code} {reply.details}")
    return messages.parse("DHTPingResponse", reply.body)
