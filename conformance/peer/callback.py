"""An address of the suite's own in an ordinary run, of which nobody is told but by its messages.

A pass names it as its `sender_url`, and a DHT request as its sender. So a run sees what a node
sends back, without an operator who makes the suite a peer (decision 0243).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit

from conformance.compiled import AVAILABLE
from conformance.editions import FOURTH
from conformance.peer.peer import Patience, Peer, Setup
from conformance.target import GRPC_PORT_OFFSET, BadConfiguration, Target

# Nobody is waited for who has not been called.
PATIENCE = Patience(first_s=0.0, settle_s=4.0, recover_s=0.0)


@contextmanager
def listening(target: Target, address: str | None) -> Iterator[Peer | None]:
    """Listen at ``HOST:PORT``, or on this machine if the target is on it; None if nowhere.

    Raises `BadConfiguration` if the address is none, or is taken.
    """
    host, port = _own(target) if address is None else read_address(address)
    if not host or not AVAILABLE or not target.grpc or target.edition < FOURTH:
        yield None
        return
    try:
        peer = Peer(Setup(host=host, port=port, patience=PATIENCE, told=False))
    except OSError as error:
        if address is not None:
            raise BadConfiguration(f"--listen: {error}") from None
        yield None
        return
    with peer:
        yield peer


def read_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` of an HTTP address, of which gRPC is 1000 higher."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 - GRPC_PORT_OFFSET:
        raise BadConfiguration(f"--listen: {text!r} is not HOST:PORT")
    return host, int(port)


def _own(target: Target) -> tuple[str, int]:
    host = urlsplit(target.url).hostname or ""
    try:
        local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        local = False
    # Port 0 is any two that are free.
    return ("127.0.0.1" if local else "", 0)
