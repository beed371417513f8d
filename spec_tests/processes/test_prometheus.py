"""Debian's Prometheus scrapes a real node and answers queries about it (decision 0170)."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from spec_tests.ports import free_port
from spec_tests.processes.nodes import running_node
from spec_tests.processes.pipelines import busy

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus on the PATH"),
]


DEPLOY = Path(__file__).parents[2] / "deploy"
JOB = "meshnode"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Prometheus, which scrapes a node that has answered over both ports."""
    folder = tmp_path_factory.mktemp("scraped")
    with running_node(folder / "data") as node:
        body = {"prompt": "Once upon a time", "max_tokens": 5}
        assert node.ask("POST", "/api/v1/inference", body).status == 200
        assert busy(node).active_sessions == 0
        file, port = folder / "prometheus.yml", free_port()
        # The configuration that is shipped, for this node and this test's patience.
        shipped = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        assert shipped.count('"127.0.0.1:8000"') == shipped.count("interval: 15s") == 1
        text = shipped.replace('"127.0.0.1:8000"', f'"127.0.0.1:{node.port}"')
        file.write_text(text.replace("interval: 15s", "interval: 200ms\n    scrape_timeout: 200ms"))
        shutil.copy(DEPLOY / "prometheus" / "alerts.yml", folder)
        command = ["prometheus", f"--config.file={file}"]
        command += [f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as prometheus:
            try:
                yield port
            finally:
                prometheus.terminate()


def test_prometheus_scrapes_a_node(port: int) -> None:
    assert value(port, "histogram_quantile(0.5, meshnode_time_to_first_token_seconds_bucket)") > 0
    assert value(port, "meshnode_generated_tokens_total") == 5
    assert value(port, "vllm:num_requests_waiting") == 0
    assert value(port, "process_resident_memory_bytes") > 1e7


def queries() -> list[str]:
    """Every query of the dashboard, and every condition of an alert, as a number."""
    dashboard = json.loads((DEPLOY / "grafana" / "meshnode.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for name, text in (("$job", JOB), ("$instance", ".*"), ("$__rate_interval", "10m")):
        found = [query.replace(name, text) for query in found]
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    for group in alerts["groups"]:
        for rule in group["rules"]:
            # A condition that does not hold has no series; with ``bool`` it is 0 or 1.
            found.append(re.sub("(==|!=|>=|<=|>|<) ", r"\1 bool ", rule["expr"]))
    return found


def test_every_query_of_the_dashboard_and_the_alerts_has_a_series(port: int) -> None:
    asked = queries()
    assert len(asked) > 20
    assert not [query for query in asked if "$" in query]
    for query in asked:
        value(port, query)


def value(port: int, query: str) -> float:
    """The first value of a query, as soon as there is one."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            found = []
        if found:
            return float(found[0]["value"][1])
        time.sleep(0.1)
    raise AssertionError(f"no value for {query}")
