"""The two ports of a node, checked before anything else is done (interface 1).

Loading a model takes seconds and a first start makes a key and a chain: a port in use is found
before that. The servers open their own sockets later, and fail if another program has taken the
port in the meantime; this check only makes the usual failure quick and its message clear.
"""

from __future__ import annotations

import errno
import socket

from meshnode.config import Config
from meshnode.domain.addresses import GRPC_PORT_OFFSET
from meshnode.domain.errors import StartupError


def check_ports(config: Config) -> None:
    """Raise StartupError, in one line, when the node could not listen on one of its two ports."""
    _check(config.host, config.port, f"port {config.port} is HTTP's (--port)")
    whose = f"port {config.grpc_port} is gRPC's, the HTTP port {config.port} plus"
    _check(config.host, config.grpc_port, f"{whose} {GRPC_PORT_OFFSET}")


def _check(host: str, port: int, whose: str) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise StartupError(f"--host: cannot listen on {host}: there is no such address") from None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # Set as the servers do: a port whose last connections are still closing counts as
                # free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                # A machine without IPv6 listens on its other addresses.
                continue
            if error.errno == errno.EADDRINUSE:
                raise StartupError(f"{whose}; it is in use on {host}") from None
            reason = error.strerror or str(error)
            raise StartupError(f"{whose}; cannot listen on it at {host}: {reason}") from None
