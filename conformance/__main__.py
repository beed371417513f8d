"""`python -m conformance`: the same command as `meshnode-conformance`."""

import sys

from conformance.cli import main

if __name__ == "__main__":
    sys.exit(main())
