"""A follower copes with a missing maker, a kill and a lying tracker (decisions 0074 and 0075).

The *maker* is the node that makes the blocks.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spec_tests.ports import free_port
from spec_tests.processes import changes
from spec_tests.processes.chain_files import (
    client,
    healthz,
    require_conserved,
    require_kept,
    require_private,
    secrets_of,
)
from spec_tests.processes.nodes import Node, issue_token, run, running_node, wait_until

pytestmark = pytest.mark.process

STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
OPEN = [partial(changes.open_umask)]


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def ready(node: Node) -> bool:
    return healthz(node)[0] == 200


def height_of(node: Node) -> int:
    return int(healthz(node)[1]["height"])


def reaches(node: Node, height: int) -> Callable[[], bool]:
    return lambda: ready(node) and height_of(node) >= height


def block_of(node: Node, height: int) -> dict[str, Any]:
    found: dict[str, Any] = node.ask("GET", f"/api/block/{height}", token=None).json
    return found


@pytest.mark.slow
def test_a_follower_comes_to_its_chain_and_survives(tmp_path: Path) -> None:
    maker_dir, follower_dir, home = tmp_path / "maker", tmp_path / "follower", tmp_path / "home"
    port, said = free_port(), []

    def told(answer: Any) -> Any:
        said.append(str(answer))
        return answer

    with running_node(follower_dir, "--tracker", url(port), changes=OPEN) as follower:
        # There is no maker yet: the operator is served free of charge, and users are refused.
        alice = issue_token(follower_dir, "alice")
        body = {"prompt": "Once upon a time", "max_tokens": 4}
        answer = told(follower.ask("POST", "/api/v1/inference", body))
        assert (answer.status, answer.json["cost"]["amount"]) == (200, 0.0)
        assert follower.ask("POST", "/api/v1/inference", body, token=alice).status == 503
        assert follower.ask("GET", "/api/v1/wallet/balance").status == 503
        assert healthz(follower)[0] == 503

        with running_node(maker_dir, port=port, changes=OPEN) as maker:
            wait_until(lambda: ready(follower))
            assert healthz(follower)[1]["chain_id"] == healthz(maker)[1]["chain_id"]
            # A user of the follower, whose transactions the maker puts into blocks.
            assert told(client(home, follower, "key", "new")).returncode == 0
            account = told(client(home, follower, "key", "show", "--json")).stdout
            public_key = json.loads(account)["public_key"]
            send = {"to": public_key, "amount": 20}
            assert told(maker.ask("POST", "/api/v1/wallet/send", send)).status == 200
            # The maker's own transaction arrives when the follower next asks the maker.
            wait_until(reaches(follower, height_of(maker)))
            paid = ["transfer", STRANGER, "1.5"], ["stake", "2", "--days", "30"]
            for arguments in (*paid, ["infer", "What is the capital of France?"]):
                done = told(client(home, follower, *arguments))
                assert done.returncode == 0, done
            height = height_of(maker)
            wait_until(reaches(follower, height))
            assert block_of(follower, height) == block_of(maker, height)
            maker.signal(signal.SIGKILL)
            maker.wait()
        wait_until(lambda: "no blocks from" in str(healthz(follower)[1]["trouble"]))
        refused = told(client(home, follower, "transfer", STRANGER, "1", "--wait", "1"))
        assert refused.returncode in (1, 3), refused
        follower.signal(signal.SIGKILL)
        follower.wait()

    again = f"{url(free_port())},{url(port)}"
    with running_node(follower_dir, "--tracker", again, changes=OPEN) as follower:
        # The follower has all blocks so far, and says that it cannot know whether there are more.
        wait_until(lambda: "reason" in healthz(follower)[1])
        assert block_of(follower, height)["height"] == height
        status, health = healthz(follower)
        assert (status, health["reason"]) in ((503, "catching_up"), (503, "stalled"))
        with running_node(maker_dir, port=port, changes=OPEN) as maker:
            wait_until(reaches(follower, height + 1))
            resumed = told(client(home, follower, "outbox", "resume"))
            assert resumed.returncode == 0, resumed
            done = told(client(home, follower, "transfer", STRANGER, "0.25"))
            assert done.returncode == 0, done
            wait_until(reaches(follower, height_of(maker)))
            log = maker.log() + follower.log()
    for folder in (maker_dir, follower_dir):
        require_conserved(folder)
        require_private(folder)
        require_kept(secrets_of(folder), [maker_dir, follower_dir], log + "".join(said))
        require_kept({key: set() for key in _seeds(home)}, [folder], log + "".join(said))


def test_a_damaged_ledger_ends_the_start(tmp_path: Path) -> None:
    """A damaged ledger ends the start with one line. A silent tracker would be waited for."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "ledger.sqlite").write_bytes(b"garbage")
    ended = run(
        *("--tracker", url(free_port()), "--data-dir", str(data), "--port", str(free_port()))
    )
    assert ended.returncode == 2
    assert "ledger.sqlite is damaged; restore it, or move it away" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (data / "ledger.sqlite").read_bytes() == b"garbage"


