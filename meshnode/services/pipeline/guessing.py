"""What one generation guesses ahead, and whether it pays (decisions 0230 and 0231).

Terms as in ``domain.speculation``. A *guess* is one token that was proposed and sent; its *source*
is a quotation of the text so far, which costs nothing, or the draft model.

Invariant: guesses change no token, only the time at which it comes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from meshnode.domain.speculation import (
    TRIED_DEPTH,
    Acceptance,
    Forgetting,
    Lookup,
    PassCosts,
    best_depth,
)

if TYPE_CHECKING:
    from meshnode.model.draft import DraftSession

log = logging.getLogger(__name__)

BLOCK = 8
"""Proposals that are sent as one message, so that the next ones are made while it is on its way."""
REMEASURED = 64
"""After so many passes with guesses, one without tells what they are compared with."""
TRIED_EVERY = 32
"""After so many passes without guesses, a few are tried: the text may have become predictable."""
GOOD_RATE = 0.9
"""With less than this share of right guesses expected at best, nothing is tried."""
MAX_QUOTED = 4096
"""Tokens at the end of a prompt that are quoted, since noting them takes the event loop's time."""
DRAFT_MS = 1.0
"""What the draft takes for a token, until it has been measured."""

Compute = Callable[[Callable[[], list[int]]], Awaitable[list[int]]]
Spawn = Callable[[Callable[[], Awaitable[None]]], None]


@dataclass(slots=True)
class SharedFigures:
    """What all generations of a driver have learned, and counts since the start."""

    costs: PassCosts = field(default_factory=PassCosts)
    lookup: Acceptance = field(default_factory=Acceptance)
    draft: Acceptance = field(default_factory=partial(Acceptance, 0.7))
    draft_ms: float = DRAFT_MS
    forgetting: Forgetting = field(default_factory=Forgetting)
    begun: int = 0
    """Generations since the start."""
    proposed: int = 0
    accepted: int = 0

    def note_pass(self, *, guessed: bool) -> None:
        """Note a pass that nothing was in flight before."""
        if guessed and self.costs.extra_ms is not None:
            self.forgetting.guessed()
        elif not guessed and self.forgetting.unguessed():
            self.costs.forget()
            self.draft_ms = DRAFT_MS


class Guesses:
    """The guesses of one generation that are not known yet to be right or wrong."""

    def __init__(
        self,
        shared: SharedFigures,
        tokens: Sequence[int],
        draft: DraftSession | None,
        compute: Compute,
        spawn: Spawn,
    ) -> None:
        """``tokens`` are the prompt's, and those generated before; ``compute`` runs the draft.

        ``spawn`` begins the task in which the draft reads a text that it does not know.
        """
        self._shared = shared
        self._lookup = Lookup()
        self._text = list(tokens)
        for token in self._text[-MAX_QUOTED:]:
            self._lookup.add(token)
        self._draft = draft
        self._compute = compute
        self._spawn = spawn
        self._reading = self._closed = False
        self._quotes = Acceptance(shared.lookup.rate)
        self._drafts = Acceptance(shared.draft.rate)
        self._passes = 0
        # Of many short texts some come to a trial, though none by itself is long enough.
        self._idle = shared.begun % TRIED_EVERY
        shared.begun += 1
        self._drafted: deque[bool] = deque()
        """Of each guess in flight, whether it is the draft's."""
        self.ahead: deque[int] = deque()
        """Guesses in flight, the earliest first."""

    def close(self) -> None:
        """Free what the draft keeps of this text."""
        self._closed = True
        if self._draft is not None:
            self._draft.close()

    async def propose(self, room: int) -> list[int]:
        """Guesses to send behind those in flight, at most ``room``."""
        first = not self.ahead
        if first:
            self._passes += 1
            if self._passes % REMEASURED == 0:
                return []
        found: list[int] = []
        if self._draft is None or self._quotes.rate >= self._drafts.rate:
            count = self._count(best_depth(self._shared.costs, self._quotes.rate), room)
            found = self._lookup.propose(self.ahead, count)
            self._drafted += [False] * len(found)
        if not found and self._draft is not None:
            found = await self._from_draft(self._draft, room)
            self._drafted += [True] * len(found)
        if first:
            self._shared.note_pass(guessed=bool(found))
        self.ahead += found
        self._shared.proposed += len(found)
        return found

    def settle(self, token: int) -> bool:
        """Note the next token that was chosen. Whether what is in flight behind it is still right.

        If not, nothing is ahead any more.
        """
        # What would have been quoted costs nothing to know, and tells whether it pays.
        quoted = self._lookup.propose((), 1)
        self._lookup.add(token)
        self._text.append(token)
        if quoted:
            for acceptance in (self._quotes, self._shared.lookup):
                acceptance.seen(accepted=quoted[0] == token)
        if not self.ahead:
            return True
        accepted = self.ahead.popleft() == token
        if self._drafted.popleft():
            for acceptance in (self._drafts, self._shared.draft):
                acceptance.seen(accepted=accepted)
        self._shared.accepted += accepted
        if not accepted:
            self.ahead.clear()
            self._drafted.clear()
        return accepted

    def _count(self, depth: int, room: int) -> int:
        """How many guesses to send now, if so many should be ahead."""
        count = min(depth - len(self.ahead), max(BLOCK, depth // 2), room)
        # A message for less than half of what could be sent would cost more than it brings.
        return 0 if self.ahead and count < min(BLOCK, depth) // 2 else max(0, count)

    async def _from_draft(self, draft: DraftSession, room: int) -> list[int]:
        shared = self._shared
        depth = best_depth(shared.costs, self._drafts.rate, shared.draft_ms)
        if not depth and not self.ahead:
            self._idle += 1
            hopeful = best_depth(shared.costs, GOOD_RATE, shared.draft_ms)
            depth = 0 if self._idle % TRIED_EVERY else min(hopeful, TRIED_DEPTH)
        count = self._count(depth, room)
        if not count:
            return []
        text = [*self._text, *self.ahead]
        if self._reading:
            return []
        if draft.behind(text):
            self._reading = True
            self._spawn(partial(self._read, draft))
            return []
        began = trio.current_time()
        found = await self._compute(partial(draft.propose, text, count))
        if found:
            took_ms = (trio.current_time() - began) * 1e3 / len(found)
            shared.draft_ms += 0.2 * (took_ms - shared.draft_ms)
        return found

    async def _read(self, draft: DraftSession) -> None:
        """Let the draft read the text, piece by piece, while it goes on without guesses."""
        try:
            while draft.behind(self._text) and not self._closed:
                await self._compute(partial(draft.read, list(self._text)))
        except (RuntimeError, MemoryError) as error:
            # What torch raises without memory. The text goes on without this draft.
            log.warning("the draft cannot read a text: %s", error)
            draft.close()
        finally:
            self._reading = False
