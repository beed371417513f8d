"""Interface 4.2, rules, and 7.2: readiness, refusals, methods, limits, forwarded addresses."""

import base64
import contextlib
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.errors import RateLimited, Unavailable
from meshnode.edges import http_artifacts, http_legacy, http_native, http_rpc, http_work
from meshnode.http.app import native_app
from meshnode.http.asked import current_asked
from meshnode.http.dispatch import belongs_to_native
from meshnode.http.native import NativeGate, WindowLimit, client_address
from meshnode.services.ledger import Readiness
from spec_tests.domain.chain.net import ALICE, BOB
from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway

READ = [route.path for route in http_native.ROUTES if "<" not in route.path]


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


# /healthz


async def test_healthz_is_200_only_when_ready(gateway: Gateway) -> None:
    health = await gateway.get("/healthz")
    assert (health["ready"], health["reason"]) == (True, "ok")
    assert set(health) == set(await gateway.get("/api/network"))


async def test_healthz_is_503_when_no_block_came_for_half_a_minute(gateway: Gateway) -> None:
    gateway.clock.ahead_s = 60
    health = await _unready(gateway)
    assert (health["ready"], health["stalled"], health["reason"]) == (False, True, "stalled")
    assert health["seconds_since_block"] > 30
    # Known facts are still served, and with status 200.
    assert (await gateway.get("/api/network"))["ready"] is False


@pytest.mark.parametrize(
    ("reason", "catching_up"), [("catching_up", True), ("unavailable", False), ("stalled", False)]
)
async def test_healthz_names_its_reason(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, reason: Any, catching_up: bool
) -> None:
    state = Readiness(False, reason, catching_up, reason == "stalled", 99.04)
    monkeypatch.setattr(gateway.ledger, "readiness", lambda: state)
    health = await _unready(gateway)
    assert (health["reason"], health["catching_up"]) == (reason, catching_up)
    assert health["seconds_since_block"] == 99.0


