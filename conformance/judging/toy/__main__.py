"""`python -m conformance.judging.toy PORT TOKEN`: serves the toy until it is stopped.

PORT is that of HTTP; gRPC is on that port plus 1000.
"""

import signal
import sys
import threading

from conformance.judging.toy.node import TOKEN, ToyNode
from conformance.judging.toy.serving import Toy


def main(arguments: list[str]) -> int:
    """Serve, and return the exit status."""
    if len(arguments) != 2 or not arguments[0].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *caught: stopped.set())
    node = ToyNode()
    # In the place of its own token: an account with two of them would receive everything twice.
    node.tokens[arguments[1]] = node.tokens.pop(TOKEN)
    with Toy(node, port=int(arguments[0])) as serving:
        print(serving.url, flush=True)
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
