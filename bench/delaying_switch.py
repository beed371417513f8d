"""A switch between namespaces that delays IPv4 packets: ``bench.netem`` starts it.

``python -m bench.delaying_switch DELAY_MS MBIT NAMESPACE...`` makes a device ``eth0`` in each
namespace, whose last address byte is its number from 1, and prints a line when all are there.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
BITS = 8
IP = "/sbin/ip"


def device(index: int, namespace: str) -> int:
    """Make ``eth0`` in a namespace; returns the descriptor of its packets."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"bt{os.getpid() % 10000}x{index}"
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run([IP, "link", "set", name, "netns", namespace], check=True)
    rename = [IP, "-n", namespace, "link", "set", name, "name", "eth0", "txqueuelen", "10000"]
    subprocess.run(rename, check=True)
    return descriptor


def serve(devices: list[int], delay_s: float, bits_per_s: float) -> None:
    """Carry packets until killed."""
    by_address = dict(enumerate(devices, 1))
    free_at = dict.fromkeys(devices, 0.0)
    waiting: deque[tuple[float, int, bytes]] = deque()
    poll = select.poll()
    for descriptor in devices:
        poll.register(descriptor, select.POLLIN)
    while True:
        pause_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
        for descriptor, _ in poll.poll(pause_s * 1e3):
            for packet in _packets(descriptor):
                took_s = len(packet) * BITS / bits_per_s
                free_at[descriptor] = max(time.monotonic(), free_at[descriptor]) + took_s
                due = free_at[descriptor] + delay_s
                target = by_address.get(packet[19]) if packet[0] >> 4 == 4 else None
                if target is not None:
                    waiting.append((due, target, packet))
        now = time.monotonic()
        # Nearly sorted: packets of two hosts may be out of order by what one of them takes.
        while waiting and waiting[0][0] <= now:
            _, target, packet = waiting.popleft()
            os.write(target, packet)


def _packets(descriptor: int) -> list[bytes]:
    found: list[bytes] = []
    try:
        while len(found) < 64:
            found.append(os.read(descriptor, 65536))
    except BlockingIOError:
        pass
    return found


def main() -> None:
    """Make the devices, and carry packets between them."""
    delay_ms, mbit, *namespaces = sys.argv[1:]
    devices = [device(index, namespace) for index, namespace in enumerate(namespaces)]
    print("ready", flush=True)
    serve(devices, float(delay_ms) / 1e3, float(mbit) * 1e6)


if __name__ == "__main__":
    main()
