"""Benchmarks against peers, side by side in one run. ``python -m bench`` runs all of them."""

import os

# The same setting as in the node (decision 0070). It must be set before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
