"""Signed sessions between nodes: which calls come from a node's own key (decision 0164).

A *credential* says until when its signer may be known by it, to one receiver:
``EXPIRES:SIGNATURE``, with seconds since the epoch. It is made once for many calls. The receiver
ties it to the address that sends it first, so that whoever reads it on the way cannot use it from
another one.

Invariant: a credential is worth nothing at another node, after its time, or under another key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from meshnode.domain.identity import NodeKey
from meshnode.domain.training.message import sign, signer_of

LASTS_S = 600
RENEWED_S = 300
"""A credential with less time than this left is made again."""
MAX_CHARS = 160
MAX_KNOWN = 1024
"""Credentials that a receiver remembers, with their outcome."""


def make_credential(key: NodeKey, receiver: str, now: float) -> str:
    """A credential of ``key`` for the node with the id ``receiver``."""
    expires = int(now) + LASTS_S
    return f"{expires}:{sign(key.seed, _statement(receiver, expires))}"


def read_credential(text: str, receiver: str, now: float) -> str:
    """The node id of the key that signed; empty if the credential is not valid."""
    expires, _, signature = text.partition(":")
    if len(text) > MAX_CHARS or not (expires.isascii() and expires.isdigit()):
        return ""
    # One that lasts longer than this node's own rule was made to be kept.
    if not now < int(expires) <= now + 2 * LASTS_S:
        return ""
    return signer_of(signature, _statement(receiver, int(expires))) or ""


def _statement(receiver: str, expires: int) -> bytes:
    return f"meshnode-peer-session-v1\n{receiver}\n{expires}".encode()


@dataclass(slots=True)
class Credentials:
    """Those that this node sends."""

    key: NodeKey
    clock: Callable[[], float]
    """Seconds since the epoch."""
    _made: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def for_node(self, receiver: str) -> str:
        """One for the node with this id; empty without an id."""
        if not receiver:
            return ""
        text, now = self._made.get(receiver, ""), self.clock()
        if not text or int(text.partition(":")[0]) < now + RENEWED_S:
            text = self._made[receiver] = make_credential(self.key, receiver, now)
            if len(self._made) > MAX_KNOWN:
                self._made.popitem(last=False)
        return text


@dataclass(slots=True)
class CallerCheck:
    """Tells peers from strangers, by the credentials that they send."""

    node_id: str
    """This node's id."""
    is_peer: Callable[[str], bool]
    """Whether a node id is that of a peer."""
    clock: Callable[[], float]
    _known: OrderedDict[str, tuple[str, str]] = field(default_factory=OrderedDict)

    def by_peer(self, credential: str, ip: str) -> bool:
        """Whether a peer has signed, and the credential was first used from this address."""
        if not credential or len(credential) > MAX_CHARS:
            return False
        now = self.clock()
        if credential not in self._known:
            self._known[credential] = read_credential(credential, self.node_id, now), ip
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        signer, first = self._known[credential]
        lasts = signer and now < int(credential.partition(":")[0])
        return bool(lasts) and first == ip and self.is_peer(signer)
