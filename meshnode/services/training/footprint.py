"""What training allocates, piece by piece (decision 0138).

Training computes in float32 whatever format the served weights have, so everything here is counted
in float32. Terms: a *copy* is as large as the float32 weights of the held layers; the *table* is
the embedding, which is the largest tensor; a *moment* of a round is one of the things that a node
does one after the other, so only the largest of them counts.

====================  ==========================================================================
always                weights, both moments of AdamW, the anchor, and its outer momentum if the
                      contributions have one (decision 0190: sparse ones have none)
inner steps           gradients, those of a tied table twice, and the activations of a batch
contribution          the feedback, the pseudo-gradient, and what the contribution leaves of both
outer step            the sum, new weights, new outer momentum, a tensor of each contribution
a dropped round       the file of the weights before, as bytes and as tensors
measuring             the activations of held-out text, the weights that are served, or those before
                      a round and with one contribution
joining               a checkpoint as it comes, and as tensors
beside all of these   the messages of a round, the check of one that comes, answers to joiners
====================  ==========================================================================

Not counted: the text, and contributions of more than ``COUNTED_NODES`` nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshnode.config import TrainingConfig
from meshnode.domain.units import MEBIBYTE
from meshnode.model.checkpoint import MAX_BYTES
from meshnode.model.config import DecoderConfig
from meshnode.model.diloco import WINDOW
from meshnode.model.loading import BYTES_PER_WEIGHT
from meshnode.model.manifest import parts_of
from meshnode.model.outer_step import MOST_SENT
from meshnode.services.shards.graphs import graph_bytes
from meshnode.services.training.fetching import MAX_HOLDERS
from meshnode.services.training.gossip import MAX_SENDS
from meshnode.services.training.learner import VALIDATION_BATCH
from meshnode.wire.gradients import Format, packing_of

LIBRARIES = 100 * MEBIBYTE
"""What torch imports for an optimizer. It stays, but is counted only while training is on."""
COUNTED_NODES = 8
"""Nodes whose contributions are counted."""
LAYER_COPIES = 7
"""Weights, two moments, gradients, these once more as they are clipped, the sums of two sessions;
or a file in place of the gradients."""
_WINDOW_COPIES = 8
"""A window of one contribution while it is combined: values, sorted values, their order, masks."""
_SQUARE_COPIES = 5
"""A tensor whose gradients are squared in float64, and the second gradient of a tied table."""
_FORMAT_COPIES = 4
"""A tensor while it is written in a format, and read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingShape:
    """What the memory of training depends on, besides the settings. All sizes are in bytes."""

    config: DecoderConfig
    held: range
    sequence: int
    """Tokens of a sequence of the data."""
    graph_bytes: int
    """The most that graphs for other nodes may take."""

    @property
    def is_whole(self) -> bool:
        """Whether this node takes part in rounds; otherwise it trains a part of a pipeline."""
        return len(self.held) == self.config.num_layers

    @property
    def copy(self) -> int:
        """The weights of the held layers."""
        shapes = (part.shape for part in parts_of(self.config, self.held).values())
        return BYTES_PER_WEIGHT * sum(map(math.prod, shapes))

    @property
    def table(self) -> int:
        """The embedding."""
        return BYTES_PER_WEIGHT * self.config.vocab_size * self.config.hidden_size

    def needed(self, training: TrainingConfig) -> int:
        """What training takes at most with these settings, before others train layers here."""
        if self.is_whole:
            return LIBRARIES + self.rounds(training)
        return LIBRARIES + self.layers + (self.exchange(training) if training.exchange else 0)

    @property
    def layers(self) -> int:
        """What training these layers by messages takes at most (decision 0100)."""
        return LAYER_COPIES * self.copy + _SQUARE_COPIES * self.table + self.graph_bytes

    def exchange(self, training: TrainingConfig) -> int:
        """What rounds take beside that (decision 0222): no step is taken meanwhile.

        New weights are made of the anchor, its momentum and the sum, with a momentum of their own;
        contributions wait for that, which a driver has as a whole.
        """
        parameters = self.config.parameters
        message = packing_of(training.gradients, parameters).bytes_of(parameters)
        return 2 * self.copy + (COUNTED_NODES + 2 * MAX_SENDS) * message + self.table

    def rounds(self, training: TrainingConfig) -> int:
        """What rounds take at most (decision 0095)."""
        copy, table, parameters = self.copy, self.table, self.config.parameters
        packing = packing_of(training.gradients, parameters)
        kind, message = packing.kind, packing.bytes_of(parameters)
        momentum = 0 if packing.share < MOST_SENT else copy
        anchor = copy + momentum
        # A tensor of a contribution in memory: all values, or some with their indices.
        part = table if kind is not Format.SPARSE else 3 * message * table // copy + MEBIBYTE
        window = _WINDOW_COPIES * min(BYTES_PER_WEIGHT * WINDOW, table)
        moments = (
            copy + table + self._activations(training.batch_size),
            3 * copy + _FORMAT_COPIES * table + 3 * message,
            copy + anchor + COUNTED_NODES * (part + window),
            2 * anchor,
            copy + anchor + self._measuring(),
            3 * anchor if anchor <= MAX_BYTES else anchor + 2 * MAX_HOLDERS * table,
        )
        messages = (COUNTED_NODES + 2 * MAX_SENDS) * message
        beside = messages + 2 * table + 4 * min(anchor, MAX_BYTES)
        return 3 * copy + anchor + max(moments) + beside

    def _activations(self, batch: int) -> int:
        return graph_bytes(self.config, self.held, batch, self.sequence)

    def _measuring(self) -> int:
        """Without a graph, one layer's activations are there at a time, and logits twice."""
        config = self.config
        layer = graph_bytes(config, range(1), VALIDATION_BATCH, self.sequence)
        logits = 2 * VALIDATION_BATCH * self.sequence * config.vocab_size
        return layer + BYTES_PER_WEIGHT * logits
