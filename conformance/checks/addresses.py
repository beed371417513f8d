"""Interface 2.1: the ports that a node names as its own, beside those that answer."""

from urllib.parse import urlsplit

from conformance.checks.config import read_config
from conformance.context import Context
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import is_int
from conformance.target import documented_grpc_address


def ports_of(context: Context) -> tuple[int, int]:
    """Return the ports of HTTP and of gRPC, under which the node was reached."""
    parts = urlsplit(context.target.url)
    grpc = context.target.grpc or documented_grpc_address(context.target.url)
    http = parts.port or (443 if parts.scheme == "https" else 80)
    return http, int(grpc.rpartition(":")[2])


@requirement("NA-SANE-030")
def config_ports(context: Context) -> None:
    """GET /config, and compare its ports with those of the target."""
    config = read_config(context)
    for key, port in zip(("port", "grpc_port"), ports_of(context), strict=True):
        for named in lookup(config, key):
            if is_int(named):
                why = f"{key} is {named}, and the node was reached at {port}"
                context.judge("NA-SANE-030", named == port, why)
