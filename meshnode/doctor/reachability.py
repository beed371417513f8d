"""Whether trackers and remembered peers answer on both of their ports."""

from __future__ import annotations

from collections.abc import Iterator

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning

CHECK = "network"
ADVICE = "check address, firewall and both ports: HTTP, and gRPC 1000 above it"


def check(examination: Examination) -> Iterator[Finding]:
    """A tracker that does not answer is a fault only if no node at all does."""
    replies = examination.replies
    if not replies:
        yield ok(CHECK, "no tracker is set and no peer remembered: a network of its own")
        return
    alone = not any(reply.reached for reply in replies)
    for reply in replies:
        name = reply.node.name
        if reply.reached:
            healthy = "healthy" if reply.http_status == 200 else f"health {reply.http_status}"
            yield ok(CHECK, f"{name} answers on both ports, {healthy}")
            continue
        found = fault if alone and reply.node.tracker else warning
        errors = dict.fromkeys(filter(None, (reply.http_error, reply.grpc_error)))
        yield found(CHECK, f"{name}: {'; '.join(errors)}", ADVICE)
