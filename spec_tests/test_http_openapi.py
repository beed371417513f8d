"""The OpenAPI document describes the routes that exist, and exactly those."""

from pathlib import Path
from typing import Any

import pytest
import trio
from support_http import start_node

from meshnode.domain.inference_rules import generation_request, wants_stream
from meshnode.edges import http_node, http_peers, http_proofs, http_training, http_wallet
from meshnode.http.openapi import openapi_document
from meshnode.http.schemas import SCHEMAS

ROUTES = (
    *http_node.ROUTES,
    *http_peers.ROUTES,
    *http_wallet.ROUTES,
    *http_training.ROUTES,
    *http_proofs.ROUTES,
)
DOCUMENT = openapi_document("1.2.3")
OPERATIONS = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if "$ref" in value else set()
        return found.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    assert set(OPERATIONS) == {(route.method, route.path) for route in ROUTES}


def test_bearer_tokens_are_asked_for_exactly_where_they_are_needed() -> None:
    for route in ROUTES:
        operation = OPERATIONS[route.method, route.path]
        assert operation["security"] == ([{"bearer": []}] if route.auth else [])
        assert ("401" in operation["responses"]) is route.auth


def test_all_references_lead_somewhere_and_all_schemas_are_described() -> None:
    for reference in references(DOCUMENT):
        place: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    used = {name.rsplit("/", 1)[1] for name in references(DOCUMENT) if "/schemas/" in name}
    assert used == set(SCHEMAS)


def test_operations_have_unique_ids() -> None:
    identifiers = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_the_described_defaults_are_those_in_force() -> None:
    described = SCHEMAS["InferenceRequest"]["properties"]
    request = generation_request({"prompt": "x"})
    for name in ("max_tokens", "temperature", "top_p", "top_k"):
        assert described[name]["default"] == getattr(request, name)
    assert described["stop"]["default"] == list(request.stop)
    assert described["stream"]["default"] is wants_stream({})


def test_examples_are_valid_requests() -> None:
    content = OPERATIONS["POST", "/api/v1/inference"]["requestBody"]["content"]
    generation_request(content["application/json"]["example"])


@pytest.mark.wire
async def test_the_node_serves_it(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("GET", "/openapi.json", token=None)
    assert answer.json == DOCUMENT
