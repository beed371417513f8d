"""What may be told about generations while they run, without a word of their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from meshnode.services.generation import Generation


class PathHop(NamedTuple):
    """A node on the path of a generation, and its layers from ``first`` to ``last`` inclusive."""

    node_id: str
    first: int
    last: int


class GenerationObserver(Protocol):
    """Is told of every generation of this node. Its methods return at once and never raise."""

    def began(self, generation: Generation) -> None:
        """A generation was taken into the queue, by the task that serves its request."""

    def routed(self, generation_id: str, hops: Sequence[PathHop]) -> None:
        """A generation goes over these remote holders from now on."""

    def failed_over(self, generation_id: str, reason: str) -> None:
        """A generation leaves its path, because a hop failed or was slow."""

    def ended(self, generation: Generation) -> None:
        """A generation has ended, however it ended."""


class Unobserved:
    """A :class:`GenerationObserver` that tells nobody."""

    def began(self, generation: Generation) -> None:
        """Nothing."""

    def routed(self, generation_id: str, hops: Sequence[PathHop]) -> None:
        """Nothing."""

    def failed_over(self, generation_id: str, reason: str) -> None:
        """Nothing."""

    def ended(self, generation: Generation) -> None:
        """Nothing."""


UNOBSERVED = Unobserved()


class Observers:
    """A :class:`GenerationObserver` that tells several, in this order."""

    def __init__(self, *observers: GenerationObserver) -> None:
        self._observers = observers

    def began(self, generation: Generation) -> None:
        """A generation was taken into the queue."""
        for each in self._observers:
            each.began(generation)

    def routed(self, generation_id: str, hops: Sequence[PathHop]) -> None:
        """A generation goes over these remote holders from now on."""
        for each in self._observers:
            each.routed(generation_id, hops)

    def failed_over(self, generation_id: str, reason: str) -> None:
        """A generation leaves its path."""
        for each in self._observers:
            each.failed_over(generation_id, reason)

    def ended(self, generation: Generation) -> None:
        """A generation has ended."""
        for each in self._observers:
            each.ended(generation)
