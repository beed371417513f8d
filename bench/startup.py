"""Start-up time and memory of the node with its default model, beside `transformers` with it.

The peer is a process that imports `transformers`, loads the same weights and serves nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import psutil

from bench.node_process import running_node
from bench.table import MEBIBYTE, BenchRow
from meshnode.model.loading import DEFAULT_MODEL

ROUNDS = 3
READY_LIMIT_S = 5.0

PEER = f"""
import torch
torch.set_num_threads(2)
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({str(DEFAULT_MODEL)!r}, dtype=torch.float32)
print("ready", flush=True)
input()
"""


def run() -> list[BenchRow]:
    """Measure both in turn, after one start of each to warm the file cache."""
    _node()
    _peer()
    nodes, peers = [], []
    for _ in range(ROUNDS):
        nodes.append(_node())
        peers.append(_peer())
    seconds, ready, memory = (statistics.median(values) for values in zip(*nodes, strict=True))
    peer_seconds, peer_memory = (statistics.median(values) for values in zip(*peers, strict=True))
    return [
        BenchRow("ready, imports warm", ready, READY_LIMIT_S, READY_LIMIT_S / ready, 1.0, "s"),
        BenchRow(
            "process start to ready", seconds, peer_seconds, peer_seconds / seconds, None, "s",
            note="peer: transformers loads the same model, without a server",
        ),
        BenchRow(
            "memory when ready", memory, peer_memory, peer_memory / memory, None, "MiB",
            note="peer: as above",
        ),
    ]  # fmt: skip


def _node() -> tuple[float, float, float]:
    begun = time.perf_counter()
    with running_node() as node:
        return time.perf_counter() - begun, node.ready_s, node.memory_bytes / MEBIBYTE


def _peer() -> tuple[float, float]:
    begun = time.perf_counter()
    process = psutil.Popen(
        [sys.executable, "-c", PEER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the peer did not start")
        return time.perf_counter() - begun, process.memory_info().rss / MEBIBYTE
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()
