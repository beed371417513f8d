"""Charging for inference (interface 2.1 Inference result, ``cost``; decision 0085).

Before a generation opens, its highest possible cost is set aside; when it ends, the tokens that
were generated are charged and the rest is released. Prompts are not charged, as on the native API,
where the price is that of the most tokens that may be generated. When the whole answer is an error,
nothing is charged.

Invariant: the charge is on the disk before the reader sees the end of the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from meshnode.domain.amounts import units
from meshnode.domain.errors import FalseResults
from meshnode.domain.generation import Finished, TokenEvent, Usage

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest, ModelCard
    from meshnode.domain.tokens import TokenRecord
    from meshnode.services.wallet.service import Reservation, Wallet


class OpenedGeneration(Protocol):
    """A generation as a source opens it."""

    @property
    def id(self) -> str:
        """The result's id."""

    @property
    def model_hash(self) -> str:
        """Of the model that computes it; empty if it has no name."""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""

    @property
    def notes(self) -> list[str]:
        """What the client should know about how the answer was made."""

    async def __aenter__(self) -> Self:
        """Hold the generation open."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what is unfinished."""

    def __aiter__(self) -> AsyncIterator[TokenEvent | Finished]:
        """Iterate over the events, once."""

    async def __anext__(self) -> TokenEvent | Finished:
        """The next event."""


class GenerationSource(Protocol):
    """The executor, or the pipeline over many nodes."""

    @property
    def card(self) -> ModelCard:
        """The model."""

    async def open(self, request: GenerationRequest) -> OpenedGeneration:
        """Begin a generation."""


Told = Callable[[str, int, str], None]
"""Is told of a charge: the token's id, atoms, and the id of the generation."""


def tell_nobody(token_id: str, atoms: int, generation_id: str) -> None:
    """A :data:`Told` that does nothing."""


class Charged:
    """Opens generations and charges them to the account of a token."""

    def __init__(
        self,
        source: GenerationSource,
        wallet: Wallet,
        price_atoms: int,
        told: Told = tell_nobody,
    ) -> None:
        """``price_atoms`` is the price of one generated token."""
        self._source = source
        self._told = told
        self._wallet = wallet
        self._price = price_atoms

    async def open(self, record: TokenRecord, request: GenerationRequest) -> ChargedGeneration:
        """Open a generation of the source, paid for by the account of a token.

        Raises InsufficientBalance when the account has less than the highest possible cost, and
        Unavailable while the ledger cannot be queried. The operator's token pays nothing, and the
        ledger is not queried.
        """
        most_tokens = min(request.max_tokens, self._source.card.context_length)
        reservation = await self._wallet.reserve(record, most_tokens * self._price)
        opened = False
        try:
            generation = await self._source.open(request)
            opened = True
        finally:
            if not opened:
                reservation.charge(0, "")
        told = partial(self._told, record.id)
        return ChargedGeneration(generation, reservation, self._price, told)


class ChargedGeneration:
    """A generation together with its reservation; used like the generation itself."""

    def __init__(
        self,
        generation: OpenedGeneration,
        reservation: Reservation,
        price_atoms: int,
        told: Callable[[int, str], None] = lambda atoms, generation_id: None,
    ) -> None:
        self._told = told
        self._generation = generation
        self._reservation = reservation
        self._price = price_atoms
        self._last: Finished | None = None

    @property
    def id(self) -> str:
        """The result's id."""
        return self._generation.id

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._generation.usage

    @property
    def model_hash(self) -> str:
        """Of the model that computes it; empty if it has no name."""
        return self._generation.model_hash

    @property
    def notes(self) -> list[str]:
        """What the client should know about how the answer was made."""
        return self._generation.notes

    def cost(self) -> float:
        """The cost of the tokens generated so far, in whole units."""
        return units(self.cost_atoms())

    def cost_atoms(self) -> int:
        """The cost of the tokens generated so far, in atoms."""
        return self.usage.completion_tokens * self._price

    async def __aenter__(self) -> Self:
        """Hold the generation open."""
        await self._generation.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what is unfinished, and charge what was generated. Does not wait for the disk.

        An exception that leaves this block is the whole answer, and costs nothing. A stream sends
        its failure as an event instead, and what it delivered before is charged.
        """
        try:
            await self._generation.__aexit__(kind, error, traceback)
        finally:
            if isinstance(error, Exception):
                self._reservation.charge(0, self.id)
            else:
                self._charge()

    def __aiter__(self) -> Self:
        """Iterate over the events, once."""
        return self

    async def __anext__(self) -> TokenEvent | Finished:
        """The next event; the last one only once its charge is durable.

        A call that is cancelled loses no event. FalseResults costs nothing, whatever was delivered.
        """
        try:
            event = self._last or await self._generation.__anext__()
        except FalseResults:
            # What a stream has delivered may be false (decision 0211).
            self._reservation.charge(0, self.id)
            raise
        if isinstance(event, Finished):
            self._last = event
            self._charge()
            await self._reservation.wait_charged()
            self._last = None
        return event

    def _charge(self) -> None:
        atoms = self.cost_atoms()
        if self._reservation.charge(atoms, self.id):
            self._told(atoms, self.id)