def _seeds(home: Path) -> list[str]:
    return [json.loads((home / "client" / "key.json").read_bytes())["seed"]]


# Lies


def other_root(answer: dict[str, Any]) -> None:
    answer["block"]["header"]["app_hash"] = "AB" * 32


def other_signature(answer: dict[str, Any]) -> None:
    answer["signed_header"]["commit"]["signatures"][0]["signature"] = "AA" * 43 + "=="


def gap(answer: dict[str, Any]) -> None:
    header = answer["block"]["header"]
    header["height"] = str(int(header["height"]) + 1)


def fork(answer: dict[str, Any]) -> None:
    answer["block"]["header"]["last_block_id"]["hash"] = "CD" * 32


LIES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "root": ("block", other_root),
    "signature": ("commit", other_signature),
    "gap": ("block", gap),
    "fork": ("block", fork),
}


@dataclass
class Liar:
    """A gateway that passes on the answers of ``maker``, falsified by ``lie``."""

    maker: Node
    lie: str = ""
    told: int = 0

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        question = json.loads(body) if body else None
        answer = self.maker.ask(method, path, question, token=None)
        if not self.lie or not question:
            return answer.status, answer.body
        asked, bend = LIES[self.lie]
        document = answer.json
        if question["method"] == asked:
            bend(document["result"])
            self.told += 1
        return answer.status, json.dumps(document).encode()


class Hotel(Liar):
    """A gateway that answers every request with a welcome page, as a hotel's network does."""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.told += 1
        return 200, b"<html>welcome</html>"


@contextmanager
def lying(maker: Node, kind: type[Liar] = Liar) -> Iterator[tuple[Liar, int]]:
    liar = kind(maker)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = liar.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield liar, server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_a_lying_maker_is_refused_and_named(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "maker") as maker,
        lying(maker) as (liar, port),
        running_node(tmp_path / "follower", "--tracker", url(port)) as follower,
    ):
        wait_until(lambda: ready(follower))
        for lie in LIES:
            liar.told, liar.lie = 0, lie
            # Make a block about which the tracker can lie.
            sent = maker.ask("POST", "/api/v1/wallet/send", {"to": STRANGER, "amount": 1})
            assert sent.status == 200
            wait_until(lambda: healthz(follower)[1].get("reason") == "unavailable")
            status, health = healthz(follower)
            assert (status, health["ready"]) == (503, False)
            assert "are refused" in health["trouble"]
            assert url(port) in health["trouble"]
            assert liar.told
            # When the tracker stops lying, the follower accepts its answers again.
            liar.lie = ""
            wait_until(reaches(follower, height_of(maker)))
        assert follower.log().count("are refused") == len(LIES)


@pytest.mark.slow
def test_a_malformed_answer_of_the_first_tracker_does_not_hide_the_second(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "maker") as maker,
        lying(maker, Hotel) as (hotel, port),
        running_node(
            tmp_path / "follower", "--tracker", f"{url(port)},http://127.0.0.1:{maker.port}"
        ) as follower,
    ):
        wait_until(lambda: ready(follower))
        assert hotel.told
        assert healthz(follower)[1]["chain_id"] == healthz(maker)[1]["chain_id"]
        assert f"the genesis of {url(port)} cannot be understood" in follower.log()
