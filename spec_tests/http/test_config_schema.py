"""The configuration ranges in /openapi.json are the ranges that PATCH enforces."""

from typing import Any

import pytest

from meshnode.config import BY_KEY, Change, validate_value
from meshnode.domain.errors import InvalidRequest
from meshnode.edges.http_index import IndexApi
from meshnode.edges.http_node import ROUTES

CHANGEABLE = {key for key, s in BY_KEY.items() if s.change in (Change.LIVE, Change.RESTART)}


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        *_, name = schema["$ref"].split("/")
        schema = document["components"]["schemas"][name]
    return schema


def stated() -> dict[str, dict[str, Any]]:
    """The schema of every property of the body of PATCH /config, by dotted path."""
    document = IndexApi.of("0", ROUTES).document
    operation = document["paths"]["/api/v1/config"]["patch"]
    body = resolved(document, operation["requestBody"]["content"]["application/json"]["schema"])
    found = {}
    for name, schema in body["properties"].items():
        schema = resolved(document, schema)
        if schema.get("type") == "object":
            for inner, each in schema["properties"].items():
                found[f"{name}.{inner}"] = resolved(document, each)
        else:
            found[name] = schema
    return found


def test_every_changeable_setting_is_described() -> None:
    assert set(stated()) >= CHANGEABLE


@pytest.mark.parametrize("key", sorted(CHANGEABLE))
def test_the_stated_range_is_the_enforced_one(key: str) -> None:
    schema, setting = stated()[key], BY_KEY[key]
    step = 1 if schema["type"] == "integer" else 1e-6
    inside, outside = [], []
    if "minimum" in schema:
        inside.append(schema["minimum"])
        outside.append(schema["minimum"] - step)
    if "exclusiveMinimum" in schema:
        inside.append(schema["exclusiveMinimum"] + step)
        outside.append(schema["exclusiveMinimum"])
    if "maximum" in schema:
        inside.append(schema["maximum"])
        outside.append(schema["maximum"] + step)
    for value in inside:
        assert validate_value(setting, value) == value
    for value in outside:
        with pytest.raises(InvalidRequest):
            validate_value(setting, value)
    assert (len(inside) > 0) == (schema["type"] in ("integer", "number"))
