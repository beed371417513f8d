"""The fault layer: its answers are those of the node behind it, and it is at its own address."""

import http.client
import json
from urllib.request import Request, urlopen

from conformance.judging.layer import Layer
from conformance.judging.toy.node import TOKEN
from conformance.judging.toy.serving import Toy


def test_the_layer_passes_requests_on_to_the_node_behind_it_and_not_to_itself() -> None:
    with Toy() as real:
        layer = Layer(real.url, real.grpc)
        try:
            with Toy(layer) as served:
                token = {"Authorization": "Bearer token-1"}
                found = {}
                for name, url in (("real", real.url), ("served", served.url)):
                    asked = Request(f"{url}/api/v1/status", headers=token)  # noqa: S310
                    with urlopen(asked, timeout=10) as answer:  # noqa: S310 - our own server
                        found[name] = json.load(answer)["node_id"]
        finally:
            layer.close()
    assert served.url != real.url
    assert found["served"] == found["real"]


def test_the_layer_passes_on_a_body_that_comes_in_chunks() -> None:
    body = json.dumps({"prompt": "Hello", "max_tokens": 2}).encode()
    with Toy() as real:
        layer = Layer(real.url, real.grpc)
        try:
            with Toy(layer) as served:
                host, _, port = served.url.removeprefix("http://").partition(":")
                connection = http.client.HTTPConnection(host, int(port), timeout=10)
                headers = {"Authorization": f"Bearer {TOKEN}", "Transfer-Encoding": "chunked"}
                connection.request(
                    "POST", "/api/v1/inference", iter([body[:9], body[9:]]), headers,
                    encode_chunked=True,
                )  # fmt: skip
                answer = connection.getresponse()
                found = json.load(answer)
                connection.close()
        finally:
            layer.close()
    assert (answer.status, found["tokens_generated"]) == (200, 2)
