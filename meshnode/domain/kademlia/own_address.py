"""The address at which others reach this node (interface 2.3: DHTNodeInfo; decision 0045).

A node that listens on all interfaces, or behind network address translation, does not know the
address at which others reach it. The nodes it calls report the address that the call came from.

Terms: a *vote* is one such report. Each *group* (``policy.quota_group``) has one vote, its latest.

Invariants: a vote counts only if its address has the scope of the voter's own address, because that
is how the two reach each other; at most MAX_VOTES are kept; with an honest majority of groups the
result is right.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

from meshnode.domain.kademlia.address import locate
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.policy import quota_group
from meshnode.domain.kademlia.refusals import DhtRefusal

MAX_VOTES = 64


class OwnAddress:
    """The votes, and the address that they elect."""

    def __init__(self, bound: str) -> None:
        """``bound`` is the address on which the node listens."""
        self._bound = bound
        self._votes: dict[str, str] = {}

    def add_vote(self, voter: Contact, ip: str) -> None:
        """Note that a verified contact saw this node at ``ip``. Impossible votes are ignored."""
        try:
            if locate(ip).scope is not locate(voter.ip).scope:
                return
        except DhtRefusal:
            return
        group = quota_group(voter)
        self._votes.pop(group, None)
        if len(self._votes) >= MAX_VOTES:
            del self._votes[next(iter(self._votes))]
        self._votes[group] = ip

    def best(self) -> str | None:
        """The address to publish: of those with the outermost scope, the one with most votes.

        Without any vote it is the address that the node listens on, unless that is a wildcard.
        """
        if not self._votes:
            return self._bound if _is_specific(self._bound) else None
        farthest = max(locate(ip).scope for ip in self._votes.values())
        seen = Counter(ip for ip in self._votes.values() if locate(ip).scope is farthest)
        return seen.most_common(1)[0][0]


def _is_specific(bound: str) -> bool:
    try:
        return not ip_address(bound).is_unspecified
    except ValueError:
        return False
