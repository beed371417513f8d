"""``/rpc`` refuses what a browser sends for another site's page: interface 4.2, decision 0131."""

import json
from pathlib import Path

import pytest
import trio

from spec_tests.edges.native_gateway import Gateway, check_answer, start_gateway

STATUS = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "status"}).encode()


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path)


async def status(gateway: Gateway, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await gateway.ask("POST", "/rpc", STATUS, headers=named)
    check_answer(answer)
    assert ("result" in answer.json) == (answer.status == 200)
    return answer.status


async def test_what_forms_and_scripts_of_other_sites_send(gateway: Gateway) -> None:
    """A browser sends most of these without asking first, so only this node can refuse them."""
    simple = ("text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x")
    for media_type in (*simple, "application/x-www-form-urlencoded"):
        assert await status(gateway, Content_Type=media_type) == 415
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        assert await status(gateway, Content_Type="application/json", Origin=origin) == 403
    rebound = "evil.example:8000"
    assert await status(gateway, Host=rebound) == 403
    forged = {"Host": rebound, "Origin": f"http://{rebound}", "X_Real_IP": "8.8.8.8"}
    assert await status(gateway, **forged) == 403


async def test_what_programs_and_own_pages_send(gateway: Gateway) -> None:
    host, port = gateway.address
    assert await status(gateway, Content_Type="application/json; charset=utf-8") == 200
    assert await status(gateway, Content_Type="application/octet-stream") == 200
    for name in (f"localhost:{port}", "[::1]", "node1", "8.8.8.8:80"):
        assert await status(gateway, Host=name) == 200
    address = f"{host}:{port}"
    assert await status(gateway, Host=address, Origin=f"http://{address}") == 200


async def test_a_page_behind_a_proxy_that_names_its_clients(gateway: Gateway) -> None:
    """nginx with its defaults and X-Real-IP, as gateways of the existing network have it."""
    origin = "https://gateway.example"
    assert await status(gateway, Origin=origin, X_Real_IP="8.8.8.8", Host="127.0.0.1:80") == 200
    assert await status(gateway, Origin=origin, Host="127.0.0.1:80") == 403
