"""A gateway of native API 0.4.0, as a client sees it (interface 4.2; native network 2 and 3).

Invariants: every answer that names a chain is checked against the chain that the user chose before
any of it is used; a broadcast ends as accepted, refused or unknown, and the three are never
confused.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from meshnode.client.answers import (
    Account,
    BlockView,
    Fields,
    Identity,
    Network,
    Quote,
    read_account,
    read_block,
    read_network,
    read_quote,
)
from meshnode.client.errors import (
    GatewayMisbehaves,
    GatewayRefuses,
    GatewayUnavailable,
    Misused,
    TooManyRequests,
)
from meshnode.client.transport import MAX_ANSWER, HttpAnswer, exchange
from meshnode.domain.chain.canonical import Json, JsonLimits, encode, parse
from meshnode.domain.chain.envelope import transaction_hash
from meshnode.domain.chain.errors import MalformedJson

ANSWER_LIMITS = JsonLimits(size=MAX_ANSWER)
MAX_REASON: Final = 300
"""Characters of a gateway's error text that are shown to the user."""
MAX_PAGE: Final = 20
"""Blocks that are requested at a time."""
RETRY_SECONDS: Final = 5
_FINAL = ("completed", "expired")


@dataclass(frozen=True, slots=True)
class Patience:
    """Deadlines of a query and of a broadcast, in seconds. A gateway may wait 90 s for its node."""

    read: float = 30.0
    broadcast: float = 95.0


@dataclass(frozen=True, slots=True)
class Broadcast:
    """``code`` 0: accepted, provisionally. Otherwise refused, for the reason in ``log``."""

    code: int
    log: str


