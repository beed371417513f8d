"""Real node processes for tests: start one as a user would, ask it things, stop it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from meshnode.services.wallet.orders import is_served
from spec_tests.ports import free_port
from spec_tests.processes import calls, forking
from spec_tests.processes.calls import Call

TOKEN = "test-operator-token"
READY_WITHIN_S = 600
"""Generous: machines are shared, and how long a start takes is measured in bench/, not here."""
ENDS_WITHIN_S = 180
ANSWERS_WITHIN_S = 600
CHAIN_COMES = b"the chain has not come up yet"
"""What ``/healthz`` says until then (:class:`meshnode.assembly.chain.ChainSlot`)."""
SOON_S = 300.0
"""For effects in a network or on a chain. Like the other limits, only reached when a test fails."""


@dataclass
class Answer:
    """An HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Node:
    """A node process that a test started."""

    process: subprocess.Popen[str] | forking.ForkedProcess
    port: int
    data_dir: Path
    token: str = TOKEN
    banner: list[str] = field(default_factory=list)
    connections: list[http.client.HTTPConnection] = field(default_factory=list)
    """Connections of open streams; closed with the node."""

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "",
        timeout: float = ANSWERS_WITHIN_S,
    ) -> Answer:
        """Send one request. By default it has the node's token; with None it has no token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, *self.payload(body, token))
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def open_stream(self, body: dict[str, Any], *, token: str = "") -> http.client.HTTPResponse:
        """Start a streamed generation. The response consists of server-sent events."""
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

    @property
    def output(self) -> IO[str]:
        """The standard output of the process."""
        assert self.process.stdout is not None
        return self.process.stdout

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and everything on standard error."""
        return self.process.wait(ENDS_WITHIN_S), self.log()

    def wait_ready(self) -> None:
        """Read the banner to its end, which the node prints when it serves requests."""
        _read_banner(self)

    def log(self) -> str:
        return (self.data_dir.parent / f"{self.data_dir.name}.log").read_text()


def events_of(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def command(*arguments: str, changes: Sequence[Call] = ()) -> list[str]:
    """The command line of ``python -m meshnode``, or of the same after changes in the process."""
    if not changes:
        return [sys.executable, "-m", "meshnode", *arguments]
    return calls.command([*changes, calls.NODE], *arguments)


def environment(**variables: str) -> dict[str, str]:
    """The environment without any MESHNODE_ variable but the given ones."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHNODE_")}
    return {**inherited, "PYTHONUNBUFFERED": "1", **variables}


def run(*arguments: str, fresh: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself; ``fresh`` as for :func:`starting_node`."""
    if not fresh:
        return forking.run([calls.NODE], arguments, environment(**variables), READY_WITHIN_S)
    return subprocess.run(
        command(*arguments),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=READY_WITHIN_S,
        check=False,
    )


def wait_served(data_dir: Path) -> None:
    """Wait until a node carries out wallet orders in this folder, some moments after its banner."""
    wait_until(lambda: is_served(data_dir))


def issue_token(data_dir: Path, name: str, fund: str = "", **variables: Any) -> str:
    """Issue a token and return it; with ``fund``, a running node pays this many units into it."""
    arguments = ["token", "issue", "--name", name, "--data-dir", str(data_dir)]
    if fund:
        wait_served(data_dir)
        arguments += ["--fund", fund]
    issued = run(*arguments, **variables)
    assert issued.returncode == 0, issued
    assert not fund or f": {fund} done" in issued.stdout, issued
    return issued.stdout.split("shown this once: ")[1].split()[0]


@contextmanager
def starting_node(
    data_dir: Path,
    *arguments: str,
    changes: Sequence[Call] = (),
    token: str = TOKEN,
    port: int = 0,
    fresh: bool = False,
    **variables: str,
) -> Iterator[Node]:
    """Start a node, and kill it at the end if it still runs. Several can start side by side.

    ``changes`` are made in the process beforehand. ``fresh`` is for tests of the start itself: the
    process is then not forked from one that has imported everything.
    """
    port = port or free_port()
    if token:
        variables["MESHNODE_TOKEN"] = token
    given = ["--port", str(port), "--data-dir", str(data_dir), *arguments]
    with (data_dir.parent / f"{data_dir.name}.log").open("ab") as log:
        process: subprocess.Popen[str] | forking.ForkedProcess
        if fresh:
            process = subprocess.Popen(
                command(*given, changes=changes),
                env=environment(**variables),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        else:
            process = forking.start([*changes, calls.NODE], given, environment(**variables), log)
    node = Node(process, port, data_dir, token)
    try:
        yield node
    finally:
        for connection in node.connections:
            connection.close()
        if process.poll() is None:
            process.kill()
            process.wait()
        node.output.close()


@contextmanager
def running_node(data_dir: Path, *arguments: str, **options: Any) -> Iterator[Node]:
    """Start a node as :func:`starting_node` does, and wait for its banner and its chain."""
    with starting_node(data_dir, *arguments, **options) as node:
        node.wait_ready()
        wait_chain(node.port)
        yield node


def wait_chain(port: int) -> None:
    """Wait while a node says that its chain has not come up yet, as it does on a busy machine."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERS_WITHIN_S)
        try:
            connection.request("GET", "/healthz")
            if CHAIN_COMES not in connection.getresponse().read():
                return
        except (OSError, http.client.HTTPException):
            # It has ended, or speaks TLS.
            return
        finally:
            connection.close()
        time.sleep(0.05)


def _read_banner(node: Node) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    for line in node.output:
        node.banner.append(line.rstrip("\n"))
        if line.startswith("  curl" if "/layers" in line else "    -d"):
            break
        assert time.monotonic() < deadline
    assert node.banner, f"the node ended with {node.process.wait()}: {node.log()}"
    if not node.token:
        node.token = (node.data_dir / "operator.token").read_text().strip()


def wait_until(condition: Callable[..., Any], within_s: float = SOON_S) -> Any:
    """Poll until ``condition()`` is true; return its value. Fails after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.02)
