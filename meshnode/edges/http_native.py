"""The native API's resources over HTTP (document, 4.2, except ``/rpc``, ``/work`` and artifacts).

Reading only: every route is a GET without credentials, and asks :class:`NativeReader`. Numbers in
queries have one spelling and stated bounds; a refusal of the state machine is a 400 in its words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from meshnode.http.routes import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from meshnode.http.app import Response
    from meshnode.services.gateway.reader import NativeReader

ANSWER_S = 10.0
"""For the ledger to answer: longer than a block with a generation in it takes to execute."""
HEALTH_S = 2.0
"""For the ledger to answer those who decide whether to send this node any traffic."""

MAX_INT64 = 2**63 - 1
MOST_RECORDS, MOST_BLOCKS, MOST_VALIDATORS = 100, 20, 100
"""Largest ``limit`` of each list."""


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
        limit = query.integer("limit", 50, 1, MOST_RECORDS)
        before = query.integer("before", MAX_INT64, 0, MAX_INT64)
        return await _answer(self.reader.training(limit, before))

    async def get_blocks(self) -> Response:
        """``/api/blocks``; ``before`` is a height."""
        query = Parameters()
        limit = query.integer("limit", 10, 1, MOST_BLOCKS)
        before = query.integer("before", MAX_INT64, 0, MAX_INT64)
        return await _answer_large(self.reader.blocks(limit, before))

    async def get_block(self) -> Response:
        """``/api/block/<height>``."""
        height = variable("height")
        # Other spellings are other paths.
        if not re.fullmatch(r"[1-9][0-9]{0,18}", height):
            raise NotThere("there is nothing at this path")
        return await _answer_large(self.reader.block(int(height)))

    async def get_account(self) -> Response:
        """``/api/account``."""
        return await _answer(self.reader.account(Parameters().required("public_key")))

    async def get_validators(self) -> Response:
        """``/api/validators``; ``after`` is the consensus key that the page before ended with."""
        query = Parameters()
        options: dict[str, Json] = {"limit": query.integer("limit", 100, 1, MOST_VALIDATORS)}
        after = query.text("after")
        if after is not None:
            options["after"] = after
        return await _answer(self.reader.validators(options))

    async def get_inference(self) -> Response:
        """``/api/inference``."""
        return await _answer(self.reader.inference())

    async def get_request(self) -> Response:
        """``/api/inference/request``."""
        return await _answer(self.reader.request(Parameters().required("id")))

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
    Route("GET", "/healthz", NativeApi.get_health),
    Route("GET", "/api/network", NativeApi.get_network),
    Route("GET", "/api/manifest", NativeApi.get_manifest),
    Route("GET", "/api/model", NativeApi.get_model),
    Route("GET", "/api/model/checkpoint.json", NativeApi.get_checkpoint),
    Route("GET", "/api/training", NativeApi.get_training),
    Route("GET", "/api/blocks", NativeApi.get_blocks),
    Route("GET", "/api/block/<height>", NativeApi.get_block),
    Route("GET", "/api/account", NativeApi.get_account),
    Route("GET", "/api/validators", NativeApi.get_validators),
    Route("GET", "/api/inference", NativeApi.get_inference),
    Route("GET", "/api/inference/request", NativeApi.get_request),
    Route("GET", "/network/genesis.json", NativeApi.get_genesis),
    Route("GET", "/network/dataset.json", NativeApi.get_dataset),
)
