"""Thin edges: they translate between a protocol and the services, and hold no state."""
