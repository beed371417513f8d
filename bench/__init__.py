"""Benchmarks against peers, side by side in one run. ``python -m bench`` runs all of them."""
