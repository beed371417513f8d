"""The native API as clients see it: real ledger, index and HTTP server, a model without weights.

``start_gateway`` serves everything on a free loopback port. ``Gateway.do`` signs, broadcasts and
waits for the block, as a wallet does.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.genesis import Genesis, genesis_document
from meshnode.domain.chain.records import Lease
from meshnode.domain.ratelimit import Rate, RateLimit, RateLimits
from meshnode.edges import http_artifacts, http_legacy, http_native, http_rpc, http_work
from meshnode.http.access import Access
from meshnode.http.app import native_app, node_app, openai_app
from meshnode.http.dispatch import Dispatcher
from meshnode.http.native import NativeGate
from meshnode.http.routes import add_routes
from meshnode.services.artifacts import Artifacts
from meshnode.services.gateway.reader import DefaultProvider, NativeReader
from meshnode.services.gateway.rpc_calls import RpcCalls
from meshnode.services.index.indexer import Index, serve_indexer
from meshnode.services.ledger import Ledger, ValidatorKey, serve_ledger
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    LOSS,
    PROFILE,
    ROOT,
    VALIDATOR,
    Actor,
    FakeModel,
    actor,
    answer_to,
    genesis,
    next_root,
    receipt_bodies,
)
from spec_tests.edges.http_server import Answer, Client, start_server

NODE_ID = "cd" * 20
WORKERS = actor("first worker"), actor("second worker")
DATASET = b'{"dataset_root":"00","train":[[1,2,3]],"validation":[[4]]}'


class StepModel(FakeModel):
    """A fake model whose receipts carry the loss, as real ones do."""

    def train(self, lease: Lease) -> TrainingReplay:
        replay = super().train(lease)
        return replace(replay, receipts=step_receipts(lease.task_id, lease.parent, lease.round))


def step_receipts(task_id: str, parent: str, round_number: int) -> tuple[dict[str, Json], ...]:
    first, second = receipt_bodies(task_id, parent, round_number)
    return first, {**second, "loss_hex": (3.5 - round_number / 8).hex()}


class FakeExecution:
    """The part of the execution profile that the native API uses."""

    dataset_bytes = DATASET

    def model_facts(self) -> dict[str, Json]:
        return {
            "model_name": "fake",
            "parameter_count": 1010,
            "base_parameter_count": 1000,
            "trainable_parameter_count": 10,
            "model_source": "nowhere",
            "model_revision": "1",
            "execution": {"optimizer": "none"},
        }

    def checkpoint(self, root: str) -> dict[str, Json]:
        tensor: dict[str, Json] = {"shape": [1], "data": base64.b64encode(bytes(4)).decode()}
        return {"a": tensor, "b": tensor}


@dataclass
class FakeSponsor:
    """Accepts every envelope and records it."""

    heard: list[Json] = field(default_factory=list)

    def status(self) -> dict[str, Json]:
        return {"chain_id": "test-chain-1", "sponsor": ALICE.key, "remaining_tasks": 3}

    async def poll(self, envelope: Json) -> dict[str, Json]:
        await trio.lowlevel.checkpoint()
        self.heard.append(envelope)
        return {"assignment": None}

    async def result(self, envelope: Json) -> dict[str, Json]:
        await trio.lowlevel.checkpoint()
        self.heard.append(envelope)
        return {"accepted_for_submission": True}


@dataclass
class Clock:
    """Wall-clock time in nanoseconds, which a test can move forward by ``ahead_s``."""

    ahead_s: float = 0.0

    def __call__(self) -> int:
        return time.time_ns() + int(self.ahead_s * 1e9)


@dataclass
class Gateway:
    """A running gateway and the parts of it that a test may change."""

    address: tuple[str, int]
    ledger: Ledger
    index: Index | None
    reader: NativeReader
    calls: RpcCalls
    sponsor: FakeSponsor
    artifacts: Artifacts
    clock: Clock
    provider_online: list[bool]
    draining: list[bool]

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        async with Client(await trio.open_tcp_stream(*self.address)) as client:
            return await client.ask(method, path, body, token=None, **more)

    async def get(self, path: str, status: int = 200) -> Any:
        """Get the JSON at ``path``, after checking what all native answers have in common."""
        answer = await self.ask("GET", path)
        assert answer.status == status, (path, answer.status, answer.body)
        check_answer(answer)
        return answer.json

    async def rpc(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.ask("POST", "/rpc", body)
        assert answer.status == 200, answer.body
        check_answer(answer)
        assert set(answer.json) == {"jsonrpc", "id", "result"}
        assert (answer.json["jsonrpc"], answer.json["id"]) == ("2.0", 1)
        return answer.json["result"]

    async def account(self, who: Actor) -> Any:
        return await self.get(f"/api/account?public_key={who.key}")

    async def body(self, who: Actor, kind: str, **fields: Json) -> dict[str, Json]:
        nonce = (await self.account(who))["nonce"]
        return {"kind": kind, "chain_id": self.ledger.chain_id, "nonce": nonce, **fields}

    async def do(self, who: Actor, kind: str, **fields: Json) -> tuple[str, int]:
        """Send one transaction; return its application id and the height of its block."""
        raw = who.sign(await self.body(who, kind, **fields))
        sent = await self.rpc("broadcast_tx_sync", tx=base64.b64encode(raw).decode())
        assert sent["code"] == 0, sent["log"]
        assert sent["hash"] == transaction_hash(raw)
        with trio.fail_after(120):
            height, result = await self.ledger.wait_transaction(sent["hash"])
        assert result.id is not None
        return result.id, height

    async def infer(self, who: Actor, provider: Actor, lifetime: int = 6) -> str:
        """Request an inference from ``provider``; return the job's id."""
        info = await self.get("/api/inference")
        name, _ = await self.do(
            who,
            "infer",
            provider=provider.key,
            model_root=info["model_root"],
            request={"prompt": "What is the capital of France?", "max_tokens": 8},
            price=8000,
            expires=self.ledger.height + lifetime,
        )
        return name

    async def respond(self, provider: Actor, job_id: str) -> None:
        job = await self.get(f"/api/inference/request?id={job_id}")
        request = job["request"]
        answer = answer_to(request["prompt"], request["max_tokens"], job["model_root"])
        await self.do(provider, "respond", job_id=job_id, result_root=digest(answer))

    async def train(self, sponsor: Actor) -> tuple[str, int]:
        """Have one update accepted; return its task's id and the height of the accepting block."""
        network = await self.get("/api/network")
        parent, number = network["model_root"], network["round"]
        task_id, _ = await self.do(
            sponsor,
            "reserve",
            task_kind="train",
            parent=parent,
            round=number,
            workers=[worker.key for worker in WORKERS],
            request={},
            price=0,
        )
        bodies = step_receipts(task_id, parent, number)
        receipts = [
            parse_raw(worker.sign(body)) for worker, body in zip(WORKERS, bodies, strict=True)
        ]
        _, height = await self.do(
            sponsor, "submit", task_id=task_id, result_root=next_root(number), receipts=receipts
        )
        return task_id, height

    async def next_block(self, count: int = 1) -> None:
        """Make ``count`` further blocks by sending transfers, and wait for them."""
        for _ in range(count):
            await self.do(BOB, "transfer", to=BOB.key, amount=1)

    async def indexed(self) -> None:
        """Wait until the index has reached the height of the chain."""
        assert self.index is not None
        with trio.fail_after(120):
            await self.index.wait_indexed(self.ledger.height)


