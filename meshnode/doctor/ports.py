"""The two ports: free, or taken and by whom (interface 1)."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from meshnode.doctor.examination import Examination
from meshnode.doctor.findings import Finding, fault, ok, warning
from meshnode.domain.errors import StartupError
from meshnode.ports import check_ports

CHECK = "ports"


def check(examination: Examination) -> Iterator[Finding]:
    """Try to listen as the node would."""
    config = examination.config
    both = f"{config.port} (HTTP) and {config.grpc_port} (gRPC) on {config.host}"
    try:
        check_ports(config)
    except StartupError as error:
        holders = [_holder(port) for port in (config.port, config.grpc_port)]
        named = ", ".join(sorted({holder for holder in holders if holder}))
        by = f", by {named}" if named else ""
        if examination.running:
            yield ok(CHECK, f"{both}: taken{by or ', probably by the node of this folder'}")
        else:
            yield fault(CHECK, f"{error}{by}", "end that program, or choose another --port")
        return
    if examination.running:
        yield warning(
            CHECK, f"{both}: free, though a node runs in the data folder", "name its port"
        )
    else:
        yield ok(CHECK, f"{both}: free")


def _holder(port: int) -> str:
    """Name and process id of the program that listens on a port; empty if it is not shown."""
    try:
        for found in psutil.net_connections(kind="tcp"):
            listens = found.status == psutil.CONN_LISTEN and found.pid is not None
            if listens and getattr(found.laddr, "port", 0) == port:
                return f"{psutil.Process(found.pid).name()} (process {found.pid})"
    except (psutil.Error, OSError):
        # Other users' processes are not shown to everybody.
        return ""
    return ""
