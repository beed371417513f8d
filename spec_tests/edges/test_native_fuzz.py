"""Interface 4.2: the gateway answers any request in the native form and keeps serving."""

from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.http.dispatch import belongs_to_native
from spec_tests.domain.chain.net import ALICE
from spec_tests.edges.native_gateway import Gateway, start_gateway

PATHS = st.sampled_from(
    [
        *("/healthz", "/api/network", "/api/manifest", "/api/model", "/api/model/checkpoint.json"),
        *("/api/training", "/api/blocks", "/api/account", "/api/validators", "/api/inference"),
        *("/api/inference/request", "/network/genesis.json", "/network/dataset.json", "/rpc"),
        *("/work/status", "/work/poll", "/work/result", "/join", "/login", "/api/auth/x"),
    ]
)
PIECES = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda text: quote(text, safe=""))
OPEN_PATHS = st.tuples(
    st.sampled_from(
        ["/api/block/", "/artifacts/sha256/", "/reference/v03/api/", "/api/", "/work/"]
    ),
    PIECES,
).map("".join)
NAMES = st.sampled_from(["limit", "before", "after", "public_key", "id", "x", "%00"])
VALUES = st.one_of(
    st.integers(-5, 2**70).map(str), st.sampled_from([ALICE.key, "00" * 32, "1e9", "NaN"]), PIECES
)
QUERIES = st.lists(st.tuples(NAMES, VALUES), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "GET", "GET", "POST", "HEAD", "OPTIONS", "DELETE"]),
    PATHS | OPEN_PATHS,
    QUERIES,
    st.binary(max_size=60) | st.just(b'{"method":"status"}'),
)
EXPECTED = {200, 204, 302, 400, 403, 404, 405, 410, 503}


async def ask_all(requests: list[tuple[str, str, str, bytes]]) -> None:
    async def ask(gateway: Gateway, method: str, path: str, query: str, body: bytes) -> None:
        target = path + ("?" + query if query else "")
        sent = body if method == "POST" else None
        answer = await gateway.ask(method, target, sent)
        assert answer.status in EXPECTED, (method, target, answer.status, answer.body)
        if belongs_to_native(unquote(path)):
            assert answer.headers["access-control-allow-origin"] == "*"
            if answer.status >= 400 and method != "HEAD":
                assert isinstance(answer.json["error"], str)

    with TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            gateway = await start_gateway(nursery, Path(folder))
            for request in requests:
                await ask(gateway, *request)
            assert (await gateway.get("/healthz"))["ready"] is True
            nursery.cancel_scope.cancel()


@settings(max_examples=max(3, settings().max_examples // 10))
@given(st.lists(REQUESTS, min_size=20, max_size=60))
def test_any_requests_leave_the_gateway_as_it_was(
    requests: list[tuple[str, str, str, bytes]],
) -> None:
    trio.run(ask_all, requests)
