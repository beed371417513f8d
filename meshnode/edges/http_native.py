"""The native API's resources over HTTP (interface 4.2, except ``/rpc``, ``/work`` and artifacts).

Reading only: every route is a GET without credentials, and asks :class:`NativeReader`. Numbers in
queries have one spelling and stated bounds; a refusal by the state machine is a 400 with its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.errors import Unavailable
from meshnode.http.native import (
    UNREACHABLE,
    NotThere,
    Parameters,
    document_response,
    large_response,
    native_response,
    variable,
)
from meshnode.http.native_bodies import (
    AFTER,
    BEFORE,
    BLOCKS,
    MAX_INT64,
    PUBLIC_KEY,
    RECORDS,
    REQUEST_ID,
    VALIDATORS,
    AdapterCheckpoint,
    Block,
    Blocks,
    ChainAccount,
    ChainState,
    ChainValidators,
    Dataset,
    Genesis,
    InferenceJob,
    InferenceTerms,
    Manifest,
    ModelFacts,
    NotReady,
    TrainingUpdates,
)
from meshnode.http.routes import JSON_TYPE, Reply, Route
from meshnode.http.schema import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from meshnode.http.app import Response
    from meshnode.services.gateway.reader import NativeReader

ANSWER_S = 10.0
"""Deadline for the ledger's answer: longer than it takes to execute a block with a generation."""
HEALTH_S = 2.0
"""The same for health checks, which decide whether this node gets any traffic."""


@dataclass(frozen=True, slots=True)
class NativeApi:
    """The handlers."""

    reader: NativeReader

    async def get_health(self) -> Response:
        """``/healthz``: 200 only when ready; the explorer index is not asked."""
        try:
            with trio.fail_after(HEALTH_S):
                network = await self.reader.network()
        except (Unavailable, trio.TooSlowError) as error:
            text = str(error) if isinstance(error, Unavailable) else UNREACHABLE
            unavailable: Json = {"error": text, "ready": False, "reason": "unavailable"}
            return native_response(unavailable, 503)
        return native_response(network, 200 if network["ready"] else 503)

    async def get_network(self) -> Response:
        """``/api/network``."""
        return await _answer(self.reader.network())

    async def get_manifest(self) -> Response:
        """``/api/manifest``."""
        return document_response(await self.reader.manifest())

    async def get_model(self) -> Response:
        """``/api/model``."""
        return await _answer(self.reader.model())

    async def get_checkpoint(self) -> Response:
        """``/api/model/checkpoint.json``."""
        return await _answer_large(self.reader.checkpoint())

    async def get_training(self) -> Response:
        """``/api/training``; ``before`` is a round number (decision 0077)."""
        query = Parameters()
        limit, before = query.integer(RECORDS), query.integer(BEFORE)
        return await _answer(self.reader.training(limit, before))

    async def get_blocks(self) -> Response:
        """``/api/blocks``; ``before`` is a height."""
        query = Parameters()
        limit, before = query.integer(BLOCKS), query.integer(BEFORE)
        return await _answer_large(self.reader.blocks(limit, before))

    async def get_block(self) -> Response:
        """``/api/block/<height>``."""
        height = variable("height")
        # A height with a sign or leading zeros is not a path of this API.
        if not re.fullmatch(r"[1-9][0-9]{0,18}", height):
            raise NotThere("there is nothing at this path")
        return await _answer_large(self.reader.block(int(height)))

    async def get_account(self) -> Response:
        """``/api/account``."""
        return await _answer(self.reader.account(Parameters().required(PUBLIC_KEY)))

    async def get_validators(self) -> Response:
        """``/api/validators``; ``after`` is the consensus key that the page before ended with."""
        query = Parameters()
        options: dict[str, Json] = {"limit": query.integer(VALIDATORS)}
        after = query.text(AFTER.name)
        if after is not None:
            options["after"] = after
        return await _answer(self.reader.validators(options))

    async def get_inference(self) -> Response:
        """``/api/inference``."""
        return await _answer(self.reader.inference())

    async def get_request(self) -> Response:
        """``/api/inference/request``."""
        return await _answer(self.reader.request(Parameters().required(REQUEST_ID)))

    async def get_genesis(self) -> Response:
        """``/network/genesis.json``, byte for byte."""
        return document_response(self.reader.ledger.genesis_bytes)

    async def get_dataset(self) -> Response:
        """``/network/dataset.json``, byte for byte."""
        if self.reader.execution is None:
            raise Unavailable("this node has no execution profile")
        return document_response(self.reader.execution.dataset_bytes)


async def _answer(value: Awaitable[dict[str, Json]]) -> Response:
    with trio.fail_after(ANSWER_S):
        return native_response(await value)


async def _answer_large(value: Awaitable[dict[str, Json]]) -> Response:
    with trio.fail_after(ANSWER_S):
        return await large_response(await value)


ROUTES = (
    Route(
        "GET",
        "/healthz",
        NativeApi.get_health,
        "Whether the node is ready; never rate limited",
        (
            Reply(200, "The node is ready.", {JSON_TYPE: ChainState}),
            Reply(503, "The node is not ready.", {JSON_TYPE: NotReady}),
        ),
        limited=False,
    ),
    Route("GET", "/api/network", NativeApi.get_network, "The chain's state", ChainState),
    Route("GET", "/api/manifest", NativeApi.get_manifest, "The genesis manifest", Manifest),
    Route("GET", "/api/model", NativeApi.get_model, "The model and its adapters", ModelFacts),
    Route(
        "GET",
        "/api/model/checkpoint.json",
        NativeApi.get_checkpoint,
        "The latest training adapter",
        AdapterCheckpoint,
    ),
    Route(
        "GET",
        "/api/training",
        NativeApi.get_training,
        "Accepted updates of the adapter, newest first",
        TrainingUpdates,
        query=(RECORDS, BEFORE),
    ),
    Route(
        "GET",
        "/api/blocks",
        NativeApi.get_blocks,
        "Blocks, newest first",
        Blocks,
        query=(BLOCKS, BEFORE),
    ),
    Route(
        "GET",
        "/api/block/<height>",
        NativeApi.get_block,
        "One block",
        Block,
        variables={"height": Annotated[int, Limits(minimum=1, maximum=MAX_INT64)]},
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/api/account",
        NativeApi.get_account,
        "An account's balance and nonce",
        ChainAccount,
        query=(PUBLIC_KEY,),
    ),
    Route(
        "GET",
        "/api/validators",
        NativeApi.get_validators,
        "The validators, by key",
        ChainValidators,
        query=(VALIDATORS, AFTER),
    ),
    Route(
        "GET",
        "/api/inference",
        NativeApi.get_inference,
        "What a paid question costs, and who answers it",
        InferenceTerms,
    ),
    Route(
        "GET",
        "/api/inference/request",
        NativeApi.get_request,
        "A paid question, and what became of it",
        InferenceJob,
        query=(REQUEST_ID,),
    ),
    Route(
        "GET",
        "/network/genesis.json",
        NativeApi.get_genesis,
        "The genesis document, byte for byte",
        Genesis,
    ),
    Route(
        "GET",
        "/network/dataset.json",
        NativeApi.get_dataset,
        "The tokenised data set of the genesis, byte for byte",
        Dataset,
    ),
)
