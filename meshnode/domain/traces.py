"""What computes a generation tells of its steps, where a trace is recorded (decision 0200)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class CallTrace(Protocol):
    """The trace of one step's calls to the holders of a path."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the calls carry, so that the holders' spans become part of the trace."""

    def ended(self, reason: str = "") -> None:
        """The calls were answered, or failed for this reason."""


class GenerationTrace(Protocol):
    """The trace of one generation. Its methods return at once and never raise."""

    def calling(self, positions: int) -> CallTrace | None:
        """States of so many positions are about to be sent to the holders.

        None for a step that has no span of its own.
        """

    def sampled(self, began: float, ended: float) -> None:
        """A token was chosen between these times, which are those of ``time.perf_counter``."""
