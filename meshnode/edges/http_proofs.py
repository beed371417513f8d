"""The route of proofs (document, 2.1 "Proof entry", 4.1).

The claims are those of the node, whichever token asks; entries and sums come from the same moment
of the explorer index, so that they add up. Amounts are whole units (decisions/0082).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.domain.amounts import units
from meshnode.http.app import Response, json_response
from meshnode.http.routes import Route
from meshnode.http.values import query_integer, timestamp

if TYPE_CHECKING:
    from meshnode.services.index.entries import ProofRecord
    from meshnode.services.index.indexer import Index

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofsApi:
    """The route, and whom it asks."""

    account: str
    """Public key of the node."""
    index: Index

    async def get_proofs(self) -> Response:
        """The newest ``limit`` claims, and sums over all of them."""
        page = await self.index.proofs(
            self.account, query_integer("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        )
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
    return {
        "id": proof.id,
        "type": proof.work_kind,
        "layer": proof.layer,
        "timestamp": timestamp(proof.time_ns),
        "verified": proof.verified,
        "reward": units(proof.reward),
    }


ROUTES = (Route("GET", "/api/v1/proofs", ProofsApi.get_proofs, auth=True),)
