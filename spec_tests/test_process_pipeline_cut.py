"""design: a holder's network link goes down in mid-stream; another host goes on for it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spec_tests.support_namespaces import Lab, lab, refusal
from spec_tests.support_process import READY_WITHIN_S, TOKEN, environment, wait_until

PORT = 8000
DRIVER, NEAR, FAR = 0, 1, 2
BODY = {"prompt": "The little fox", "max_tokens": 60, "temperature": 0.9, "seed": 5}
CALL_S, SLOW_S = 5.0, 3.0
"""The deadline of a call, and what a shared machine may add."""

CLIENT = """
import http.client, json, sys, time
host, port, token, method, path, body = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=60)
headers = {"Authorization": "Bearer " + token, "X-Meshnode-Trace": "1"}
if body:
    headers["Content-Type"] = "application/json"
connection.request(method, path, body or None, headers)
for line in connection.getresponse():
    if line.strip():
        print(time.monotonic(), line.decode().strip(), flush=True)
"""
"""Runs on a host of the laboratory, where the test itself is not."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(refusal() != "", reason=refusal() or "it is permitted"),
]


@contextmanager
def node(net: Lab, host: int, folder: Path, *arguments: str) -> Iterator[Callable[[], None]]:
    """A node on a host, for the length of a test; call what it gives to wait until it serves."""
    with (folder / f"h{host}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *net.enter(host),
                *(sys.executable, "-m", "meshnode", "--host", net.address(host)),
                *("--port", str(PORT), "--data-dir", str(folder / f"h{host}"), *arguments),
            ],
            env=environment(MESHNODE_TOKEN=TOKEN, MESHNODE_RESOURCES_CPU_THREADS="1"),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def wait_ready() -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        for line in process.stdout:
            if "curl" in line:
                break
            assert time.monotonic() < deadline

    try:
        yield wait_ready
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Client:
    """Somebody on the driver's host."""

    def __init__(self, net: Lab) -> None:
        self._net = net

    def _run(self, method: str, path: str, body: str = "") -> subprocess.Popen[str]:
        host = self._net.address(DRIVER)
        arguments = [host, str(PORT), TOKEN, method, path, body]
        command = [*self._net.enter(DRIVER), sys.executable, "-c", CLIENT, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ask(self, path: str) -> dict[str, Any]:
        with self._run("GET", path) as asking:
            return json.loads(asking.stdout.read().partition(" ")[2])

    def peers(self) -> int:
        return int(self.ask("/api/v1/peers")["total"])

    def stream(self) -> Iterator[tuple[float, str]]:
        """Lines of an event stream, and when they came."""
        body = json.dumps({**BODY, "stream": True})
        with self._run("POST", "/api/v1/inference", body) as asking:
            for line in asking.stdout:
                at, _, rest = line.strip().partition(" ")
                yield float(at), rest


def test_a_link_goes_down(tmp_path: Path) -> None:
    with lab(3, 0) as net, ExitStack() as stack:
        tracker = ("--tracker", f"http://{net.address(DRIVER)}:{PORT}")
        starting = [node(net, DRIVER, tmp_path, "--layers", "0-3")]
        starting += [node(net, at, tmp_path, "--layers", "4-7", *tracker) for at in (NEAR, FAR)]
        for wait_ready in [stack.enter_context(one) for one in starting]:
            wait_ready()
        client = Client(net)
        wait_until(lambda: client.peers() == 2, within_s=40)
        text, trace = read(list(client.stream()))
        assert trace["paths"] == 1
        # Either of the two may be the one that serves.
        for host in (NEAR, FAR) * 2:
            lines = client.stream()
            begun = [next(lines) for _ in range(5)]
            net.unplug(host)
            got = [*begun, *lines]
            net.plug(host)
            again, trace = read(got)
            assert again == text
            if trace["paths"] > 1:
                times = [at for at, _ in got]
                pauses = [after - before for before, after in itertools.pairwise(times)]
                assert max(pauses) < CALL_S + SLOW_S
                return
            wait_until(lambda: client.peers() == 2, within_s=60)
    raise AssertionError("the link of the holder that served was never the one that went down")


def read(lines: list[tuple[float, str]]) -> tuple[str, dict[str, Any]]:
    """Text and trace of a stream, its events checked."""
    events = [json.loads(line[6:]) for _, line in lines if line.startswith("data: ")]
    (trace,) = [json.loads(line[8:]) for _, line in lines if line.startswith(": trace ")]
    *tokens, final = events
    assert [event["index"] for event in tokens] == list(range(len(tokens)))
    assert final["token"] == "[DONE]"
    assert final["usage"]["completion_tokens"] == len(tokens)
    return "".join(event["token"] for event in tokens), trace
