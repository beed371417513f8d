"""The signer of the thirteenth stranger's node, which calls the node's own, `run sign`."""

import sys
from pathlib import Path

# A script of any current directory: the suite need not be installed.
sys.path.append(str(Path(__file__).resolve().parents[4]))
from conformance.judging.stranger import signing

if __name__ == "__main__":
    # A request may live for no longer than 600 blocks, of which three are made in four seconds.
    signing.Tool(
        __file__, ("./run", "sign"), ("alba", "bruno"), "wanda", "work", "chain", lives=500
    ).run()
