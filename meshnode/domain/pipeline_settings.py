"""The settings of generations that run over other nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """How generations run over other nodes."""

    chain: bool
    """Whether holders forward hidden states (SwarmForward); otherwise the driver calls each."""
    mixed: bool
    """Whether a generation may use holders of another numeric class if none of its own is left."""
    checks: float
    """The part of the positions that others compute a second time; 0 for none (decision 0211)."""
    call_s: float
    """Deadline of one call to a holder, in seconds (interface 8: 5 s)."""
    speculate: bool
    """Whether tokens are guessed ahead where that is quicker; it never changes a token."""
    forward: bool
    """Whether requests go on to drivers, or come from others (decision 0218)."""
    short_cut: bool
    """Whether the last holder may answer this driver straight, where that is quicker."""
    convoys: bool
    """Whether positions of several generations go through the holders together."""
    move_layers: bool
    """Whether a node with ``layers`` auto moves to others while it runs (decision 0250)."""
