"""The signer of the nineteenth stranger's node, which calls the node's own, `./run sign`."""

import sys
from pathlib import Path

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

if __name__ == "__main__":
    # A block is made in two seconds, or at once behind a transaction.
    signing.Tool(
        __file__,
        ("./run", "sign"),
        ("alice", "bob"),
        "worker",
        "job",
        "chain_id",
        tip="block",
        lives=900,
    ).run()
