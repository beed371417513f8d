"""The limit of open files (decision 0124)."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from meshnode.descriptors import MIN_DESCRIPTORS, finite, share_out
from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning

CHECK = "open files"
FEW = 1024
ADVICE = "raise the hard limit: ulimit -Hn, or LimitNOFILE of the unit"


def check(_: Examination) -> Iterator[Finding]:
    """Share out the hard limit as the node does at its start."""
    hard = finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    if hard < MIN_DESCRIPTORS:
        yield fault(CHECK, f"this process may open {hard} files, not {MIN_DESCRIPTORS}", ADVICE)
        return
    budget = share_out(hard)
    text = f"{budget.http} HTTP and {budget.grpc} gRPC connections, {budget.peers} to peers"
    yield warning(CHECK, text, ADVICE) if hard < FEW else ok(CHECK, text)
