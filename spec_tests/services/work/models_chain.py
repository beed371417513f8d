"""A chain over a small random model: its execution, ledger, gateway, and key files."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import trio

from meshnode.domain.chain.canonical import Json, encode
from meshnode.domain.chain.genesis import Genesis, GenesisValidator, genesis_document
from meshnode.domain.chain.profile import Limits
from meshnode.domain.identity import NodeKey, key_from_seed
from meshnode.domain.keyfile import plain_key_file
from meshnode.domain.work import WorkNetwork
from meshnode.edges import http_native, http_rpc, http_work
from meshnode.http.app import native_app
from meshnode.http.native import NativeGate
from meshnode.http.routes import add_routes
from meshnode.services.gateway.reader import NativeReader
from meshnode.services.gateway.rpc_calls import RpcCalls
from meshnode.services.ledger import Ledger
from meshnode.services.work.execution import Execution, load_execution
from meshnode.services.work.sponsor import Sponsor
from meshnode.services.work.sponsoring import serve_sponsor
from meshnode.services.work.training_worker import StageJournal, TrainingWorker, WorkGateway
from spec_tests.domain.chain.net import ALICE, BOB, PROFILE, Actor, actor
from spec_tests.edges.http_server import start_server
from spec_tests.model.small_models import END_OF_TEXT, make_model
from spec_tests.services.ledger.ledgers import KEY, SOON_S, running_ledger
from spec_tests.services.signer.signers import start_signer

CHAIN_PROFILE = replace(
    PROFILE,
    params=replace(PROFILE.params, inference_blocks=60, lease_blocks=20, max_training_tasks=4),
    limits=Limits(pending_jobs=8, finished_jobs=8, cooldowns=2),
)
FIRST, SECOND = actor("first worker"), actor("second worker")


def _kept_folder() -> Path:
    """Create a temporary folder that is deleted when the test process exits."""
    folder = Path(tempfile.mkdtemp(prefix="meshnode-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def model_directory() -> Path:
    """Return a random model that never generates the end-of-text token; made once for all tests."""
    return make_model(_kept_folder() / "small", num_layers=2, eos_token_ids=(END_OF_TEXT,))


@cache
def shared_execution() -> Execution:
    """Return an execution that all tests share; they may change nothing except its caches."""
    return load_execution(model_directory(), _kept_folder(), CHAIN_PROFILE)


def fresh_execution(folder: Path) -> Execution:
    """Return an unshared execution over the same model, with its files in ``folder``."""
    return load_execution(model_directory(), folder, CHAIN_PROFILE)


def chain_genesis(execution: Execution, **changes: Any) -> Genesis:
    """Return a genesis with the execution's model; its only validator belongs to ALICE."""
    facts = execution.genesis_facts()
    start = Genesis(
        chain_id="execution-test-1",
        genesis_time="2026-01-01T00:00:00Z",
        model_root=facts.model_root,
        validation_loss_hex=facts.validation_loss_hex,
        extra=facts.extra,
        validators=(GenesisValidator(ALICE.key, KEY.public_key, 2_000_000, 0),),
        accounts=((ALICE.key, 500_000_000), (BOB.key, 300_000_000)),
        profile=CHAIN_PROFILE,
    )
    return replace(start, **changes)


@asynccontextmanager
async def running_chain(folder: Path, execution: Execution) -> AsyncIterator[Ledger]:
    """Run a solo ledger over the execution; yield it once it has its first blocks."""
    document = encode(genesis_document(chain_genesis(execution)))
    async with running_ledger(folder, document=document, model=execution) as ledger:
        await ledger.wait_beyond(1)
        yield ledger


async def ask(ledger: Ledger, path: str, **options: Json) -> dict[str, Any]:
    result = await ledger.query(path, options)
    assert result.code == 0, result.log
    value: dict[str, Any] = json.loads(result.value)
    return value


async def do(ledger: Ledger, who: Actor, kind: str, **fields: Json) -> str:
    """Commit one transaction and return its application id."""
    nonce = (await ask(ledger, "/account", public_key=who.key))["nonce"]
    raw = who.sign({"kind": kind, "chain_id": ledger.chain_id, "nonce": nonce, **fields})
    result = await ledger.submit(raw)
    assert result.code == 0, result.log
    with trio.fail_after(SOON_S):
        _, outcome = await ledger.wait_transaction(result.hash)
    assert outcome.code == 0, outcome.log
    assert outcome.id is not None
    return outcome.id


