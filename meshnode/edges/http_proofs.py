"""The route of proofs (document, 2.1 "Proof entry", 4.1).

The claims are those of the node, whichever token asks; entries and sums come from the same moment
of the explorer index, so that they add up. Amounts are whole units (decisions/0082).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from quart import request

from meshnode.domain.amounts import units
from meshnode.domain.errors import InvalidRequest
from meshnode.http.app import Response, json_response
from meshnode.http.routes import Route

if TYPE_CHECKING:
    from meshnode.services.index.entries import ProofRecord
    from meshnode.services.index.indexer import Index

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofsApi:
    """The route, and whom it asks."""

    account: str
    """Public key of the node."""
    index: Index

    async def get_proofs(self) -> Response:
        """The newest ``limit`` claims, and sums over all of them."""
        page = await self.index.proofs(self.account, _limit())
        return json_response(
            {
                "proofs": [_entry(proof) for proof in page.proofs],
                "stats": {
                    "total_submitted": page.submitted,
                    "total_verified": page.verified,
                    "total_reward": units(page.earned),
                },
            }
        )


def _entry(proof: ProofRecord) -> dict[str, object]:
    moment = datetime.fromtimestamp(proof.time_ns // SECOND_NS, UTC)
    milliseconds = proof.time_ns % SECOND_NS // 1_000_000
    return {
        "id": proof.id,
        "type": proof.work_kind,
        "layer": proof.layer,
        "timestamp": f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z",
        "verified": proof.verified,
        "reward": units(proof.reward),
    }


def _limit() -> int:
    values = request.args.getlist("limit")
    if not values:
        return DEFAULT_LIMIT
    # One value, plain digits: int() would also take signs, spaces, underscores and other scripts.
    if len(values) > 1 or not (values[0].isascii() and values[0].isdigit()) or len(values[0]) > 10:
        raise InvalidRequest("limit", "must be an integer")
    if not 1 <= int(values[0]) <= MAX_LIMIT:
        raise InvalidRequest("limit", f"must be from 1 to {MAX_LIMIT}")
    return int(values[0])


ROUTES = (Route("GET", "/api/v1/proofs", ProofsApi.get_proofs, auth=True),)
