"""The signer of the fourteenth stranger's node, which calls the node's own, `node.php sign`."""

import sys
from pathlib import Path

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

if __name__ == "__main__":
    # A block is made in a second, or sooner behind a transaction.
    signing.Tool(
        __file__,
        ("php", "node.php", "sign"),
        ("atlas", "birch"),
        "heron",
        "job",
        "chain_id",
        lives=900,
    ).run()
