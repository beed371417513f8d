"""The OpenAPI document describes exactly the routes that exist."""

import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import trio
from openapi_spec_validator import OpenAPIV31SpecValidator

from meshnode.assembly.edges import NATIVE_ROUTES, NODE_ROUTES, OPENAI_ROUTES
from meshnode.domain.inference_rules import generation_request, wants_stream
from meshnode.edges import http_index, http_node
from meshnode.edges.http_index import IndexApi
from meshnode.http.native_bodies import RpcMethod
from meshnode.http.openapi import template
from meshnode.services.gateway.rpc_table import METHODS
from spec_tests.edges.http_server import start_node

ROUTES = (*NODE_ROUTES, *http_index.ROUTES, *NATIVE_ROUTES, *OPENAI_ROUTES)
API = IndexApi.of("1.2.3", NODE_ROUTES, NATIVE_ROUTES, OPENAI_ROUTES)
DOCUMENT = API.document
SCHEMAS = DOCUMENT["components"]["schemas"]
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


def test_a_validator_finds_nothing() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    assert set(OPERATIONS) == {(route.method, template(route.path)) for route in ROUTES}
    assert len(OPERATIONS) == len(ROUTES)


def test_every_module_of_routes_is_in_the_document() -> None:
    # Catches a new edge whose table of routes is missing in the assembly.
    folder = Path(http_node.__file__).parent
    modules = {path.stem for path in folder.glob("http_*.py")}
    handlers = {route.handler.__module__.rsplit(".", 1)[1] for route in ROUTES}
    assert handlers == modules


def test_bearer_tokens_are_required_exactly_where_they_are_needed() -> None:
    for route in ROUTES:
        operation = OPERATIONS[route.method, template(route.path)]
        assert operation["security"] == ([{"bearer": [str(route.scope)]}] if route.auth else [])
        # Where a token is optional, a wrong one is refused all the same (decisions 0166, 0170).
        assert ("401" in operation["responses"]) is (route.auth or 401 in route.errors)


def test_all_references_lead_somewhere_and_all_schemas_are_used() -> None:
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
    for operation in OPERATIONS.values():
        for media in operation.get("requestBody", {}).get("content", {}).values():
            if "example" in media:
                whole = {**media["schema"], "components": DOCUMENT["components"]}
                jsonschema.Draft202012Validator(whole).validate(media["example"])


def test_the_described_calls_are_those_that_are_permitted() -> None:
    assert set(get_args(RpcMethod)) == set(METHODS)


def test_the_index_has_a_line_for_each_operation_that_offers_something() -> None:
    for entry in API.index["routes"]:
        operation = OPERATIONS[entry["method"], entry["path"]]
        assert entry["summary"] == operation["summary"]
        assert "\n" not in entry["summary"]
        assert entry["token"] is bool(operation["security"])
    paths = {entry["path"] for entry in API.index["routes"]}
    assert {"/api/v1/inference", "/rpc", "/join", "/work/poll", "/openapi.json"} <= paths
    assert not any(re.match("/(login|api/auth)", path) for path in paths)


@pytest.mark.wire
async def test_the_node_serves_it(nursery: trio.Nursery, tmp_path: Path) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("GET", "/openapi.json", token=None)
    described = answer.json["paths"]
    assert {path: DOCUMENT["paths"][path] for path in described} == described


@pytest.mark.wire
@pytest.mark.parametrize("path", ["/", "/api/v1", "/api/v1/"])
async def test_the_base_answers_an_index(nursery: trio.Nursery, tmp_path: Path, path: str) -> None:
    node = await start_node(nursery, tmp_path)
    answer = await node.ask("GET", path, token=None)
    assert answer.status == 200
    assert answer.json["links"] == {"openapi": "/openapi.json", "join": "/join"}
    assert {
        "method": "GET",
        "path": "/api/v1/status",
        "summary": "Node status",
        "token": False,
    } in (answer.json["routes"])
    jsonschema.validate(answer.json, {**SCHEMAS["Index"], "components": DOCUMENT["components"]})
