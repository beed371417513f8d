"""States that a node reaches only together with others.

They are reached as users would reach them: accepted updates by workers, proofs by a stake and an
inference, an accepted gradient with a peer's key, different weights by two nodes that have trained
alone and then meet.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conformance import messages
from conformance.checks.dht import SENDER
from conformance.grpcwire import GrpcClient
from conformance.httpwire import Unanswered
from conformance.journal import Journal
from conformance.judging.nodes import (
    SPONSORED,
    TRAINING,
    NotReady,
    Rig,
    ask,
    environment,
    node,
    run_command,
    run_program,
    until,
)
from conformance.secrecy import Redactor
from conformance.target import GRPC_PORT_OFFSET, documented_grpc_address

STAGES = (0, 1)
# A holder needs a stake, and two fees, before it may claim.
STAKE, FUNDS = 2, 3
# Inner steps of a round that does not end during a run.
ENDLESS = 1_000_000
# Time for nodes that share few cores to reach the same round.
HELD_WITHIN_S = 300.0
CLAIMED_WITHIN_S = 150.0
# Turns a gradient of one node into one of another: the same values, for the given round and
# weights, signed with the other node's key.
SIGN = """
import sys
import time
from pathlib import Path
from meshnode.domain.training.message import MAX_TTL, sign
from meshnode.services.keystore import Keystore
from meshnode.services.training.messages import contribution_in
from meshnode.wire.node_pb2 import GossipGradientRequest
home, values, out, round_id, model_hash = sys.argv[1:]
key = Keystore(Path(home)).node_key
message = GossipGradientRequest.FromString(Path(values).read_bytes())
message.node_id, message.round_id, message.model_hash = key.node_id, int(round_id), model_hash
message.timestamp, message.ttl = time.time(), MAX_TTL
message.ClearField("held_out")
message.ClearField("opinions")
message.signature = sign(key.seed, contribution_in(message).statement())
Path(out).write_bytes(message.SerializeToString())
"""


def accept_updates(folder: Path, url: str) -> None:
    """Run a worker of each stage until the chain has accepted all sponsored updates."""
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
    """Run a node whose work for another one is on the chain as two proofs; yield its URL."""
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

            def again() -> bool:
                ask(driver, "POST", "/api/v1/inference", asked)
                return len((ask(holder, "GET", "/api/v1/proofs") or {}).get("proofs", ())) > 1

            # A node claims some of its work only.
            until("there is no second proof", again, CLAIMED_WITHIN_S)
            yield holder


@contextmanager
def orderer(folder: Path, port: int, holder: str) -> Iterator[str]:
    """Run a node of the first layers for which `holder` has computed the rest; yield its URL.

    The claim is on the chain. It is paid only if there is another validator besides the holder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with node(folder, port, "--layers", "0-1", "--tracker", holder) as url:
        until("the orderer has no peer", lambda: _total(url))
        status = until("no status", partial(ask, url, "GET", "/api/v1/status"))
        balance = until("no wallet", partial(ask, url, "GET", "/api/v1/wallet/balance"))
        _must(holder, "/api/v1/wallet/send", {"to": balance["address"], "amount": 2 * FUNDS})
        until("no money came", lambda: _available(url) >= 2 * FUNDS)
        # Only orders from an account with a stake count.
        _must(url, "/api/v1/wallet/stake", {"amount": STAKE, "duration_days": 1})
        until("the holder has no peer", lambda: status["node_id"] in _peers(holder))

        def claimed() -> bool:
            ask(url, "POST", "/api/v1/inference", {"prompt": "Once upon", "max_tokens": 1})
            found = ask(holder, "GET", "/api/v1/proofs") or {}
            return bool(found.get("proofs"))

        until("the work was not claimed", claimed)
        yield url


def _peers(url: str) -> list[str]:
    listed = ask(url, "GET", "/api/v1/peers") or {}
    return [peer.get("id", "") for peer in listed.get("peers", [])]


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
    """Run two nodes that have trained alone, with different weights; yield their URLs."""
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


@dataclass(frozen=True)
class Round:
    """The training state of a node; `steps` counts all its inner steps."""

    number: int
    state: str
    model_hash: str
    steps: int


def hold(running: Rig) -> Round:
    """Keep the nodes in one round, with the same weights, and return the first node's round."""
    for url in running.urls:
        ask(url, "PATCH", "/api/v1/config", {"training": {"diloco_steps": ENDLESS}})
    first: dict[str, Round] = {}

    def held() -> Round | None:
        for url in running.urls:
            now, before = _round(url), first.get(url)
            if now is None or now.state != "inner":
                return None
            if before is None or (now.number, now.model_hash) != (before.number, before.model_hash):
                first[url] = now
                return None
            # After two more steps the new setting is in force, so this round does not end.
            if now.steps < before.steps + 2:
                return None
        (one, *others) = (first[url] for url in running.urls)
        return one if all(other.model_hash == one.model_hash for other in others) else None

    found: Round = until("the nodes do not stay in one round", held, HELD_WITHIN_S)
    return found


def sign_gradient(rounds: Round, *, maker: Path, values: Path, out: Path) -> Path:
    """Write a gradient for the round, signed with the key of the node in the folder `maker`.

    `values` is the file of a contribution that another node has made.
    """
    until(f"there is no {values}", values.exists)
    words = (str(maker), str(values), str(out), str(rounds.number), rounds.model_hash)
    run_program(["-c", SIGN], *words)
    return out


def _round(url: str) -> Round | None:
    """Read the training state of a node from the reference node's own message."""
    try:
        reply = _call(documented_grpc_address(url), "GetSwarmStatus", b"")
    except NotReady:
        return None
    training = _fields(reply).get(9)
    if not isinstance(training, bytes):
        return None
    fields = _fields(training)
    steps = _fields(_bytes(fields.get(8))).get(3, 0)
    number, state, model_hash = fields.get(1, 0), _bytes(fields.get(2)), _bytes(fields.get(4))
    return Round(int(number), state.decode(), model_hash.decode(), int(steps))


def _fields(data: bytes) -> dict[int, int | bytes]:
    return {field.number: field.value for field in messages.wire_fields(data)}


def _bytes(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def introduce(port: int, to: int) -> None:
    """Ping one node in the name of another; it pings back, so that they know each other."""
    _ping(to, _ping(port, SENDER).responder)


def _ping(port: int, sender: Any) -> Any:
    asked = messages.make("DHTPingRequest", sender=sender).SerializeToString()
    return messages.parse(
        "DHTPingResponse", _call(f"127.0.0.1:{port + GRPC_PORT_OFFSET}", "DHTPing", asked)
    )


def _call(address: str, operation: str, request: bytes) -> bytes:
    client = GrpcClient(address, Journal(Redactor({})), timeout_s=20)
    try:
        reply = client.call(operation, request)
    except Unanswered as reason:
        raise NotReady(f"{operation} at {address}: {reason.why}") from None
    finally:
        client.close()
    if not reply.ok:
        raise NotReady(f"{operation} ended with {reply.code} {reply.details}")
    return reply.body