class Gateway:
    """Sends queries and broadcasts. Answers are not compared while ``identity`` is None."""

    def __init__(
        self,
        api: str,
        rpc: str,
        identity: Identity | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.api = api
        self.rpc = rpc
        self.identity = identity
        self._patience = patience or Patience()

    def network(self) -> Network:
        """``/api/network``."""
        network = read_network(self._get("/api/network"))
        self._check(network.identity)
        return network

    def quote(self) -> Quote:
        """``/api/inference``."""
        quote = read_quote(self._get("/api/inference"))
        self._check(quote.identity)
        return quote

    def account(self, public_key: str) -> Account:
        """``/api/account``."""
        return read_account(self._get("/api/account", public_key=public_key), public_key)

    def validators(self, limit: int = 100, after: str = "") -> Fields:
        """``/api/validators``: one page."""
        options = {"limit": str(limit)} | ({"after": after} if after else {})
        return Fields(self._get("/api/validators", **options), "/api/validators")

    def block(self, height: int) -> BlockView:
        """``/api/block/<height>``."""
        block = read_block(self._get(f"/api/block/{height}"))
        if block.height != height:
            raise GatewayMisbehaves(f"asked for block {height}, got block {block.height}")
        return block

    def blocks(self, first: int, last: int) -> list[BlockView]:
        """Blocks ``first`` to ``last``, at most 20, in order."""
        blocks: list[BlockView] = []
        # A page of large blocks is shorter, but every page has at least one block.
        while last >= first:
            options = {"limit": str(last - first + 1), "before": str(last + 1)}
            page = Fields(self._get("/api/blocks", **options), "/api/blocks").objects("blocks")
            fresh = [read_block(one.raw) for one in page]
            heights = [one.height for one in fresh]
            if not fresh or heights != list(range(last, last - len(fresh), -1)):
                raise GatewayMisbehaves(f"/api/blocks: not blocks from {last} downwards")
            blocks += fresh
            last -= len(fresh)
        return blocks[::-1]

    def request(self, request_id: str) -> Fields | None:
        """``/api/inference/request``; None if the gateway does not know the request."""
        try:
            value = self._get("/api/inference/request", id=request_id)
        except GatewayRefuses:
            return None
        record = Fields(value, "request")
        if record.digest("id") != request_id:
            raise GatewayMisbehaves("request: the answer is about another request")
        if record.text("status") not in ("pending", *_FINAL):
            raise GatewayMisbehaves("request: a status that does not exist")
        return record

    def file(self, path: str) -> bytes:
        """The bytes of a published file."""
        answer = exchange(self.api + path, None, self._patience.read)
        if answer.status != 200:
            self._decode(answer)
        return answer.body

    def query(self, path: str, **options: Json) -> Json:
        """``abci_query``: a native query; money in its value is integers."""
        params: dict[str, Json] = {"path": path, "data": encode(options).hex(), "prove": False}
        response = self._call("abci_query", params, self._patience.read).object("response")
        if response.raw.get("code", 0) != 0:
            raise GatewayRefuses(clip(str(response.raw.get("log", "query rejected"))), 200)
        try:
            return parse(base64.b64decode(response.text("value"), validate=True), ANSWER_LIMITS)
        except (MalformedJson, ValueError):
            # Some malformed base64 raises binascii.Error, and characters outside ASCII ValueError.
            raise GatewayMisbehaves(f"{path}: the value is not JSON") from None

    def broadcast(self, raw: bytes) -> Broadcast:
        """``broadcast_tx_sync``.

        After GatewayUnavailable (except NotReached and TooManyRequests) and GatewayMisbehaves, the
        transaction may or may not have been relayed.
        """
        params: dict[str, Json] = {"tx": base64.b64encode(raw).decode("ascii")}
        result = self._call("broadcast_tx_sync", params, self._patience.broadcast)
        # An answer about another transaction says nothing about this one.
        if result.raw.get("hash", transaction_hash(raw)) != transaction_hash(raw):
            raise GatewayMisbehaves("the broadcast was answered for another transaction")
        return Broadcast(result.integer("code"), clip(str(result.raw.get("log", ""))))

    def _check(self, identity: Identity) -> None:
        if self.identity is not None and identity != self.identity:
            raise Misused(
                f"the gateway {self.api} is on chain {clip(identity.chain_id)!r} with genesis "
                f"{identity.genesis_sha256[:16]}…, not on {self.identity.chain_id!r} with genesis "
                f"{self.identity.genesis_sha256[:16]}…"
            )

    def _get(self, path: str, **options: str) -> Json:
        url = self.api + path + (f"?{urlencode(options)}" if options else "")
        return self._decode(exchange(url, None, self._patience.read))

    def _call(self, method: str, params: dict[str, Json], seconds: float) -> Fields:
        envelope: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        value = Fields(self._decode(exchange(self.rpc, encode(envelope), seconds)), "/rpc")
        if value.raw.get("error") is not None:
            raise GatewayRefuses(_reason(value.raw, "an error"), 200)
        return value.object("result")

    def _decode(self, answer: HttpAnswer) -> Json:
        status = answer.status
        try:
            value = parse(answer.body, ANSWER_LIMITS)
        except MalformedJson:
            value = None
            if status == 200:
                raise GatewayMisbehaves("an answer is not JSON") from None
        if status == 200:
            return value
        if status == 429:
            patience = answer.retry_after
            raise TooManyRequests(RETRY_SECONDS if patience is None else patience)
        reason = _reason(value, f"HTTP {status}")
        if status >= 500:
            raise GatewayUnavailable(f"the gateway cannot serve now: {reason}")
        if 400 <= status < 500:
            raise GatewayRefuses(reason, status)
        raise GatewayMisbehaves(f"the gateway answers with HTTP {status}; give its final URL")


def clip(text: str) -> str:
    """A gateway's text, shortened and made safe for a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:MAX_REASON])


def _reason(value: Json, otherwise: str) -> str:
    reason = value.get("error") if isinstance(value, dict) else None
    if isinstance(reason, dict):
        reason = reason.get("message")
    return clip(reason) if isinstance(reason, str) and reason else otherwise
