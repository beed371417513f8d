"""The model: decoder, loading, KV cache, sampling. torch is allowed; trio and network are not.

Importing this package before torch makes torch's threads sleep while they wait for one another
instead of spinning (decisions/0070). A node shares its processors with its event loop and with
whatever else the machine does, and a spinning thread keeps the one that it waits for from running.
For the same reason numpy, with which the chain's arithmetic is done (decisions/0087), multiplies
matrices in the thread that asks.
"""

import os

# Read once, when torch loads its OpenMP runtime. A setting of the operator's own is left alone.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Likewise, when numpy loads its library: its threads spin, and these matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
