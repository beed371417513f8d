"""Ports for tests that have to choose one before they start a node.

A port that the system chose for a socket, since closed, may be in use again before the node has
started: the system may give it to another socket, or the test to a second node. So these ports are
below the range from which the system chooses, and a process uses each of them once before it begins
again. HTTP ports are in even thousands; the gRPC ports, 1000 above, are thus never HTTP ports too.
The workers of a test run have separate shares of the ports.
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
    # Start at a random port, so that simultaneous test runs rarely try the same ones.
    start = random.SystemRandom().randrange(len(own))
    return itertools.cycle([*own[start:], *own[:start]])


_ports = _in_turn()


def free_port() -> int:
    """The next port of this process's share that is free now, as is the one 1000 above it."""
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
