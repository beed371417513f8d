"""The files in deploy/: what other programs check of them, and that they name what exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshnode.cli import FLAGS
from meshnode.config import SETTINGS
from meshnode.edges.http_node import ROUTES
from meshnode.services.keystore import PASSPHRASE_VARIABLE

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "meshnode.service"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def kubernetes() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "meshnode.yml").read_text()))


def test_variables_and_flags_are_those_of_the_node() -> None:
    variables = {setting.variable for setting in SETTINGS}
    variables |= {PASSPHRASE_VARIABLE, "MESHNODE_CONFIG"}
    named = {name for path in FILES for name in re.findall(r"MESHNODE_[A-Z_]+", path.read_text())}
    assert named
    assert named - variables == set()
    flags = {
        flag
        for path in FILES
        if path.parent.name in ("container", "kubernetes")
        for flag in re.findall(r"[\[\" ]--([a-z-]+)[\", ]", path.read_text())
    }
    others = {"no-deps", "require-hashes", "no-build-isolation", "extra-index-url"}
    others |= {"no-install-recommends", "format", "uid", "home-dir", "shell", "start-period"}
    assert flags & set(FLAGS)
    assert flags - set(FLAGS) - others == set()


def test_probes_ask_routes_that_need_no_token() -> None:
    open_routes = {route.path for route in ROUTES if route.method == "GET" and not route.auth}
    *_, stateful_set = kubernetes()
    spec = stateful_set["spec"]["template"]["spec"]
    node = spec["containers"][0]
    probes = [node[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")]
    assert set(probes) <= open_routes
    assert node["readinessProbe"]["httpGet"]["path"] == "/api/v1/health"
    # A group's permission would make the node refuse its keys (decision 0172).
    assert "fsGroup" not in str(spec)
    assert spec["initContainers"][0]["volumeMounts"][0]["name"] == "data"


def test_the_compose_file_holds_each_layer_once() -> None:
    services = yaml.safe_load((DEPLOY / "container" / "compose.yml").read_text())["services"]
    held: list[int] = []
    for service in services.values():
        first, last = service["command"][1].split("-")
        held += range(int(first), int(last) + 1)
    assert held == list(range(8))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_the_unit_is_valid_and_confined(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/meshnode/bin/python", "/bin/true"))
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")
def test_prometheus_takes_its_configuration() -> None:
    command = ["promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
