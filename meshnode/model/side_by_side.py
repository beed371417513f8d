"""Work on parts of a model that do not touch one another, by a few threads.

Reading, hashing and packing spend their time outside Python, so threads help them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_THREADS = 4
"""What each part takes in memory is taken this many times at most."""


def side_by_side(
    function: Callable[[T], R], parts: Iterable[T], threads: int = MAX_THREADS
) -> list[R]:
    """The results for all parts, in order. Blocks; raises the first error, after the rest ended."""
    wanted = list(parts)
    used = min(threads, os.cpu_count() or 1, len(wanted))
    if used <= 1:
        return [function(part) for part in wanted]
    with ThreadPoolExecutor(used, "side by side") as pool:
        return list(pool.map(function, wanted))
