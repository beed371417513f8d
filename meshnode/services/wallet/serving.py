"""Whom generations are opened for, and what they cost (document, 2.1 Inference result; 4.1).

With a ledger, the highest cost is reserved before anything is computed (``charging``). Without one,
while a follower has not reached its chain or with a model that no chain can have, the operator is
served all the same, and for everybody else the node is unavailable (decisions/0084).
"""

from __future__ import annotations

from collections.abc import Callable

from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.tokens import TokenRecord
from meshnode.services.generation import Generation
from meshnode.services.pipeline import Pipeline
from meshnode.services.pipeline.records import PipelineFigures
from meshnode.services.tokens import OPERATOR
from meshnode.services.wallet.charging import Charged, ChargedGeneration


class Serving:
    """Opens generations for bearer tokens."""

    def __init__(self, pipeline: Pipeline, charged: Callable[[], Charged]) -> None:
        """``charged`` raises Unavailable while there is no ledger."""
        self._pipeline = pipeline
        self._charged = charged

    async def open(
        self, record: TokenRecord, request: GenerationRequest
    ) -> Generation | ChargedGeneration:
        """As ``Pipeline.open``, paid for by the token's account.

        Raises InsufficientBalance, and Unavailable for who would have to pay when nobody can say.
        """
        try:
            charged = self._charged()
        except Unavailable:
            if record.id != OPERATOR:
                raise
            return await self._pipeline.open(request)
        return await charged.open(record, request)

    def trace(self, generation_id: str) -> str | None:
        """What the hops of a generation took, as a line of JSON; None if there were none."""
        return self._pipeline.trace(generation_id)

    def hops(self) -> PipelineFigures:
        """What remote hops took, over all generations that this node drove."""
        return self._pipeline.figures()


def cost_of(generation: Generation | ChargedGeneration) -> float:
    """Whole units that the tokens so far cost."""
    return generation.cost() if isinstance(generation, ChargedGeneration) else 0.0
