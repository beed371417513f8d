"""Computes positions of a generation a second time, on other holders (decision 0211).

The rules are in ``domain/spot_checks.py``. The witness is a session of its own. It begins with the
first check of a generation, computes all positions so far in a few calls, and is kept until the
path changes or the generation ends: the next check sends it only the positions since then.

Invariants: a generation is left alone if nobody can tell who has lied; the witness's faults are
remembered like those of any path.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from meshnode.domain.reputation import Standing
from meshnode.domain.spot_checks import Blame, Contradiction, Result, find_blame, share_to_check
from meshnode.rpc.errors import Code
from meshnode.services.pipeline.logits import NO_ROWS, LogitRows
from meshnode.services.pipeline.policy import HopFailed
from meshnode.services.pipeline.remote import POSITIONS_A_CALL, PathMessage, RemotePath
from meshnode.services.shards.flights import Flight
from meshnode.services.shards.wanted import ALL, WantedLogits

if TYPE_CHECKING:
    from torch import Tensor

    from meshnode.services.pipeline.records import SpotChecks
    from meshnode.services.pipeline.routes import RemoteHop, Routes

log = logging.getLogger(__name__)

Begin = Callable[["Sequence[RemoteHop]"], RemotePath]
"""Begins a session on a path."""


class GenerationChecks:
    """The checks of one generation."""

    def __init__(
        self,
        shared: SpotChecks,
        routes: Routes,
        begin: Begin,
        end: Callable[[RemotePath], None],
        *,
        prompt: int,
        chunk: int,
        patience_s: float,
    ) -> None:
        """``end`` leaves a session; the positions before ``prompt`` are computed in chunks.

        A witness gets ``patience_s`` for a position, and as much again for 32 further ones: the
        client waits meanwhile.
        """
        self._shared = shared
        self._routes = routes
        self._begin = begin
        self._end = end
        self._prompt = prompt
        self._chunk = chunk
        self._patience_s = patience_s
        self._kept = ALL
        self._lengths: dict[RemotePath, int] = {}
        """Positions that the witnesses have."""
        self._witness: RemotePath | None = None
        self._of: RemotePath | None = None
        """The path whose witness it is."""
        self.undecided = False
        """Whether two results differed and nobody could tell which was true. No check follows."""

    def is_due(self, path: RemotePath) -> bool:
        """Whether to check the position that this path has just answered."""
        rate = self._shared.rate
        if rate <= 0.0 or self.undecided or any(hop.mixed for hop in path.hops):
            return False
        conducts = [self._routes.reputation.of(hop.node_id) for hop in path.hops]
        answers = min(conduct.answers for conduct in conducts)
        share = share_to_check(rate, self._routes.worst_standing(path.hops), answers)
        return self._shared.draw() < share

    async def check(
        self,
        path: RemotePath,
        states: Tensor,
        logits: LogitRows,
        kept: str,
        excluded: Collection[str],
    ) -> Contradiction | None:
        """Compare ``logits``, one row, of the last of ``states`` ``[1, seq, hidden]``.

        ``kept`` is what was wanted of the row.

        Returns the contradiction if the path is blamed. If the witness is, or nobody, or there is
        none, the path goes on.
        """
        self._kept = kept if path.ahead else ALL
        witness = self._witness_of(path, excluded)
        again = await self._computed(witness, states, excluded)
        if witness is None or again is None:
            self._shared.impossible += 1
            return None
        if again == _row_bytes(logits):
            self._shared.agreed += 1
            return None
        self._shared.contradicted += 1
        found = await self._contradiction(
            path, witness, states, _row_bytes(logits), again, excluded
        )
        blamed = (
            ", ".join(each[:8] for each in found.blamed) or "nobody, for want of a third holder"
        )
        log.warning("two paths gave different results for a position; blamed: %s", blamed)
        self._routes.lied(found.blamed)
        await self._shared.told(found)
        self.close()
        self.undecided = found.blame is Blame.NOBODY
        return found if found.blame is Blame.CHECKED else None

    def close(self) -> None:
        """End the witness's session. Does not wait."""
        if self._witness is not None:
            self._end(self._witness)
        self._witness = self._of = None

    def _witness_of(self, path: RemotePath, excluded: Collection[str]) -> RemotePath | None:
        if self._of is path and self._witness is not None:
            return self._witness
        self.close()
        # One hop at a time, so that few are to blame; whichever can be replaced.
        hops = sorted(path.hops, key=lambda hop: self._shared.draw())
        for hop in hops:
            found = self._path({*excluded, hop.node_id})
            if found is not None:
                self._witness, self._of = self._begin(found), path
                return self._witness
        return None

    def _path(self, excluded: Collection[str]) -> tuple[RemoteHop, ...] | None:
        found = self._routes.choose(excluded)
        if found is None or any(hop.mixed for hop in found):
            return None
        # One that has just failed is not waited for again.
        return None if self._worst(found) is Standing.DISTRUSTED else found

    async def _computed(
        self, path: RemotePath | None, states: Tensor, excluded: Collection[str]
    ) -> bytes | None:
        """The logits of the last position on a path, as bytes; None if it fails."""
        if path is None:
            return None
        row, stop = NO_ROWS, states.shape[1]
        length = self._lengths.pop(path, 0)
        try:
            while length < stop:
                start = length
                in_prompt = start < self._prompt
                end = min(start + self._chunk, self._prompt if in_prompt else stop, stop)
                decode_from = None if in_prompt or end == start + 1 else self._prompt
                within_s = self._patience_s * (1 + (end - start - 1) / POSITIONS_A_CALL)
                message = PathMessage(
                    states[:, start:end],
                    start,
                    WantedLogits(int(end == stop), self._kept if path.ahead else ALL),
                    decode_from,
                    Flight(0, 0) if path.ahead else None,
                    within_s,
                )
                answer = await path.forward(message)
                path.opened, length, row = True, end, answer.rows
                self._routes.answered(path.hops, answer.took_ms if end == start + 1 else ())
        except HopFailed as failure:
            if not failure.lost:
                full = failure.code is Code.RESOURCE_EXHAUSTED
                before = path.hops[: failure.place] if failure.relayed else ()
                blamed = (*before, path.hops[failure.place])
                self._routes.failed(blamed, len(before), full=full)
            if path is self._witness:
                self.close()
            return None
        self._lengths[path] = length
        return _row_bytes(row) if len(row) else None

    async def _contradiction(
        self,
        path: RemotePath,
        witness: RemotePath,
        states: Tensor,
        logits: bytes,
        again: bytes,
        excluded: Collection[str],
    ) -> Contradiction:
        """Ask a third path, if there is one, and decide who is blamed."""
        checked = [hop for hop in path.hops if hop not in witness.hops]
        others = [hop for hop in witness.hops if hop not in path.hops]
        ids = {hop.node_id for hop in (*checked, *others)}
        third, result = self._path({*excluded, *ids}), None
        if third is not None:
            session = self._begin(third)
            try:
                result = await self._computed(session, states, excluded)
            finally:
                self._end(session)
        standings = self._worst(checked), self._worst(others)
        differing = () if third is None else tuple(hop.node_id for hop in third)
        return Contradiction(
            _result(tuple(hop.node_id for hop in checked), logits),
            _result(tuple(hop.node_id for hop in others), again),
            None if result is None else _result(differing, result),
            find_blame(logits, again, result, standings),
            self._routes.first,
            self._routes.total - 1,
            states.shape[1],
            hashlib.sha256(_bytes(states)).hexdigest(),
            self._shared.numeric_class,
        )

    def _worst(self, hops: Sequence[RemoteHop]) -> Standing:
        return self._routes.worst_standing(hops)


def _result(holders: tuple[str, ...], logits: bytes) -> Result:
    return Result(holders, hashlib.sha256(logits).hexdigest())


def _row_bytes(row: LogitRows) -> bytes:
    ids = b"" if row.ids is None else _bytes(row.ids)
    return ids + _bytes(row.values)


def _bytes(values: Tensor) -> bytes:
    data: bytes = values.contiguous().numpy().tobytes()
    return data
