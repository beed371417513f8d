"""Attacks on a real node beside paying clients: ``python -m tools.siege`` (see README.md here)."""
