"""The process's memory: what counts, and what the limit leaves (decision 0157)."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from meshnode.config import build_config
from meshnode.domain.errors import StartupError
from meshnode.domain.units import GIBIBYTE, MEBIBYTE
from meshnode.memory import PROCESS_BYTES, private_bytes
from meshnode.services.executor import engine_limits


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_private_memory_is_a_part_of_the_resident() -> None:
    before = private_bytes()
    block = bytearray(b"x") * (64 * MEBIBYTE)
    assert private_bytes() - before > 60 * MEBIBYTE
    assert private_bytes() < psutil.Process().memory_info().rss
    del block
    assert private_bytes() - before < 4 * MEBIBYTE


# In a process of its own: threads of other tests allocate too.
HALF_FREED = """
from meshnode.memory import map_large_blocks, private_bytes
# After this the allocator takes smaller blocks from its heap, unless it was told what to do.
large = bytearray(16 * 1024 * 1024)
del large
map_large_blocks()
before = private_bytes()
blocks = [bytearray(b"x") * (512 * 1024) for _ in range(64)]
# Every other block stays, so that the heap could not shrink.
del blocks[::2]
print(private_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="an allocator of glibc")
def test_freed_blocks_between_others_go_back_while_a_node_starts() -> None:
    command = [sys.executable, "-c", HALF_FREED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20 * MEBIBYTE


# Threads compute one after another, and something of each stays, so that no heap could shrink.
IN_TURN = """
import threading
from meshnode.memory import map_large_blocks, private_bytes, reuse_blocks
map_large_blocks()
reuse_blocks()
ended, kept = threading.Event(), []
def compute(done):
    blocks = [bytearray(b"x") * (512 * 1024) for _ in range(64)]
    kept.append(bytearray(b"x") * (256 * 1024))
    del blocks
    done.set()
    ended.wait()
before = private_bytes()
for _ in range(4):
    done = threading.Event()
    threading.Thread(target=compute, args=(done,)).start()
    done.wait()
print(private_bytes() - before)
ended.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="an allocator of glibc")
def test_what_a_thread_has_freed_is_used_by_the_next() -> None:
    command = [sys.executable, "-c", IN_TURN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 48 * MEBIBYTE


def test_the_cache_has_what_weights_and_process_leave() -> None:
    config = build_config({"resources.max_memory_gb": 1.0})
    limits = engine_limits(config, 100 * MEBIBYTE + PROCESS_BYTES)
    assert limits.kv_bytes == GIBIBYTE - 350 * MEBIBYTE
    with pytest.raises(StartupError, match="weights and the process alone take"):
        engine_limits(config, GIBIBYTE)
