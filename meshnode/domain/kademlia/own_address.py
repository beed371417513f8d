"""Where others see this node (document, 2.3: DHTNodeInfo; decisions/0045).

A node that listens on all interfaces, or behind a translator of addresses, does not know the
address that others have to call. Those that it called tell it from where the call came.

Terms: a *vote* is one such answer; one *group* (``policy.quota_group``) has one vote, its last.

Invariants: a vote counts only for an address of the voter's own scope, since that is how they see
each other; at most MOST_VOTES are kept; with an honest majority of groups the answer is honest.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

from meshnode.domain.kademlia.address import locate
from meshnode.domain.kademlia.contact import Contact
from meshnode.domain.kademlia.policy import quota_group
from meshnode.domain.kademlia.refusals import Refused

MOST_VOTES = 64


class OwnAddress:
    """The votes, and what follows from them."""

    def __init__(self, bound: str) -> None:
        """``bound`` is the address on which the node listens."""
        self._bound = bound
        self._votes: dict[str, str] = {}

    def told(self, voter: Contact, ip: str) -> None:
        """Note that a verified contact saw this node at ``ip``. What cannot be is left out."""
        try:
            if locate(ip).scope is not locate(voter.ip).scope:
                return
        except Refused:
            return
        group = quota_group(voter)
        self._votes.pop(group, None)
        if len(self._votes) >= MOST_VOTES:
            del self._votes[next(iter(self._votes))]
        self._votes[group] = ip

    def best(self) -> str | None:
        """The address to publish: the one farthest out, and of those the one most groups saw.

        Without any vote the address that the node listens on, if that is one at all.
        """
        if not self._votes:
            return self._bound if _is_one(self._bound) else None
        farthest = max(locate(ip).scope for ip in self._votes.values())
        seen = Counter(ip for ip in self._votes.values() if locate(ip).scope is farthest)
        return seen.most_common(1)[0][0]


def _is_one(bound: str) -> bool:
    try:
        return not ip_address(bound).is_unspecified
    except ValueError:
        return False
