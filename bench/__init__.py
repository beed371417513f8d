"""Benchmarks against peers, side by side in one run. ``python -m bench`` runs all of them."""

import os

# As the node itself runs (decisions/0070); it must be set before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
