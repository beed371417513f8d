"""A node's wallet on a real socket over a real ledger, index, keystore and journal.

The engine is a fake whose tokens a test can hold back; everything that handles money is real.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio
from quart import request

from meshnode.config import build_config
from meshnode.domain.chain.genesis import GenesisFacts
from meshnode.domain.chain.profile import NetworkProfile, Staking
from meshnode.domain.inference_rules import generation_request, wants_stream
from meshnode.domain.tokens import Scope
from meshnode.edges import http_wallet
from meshnode.edges.http_node import node_access
from meshnode.edges.http_wallet import WalletApi
from meshnode.http.access import bearer
from meshnode.http.app import Response, json_response, node_app
from meshnode.http.body import read_json_object
from meshnode.http.exchange import hold
from meshnode.http.inference import collect, stream
from meshnode.http.routes import Route, add_routes
from meshnode.services.index.indexer import Index, serve_indexer
from meshnode.services.keystore import Keystore
from meshnode.services.ledger import (
    Ledger,
    load_or_create_genesis,
    load_or_create_validator_key,
    serve_ledger,
)
from meshnode.services.signer.signer import Signer, serve_signer
from meshnode.services.tokens import TokenStore
from meshnode.services.wallet.charging import Charged
from meshnode.services.wallet.service import Wallet
from meshnode.services.wallet.settlement import serve_wallet
from meshnode.supervise import Drain
from spec_tests.domain.chain.net import FakeModel
from spec_tests.edges.http_server import CARD, TOKEN, Answer, Client, FakeExecutor, start_server

WALLET = "/api/v1/wallet"
PRICE = 1000
FEE = 1000
NETWORK = NetworkProfile(name="wallet-test", staking=Staking(minimum=1_000_000, cooldown_days=7))
FACTS = GenesisFacts("ab" * 32, (4.0).hex())
STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
OPERATOR_FUNDS = 900_000_000_000


@dataclass(frozen=True)
class InferenceApi:
    """``POST /inference`` as a node serves it, without the rest of the node API."""

    charged: Charged

    async def post_inference(self) -> Response:
        fields = await read_json_object(request)
        generation = await self.charged.open(bearer(), generation_request(fields))
        if wants_stream(fields):
            return stream(await hold(generation))
        async with generation:
            return json_response(await collect(generation, "MESH", generation.cost))


INFERENCE = Route(
    "POST", "/api/v1/inference", InferenceApi.post_inference, "Generate text", scope=Scope.INFER
)


@dataclass
class WalletNode:
    """A running node's parts, as far as money goes, and its address."""

    data_dir: Path
    address: tuple[str, int]
    ledger: Ledger
    index: Index
    wallet: Wallet
    signer: Signer
    keys: Keystore
    tokens: TokenStore
    executor: FakeExecutor
    drain: Drain
    scope: trio.CancelScope
    ended: trio.Event
    secrets: dict[str, str] = field(default_factory=dict)

    def issue(self, name: str) -> str:
        """Issue a token and return its secret."""
        self.secrets[name] = self.tokens.issue(name)[1]
        return self.secrets[name]

    def key_of(self, token: str) -> str:
        return self.wallet.account(self.tokens.authenticate(token))

    async def ask(
        self, method: str, path: str, body: object = None, token: str | None = TOKEN
    ) -> Answer:
        async with Client(await trio.open_tcp_stream(*self.address)) as client:
            return await client.ask(method, path, body, token=token)

    async def fund(self, token: str, amount: float = 10) -> None:
        body = {"to": self.key_of(token), "amount": amount}
        answer = await self.ask("POST", WALLET + "/send", body)
        assert answer.json.get("status") == "confirmed", answer.json

    async def balances(self, token: str = TOKEN) -> dict[str, float]:
        answer = await self.ask("GET", WALLET + "/balance", token=token)
        assert answer.status == 200, answer.json
        found: dict[str, float] = answer.json["balances"]
        return found

    async def balances_once(
        self, right: Callable[[dict[str, float]], bool], token: str = TOKEN
    ) -> dict[str, float]:
        """Poll until ``right`` accepts the balances, for at most 180 s, and return them."""
        with trio.fail_after(180):
            while not right(balances := await self.balances(token)):  # noqa: ASYNC110 - over HTTP
                await trio.sleep(0.01)
        return balances

    async def infer(self, token: str, max_tokens: int = 5, **more: Any) -> Answer:
        body = {"prompt": "hi", "max_tokens": max_tokens, **more}
        return await self.ask("POST", "/api/v1/inference", body, token)

    async def history(self, token: str = TOKEN) -> list[dict[str, Any]]:
        answer = await self.ask("GET", WALLET + "/transactions?limit=100", token=token)
        assert answer.status == 200, answer.json
        found: list[dict[str, Any]] = answer.json["transactions"]
        return found

    async def stop(self) -> None:
        self.scope.cancel()
        await self.ended.wait()


async def start_wallet_node(
    nursery: trio.Nursery, data_dir: Path, executor: FakeExecutor | None = None, **options: Any
) -> WalletNode:
    """Start a node; it ends with the nursery, or by its own ``stop``."""
    found: WalletNode = await nursery.start(
        partial(serve_wallet_node, data_dir, executor or FakeExecutor(card=CARD), **options)
    )
    return found


async def serve_wallet_node(
    data_dir: Path,
    executor: FakeExecutor,
    *,
    settle_every_s: float = 3600,
    passphrase: str = "",
    wrap: Any = lambda ledger: ledger,
    profile: NetworkProfile = NETWORK,
    genesis: Any = load_or_create_genesis,
    clock_ns: Any = None,
    task_status: trio.TaskStatus[WalletNode],
) -> None:
    """Run the part of a node that handles money; ``wrap`` may replace the ledger that it uses."""
    ended = trio.Event()
    try:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                keys = Keystore(data_dir, passphrase, cost=2**10)
                validator = load_or_create_validator_key(data_dir)
                document = genesis(data_dir, keys.node_key.public_key, validator, FACTS, profile)
                clock = {} if clock_ns is None else {"clock_ns": clock_ns}
                serve = partial(
                    serve_ledger, data_dir, document, FakeModel(), validator, None, **clock
                )
                ledger: Ledger = await nursery.start(serve)
                await ledger.wait_beyond(0)
                index = Index(ledger, data_dir)
                await nursery.start(serve_indexer, index)
                wrapped = wrap(ledger)
                signer: Signer = await nursery.start(serve_signer, wrapped, keys, data_dir)
                money: Wallet = await nursery.start(
                    serve_wallet, wrapped, index, keys, signer, data_dir, settle_every_s
                )
                tokens, drain = TokenStore(data_dir, TOKEN), Drain()
                config = build_config({"data_dir": str(data_dir)})
                access = node_access(tokens, config.limits)
                app = node_app(access, config.limits.max_body_bytes)
                add_routes(app, WalletApi(wallet=money, drain=drain), http_wallet.ROUTES, access)
                charged = Charged(executor, money, PRICE)
                add_routes(app, InferenceApi(charged), (INFERENCE,), access)
                async with trio.open_nursery() as edges:
                    _, _, address = await start_server(edges, app)
                    node = WalletNode(
                        data_dir, address, ledger, index, money, signer, keys, tokens, executor,
                        drain, scope, ended,
                    )  # fmt: skip
                    task_status.started(node)
    finally:
        ended.set()
