"""Who may scrape a node (decision 0170)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from meshnode.config import build_config
from meshnode.domain.metering import HttpMeter
from meshnode.edges import http_monitoring
from meshnode.edges.http_monitoring import MonitoringApi
from meshnode.edges.http_node import node_access
from meshnode.http.app import node_app
from meshnode.http.routes import add_routes
from meshnode.services.tokens import TokenStore
from spec_tests.edges.http_server import TOKEN, Client, start_server, wait_until

pytestmark = pytest.mark.wire


async def scrape(
    nursery: trio.Nursery, data_dir: Path, *, public: bool = False, **more: Any
) -> tuple[int, HttpMeter]:
    """Ask for the metrics once; return the status, and what was counted."""
    config = build_config({"data_dir": str(data_dir)})
    access = node_access(TokenStore(data_dir, TOKEN), config.limits)
    app = node_app(access, config.limits.max_body_bytes)
    monitor: Any = SimpleNamespace(encode=lambda: (b"meshnode_healthy 1.0\n", "text/plain"))
    add_routes(app, MonitoringApi(monitor, access, public), http_monitoring.ROUTES, access)
    _, _, address = await start_server(nursery, app)
    async with Client(await trio.open_tcp_stream(*address)) as client:
        answer = await client.ask("GET", "/metrics", **more)
        await client.ask("BREW", "/coffee")
        await wait_until(lambda: len(app.meter.requests) == 2)
    if answer.status == 200:
        assert answer.body == b"meshnode_healthy 1.0\n"
        assert answer.headers["cache-control"] == "no-store"
    nursery.cancel_scope.cancel()
    return answer.status, app.meter


async def test_a_monitor_on_this_machine_needs_no_token(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    status, meter = await scrape(nursery, tmp_path, token=None)
    assert status == 200
    # Neither the method nor the path of a stranger becomes a label.
    assert meter.requests == {("GET", "/metrics", 200): 1, ("other", "other", 404): 1}


@pytest.mark.parametrize("header", http_monitoring.FORWARDED)
async def test_a_client_behind_a_proxy_needs_one(
    nursery: trio.Nursery, tmp_path: Path, header: str
) -> None:
    status, _ = await scrape(nursery, tmp_path, token=None, headers={header: "192.0.2.1"})
    assert status == 401


async def test_a_token_opens_the_metrics_to_others(nursery: trio.Nursery, tmp_path: Path) -> None:
    status, _ = await scrape(nursery, tmp_path, headers={"Via": "1.1 proxy"})
    assert status == 200


async def test_public_metrics_need_no_token(nursery: trio.Nursery, tmp_path: Path) -> None:
    status, _ = await scrape(
        nursery, tmp_path, public=True, token=None, headers={"Via": "1.1 proxy"}
    )
    assert status == 200
