"""Opens generations for bearer tokens, and computes what they cost (interface 2.1, 4.1).

With a ledger, the highest possible cost is reserved before anything is computed (``charging``). A
follower that has not reached its chain, and a node whose model no chain supports, have no ledger:
the operator is still served, and all other tokens get Unavailable (decision 0084). Each generation
counts for the account of its token when places are short (decision 0132).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.shares import Requester, Standing
from meshnode.domain.tokens import TokenRecord
from meshnode.services.tokens import OPERATOR
from meshnode.services.wallet.charging import (
    Charged,
    ChargedGeneration,
    GenerationSource,
    OpenedGeneration,
)


class Serving:
    """Opens generations for bearer tokens."""

    def __init__(self, source: GenerationSource, charged: Callable[[], Charged]) -> None:
        """``charged`` opens from ``source`` too; it raises Unavailable without a ledger."""
        self._source = source
        self._charged = charged

    async def open(
        self, record: TokenRecord, request: GenerationRequest
    ) -> OpenedGeneration | ChargedGeneration:
        """Open a generation as the source does; the token's account pays for it.

        Raises InsufficientBalance, and Unavailable if the account would have to pay while there is
        no ledger.
        """
        request = replace(request, requester=Requester(Standing.PAYING, record.id))
        try:
            charged = self._charged()
        except Unavailable:
            if record.id != OPERATOR:
                raise
            return await self._source.open(request)
        return await charged.open(record, request)


def cost_of(generation: OpenedGeneration | ChargedGeneration) -> float:
    """The cost of the tokens generated so far, in whole units."""
    return generation.cost() if isinstance(generation, ChargedGeneration) else 0.0
