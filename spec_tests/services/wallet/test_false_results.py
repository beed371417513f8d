"""Decision 0211: nothing is charged for an answer that turns out to be false."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshnode.domain.errors import ComputationFailed, FalseResults
from meshnode.domain.generation import TokenEvent, Usage
from meshnode.services.wallet.charging import ChargedGeneration


class Broken:
    """A generation that fails after a token."""

    id = "gen-1"
    usage = Usage(4, 1)

    def __init__(self, failure: Exception) -> None:
        self._coming: list[TokenEvent | Exception] = [TokenEvent("text", 0), failure]

    async def __aenter__(self) -> Broken:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def __anext__(self) -> TokenEvent:
        event = self._coming.pop(0)
        if isinstance(event, Exception):
            raise event
        return event


@pytest.mark.parametrize(("failure", "atoms"), [(FalseResults(), 0), (ComputationFailed(), 10)])
async def test_a_stream_that_was_false_costs_nothing(failure: Exception, atoms: int) -> None:
    charges: list[int] = []

    def charge(amount: int, _: str) -> bool:
        charges.append(amount)
        return len(charges) == 1

    reservation = cast(Any, SimpleNamespace(charge=charge))
    generation = ChargedGeneration(cast(Any, Broken(failure)), reservation, 10)
    # A stream sends its failure as an event, so no exception leaves the block.
    async with generation:
        await generation.__anext__()
        with pytest.raises(ComputationFailed):
            await generation.__anext__()
    # Only the first counts.
    assert charges[0] == atoms
