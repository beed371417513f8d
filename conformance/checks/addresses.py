"""Interface 2.1 and 2.3: the ports that a node names as its own, beside those that answer."""

from urllib.parse import urlsplit

from conformance import messages
from conformance.checks.config import read_config
from conformance.checks.dht import SENDER
from conformance.context import Context
from conformance.findings import Skipped
from conformance.registry import requirement
from conformance.shapes import lookup
from conformance.strictjson import is_int
from conformance.target import documented_grpc_address


def _ports(context: Context) -> tuple[int, int]:
    """Return the ports of HTTP and of gRPC, under which the node was reached."""
    parts = urlsplit(context.target.url)
    grpc = context.target.grpc or documented_grpc_address(context.target.url)
    http = parts.port or (443 if parts.scheme == "https" else 80)
    return http, int(grpc.rpartition(":")[2])


@requirement("NA-SANE-030")
def config_ports(context: Context) -> None:
    """GET /config, and compare its ports with those of the target."""
    config = read_config(context)
    for key, port in zip(("port", "grpc_port"), _ports(context), strict=True):
        for named in lookup(config, key):
            if is_int(named):
                why = f"{key} is {named}, and the node was reached at {port}"
                context.judge("NA-SANE-030", named == port, why)


@requirement("DH-029")
def dht_port(context: Context) -> None:
    """Call DHTPing, and compare the port of the responder with those of the target."""
    reply = context.grpc.call("DHTPing", messages.make("DHTPingRequest", sender=SENDER))
    try:
        answer = messages.parse("DHTPingResponse", reply.body) if reply.ok else None
    except messages.BadMessage:
        answer = None
    if answer is None or not answer.HasField("responder"):
        raise Skipped(f"DHTPing ended with {reply.code}, or names no responder")
    ports = _ports(context)
    named = answer.responder.port
    why = f"the port of the responder is {named}, and the node was reached at {ports}"
    context.judge("DH-029", named in ports, why, reply)
