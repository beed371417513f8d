"""The settings of the node's chain: its model, and who makes its blocks (decisions 0177, 0221)."""

from __future__ import annotations

from dataclasses import dataclass

SOLO, COMETBFT = "solo", "cometbft"
"""For ``chain.engine``: this node makes all blocks, or CometBFT does with other validators."""

ENGINE_NAMES = ("solo|cometbft", "must be 'solo' or 'cometbft'")
HOST_PORT = (r"([0-9A-Za-z.:_-]+:[0-9]{1,5})?", "must be HOST:PORT")
_ENGINE = r"[0-9a-f]{40}@[0-9A-Za-z.:_-]+:[0-9]{1,5}"
ENGINES = (rf"({_ENGINE}(,{_ENGINE})*)?", "must be ID@HOST:PORT, or several with commas between")
TRUST = (r"([1-9][0-9]{0,17}:[0-9A-F]{64})?", "must be HEIGHT:HASH, as 'chain trust' prints it")


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """The chain's model, and who makes the blocks of this node's chain."""

    model: str
    """The directory of the chain's model; empty for the default model, or for the one that is
    served if the chain was started with that (decision 0155)."""
    engine: str
    """``solo`` or ``cometbft``; a node with a tracker follows in either case."""
    genesis: str
    """A file with the genesis of a chain that this node is to begin or to join."""
    p2p: str
    """HOST:PORT where the engine listens for others; empty for the host and the port plus 2000."""
    peers: str
    """ID@HOST:PORT of other engines, separated by commas."""
    state_sync: str
    """URLs of two or more nodes that a new node asks about the block that it trusts, so that it
    begins with a snapshot of others' engines; empty to fetch all blocks (decision 0221)."""
    trust: str
    """Height and hash of that block, as ``meshnode chain trust`` prints them."""
    snapshot_every: int
    """Blocks from one snapshot for others to the next; 0 for none (decision 0220)."""
