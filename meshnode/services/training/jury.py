"""Which contributions of a set count, and what this node finds of them (decisions 0209, 0212).

Invariant: what counts follows from the messages of the set alone, so all nodes that apply the same
set leave out the same contributions. What this node measures changes nothing in the present round;
it goes into its next contribution, where all others have it too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.domain.training.opinions import Opinions, condemned
from meshnode.model.data import shards_of
from meshnode.model.diloco import tolerated
from meshnode.model.trained_model import Anchor
from meshnode.services.training.learner import RoundLearner
from meshnode.services.training.messages import opinions_in
from meshnode.wire import node_pb2 as pb

log = logging.getLogger(__name__)

MAX_MEASURED = 8
"""Contributions that are measured after a round, with four batches each. Others' turn is next."""
FEWEST = 3
"""Of fewer, none could be left out."""

Messages = Sequence[pb.GossipGradientRequest]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the contributions of a set."""

    counted: Messages
    """In the order of node ids."""
    condemned: frozenset[str]
    """Makers whose contributions are not a part of the weights."""
    copies: frozenset[str]
    """Makers whose contributions are a part under another name."""


class Jury:
    """One node's judgement of the others."""

    def __init__(self, node_id: str, learner: RoundLearner) -> None:
        self.opinions = Opinions()
        self._node_id = node_id
        self._learner = learner

    async def verdict(self, messages: Messages) -> Verdict:
        """What counts of a set."""
        if len(messages) < FEWEST:
            return Verdict(messages, frozenset(), frozenset())
        statements = {message.node_id: opinions_in(message) for message in messages}
        spare = tolerated(len(messages))
        refused = condemned(statements, spare)
        heard = [message for message in messages if message.node_id not in refused]
        groups = await self._learner.alike(heard)
        copies = copies_among([message.node_id for message in heard], groups)
        if len(refused) + len(copies) > spare:
            # Honest nodes are alike, and must not lose their majority over liars by that.
            copies = frozenset()
        for node_id in sorted(refused):
            log.warning("the contribution of %s is left out: it raises the loss", node_id[:8])
        for node_id in sorted(copies):
            log.warning("the contribution of %s counts once: others sent the same", node_id[:8])
        counted = [message for message in heard if message.node_id not in copies]
        return Verdict(counted, refused, copies)

    async def measure(self, before: Anchor, messages: Messages, round_id: int) -> None:
        """Find out what the others' contributions to a set do to the weights that it was for."""
        makers = [message.node_id for message in messages]
        if len(makers) < FEWEST:
            return
        others = {maker for maker in makers if maker != self._node_id}
        chosen = {*self.opinions.longest_unmeasured(others, MAX_MEASURED)}
        measured = [message for message in messages if message.node_id in chosen]
        shards = self._learner.all_shards
        assigned = [shards_of(message.node_id, makers, shards) for message in measured]
        part = 1 / len(makers)
        effects = await self._learner.effects(before, measured, assigned, round_id, part)
        named = zip((message.node_id for message in measured), effects, strict=False)
        self.opinions.measured(dict(named))


def copies_among(makers: Sequence[str], groups: Sequence[Sequence[int]]) -> frozenset[str]:
    """All but the first maker, by node id, in each group of contributions that are alike."""
    names = [sorted(makers[place] for place in group) for group in groups]
    return frozenset(name for group in names for name in group[1:])
