"""Real node processes for tests: start one as a user would, ask it things, stop it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spec_tests.support_ports import free_port

TOKEN = "test-operator-token"
READY_WITHIN_S = 600
"""Generous: machines are shared, and how long a start takes is measured in bench/, not here."""
ENDS_WITHIN_S = 180
ANSWERS_WITHIN_S = 600
SOON_S = 300.0
"""For what a network or a chain brings about; like the others only reached when a test fails."""


@dataclass
class Answer:
    """An HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)


@dataclass
class Node:
    """A node process that a test started."""

    process: subprocess.Popen
    port: int
    data_dir: Path
    token: str = TOKEN
    banner: list[str] = field(default_factory=list)
    connections: list[http.client.HTTPConnection] = field(default_factory=list)
    """Of streams; closed with the node."""

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "",
        timeout: float = ANSWERS_WITHIN_S,
    ) -> Answer:
        """Send one request; with the node's own token unless told otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, *self.payload(body, token))
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def open_stream(self, body: dict, *, token: str = "") -> http.client.HTTPResponse:
        """Begin an SSE answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERS_WITHIN_S)
        content, headers = self.payload({**body, "stream": True}, token)
        connection.request("POST", "/api/v1/inference", content, headers)
        self.connections.append(connection)
        return connection.getresponse()

    def payload(self, body: object, token: str | None) -> tuple[bytes | None, dict[str, str]]:
        headers = {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.token}"
        if body is None:
            return None, headers
        return json.dumps(body).encode(), {**headers, "Content-Type": "application/json"}

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Wait for the end; exit status and everything on standard error."""
        self.process.wait(ENDS_WITHIN_S)
        return self.process.returncode, self.log()

    def wait_ready(self) -> None:
        """Wait for the end of the banner: the node serves."""
        _read_banner(self)

    def log(self) -> str:
        return (self.data_dir.parent / f"{self.data_dir.name}.log").read_text()


def events_of(response: http.client.HTTPResponse) -> Iterator[dict]:
    """The JSON of each server-sent event."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def command(*arguments: str, prelude: str = "") -> list[str]:
    """``python -m meshnode``, or the same after ``prelude`` changed something in that process."""
    if not prelude:
        return [sys.executable, "-m", "meshnode", *arguments]
    program = f"{prelude}\nfrom meshnode.cli import main\nmain()"
    return [sys.executable, "-c", program, *arguments]


def environment(**variables: str) -> dict[str, str]:
    """The environment without any MESHNODE_ variable but the given ones."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHNODE_")}
    return {**inherited, "PYTHONUNBUFFERED": "1", **variables}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    return subprocess.run(
        command(*arguments),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=READY_WITHIN_S,
        check=False,
    )


@contextmanager
def starting_node(
    data_dir: Path,
    *arguments: str,
    prelude: str = "",
    token: str = TOKEN,
    port: int = 0,
    enter: Sequence[str] = (),
    **variables: str,
) -> Iterator[Node]:
    """Start a node, and kill it at the end if it still runs. Several can start side by side.

    ``enter`` is a command that runs the rest elsewhere, as on a host of a laboratory.
    """
    port = port or free_port()
    if token:
        variables["MESHNODE_TOKEN"] = token
    started = command("--port", str(port), "--data-dir", str(data_dir), *arguments, prelude=prelude)
    with (data_dir.parent / f"{data_dir.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*enter, *started],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    node = Node(process, port, data_dir, token)
    try:
        yield node
    finally:
        for connection in node.connections:
            connection.close()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def running_node(data_dir: Path, *arguments: str, **options: Any) -> Iterator[Node]:
    """Start a node as :func:`starting_node` does, and wait for its banner."""
    with starting_node(data_dir, *arguments, **options) as node:
        node.wait_ready()
        yield node


def _read_banner(node: Node) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    for line in node.process.stdout:
        node.banner.append(line.rstrip("\n"))
        if line.startswith("  curl" if "/layers" in line else "    -d"):
            break
        assert time.monotonic() < deadline
    assert node.banner, f"the node ended with {node.process.wait()}: {node.log()}"
    if not node.token:
        node.token = (node.data_dir / "operator.token").read_text().strip()


def wait_until(condition, within_s: float = SOON_S):
    """Poll until ``condition()`` is true, and return what it gave."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.02)