def parse_raw(raw: bytes) -> Any:
    return json.loads(raw)


def check_answer(answer: Answer) -> None:
    """Check what every JSON answer of the native API has (interface 4.2, native network 2)."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert int(answer.headers["content-length"]) == len(answer.body)
    if answer.status >= 400:
        assert isinstance(answer.json["error"], str)
    else:
        assert encode(answer.json) == answer.body


async def start_gateway(
    nursery: trio.Nursery,
    data_dir: Path,
    *,
    start: Genesis | None = None,
    gate: NativeGate | None = None,
    with_index: bool = True,
    reference: Path | None = None,
    sponsor: http_work.Sponsor | None = None,
    provider: Actor | None = BOB,
) -> Gateway:
    """Start a chain with a single validator, and a gateway to it."""
    chain = start or genesis(accounts=((ALICE.key, 500_000_000), (BOB.key, 300_000_000)))
    clock = Clock()
    key = ValidatorKey.of(bytes.fromhex(VALIDATOR.seed))

    async def keep(*, task_status: trio.TaskStatus[Ledger]) -> None:
        await serve_ledger(
            data_dir,
            encode(genesis_document(chain)),
            StepModel(),
            key,
            None,
            clock_ns=clock,
            task_status=task_status,
        )

    ledger: Ledger = await nursery.start(keep)
    # The first block has the genesis time; the chain is ready with the second.
    await ledger.wait_beyond(1)
    index: Index | None = None
    if with_index:
        index = Index(ledger, data_dir)
        await nursery.start(serve_indexer, index)
    online, stopping = [True], [False]
    reader = NativeReader(
        ledger=ledger,
        execution=FakeExecution(),
        index=index,
        node_id=NODE_ID,
        provider=None if provider is None else DefaultProvider(provider.key, lambda: online[0]),
        bootstrap_peers=lambda: ("127.0.0.1:9000",),
        draining=lambda: stopping[0],
    )
    calls = RpcCalls(
        ledger,
        NODE_ID,
        key.public_key,
        lambda: stopping[0],
        address="127.0.0.1:8000",
        weights=reader.adapter,
    )
    fake, artifacts = FakeSponsor(), Artifacts()
    artifacts.add("genesis.json", ledger.genesis_bytes)
    gate = gate or NativeGate(1_000_000, 1_000_000)
    app = native_app(gate, 1 << 20)
    add_routes(app, http_native.NativeApi(reader), http_native.ROUTES)
    add_routes(app, http_rpc.RpcApi(calls, gate), http_rpc.ROUTES)
    add_routes(app, http_work.WorkApi(sponsor or fake), http_work.ROUTES)
    add_routes(app, http_artifacts.ArtifactsApi(artifacts), http_artifacts.ROUTES)
    legacy = http_legacy.LegacyApi(ledger.chain_id, ledger.genesis_sha256, "1.2.3", reference)
    add_routes(app, legacy, http_legacy.ROUTES)
    access = open_access()
    both = Dispatcher(
        node=node_app(access, 1 << 20), native=app, openai=openai_app(access, 1 << 20)
    )
    _, _, address = await start_server(nursery, both)
    return Gateway(address, ledger, index, reader, calls, fake, artifacts, clock, online, stopping)


def open_access() -> Access:
    """Access rules of the node API with limits that no test reaches."""
    rate = Rate(1e6, 1e6)

    def nobody(_: str) -> Any:
        raise AssertionError("the native API knows no tokens")

    return Access(nobody, RateLimits(per_address=RateLimit(rate), per_token=RateLimit(rate)))


__all__ = ["LOSS", "PROFILE", "ROOT", "Gateway", "start_gateway"]
