"""No answer to a request without a token names a folder of the machine. Only the log does."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from spec_tests.processes.nodes import ANSWERS_WITHIN_S, Node, running_node

pytestmark = pytest.mark.process

FOLDER = "unlikely-folder-name"
ENDLESS = "/api/v1/events"
QUERIES = ("", "?limit=x", "?public_key=zz", "?id=zz", "?public_key=" + "02" + "ab" * 32)


def asked(node: Node) -> list[tuple[str, str, object]]:
    """Requests for every operation: methods, paths and bodies, with valid and invalid values."""
    document = node.ask("GET", "/openapi.json", token=None).json
    found: list[tuple[str, str, object]] = []
    for path, methods in document["paths"].items():
        if path == ENDLESS:
            continue
        for method in methods:
            values = ("1", "ab" * 32, "..%2f..%2fetc", "network") if "{" in path else ("",)
            for value in values:
                plain = path.replace("{name}", "login")
                for variable in ("height", "sha256", "rest", "view"):
                    plain = plain.replace("{" + variable + "}", value)
                for query in QUERIES:
                    body = {"method": "x"} if method in ("post", "put", "patch") else None
                    found.append((method.upper(), plain + query, body))
    return found


def test_no_open_answer_names_a_folder_of_the_machine(tmp_path: Path) -> None:
    data = tmp_path / FOLDER
    limits = {
        "MESHNODE_LIMITS_BURST_PER_ADDRESS": "1000000",
        "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_ADDRESS": "1000000",
    }
    secrets = (FOLDER, str(tmp_path), str(Path.home()), str(Path(__file__).parents[2]))
    with running_node(data, **limits) as node:
        requests = asked(node)
        assert len(requests) > 200
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=ANSWERS_WITHIN_S)
        connection.request("GET", ENDLESS)
        begun = connection.getresponse().read1(1 << 20).decode()
        connection.close()
        assert begun.startswith(("id:", "event:", "data:", "retry:", ":"))
        assert not any(secret in begun for secret in secrets if len(secret) >= 4)
        for method, path, body in requests:
            answer = node.ask(method, path, body, token=None)
            shown = answer.body.decode("utf-8", "replace") + json.dumps(dict(answer.headers))
            for secret in secrets:
                # Skip very short paths, such as a home of ``/``, which any answer may contain.
                assert len(secret) < 4 or secret not in shown, (method, path)
