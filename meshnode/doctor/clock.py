"""This machine's clock, beside those of other nodes and the times in the data folder.

Signed messages, tokens and blocks carry times, so a clock that is wrong makes them count as old, or
as from the future.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning

CHECK = "clock"
SMALL_S = 5.0
LARGE_S = 60.0
ADVICE = "set the clock, and keep it with NTP (timedatectl set-ntp true)"


def check(examination: Examination) -> Iterator[Finding]:
    """Compare with the median of the others, since one of them may be wrong."""
    behind = _newest(examination) - time.time()
    if behind > LARGE_S:
        yield fault(CHECK, f"files of the data folder are {behind:.0f} s in the future", ADVICE)
    offsets = [one.clock_offset_s for one in examination.replies if one.clock_offset_s is not None]
    if not offsets:
        if behind <= LARGE_S:
            yield ok(CHECK, "not earlier than the data folder; no other node to compare with")
        return
    offset = median(offsets)
    text = (
        f"{abs(offset):.0f} s {'behind' if offset > 0 else 'ahead of'} {len(offsets)} other nodes"
    )
    if abs(offset) > LARGE_S:
        yield fault(CHECK, text, ADVICE)
    elif abs(offset) > SMALL_S:
        yield warning(CHECK, text, ADVICE)
    else:
        yield ok(CHECK, f"within {SMALL_S:g} s of {len(offsets)} other nodes")


def _newest(examination: Examination) -> float:
    """When a file of the folder was changed last; 0.0 without any."""
    try:
        return max((one.stat().st_mtime for one in examination.data_dir.iterdir()), default=0.0)
    except OSError:
        return 0.0
