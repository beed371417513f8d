"""Separate hosts for tests: network namespaces in one network, which can be cut in two.

Needs the command ``ip`` and the right to make namespaces (root, as a rule). :func:`refusal` returns
why they cannot be made; the tests that need them are then skipped for that reason.

    lab (a namespace with two bridges, west and east, joined by a veth pair)
     ├─ h1 10.77.0.1   on west
     ├─ h2 10.77.0.2   on west
     └─ h3 10.77.0.3   on east
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

from spec_tests.processes.calls import Call

NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@lru_cache(maxsize=1)
def refusal() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    name = f"mnt{os.getpid()}-{secrets.token_hex(4)}"
    try:
        _ip("netns", "add", name)
    except FileNotFoundError:
        return "the command ip is not installed"
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted here: {error.stderr.strip()}"
    try:
        _ip("-n", name, "link", "add", "probe", "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"bridges are not permitted here: {error.stderr.strip()}"
    finally:
        _ip("netns", "delete", name)
    return ""


def enter_namespace(name: str) -> None:
    """Move this process into a network namespace, in which its further sockets are made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (NAMESPACES / name).open() as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


class Lab:
    """Hosts on two bridges."""

    def __init__(self) -> None:
        # Random, because an earlier process with this PID may have left namespaces behind.
        self._name = f"mn{os.getpid()}-{secrets.token_hex(4)}"
        self._made: list[str] = []

    def _add(self, suffix: str) -> str:
        name = f"{self._name}{suffix}"
        _ip("netns", "add", name)
        self._made.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def build(self, west: int, east: int) -> None:
        """Make this many hosts on each side. Hosts are numbered from 0, beginning in the west."""
        lab = self._lab = self._add("l")
        for bridge in ("west", "east"):
            _ip("-n", lab, "link", "add", bridge, "type", "bridge")
            _ip("-n", lab, "link", "set", bridge, "up")
        _ip("-n", lab, "link", "add", "cut0", "type", "veth", "peer", "name", "cut1")
        for end, bridge in (("cut0", "west"), ("cut1", "east")):
            _ip("-n", lab, "link", "set", end, "master", bridge)
            _ip("-n", lab, "link", "set", end, "up")
        for index in range(west + east):
            host = self._add(f"h{index}")
            port = f"p{index}"
            _ip(
                "-n",
                lab,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                host,
            )
            _ip("-n", lab, "link", "set", port, "master", "west" if index < west else "east")
            _ip("-n", lab, "link", "set", port, "up")
            _ip("-n", host, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")

    def address(self, index: int) -> str:
        """The address of a host."""
        return f"10.77.0.{index + 1}"

    def enter(self, index: int) -> Call:
        """The call that moves a process to a host."""
        return partial(enter_namespace, name=f"{self._name}h{index}")

    def cut(self) -> None:
        """Separate west from east: packets between them are lost, and no host gets an error."""
        _ip("-n", self._lab, "link", "set", "cut0", "down")

    def mend(self) -> None:
        """Join west and east again."""
        _ip("-n", self._lab, "link", "set", "cut0", "up")

    def unplug(self, index: int) -> None:
        """Take one host's link down."""
        _ip("-n", self._lab, "link", "set", f"p{index}", "down")

    def plug(self, index: int) -> None:
        """Bring one host's link up again."""
        _ip("-n", self._lab, "link", "set", f"p{index}", "up")

    def remove(self) -> None:
        """Delete all namespaces that were made."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def lab(west: int, east: int) -> Iterator[Lab]:
    """Make hosts, and remove them at the end of the test."""
    made = Lab()
    try:
        made.build(west, east)
        yield made
    finally:
        made.remove()