async def test_healthz_is_503_when_the_ledger_does_not_answer(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the ledger has stopped")

    monkeypatch.setattr(gateway.ledger, "query", refuse)
    gateway.reader._summary = None
    health = await _unready(gateway)
    assert health == {
        "error": "the ledger has stopped",
        "ready": False,
        "reason": "unavailable",
    }


async def test_a_draining_node_is_unavailable_and_takes_no_transactions(gateway: Gateway) -> None:
    raw = ALICE.sign(await gateway.body(ALICE, "transfer", to=BOB.key, amount=1))
    gateway.draining[0] = True
    health = await _unready(gateway)
    assert (health["ready"], health["reason"]) == (False, "unavailable")
    assert health["trouble"] == "the node is draining"
    params = {"tx": base64.b64encode(raw).decode()}
    body = {"id": 1, "method": "broadcast_tx_sync", "params": params}
    answer = await gateway.ask("POST", "/rpc", body)
    assert (answer.status, answer.json) == (503, {"error": "the node is draining"})


async def test_the_lag_of_the_explorer_does_not_touch_health(gateway: Gateway) -> None:
    assert gateway.index is not None
    gateway.index.error = "stuck"
    gateway.index.indexed_height = 0
    assert (await gateway.get("/healthz"))["ready"] is True


async def _unready(gateway: Gateway) -> Any:
    answer = await gateway.ask("GET", "/healthz")
    assert answer.status == 503
    assert answer.headers["content-type"] == "application/json"
    return answer.json


# Refusals


BAD_PARAMETERS = (
    "/api/blocks?limit=0",
    "/api/blocks?limit=21",
    "/api/blocks?limit=-1",
    "/api/blocks?limit=+1",
    "/api/blocks?limit=1.0",
    "/api/blocks?limit=01",
    "/api/blocks?limit=",
    "/api/blocks?limit=%D9%A1",
    "/api/blocks?limit=1&limit=2",
    "/api/blocks?before=9223372036854775808",
    "/api/blocks?before=x",
    "/api/training?limit=101",
    "/api/training?limit=0",
    "/api/training?before=-1",
    "/api/training?before=1&before=1",
    "/api/validators?limit=101",
    "/api/validators?limit=0",
    "/api/validators?after=zz",
    "/api/validators?after=" + "AB" * 32,
    "/api/account?public_key=",
    "/api/account?public_key=zz",
    f"/api/account?public_key={ALICE.key.upper()}",
    "/api/account?public_key=02" + "00" * 32,
    f"/api/account?public_key={ALICE.key}&public_key={BOB.key}",
    "/api/inference/request?id=zz",
    "/api/inference/request?id=" + "0" * 64,
    "/api/inference/request?id=" + "0" * 63,
    "/api/block/9223372036854775807",
    "/work/status?x=1",
)


async def test_bad_parameters_are_400_with_a_reason(gateway: Gateway) -> None:
    for path in BAD_PARAMETERS:
        refusal = await gateway.get(path, 400)
        assert set(refusal) == {"error"}
        assert refusal["error"]


async def test_a_missing_parameter_is_named(gateway: Gateway) -> None:
    assert (await gateway.get("/api/account", 400))["error"] == "'public_key'"
    assert (await gateway.get("/api/inference/request", 400))["error"] == "'id'"


async def test_unknown_parameters_are_ignored(gateway: Gateway) -> None:
    await gateway.get("/api/blocks?limit=1&_=17005&utm=x")


async def test_other_spellings_of_a_height_are_other_paths(gateway: Gateway) -> None:
    for height in ("0", "01", "-1", "+1", "1.0", "x", "1" * 20, "%31%00", "1/2", "%31%20"):
        assert set(await gateway.get(f"/api/block/{height}", 404)) == {"error"}


UNKNOWN = (
    "/api/nothing",
    "/api/network/",
    "/api/NETWORK",
    "/api/training/globally",
    "/api/v1x",
    "/network/corpus.txt",
    "/network/",
    "/artifacts/",
    "/artifacts/sha256/",
    "/work/",
    "/work/admin",
    "/reference/v03/api/network",
    "/reference/v02/api/network",
    "/api/chatter",
    "/native-preview",
)


async def test_an_unknown_native_path_is_404(gateway: Gateway) -> None:
    for path in UNKNOWN:
        for method in ("GET", "POST", "DELETE"):
            answer = await gateway.ask(method, path)
            # Read-only paths refuse other methods before they look for the resource.
            read_only = path.startswith("/reference/v03/") and method != "GET"
            assert answer.status == (403 if read_only else 404), path
            check_answer(answer)


async def test_other_paths_keep_the_node_apis_error_body(gateway: Gateway) -> None:
    for path in ("/nowhere", "/", "/api", "/api/v1/status", "/api/v1", "/RPC"):
        answer = await gateway.ask("GET", path)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_reading_routes_take_get_and_head_alone(gateway: Gateway) -> None:
    for path in READ:
        for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
            answer = await gateway.ask(method, path)
            assert answer.status == 405, path
            check_answer(answer)
            assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
        query = {"/api/account": f"?public_key={ALICE.key}"}.get(path, "")
        head = await gateway.ask("HEAD", path + query)
        got = await gateway.ask("GET", path + query)
        assert (head.status, head.body) == (got.status, b"")
        assert head.headers["content-type"] == got.headers["content-type"]


async def test_posting_routes_take_post_alone(gateway: Gateway) -> None:
    for path in ("/rpc", "/work/poll", "/work/result"):
        for method in ("GET", "PUT", "DELETE", "HEAD"):
            assert (await gateway.ask(method, path)).status == 405


async def test_options_is_204_with_what_a_browser_may_do(gateway: Gateway) -> None:
    for path in (*READ, "/rpc", "/work/poll", "/api/nothing", "/join"):
        answer = await gateway.ask("OPTIONS", path)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-allow-headers"] == "Content-Type"
        assert answer.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"


async def test_an_unforeseen_failure_shows_nothing(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("secret internals")

    monkeypatch.setattr(gateway.ledger, "readiness", fail)
    assert await gateway.get("/api/network", 500) == {"error": "internal error"}
    (record,) = caplog.records
    assert "secret internals" in str(record.exc_info)


async def test_an_unknown_outcome_says_what_to_do(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.TooSlowError

    monkeypatch.setattr(gateway.ledger, "query", late)
    gateway.reader._summary = None
    refusal = await gateway.get("/api/account?public_key=" + ALICE.key, 503)
    assert "query your request id before retrying" in refusal["error"]


async def test_the_gateway_takes_no_credentials_and_answers_none(gateway: Gateway) -> None:
    plain = await gateway.ask("GET", "/api/manifest")
    bearer = {"Authorization": "Bearer nonsense", "Cookie": "session=1"}
    with_token = await gateway.ask("GET", "/api/manifest", headers=bearer)
    assert with_token.body == plain.body
    assert "set-cookie" not in with_token.headers


# Limits


REMOTE = {"X-Real-IP": "198.51.100.1"}
"""Headers of a remote client whose request a proxy on this machine forwards."""


async def test_the_request_above_the_limit_of_a_minute_is_429(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    gateway = await start_gateway(nursery, tmp_path, gate=NativeGate(5, 3))
    for path in ("/api/network", "/api/nothing", "/network/genesis.json", "/join", "/api/login"):
        assert (await gateway.ask("GET", path, headers=REMOTE)).status != 429
    refusal = await gateway.ask("GET", "/api/network", headers=REMOTE)
    assert refusal.status == 429
    check_answer(refusal)
    assert 0 < int(refusal.headers["retry-after"]) <= 61
    # Health checks are neither limited nor counted.
    assert (await gateway.ask("GET", "/healthz", headers=REMOTE)).status == 200
    # Calls that a following node makes have a separate limit.
    block = {"jsonrpc": "2.0", "id": 1, "method": "block"}
    for status in (200, 200, 200, 429):
        assert (await gateway.ask("POST", "/rpc", block, headers=REMOTE)).status == status
    query = {"id": 1, "method": "abci_query", "params": {"path": "/summary"}}
    assert (await gateway.ask("POST", "/rpc", query, headers=REMOTE)).status == 429
    assert (await gateway.ask("POST", "/rpc", b"{", headers=REMOTE)).status == 429


async def test_programs_on_this_machine_have_the_larger_allowance(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    gateway = await start_gateway(nursery, tmp_path, gate=NativeGate(1, 3))
    for status in (200, 200, 200, 429):
        assert (await gateway.ask("GET", "/api/manifest")).status == status
    assert (await gateway.ask("GET", "/api/manifest", headers=REMOTE)).status == 200


def test_the_default_limit_is_that_of_the_public_network() -> None:
    gate = NativeGate()
    for now in range(240):
        gate._limit.check("a", now / 4)
    with pytest.raises(RateLimited):
        gate._limit.check("a", 59.9)
    gate._limit.check("a", 60.0)


async def test_a_forwarded_address_is_believed_from_loopback(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    gateway = await start_gateway(nursery, tmp_path, gate=NativeGate(1, 2))
    for address in ("198.51.100.1", "198.51.100.2", "2001:db8::1", "2001:db8:1::1"):
        ask = {"X-Real-IP": address}
        assert (await gateway.ask("GET", "/api/manifest", headers=ask)).status == 200
        assert (await gateway.ask("GET", "/api/manifest", headers=ask)).status == 429
    # A /64 counts as one client, and an IPv4-mapped address as its IPv4 address.
    for address in ("2001:db8::2", "198.51.100.1", "::ffff:198.51.100.2"):
        ask = {"X-Real-IP": address}
        assert (await gateway.ask("GET", "/api/manifest", headers=ask)).status == 429
    # A header that is not an address is ignored.
    for address, status in {"nonsense": 200, "198.51.100.1, 198.51.100.9": 200, "": 429}.items():
        ask = {"X-Real-IP": address, "X-Forwarded-For": "203.0.113.5"}
        assert (await gateway.ask("GET", "/api/manifest", headers=ask)).status == status


async def test_a_forwarded_address_is_not_believed_from_elsewhere() -> None:
    app = native_app(NativeGate(), 1024)
    for client, header, expected in (
        ("203.0.113.7", "198.51.100.1", ("203.0.113.7", False)),
        ("127.0.0.1", "198.51.100.1", ("198.51.100.1", True)),
        ("::1", "198.51.100.1", ("198.51.100.1", True)),
        ("fe80::1%eth0", "198.51.100.1", ("fe80::/64", False)),
    ):
        headers, scope = {"X-Real-IP": header}, {"client": (client, 5)}
        async with app.test_request_context("/api/network", headers=headers, scope_base=scope):
            assert client_address(current_asked()) == expected


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 50)), max_size=60),
    st.integers(1, 5),
)
def test_a_window_admits_its_count_and_never_more(
    steps: list[tuple[str, float]], count: int
) -> None:
    limit, now = WindowLimit(count, 60.0), 0.0
    admitted: list[tuple[str, float]] = []
    for key, pause in steps:
        now += pause
        with contextlib.suppress(RateLimited):
            limit.check(key, now)
            admitted.append((key, now))
    for key, end in admitted:
        # Windows are fixed, so a span as long as a window can overlap two of them.
        within = [t for k, t in admitted if k == key and end - 60 < t <= end]
        assert len(within) <= 2 * count


def test_a_full_table_of_windows_stays_bounded() -> None:
    limit = WindowLimit(1, 60.0, max_keys=2)
    for key in "abcd":
        limit.check(key, 0.0)
    with pytest.raises(RateLimited):
        limit.check("a", 1.0)
    assert len(limit._counts) == 2


# Assignment of paths to the two APIs


def test_every_route_of_the_native_api_belongs_to_native() -> None:
    edges = (http_native, http_rpc, http_work, http_artifacts, http_legacy)
    for edge in edges:
        for route in edge.ROUTES:
            path = route.path.replace("<any(" + http_legacy.GONE_NAMES + "):name>", "login")
            for name in ("<path:rest>", "<path:view>", "<height>", "<sha256>"):
                path = path.replace(name, "x")
            assert belongs_to_native(path), path


def test_no_route_of_the_node_api_belongs_to_native() -> None:
    for path in (
        "/api/v1",
        "/api/v1/status",
        "/api/v1/wallet/balance",
        "/api/training/global",
        "/api/training/verify",
        "/openapi.json",
        "/",
        "/metrics",
        "/api//v1/status",
    ):
        assert not belongs_to_native(path), path
