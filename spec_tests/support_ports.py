"""Ports for tests that have to name one beforehand.

A port that the system chose, and that was closed again, may be anybody's before the node that it is
for has started: the system gives it to another socket, or the test to a second node. These are from
below the range of which the system gives, and each is given once by a process. HTTP ports are in
even thousands, so that the gRPC ports, 1000 above, are nobody's HTTP port. Workers of one run share
the ports out: what one has given, and waits to see taken again, no other gives.
"""

from __future__ import annotations

import itertools
import os
import random
import socket

HTTP_PORTS = [
    port for thousand in range(10_000, 30_000, 2_000) for port in range(thousand, thousand + 1000)
]


def _own() -> list[int]:
    """The share of this process, by the names that pytest-xdist gives its workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return HTTP_PORTS[int(worker) :: int(workers)]


def _in_turn() -> itertools.cycle[int]:
    own = _own()
    # Test runs side by side begin somewhere else.
    start = random.SystemRandom().randrange(len(own))
    return itertools.cycle([*own[start:], *own[:start]])


_ports = _in_turn()


def free_port() -> int:
    """A port that is free now, as is the one 1000 above it; not given before."""
    for port in itertools.islice(_ports, len(HTTP_PORTS)):
        if all(map(_free, (port, port + 1000))):
            return port
    raise AssertionError("no port is free")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
