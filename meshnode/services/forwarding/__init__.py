"""Requests that a node without the first layer passes on to one that has it (decision 0218)."""

from __future__ import annotations

from meshnode.services.forwarding.service import Forwarding, ForwardingLimits, serve_forwarding

__all__ = ["Forwarding", "ForwardingLimits", "serve_forwarding"]