async def infer(
    ledger: Ledger, provider: str, prompt: str = "A node", lifetime: int = 50, tokens: int = 4
) -> str:
    """Commit an inference request by BOB to ``provider`` and return the request's id."""
    return await do(
        ledger,
        BOB,
        "infer",
        provider=provider,
        model_root=(await ask(ledger, "/summary"))["serving_root"],
        request={"prompt": prompt, "max_tokens": tokens},
        price=tokens * 1000,
        expires=ledger.height + lifetime,
    )


async def hurry(ledger: Ledger, blocks: int = 1) -> None:
    """Commit ``blocks`` transfers, one after another, so that at least as many blocks are made."""
    for _ in range(blocks):
        await do(ledger, BOB, "transfer", to=BOB.key, amount=1)


def node_key(who: Actor) -> NodeKey:
    return key_from_seed(who.seed)


def key_file(folder: Path, who: Actor) -> Path:
    path = folder / f"{who.key[:12]}.json"
    path.write_bytes(plain_key_file(node_key(who)))
    return path


def network_of(ledger: Ledger) -> WorkNetwork:
    return WorkNetwork(ledger.genesis.profile.work_domain, ledger.chain_id)


@dataclass
class Served:
    """A gateway that is running, by its URL."""

    url: str


async def serve_gateway(
    nursery: trio.Nursery, ledger: Ledger, execution: Execution, sponsor: Sponsor
) -> Served:
    """Serve the routes that a worker calls, on a free loopback port."""
    gate = NativeGate(1_000_000, 1_000_000)
    app = native_app(gate, 4 << 20)
    reader = NativeReader(ledger=ledger, execution=execution, index=None, node_id="ab" * 20)
    calls = RpcCalls(ledger, "ab" * 20, KEY.public_key)
    add_routes(app, http_native.NativeApi(reader), http_native.ROUTES)
    add_routes(app, http_rpc.RpcApi(calls, gate), http_rpc.ROUTES)
    add_routes(app, http_work.WorkApi(sponsor), http_work.ROUTES)
    _, _, (host, port) = await start_server(nursery, app)
    return Served(f"http://{host}:{port}")


def copy_model(target: Path) -> Path:
    shutil.copytree(model_directory(), target)
    return target


@asynccontextmanager
async def sponsoring(
    ledger: Ledger, folder: Path, *, tasks: int = 1, execution: Any = None, who: Actor = ALICE
) -> AsyncIterator[Sponsor]:
    """Run a sponsor that pays with ``who``'s key; cancel it when the context ends."""
    key = node_key(who)
    sponsor = Sponsor(execution or shared_execution(), key if tasks else None, network_of(ledger))
    async with trio.open_nursery() as nursery:
        signer = await start_signer(nursery, ledger, key, folder)
        serve = partial(serve_sponsor, sponsor, ledger, signer, folder, tasks=tasks)
        await nursery.start(serve)
        yield sponsor
        nursery.cancel_scope.cancel()


@dataclass
class DirectGateway:
    """Calls the sponsor and the ledger without HTTP, for workers in threads of a trio program."""

    ledger: Ledger
    sponsor: Sponsor
    bend: Callable[[str, Any], Any] = lambda path, value: value
    posted: list[tuple[str, Any]] = field(default_factory=list)

    def post(self, path: str, value: Json) -> dict[str, Any]:
        self.posted.append((path, value))
        answers = {"/work/poll": self.sponsor.poll, "/work/result": self.sponsor.result}
        found: dict[str, Any] = self._through(path, trio.from_thread.run(answers[path], value))
        return found

    def query(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._through(
            path, trio.from_thread.run(partial(ask, self.ledger, path))
        )
        return found

    def _through(self, path: str, value: Any) -> Any:
        return self.bend(path, json.loads(encode(value)))


def make_worker(
    gateway: WorkGateway, who: Actor, stage: int, folder: Path, ledger: Ledger, **options: Any
) -> TrainingWorker:
    """Make a worker as a new process would, with any journal that ``folder`` already holds."""
    folder.mkdir(exist_ok=True)
    journal = StageJournal(folder, stage)
    network, execution = network_of(ledger), options.pop("execution", shared_execution())
    return TrainingWorker(gateway, execution, node_key(who), stage, network, journal, **options)


async def work(worker: TrainingWorker) -> str | None:
    """Poll once in a thread; return the id of a finished task, or None."""
    return await trio.to_thread.run_sync(worker.work_once)


async def work_until_done(*workers: TrainingWorker) -> str:
    """Poll the workers in turn until each has returned the same task, and return its id."""
    done: dict[TrainingWorker, str] = {}
    with trio.fail_after(SOON_S):
        while len(done) < len(workers):
            for worker in workers:
                task = await work(worker)
                if task is not None:
                    done[worker] = task
            await trio.sleep(0.01)
    (task,) = set(done.values())
    return task
