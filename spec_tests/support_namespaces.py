"""Hosts of their own for tests: network namespaces on one bridge, which can be cut in two.

Needs the right to make namespaces (root, as a rule) and ``ip``; :func:`permitted` says whether both
are there, and a test that needs them is skipped with that reason otherwise.

    lab (a namespace with two bridges, west and east, joined by a veth pair)
     ├─ h1 10.77.0.1   on west
     ├─ h2 10.77.0.2   on west
     └─ h3 10.77.0.3   on east
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

SOON_BACK = """
from dataclasses import replace
from meshnode.services.dht import timings
timings.DHT_TIMINGS = replace(timings.DHT_TIMINGS, lost_s=1.0)
from meshnode.services import peers
beats = replace(peers.PEER_TIMINGS, beat_s=1.0, call_s=5.0)
peers.serve_peers.__kwdefaults__["timings"] = beats
"""
"""A prelude, and to be the first: nodes soon see who is gone, and soon look for who was lost."""


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


class Lab:
    """Hosts on two bridges."""

    def __init__(self) -> None:
        # Not the name of one that an earlier process left behind.
        self._name = f"mn{os.getpid()}-{secrets.token_hex(4)}"
        self._made: list[str] = []

    def _add(self, suffix: str) -> str:
        name = f"{self._name}{suffix}"
        _ip("netns", "add", name)
        self._made.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def build(self, west: int, east: int) -> None:
        """Make so many hosts on each side: ``host(0)`` up to ``host(west + east - 1)``."""
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

    def enter(self, index: int) -> tuple[str, ...]:
        """The command that runs what follows on a host."""
        return ("ip", "netns", "exec", f"{self._name}h{index}")

    def cut(self) -> None:
        """Separate west from east: packets vanish, nobody is told."""
        _ip("-n", self._lab, "link", "set", "cut0", "down")

    def mend(self) -> None:
        """Join them again."""
        _ip("-n", self._lab, "link", "set", "cut0", "up")

    def unplug(self, index: int) -> None:
        """Take one host's link down."""
        _ip("-n", self._lab, "link", "set", f"p{index}", "down")

    def plug(self, index: int) -> None:
        """Take it up again."""
        _ip("-n", self._lab, "link", "set", f"p{index}", "up")

    def remove(self) -> None:
        """Remove all that was made."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def lab(west: int, east: int) -> Iterator[Lab]:
    """Hosts for the length of a test."""
    made = Lab()
    try:
        made.build(west, east)
        yield made
    finally:
        made.remove()
