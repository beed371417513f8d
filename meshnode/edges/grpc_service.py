"""All that the gRPC port serves: the node service, health, reflection (interface 4.3).

The node service consists of parts, each of which overrides the operations on one subject. An
operation that no part overrides is UNIMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from meshnode.rpc.health import HealthServicer
from meshnode.rpc.node_grpc import NodeServiceServicer
from meshnode.rpc.reflection import reflection_services

if TYPE_CHECKING:
    from meshnode.rpc.stubs import Service
    from meshnode.supervise import Drain


def node_services(parts: Iterable[NodeServiceServicer], drain: Drain) -> list[Service]:
    """The services of the port. Two parts must not override the same operation."""
    node = NodeServiceServicer().service
    for part in parts:
        offered = part.service.operations
        node.operations |= {name: offered[name] for name in overridden(part)}
    health = HealthServicer(
        services=[node.name],
        serving=lambda: not drain.draining,
        wait_stopping=drain.wait_begun,
    ).service
    served = [node, health]
    return [*served, *reflection_services(served)]


def overridden(part: NodeServiceServicer) -> set[str]:
    """Names of the operations that a part offers."""
    inherited = vars(NodeServiceServicer)
    return {
        name for name in part.service.operations if getattr(type(part), name) is not inherited[name]
    }
