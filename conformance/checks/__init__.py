"""The checks. Importing this package registers all of them."""

from conformance.checks import (
    auth,
    config,
    dht,
    inference,
    limits,
    native,
    node_reads,
    node_sanity,
    pipeline,
    requests,
    rpc,
    sequences,
    stream,
    training,
    wallet,
)

__all__ = [
    "auth",
    "config",
    "dht",
    "inference",
    "limits",
    "native",
    "node_reads",
    "node_sanity",
    "pipeline",
    "requests",
    "rpc",
    "sequences",
    "stream",
    "training",
    "wallet",
]
