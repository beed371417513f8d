"""The route of proofs (interface 2.1 "Proof entry", 4.1).

The claims are the node's own, whichever token the request has. Entries and sums come from the same
moment of the explorer index, so that they add up. Amounts are whole units (decision 0082).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from meshnode.domain.amounts import units
from meshnode.domain.tokens import Scope
from meshnode.http.app import Response, json_response
from meshnode.http.fields import Amount, Count, Digest, Timestamp
from meshnode.http.routes import IntegerParameter, Route
from meshnode.http.values import query_integer, timestamp

if TYPE_CHECKING:
    from meshnode.services.index.entries import ProofRecord
    from meshnode.services.index.indexer import Index

LIMIT = IntegerParameter("limit", default=20, low=1, high=100)


class ProofEntry(TypedDict):
    """Proof entry (interface 2.1)."""

    id: Digest
    type: Literal["forward", "backward", "training", "data"]
    layer: Count
    timestamp: Timestamp
    verified: bool
    reward: Amount


class ProofStats(TypedDict):
    """Sums over all claims."""

    total_submitted: Count
    total_verified: Count
    total_reward: Amount


class Proofs(TypedDict):
    """The newest claims, and sums over all of them."""

    proofs: list[ProofEntry]
    stats: ProofStats


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofsApi:
    """The route, and the services that it uses."""

    account: str
    """Public key of the node."""
    index: Index

    async def get_proofs(self) -> Response:
        """The newest ``limit`` claims, and sums over all of them."""
        page = await self.index.proofs(self.account, query_integer(LIMIT))
        answer: Proofs = {
            "proofs": [_entry(proof) for proof in page.proofs],
            "stats": {
                "total_submitted": page.submitted,
                "total_verified": page.verified,
                "total_reward": units(page.earned),
            },
        }
        return json_response(answer)


def _entry(proof: ProofRecord) -> ProofEntry:
    return {
        "id": proof.id,
        "type": cast("Any", proof.work_kind),
        "layer": proof.layer,
        "timestamp": timestamp(proof.time_ns),
        "verified": proof.verified,
        "reward": units(proof.reward),
    }


ROUTES = (
    Route(
        "GET",
        "/api/v1/proofs",
        ProofsApi.get_proofs,
        "This node's claims of work, newest first, and sums over all of them",
        Proofs,
        name="getProofs",
        scope=Scope.READ,
        query=(LIMIT,),
        errors=(503,),
    ),
)
