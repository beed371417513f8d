"""Faults derived from the interface: every single fault of a kind, worn by a node as a wrapper."""
