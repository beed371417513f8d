"""The place of a siege: a network namespace of its own, its addresses, and who computes where.

The addresses are those of a private network, at which nodes call each other (decision 0050). They
are not loopback addresses, which the node's shares exempt (decision 0124), and nothing outside the
namespace can be reached.

The node computes on the first half of the processors; the honest clients and the attackers share
the others, and the honest clients come first there. So an attack takes from the node only what the
node itself spends on it.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

NODE = "10.18.0.1"
HTTP_PORT, GRPC_PORT = 18800, 19800
PROBER = "10.18.1.100"
CLIENTS = tuple(f"10.18.1.{number}" for number in range(1, 9))
ATTACKERS = ("10.18.2.1", "10.18.3.1")
ENDS_WITHIN_S = 1.0
ATTACKER_ENDS_WITHIN_S = 10.0
"""It may have nodes of its own to end first; one that stays would keep its port."""
INSIDE = "--inside"
"""Tells the program that it has its namespace."""


def peer_port(index: int) -> int:
    """The HTTP port of a further honest node.

    It has the target's address: connections that are not bound to another one come from it here.
    """
    return HTTP_PORT + 1 + index


def enter(arguments: Sequence[str]) -> None:
    """Replace this process by one in a network namespace of its own, unless it is there already.

    Exits with one line if namespaces cannot be made here.
    """
    if INSIDE in arguments:
        _raise_files()
        return
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            sys.exit(f"siege: the command {program} is not installed")
    unshare = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    script = 'ip link set lo up && ip address add 10.18.0.1/15 dev lo && exec "$@"'
    inner = [sys.executable, "-m", "tools.siege", INSIDE, *arguments]
    os.execvp(unshare[0], [*unshare, "sh", "-c", script, "sh", *inner])  # noqa: S606 - constant


def _raise_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def processors() -> tuple[set[int], set[int]]:
    """Those of the node, and those of everybody else. With one processor, they are the same."""
    available = sorted(os.sched_getaffinity(0))
    half = len(available) // 2
    return set(available[:half] or available), set(available[half:])


@contextmanager
def placed_on(chosen: set[int]) -> Iterator[None]:
    """Processes that are started inside the block run on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def last_in_line() -> None:
    """Let other processes on the same processors come first."""
    os.nice(19)


async def connect(host: str, port: int, source: str) -> trio.SocketStream:
    """A TCP connection from a local address. OSError if it is refused or reset."""
    sock = trio.socket.socket()
    try:
        # Without this, binding would use up the ports of the address for all connections.
        sock.setsockopt(trio.socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        await sock.bind((source, 0))
        await sock.connect((host, port))
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)


def end(process: subprocess.Popen[str], within_s: float = ENDS_WITHIN_S) -> None:
    """Interrupt a process that still runs, kill it if it does not end soon, and reap it."""
    with process:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
