"""A gateway for tests of the client: the chain's state machine behind plain ``http.server``.

It is independent of the node's own gateway. Faults are set by ``fail``, and each matching request
uses up one of them. A fault gets the request before it is carried out, and decides whether it is
and what is answered, if anything.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from meshnode.client import commands
from meshnode.config import build_config
from meshnode.domain.chain.canonical import encode
from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.genesis import genesis_document
from spec_tests.domain.chain.net import VALIDATOR, Net, genesis

DATASET = b'{"train":[]}'
Fault = Callable[["Handler", Callable[[], tuple[int, Any]]], None]


@dataclass
class Rule:
    """A fault for the next ``times`` requests whose name (a path, or an RPC method) is ``name``."""

    name: str
    fault: Fault
    times: int = 1


@dataclass
class ChainGateway:
    """One chain and its gateway. With ``auto``, every transaction gets a block at once."""

    net: Net = field(default_factory=lambda: Net(start()))
    auto: bool = True
    answers: bool = True
    rules: list[Rule] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    broadcasts: list[bytes] = field(default_factory=list)
    waiting: list[bytes] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    url: str = ""

    def fail(self, name: str, fault: Fault, times: int = 1) -> None:
        self.rules.append(Rule(name, fault, times))

    def fault_for(self, name: str) -> Fault | None:
        with self.lock:
            self.seen.append(name)
            for rule in self.rules:
                if rule.name == name and rule.times > 0:
                    rule.times -= 1
                    return rule.fault
        return None

    def commit(self) -> None:
        """Make a block of the waiting transactions; then let the provider answer its jobs."""
        with self.lock:
            taken, self.waiting = self.waiting, []
            self.net.block(taken)
            if self.answers:
                for job in self.net.query("/jobs", provider=VALIDATOR.key)["jobs"]:
                    root = self.net.result_root(job["id"])
                    self.net.do(VALIDATOR, "respond", job_id=job["id"], result_root=root)

    def respond(self, path: str, options: dict[str, str]) -> tuple[int, Any]:
        net = self.net
        if path == "/api/network":
            return 200, self.network()
        if path == "/api/inference":
            return 200, self.inference()
        if path == "/api/account":
            return self.native("/account", options, ("balance", "locked", "total"))
        if path == "/api/inference/request":
            return self.native("/job", options, ("price", "provider_paid", "refunded"))
        if path == "/api/validators":
            given = {k: int(v) if k == "limit" else v for k, v in options.items()}
            status, value = self.native("/validators", given, ())
            for one in value.get("validators", []):
                one["bond"] = str(one["bond"])
            return status, value
        if path == "/api/blocks":
            before, limit = int(options["before"]), int(options["limit"])
            heights = range(min(before - 1, net.app.height), 0, -1)[:limit]
            return 200, {"blocks": [self.block(height) for height in heights]}
        if path.startswith("/api/block/"):
            return 200, self.block(int(path.rpartition("/")[2]))
        if path == "/network/genesis.json":
            return 200, encode(genesis_document(net.app.genesis))
        if path == "/network/dataset.json":
            return 200, DATASET
        return 404, {"error": "Not found"}

    def network(self) -> dict[str, Any]:
        summary = self.net.query("/summary")
        money = {name: str(summary[name]) for name in ("issued", "burned", "initial_supply")}
        return {
            **summary,
            **money,
            "ready": True,
            "stalled": False,
            "catching_up": False,
            "genesis_sha256": self.genesis_sha256,
            "bootstrap_peers": [],
            "latest_block_height": self.net.app.height,
        }

    def inference(self) -> dict[str, Any]:
        summary = self.net.query("/summary")
        return {
            "chain_id": summary["chain_id"],
            "genesis_sha256": self.genesis_sha256,
            "model_root": summary["serving_root"],
            "model_name": "test model",
            "provider": VALIDATOR.key,
            "provider_online": True,
            "fee_atoms": str(summary["params"]["fee"]),
            "price_per_max_token_atoms": str(summary["params"]["inference_token_price"]),
            "max_tokens": 64,
            "request_lifetime_blocks": summary["params"]["inference_blocks"],
            "pending_requests": summary["pending_inference"],
        }

    @property
    def genesis_sha256(self) -> str:
        return hashlib.sha256(encode(genesis_document(self.net.app.genesis))).hexdigest()

    def native(
        self, path: str, options: dict[str, Any], money: tuple[str, ...]
    ) -> tuple[int, dict[str, Any]]:
        result = self.net.app.query(path, encode(options))
        if result.code:
            return 400, {"error": result.log}
        value = json.loads(result.value)
        return 200, {k: str(v) if k in money else v for k, v in value.items()}

    def block(self, height: int) -> dict[str, Any]:
        block = self.net.blocks[height - 1]
        transactions = []
        for raw in block.transactions:
            envelope = json.loads(raw)
            body = envelope["body"]
            shown = {k: str(v) if k in ("amount", "price") else v for k, v in body.items()}
            transactions.append(
                {
                    "hash": transaction_hash(raw),
                    "kind": body["kind"],
                    "sender": envelope["public_key"],
                    "body": shown,
                    "code": 0,
                    "log": "",
                }
            )
        digest = hashlib.sha256(str(height).encode()).hexdigest().upper()
        time = "2026-01-01T00:00:00Z"
        return {"height": height, "hash": digest, "time": time, "transactions": transactions}

    def call(self, method: str, params: dict[str, Any]) -> tuple[int, Any]:
        if method == "broadcast_tx_sync":
            raw = base64.b64decode(params["tx"])
            self.broadcasts.append(raw)
            result = self.net.app.check(raw)
            if result.code == 0:
                self.waiting.append(raw)
                if self.auto:
                    self.commit()
            value: Any = {"code": result.code, "log": result.log, "hash": transaction_hash(raw)}
        else:
            answer = self.net.app.query(params["path"], bytes.fromhex(params.get("data", "")))
            inner = {"code": answer.code, "log": answer.log}
            value = {"response": {**inner, "value": base64.b64encode(answer.value).decode()}}
        return 200, {"jsonrpc": "2.0", "id": 1, "result": value}


def start() -> Any:
    dataset = hashlib.sha256(DATASET).hexdigest()
    return genesis(extra={"dataset_sha256": dataset})


class Handler(BaseHTTPRequestHandler):
    """Serves requests, each by the gateway or by a fault for it."""

    protocol_version = "HTTP/1.1"
    gateway: ChainGateway

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        options = dict(parse_qsl(parts.query))
        self.serve(parts.path, lambda: self.gateway.respond(parts.path, options))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, params = body["method"], body["params"]
        self.serve(method, lambda: self.gateway.call(method, params))

    def serve(self, name: str, work: Callable[[], tuple[int, Any]]) -> None:
        def locked() -> tuple[int, Any]:
            with self.gateway.lock:
                return work()

        fault = self.gateway.fault_for(name)
        if fault is None:
            self.send(*locked())
        else:
            fault(self, locked)

    def send(self, status: int, value: Any, **headers: str) -> None:
        body = value if isinstance(value, bytes) else encode(value)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for header, text in headers.items():
            self.send_header(header.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving(gateway: ChainGateway) -> Iterator[ChainGateway]:
    handler = type("BoundHandler", (Handler,), {"gateway": gateway})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # Do not wait for handlers: a fault may still wait for its client.
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def before(act: Callable[[Handler], None]) -> Fault:
    """A fault that calls ``act`` instead of carrying out the request."""
    return lambda handler, _: act(handler)


def after(act: Callable[[Handler], None]) -> Fault:
    """A fault that carries out the request, and calls ``act`` instead of answering it."""

    def fault(handler: Handler, work: Callable[[], tuple[int, Any]]) -> None:
        work()
        act(handler)

    return fault


def lying(change: Callable[[dict[str, Any]], object]) -> Fault:
    """A fault that carries out the request, and lets ``change`` alter the answer in place."""

    def fault(handler: Handler, work: Callable[[], tuple[int, Any]]) -> None:
        status, value = work()
        change(value)
        handler.send(status, value)

    return fault


def cut(handler: Handler) -> None:
    handler.hang_up()


def unavailable(handler: Handler) -> None:
    handler.send(503, {"error": "Native full node unavailable; query your request id"})


def garbage(handler: Handler) -> None:
    handler.send(200, b"<html>welcome to the hotel</html>")


def giant(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()


def cut_short(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"jsonrpc":')
    handler.hang_up()


def run_client(data_dir: Path, *arguments: str) -> int:
    """Run one command in this process as the command line would; return its exit status."""
    common = argparse.ArgumentParser(add_help=False)
    parser = argparse.ArgumentParser(prog="meshnode")
    commands.add_commands(parser.add_subparsers(dest="command"), common)
    options = parser.parse_args(arguments)
    return commands.run(options, build_config({"data_dir": str(data_dir)}))
