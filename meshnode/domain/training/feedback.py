"""A node's own contribution, and whose unsent rest it feeds back (decision 0190).

Terms: the *rest* of a contribution is what it left unsent; the *feedback* of a contribution is the
rest that was added to it. A contribution is *dropped* when its round ends here without it; the
feedback that it was made with is used again.

Invariant: no weights that this node keeps include two contributions that were made with the same
feedback. So no value counts twice in them.
"""

from __future__ import annotations

from meshnode.domain.training.states import Persisted


class OwnContribution:
    """This node's contribution to its round, and its feedback, by the digests of contributions."""

    def __init__(self, kept: Persisted) -> None:
        """As kept on the disk."""
        self.digest = kept.contributed
        """The contribution to the present round, once there is one."""
        self.feedback = kept.feedback
        """The contribution whose rest is fed back; None if nothing is."""
        self.restored = kept.restored
        """Whether a contribution made with ``feedback`` was dropped since weights were fetched."""
        self.last = kept.round_id if kept.last is None else kept.last
        """The latest round that this node has contributed to."""

    def made(self, digest: str, round_id: int) -> None:
        """Note that the contribution to a round is on the disk."""
        self.digest, self.last = digest, round_id

    def finish(self, *, used: bool) -> None:
        """Note that its round is over. ``used``: the weights that are kept may include it."""
        if self.digest is not None and used:
            self.feedback = self.digest
        elif self.digest is not None:
            self.restored = True
        self.digest = None

    def fetched(self) -> None:
        """Note that fetched weights replace this node's.

        Nobody says what they were made of. They may include the present contribution, whose rest is
        safe to use then; but if an earlier one was dropped here, they may include that.
        """
        self.finish(used=True)
        if self.restored:
            self.feedback, self.restored = None, False
