"""The page of all HTTP routes, from the OpenAPI document that a node serves."""

from __future__ import annotations

from typing import Any

from meshnode.assembly.edges import NATIVE_ROUTES, NODE_ROUTES, OPENAI_ROUTES
from meshnode.edges.http_index import IndexApi
from tools.reference.tables import code, sentence, table

Json = dict[str, Any]
REFERENCE = "#/components/schemas/"


def page() -> str:
    """The page."""
    document = IndexApi.of("", NODE_ROUTES, NATIVE_ROUTES, OPENAI_ROUTES).document
    parts = [
        "# HTTP\n\nA node describes its HTTP port at `/openapi.json`; this page is made from that. "
        f"{document['info']['description']}\nWhat each status means is on the page of "
        "[errors](errors.md); scopes are explained in [Who may do what](../access.md).\n"
    ]
    for tag in document["tags"]:
        parts.append(f"## {tag['description'].split(':')[0].rstrip('.')}\n")
        parts.append(sentence(tag["description"]) + "\n")
        parts += [
            _operation(method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        ]
    parts.append("## Objects\n")
    for name, schema in document["components"]["schemas"].items():
        parts.append(_schema(name, schema))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: Json) -> str:
    scopes = [scope for entry in operation["security"] for scope in entry.get("bearer", ())]
    needs = f"Needs a token with the scope `{scopes[0]}`." if scopes else "Needs no token."
    lines = [
        f"### {code(f'{method.upper()} {path}')}\n",
        f"{sentence(operation['summary'])} {needs}\n",
    ]
    parameters = [
        (code(one["name"]), one["in"], _type(one["schema"]), _limits(one["schema"]))
        for one in operation.get("parameters", ())
    ]
    if parameters:
        lines.append(table(("parameter", "in", "type", "values"), parameters))
    if body := operation.get("requestBody"):
        kinds = [_type(media["schema"]) for media in body["content"].values()]
        lines.append(f"Body: {', '.join(kinds)}.\n")
    answers = []
    for status, reply in operation["responses"].items():
        if "$ref" in reply:
            continue
        content = reply.get("content", {})
        kinds = [f"{_type(media.get('schema', {}))} as `{kind}`" for kind, media in content.items()]
        answers.append(
            f"{status} with {', or '.join(kinds)}" if kinds else f"{status} without a body"
        )
    failures = [status for status, reply in operation["responses"].items() if "$ref" in reply]
    lines.append(f"Answers: {'; '.join(answers) or 'none'}. Failures: {', '.join(failures)}.\n")
    return "\n".join(lines)


def _schema(name: str, schema: Json) -> str:
    head = f"### {name}\n"
    needed = set(schema.get("required", ()))
    fields = [
        (
            code(field),
            _type(kind),
            "yes" if field in needed else "",
            _limits(kind),
        )
        for field, kind in schema.get("properties", {}).items()
    ]
    if not fields:
        return f"{head}\n{sentence(_type(schema))}\n"
    return f"{head}\n" + table(("field", "type", "always", "values"), fields)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_type(one) for one in schema[word])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _limits(schema: Json) -> str:
    found = []
    if "const" in schema:
        found.append(code(schema["const"]))
    if "enum" in schema:
        found.append(" or ".join(code(value) for value in schema["enum"]))
    if "minimum" in schema:
        found.append(f"at least {schema['minimum']}")
    if "exclusiveMinimum" in schema:
        found.append(f"above {schema['exclusiveMinimum']}")
    if "maximum" in schema:
        found.append(f"at most {schema['maximum']}")
    if "maxLength" in schema:
        found.append(f"at most {schema['maxLength']} characters")
    if "maxItems" in schema:
        found.append(f"at most {schema['maxItems']} entries")
    if "format" in schema:
        found.append(str(schema["format"]))
    if "default" in schema:
        found.append(f"default {code(schema['default'])}")
    if "description" in schema:
        found.append(str(schema["description"]).rstrip("."))
    return "; ".join(found)
