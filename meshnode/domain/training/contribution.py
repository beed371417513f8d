"""Contributions to a round, and the rule for counting them (interface 2.3: GossipGradientRequest).

Terms: a *contribution* is one node's pseudo-gradient of one round, named by the SHA-256 of what was
signed; a node *equivocates* when it signs two different ones for a round. The *set* of a round is
every contribution that counts, in the order of node ids.

Invariants: once a node is known to have equivocated, none of its contributions counts; the set, and
so its digest, does not depend on the order of arrival.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

MAX_DIGESTS = 2
"""Two different digests prove that a node equivocated; keeping more would only cost memory."""


class Contributions:
    """The contributions to one round that a node knows."""

    def __init__(self) -> None:
        self._digests: dict[str, list[str]] = {}

    def add(self, node_id: str, digest: str) -> bool:
        """Note a contribution. False if it is known, or if the node has equivocated already."""
        known = self._digests.setdefault(node_id, [])
        if digest in known or len(known) >= MAX_DIGESTS:
            return False
        known.append(digest)
        return True

    def known(self) -> dict[str, tuple[str, ...]]:
        """All digests of each node, for peers that may lack some."""
        return {node: tuple(sorted(digests)) for node, digests in sorted(self._digests.items())}

    def has(self, node_id: str) -> bool:
        """Whether anything is known of a node."""
        return node_id in self._digests

    def included(self) -> dict[str, str]:
        """The contributions that count, by node id, in the order in which they are summed."""
        one = {node: digests[0] for node, digests in self._digests.items() if len(digests) == 1}
        return dict(sorted(one.items()))

    def missing_at(self, theirs: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
        """The node id and digest of each contribution that a peer which has ``theirs`` lacks."""
        return [
            (node, digest)
            for node, digests in self.known().items()
            for digest in digests
            if digest not in theirs.get(node, ())
        ]


def set_digest(included: Mapping[str, str]) -> str:
    """The SHA-256 that names a set: 64 hex characters."""
    lines = "".join(f"{node} {digest}\n" for node, digest in sorted(included.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
