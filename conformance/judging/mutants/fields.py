"""Mutants that leave out one documented field, or give it another type.

They are made from the catalogue, so no field can be added without one.
"""

import copy
from collections.abc import Callable
from typing import Any

from conformance import messages
from conformance.catalogue import Requirement, load
from conformance.judging.toy.answers import Asked, Response
from conformance.shapes import parents

# The routes and operations that answer with each resource.
PLACES = {
    "status": ("GET", "/api/v1/status"),
    "metrics": ("GET", "/api/v1/metrics"),
    "health": ("GET", "/api/v1/health"),
    "balance": ("GET", "/api/v1/wallet/balance"),
    "transactions": ("GET", "/api/v1/wallet/transactions"),
    "transfer": ("POST", "/api/v1/wallet/send"),
    "stake": ("POST", "/api/v1/wallet/stake"),
    "unstake": ("POST", "/api/v1/wallet/unstake"),
    "peers": ("GET", "/api/v1/peers"),
    "layers": ("GET", "/api/v1/layers"),
    "network": ("GET", "/api/v1/network"),
    "config": ("GET", "/api/v1/config"),
    "proofs": ("GET", "/api/v1/proofs"),
    "patch": ("PATCH", "/api/v1/config"),
    "inference": ("POST", "/api/v1/inference"),
    "sse-token": ("POST", "/api/v1/inference"),
    "sse-final": ("POST", "/api/v1/inference"),
    "training-global": ("GET", "/api/training/global"),
    "training-verify": ("GET", "/api/training/verify"),
    "openai-models": ("GET", "/v1/models"),
    "openai-model": ("GET", "/v1/models"),
    "openai-chat": ("POST", "/v1/chat/completions"),
    "openai-chunk": ("POST", "/v1/chat/completions"),
    "openai-text": ("POST", "/v1/completions"),
    "openai-error": ("POST", "/v1/chat/completions"),
}
WRONG: dict[str, Any] = {
    "string": 7, "int": 1.5, "number": "1", "bool": "true", "array": {}, "object": [],
    "ints": ["a"], "strings": [1], "string?": 7, "object?": [],
}  # fmt: skip

REWARDS = "transactions[type=reward]"
FIELDS = [item for item in load().values() if item.field and item.check]


def documents(resource: str, response: Response) -> list[Any]:
    """Return the parts of an answer that contain the resource."""
    if resource == "sse-token":
        return (response.events or [])[:-1]
    if resource == "sse-final":
        return (response.events or [])[-1:]
    if resource == "openai-chunk":
        return [event for event in response.events or () if isinstance(event, dict)]
    if not isinstance(response.json, dict):
        return []
    if resource == "openai-model":
        return list(response.json.get("data", ()))
    return [response.json]


def shows(resource: str, response: Response) -> bool:
    """Return whether the answer, by its status, may contain the resource."""
    return response.status >= 400 if resource == "openai-error" else 200 <= response.status < 300


def show_reward(page: dict[str, Any]) -> None:
    """Make the last entry of a page a reward: what a node has of its own may be far behind."""
    if len(page["transactions"]) > 1:
        details = {"proof_id": "p1", "role": "worker"}
        page["transactions"][-1] |= {"type": "reward", "details": details}


def mutant(requirement: Requirement) -> Callable[[Asked, Response], None]:
    """Return a hook that violates this requirement and no other."""
    rule = requirement.field
    if rule is None:
        raise ValueError(f"{requirement.id} is not about a field")
    place = PLACES[rule.of]

    def hook(asked: Asked, response: Response) -> None:
        if (asked.method, asked.path) != place or not shows(rule.of, response):
            return
        if rule.when is not None and rule.when.path == "is_working" and not rule.when.equals:
            response.json = {"is_working": False, "reason": "nodes differ", "action": "restart"}
        if rule.path.startswith(REWARDS):
            show_reward(response.json)
        for document in documents(rule.of, response):
            for holder, key, _ in list(parents(document, rule.path)):
                if rule.aspect == "present":
                    holder.pop(key, None)
                else:
                    holder[key] = copy.deepcopy(WRONG[rule.aspect])

    return hook


MESSAGE_FIELDS = [
    item
    for item in load().values()
    if item.message and item.check and not item.message.name.endswith("Request")
]


def broken(requirement: Requirement, data: bytes) -> bytes:
    """Return the message with another wire type for this field only.

    A DHTNodeInfo is returned unchanged: message_mutant breaks it in another place.
    """
    rule = requirement.message
    if rule is None:
        raise ValueError(f"{requirement.id} is not about a message")
    if rule.name == "DHTNodeInfo":
        return data
    kept = b"".join(
        messages.encode_field(field)
        for field in messages.wire_fields(data)
        if field.number != rule.number
    )
    return kept + messages.encode_field(
        messages.WireField(rule.number, messages.FIXED32, b"\1\2\3\4")
    )


def message_mutant(requirement: Requirement) -> Callable[[str, Any, Any], Any]:
    """Return a hook that gives one field of one message another wire type."""
    rule = requirement.message
    if rule is None:
        raise ValueError(f"{requirement.id} is not about a message")

    def hook(operation: str, request: Any, answer: Any) -> Any:
        if operation not in messages.OPERATIONS:
            return answer
        name = messages.OPERATIONS[operation][1]
        if rule.name == "DHTNodeInfo" and "responder" in answer:
            inner = answer["responder"].SerializeToString()
            kept = b"".join(
                messages.encode_field(field)
                for field in messages.wire_fields(inner)
                if field.number != rule.number
            ) + messages.encode_field(
                messages.WireField(rule.number, messages.FIXED32, b"\1\2\3\4")
            )
            outer = messages.make(name, **{**answer, "responder": None}).SerializeToString()
            return outer + messages.encode_field(messages.WireField(1, messages.LENGTH, kept))
        if name != rule.name:
            return answer
        return broken(requirement, messages.make(name, **answer).SerializeToString())

    return hook
