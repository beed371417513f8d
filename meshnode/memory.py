"""What this process takes of the machine's memory, and how it keeps that small (decision 0157).

Terms: *private* memory is what only this process has: anonymous pages and its own shared memory.
Pages of libraries and of files that are mapped for reading are not part of it, since the system
takes them back whenever it needs them.

The C library keeps freed blocks for later use. Loading frees blocks of every size between blocks
that stay, so that hundreds of megabytes can be left which nothing ever fits into. While a node
starts, blocks are therefore mapped one by one, which gives them back at once. Afterwards they are
not, since mapping costs a page fault for each 4 KiB of every intermediate result.

All threads share one heap. Otherwise each has its own, and what one of them has freed is of no use
to the next that computes: the same training took 510 or 700 MiB, as its threads happened to
alternate.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

from meshnode.domain.units import MEBIBYTE

PROCESS_BYTES = 250 * MEBIBYTE
"""The most private memory of a process besides weights and cache: the interpreter, torch, the
ledger, and what a step computes. A node that serves has some 215 MiB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_WHILE_LOADING = 64 * 1024
_MAPPED_FROM = 8 * MEBIBYTE
"""Intermediate results of a step are smaller, so that they are taken from memory that is there."""
_STATUS = Path("/proc/self/status")


def private_bytes() -> int:
    """Private memory now; 0 where the system does not report it."""
    try:
        lines = _STATUS.read_bytes().splitlines()
    except OSError:
        return 0
    names = (b"RssAnon:", b"RssShmem:")
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


def give_back_memory() -> None:
    """Return freed memory to the system. Takes some tenths of a second.

    What training frees lies between other allocations of several threads, where the allocator keeps
    it: 700 of 750 MB were measured.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Other C libraries than glibc have no such call.
    if trim is not None:
        trim(0)


def map_large_blocks() -> None:
    """From now on, blocks above 64 KiB go back to the system as soon as they are freed.

    Call it before there are other threads: a heap that a thread has already stays its own.
    """
    _set_thresholds(_WHILE_LOADING)


def reuse_blocks() -> None:
    """From now on, freed blocks of up to 8 MiB are kept for the next step; returns what is free."""
    _set_thresholds(_MAPPED_FROM)
    give_back_memory()


def _set_thresholds(mapped_from: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, mapped_from)
        mallopt(_M_TRIM_THRESHOLD, 2 * mapped_from)
