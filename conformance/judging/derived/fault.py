"""One fault, and how a node wears it.

Terms: a fault *touches* the routes and operations whose requests or answers it changes; a *worn*
fault counts how often it changed anything, so that one that never did is not taken for one that
was overlooked. Keys of what is touched are `GET /api/v1/status` and `rpc DHTPing`.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.judging.toy.answers import (
    Asked,
    Response,
    Sent,
    named_operation,
    no_grpc_hook,
    no_http_hook,
    same_call,
    same_request,
)
from conformance.judging.toy.node import ToyNode

HttpHook = Callable[[Asked, Response], object]
GrpcHook = Callable[[str, Any, Any], Any]


@dataclass
class Wrapper:
    """The hooks of one fault. `node` serves requests that no client sent, if a hook has any."""

    http: HttpHook = no_http_hook
    grpc: GrpcHook = no_grpc_hook
    request: Callable[[Sent], Sent] = same_request
    call: Callable[[str, bytes], bytes] = same_call
    operation: Callable[[str], str | None] = named_operation


@dataclass(frozen=True)
class Fault:
    """One single fault. `make` builds its wrapper, which may keep state, for one run."""

    kind: str
    name: str
    touches: frozenset[str]
    make: Callable[[ToyNode], Wrapper]


@dataclass
class Worn:
    """A fault in place; `shown` counts the answers and requests that it changed."""

    shown: int = field(default=0)


def http_fault(kind: str, name: str, key: str, hook: HttpHook) -> Fault:
    """Make a fault of the answers of one route, whose hook keeps no state."""

    def only(asked: Asked, response: Response) -> None:
        if key == f"{asked.method} {asked.path}":
            hook(asked, response)

    return Fault(kind, name, frozenset({key}), lambda node: Wrapper(http=only))


def wear(node: ToyNode, fault: Fault) -> Worn:
    """Put the fault around the node, in place of any other."""
    worn, wrapper = Worn(), fault.make(node)

    def http(asked: Asked, response: Response) -> None:
        before = copy.deepcopy(response)
        wrapper.http(asked, response)
        # NaN differs from itself, so that answers are compared as text.
        worn.shown += repr(before) != repr(response)

    def grpc(operation: str, request: Any, answer: Any) -> Any:
        before = repr(answer)
        changed = wrapper.grpc(operation, request, answer)
        worn.shown += repr(changed) != before
        return changed

    def request(sent: Sent) -> Sent:
        changed = wrapper.request(sent)
        worn.shown += changed != sent
        return changed

    def call(operation: str, data: bytes) -> bytes:
        changed = wrapper.call(operation, data)
        worn.shown += changed != data
        return changed

    def operation(path: str) -> str | None:
        found = wrapper.operation(path)
        worn.shown += found != named_operation(path)
        return found

    node.http_hook, node.grpc_hook = http, grpc
    node.rewrite, node.rewrite_call, node.operation_of = request, call, operation
    return worn


def take_off(node: ToyNode) -> None:
    """Remove any fault from the node."""
    node.http_hook, node.grpc_hook = no_http_hook, no_grpc_hook
    node.rewrite, node.rewrite_call = same_request, same_call
    node.operation_of = named_operation
