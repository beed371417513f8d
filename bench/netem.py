"""Hosts with a delay and a rate between them: network namespaces, and a switch that delays.

Needs the command ``ip``, ``/dev/net/tun`` and the right to make namespaces. The kernel's own netem
is a module that many machines lack, so packets pass through a process (``bench.delaying_switch``):
each host's packets leave it at a rate, and arrive after the delay. Without a delay the hosts are
joined by a bridge.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

IP = "/sbin/ip"


@dataclass(frozen=True)
class Host:
    """One host."""

    namespace: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        """A command as it runs on this host."""
        return ["ip", "netns", "exec", self.namespace, *arguments]


@contextmanager
def hosts(count: int, delay_ms: float, mbit: float) -> Iterator[list[Host]]:
    """Make hosts, and remove them at the end."""
    name = f"mb{os.getpid()}-{secrets.token_hex(3)}"
    made = [Host(f"{name}h{index}", f"10.78.0.{index + 1}") for index in range(count)]
    switch = f"{name}s"
    _run("ip", "netns", "add", switch)
    process: subprocess.Popen[str] | None = None
    try:
        for host in made:
            _run("ip", "netns", "add", host.namespace)
            _run("ip", "-n", host.namespace, "link", "set", "lo", "up")
        if delay_ms or mbit:
            command = [sys.executable, "-m", "bench.delaying_switch", str(delay_ms), str(mbit)]
            names = [host.namespace for host in made]
            process = subprocess.Popen([*command, *names], stdout=subprocess.PIPE, text=True)
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the switch did not start")
        else:
            _run("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "switch", "up")
            for index, host in enumerate(made):
                port, inside = f"p{index}", ("peer", "name", "eth0", "netns", host.namespace)
                _run("ip", "-n", switch, "link", "add", port, "type", "veth", *inside)
                _run("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
        for host in made:
            _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            _run("ip", "-n", host.namespace, "link", "set", "eth0", "up")
        yield made
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for namespace in (switch, *(host.namespace for host in made)):
            subprocess.run([IP, "netns", "delete", namespace], check=False, capture_output=True)


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
