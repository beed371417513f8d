"""The model: decoder, loading, KV cache, sampling. torch is allowed; trio and network are not.

Importing this package before torch makes torch's threads sleep while they wait for one another
instead of spinning (decision 0070). Torch shares the cores with the node's event loop and with
other programs, and a spinning thread can take the core of the very thread that it waits for. For
the same reason numpy, which does the chain's arithmetic (decision 0087), multiplies matrices in the
calling thread.
"""

import os

# Read once, when torch loads its OpenMP runtime. The operator's own setting takes precedence.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Read once, when numpy loads its library. Its threads spin too, and these matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
