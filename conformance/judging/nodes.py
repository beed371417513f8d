"""Real reference nodes to judge, started as a user would, with an earlier run and a peer.

What a fresh node cannot show is prepared: an unlocked stake and an expired token come from an
earlier run of the node, with its clock set back by forty days; peers come from a second node; an
inference request comes from the client's command line.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conformance.catalogue import SERVED
from conformance.judging import restarting
from conformance.sut import recipes
from conformance.target import GRPC_PORT_OFFSET

TOKEN = "judge-operator-token-0123456789"  # noqa: S105 - of nodes that live for minutes
DAYS_SLOW = 40
# No model of these nodes has a shard with this number or a higher one.
FIRST_ABSENT_SHARD = 1000
READY_WITHIN_S = 90.0
# A program that runs the node with Python's clocks set back, before the latest start of the
# machine: a node believes the clock that counts from there more than one that was set.
PAST = f"""
import time
slow = {DAYS_SLOW} * 86400
real, real_ns = time.time, time.time_ns
time.time = lambda: real() - slow
time.time_ns = lambda: real_ns() - slow * 10**9
counted = time.clock_gettime_ns
time.clock_gettime_ns = lambda clock: counted(clock) + 10 * slow * 10**9
from meshnode.cli import main
main()
"""


class NotReady(Exception):
    """A node did not start, or did not reach the expected state; the message has its log."""


@dataclass(frozen=True)
class Rig:
    """Running nodes, of which the first is judged. `settings` is its `[target]`."""

    urls: tuple[str, ...]
    settings: dict[str, Any]


def ask(url: str, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
    """Send a node a request of its operator; return the JSON, or None without an answer."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, content, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own node
            return json.loads(answer.read())
    except (OSError, ValueError):
        return None


def until(what: str, condition: Any, within_s: float = READY_WITHIN_S) -> Any:
    """Wait until a condition is true and return its value; raise `NotReady` if it never is."""
    ends = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > ends:
            raise NotReady(what)
        time.sleep(0.2)
    return value


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a node: without inherited MESHNODE settings, with the token."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHNODE_")}
    # Several nodes share few cores, so each gets one torch thread.
    return {**inherited, "MESHNODE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **variables}


def run_command(*arguments: str, past: bool = False) -> str:
    """Run a meshnode command and return its output; raise `NotReady` if it fails."""
    program = ["-c", PAST] if past else ["-m", "meshnode"]
    return run_program(program, *arguments)


def run_program(program: list[str], *arguments: str) -> str:
    """Run a Python program and return its output; raise `NotReady` if it fails."""
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=READY_WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise NotReady(f"{' '.join(arguments[:2])}: {done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def node(
    folder: Path,
    port: int,
    *arguments: str,
    past: bool = False,
    variables: Mapping[str, str] | None = None,
    keeper: Path | None = None,
) -> Iterator[str]:
    """Run one node and yield its URL; the node is stopped at the end.

    With a `keeper`, a file for `restarting`, the node can be restarted meanwhile.
    """
    program = ["-c", PAST] if past else ["-m", "meshnode"]
    command = [sys.executable, *program, "--port", str(port), "--data-dir", str(folder), *arguments]
    if keeper is not None:
        command = [*restarting.command(keeper), *command]
    url = f"http://127.0.0.1:{port}"
    if ask(url, "GET", "/api/v1/status") is not None:
        raise NotReady(f"another node is still running at {url}")
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment(**(variables or {})), stdout=log, stderr=log
        )

    def answers() -> bool:
        # If this process has ended, another node may be answering on the port.
        if process.poll() is not None:
            raise NotReady(f"the node at {url} ended: see {folder}.log")
        return ask(url, "GET", "/api/v1/status") is not None

    try:
        until(f"{url} does not answer", answers)
        until(f"{url} has no chain", lambda: (ask(url, "GET", "/healthz") or {}).get("ready"))
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _live_a_past_life(folder: Path, port: int) -> str:
    """Stake, and issue a token for one day, forty days ago; return the token."""
    with node(folder, port, past=True) as url:
        staked = ask(url, "POST", "/api/v1/wallet/stake", {"amount": 100, "duration_days": 30})
        if not staked or not staked.get("success"):
            raise NotReady(f"no stake in the past: {staked}")
        return _issue(folder, "expired", "--days", "1", past=True)


def _issue(folder: Path, name: str, *options: str, past: bool = False) -> str:
    output = run_command(
        "token", "issue", "--name", name, *options, "--data-dir", str(folder), past=past
    )
    return str(re.findall(r"shown this once: (\S+)", output)[0])


def _make_a_request(folder: Path, url: str) -> str:
    """Pay for an answer with the command line; return the id of the request."""
    paying_key(folder / "client", url)
    mine = ("--json", "--data-dir", str(folder / "client"))
    request = json.loads(
        run_command("infer", *mine, "--gateway", url, "--max-tokens", "4", "--price-ceiling", "0.5",
             "Once upon a time")
    )  # fmt: skip
    return str(request["id"])


def paying_key(folder: Path, url: str) -> Path:
    """Make a key in a folder of its own, and have the node send it a unit; return its file."""
    made = json.loads(run_command("key", "new", "--json", "--data-dir", str(folder)))
    address = made.get("public_key") or made["address"]
    ask(url, "POST", "/api/v1/wallet/send", {"to": address, "amount": 1, "memo": "judge"})
    return folder / "client" / "key.json"


# For mutants, which take thousands of requests from one address.
UNLIMITED = {
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_ADDRESS": "100000",
    "MESHNODE_LIMITS_BURST_PER_ADDRESS": "100000",
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_TOKEN": "100000",
    "MESHNODE_LIMITS_BURST_PER_TOKEN": "100000",
}
SPONSORED = 2
# Inner steps in a round.
STEPS = 2
TRAINING = {
    "MESHNODE_TRAINING_DILOCO_STEPS": str(STEPS),
    "MESHNODE_TRAINING_BATCH_SIZE": "1",
    "MESHNODE_TRAINING_TEXT": "chain",
}
Company = Callable[[str], AbstractContextManager[object]]


def alone(url: str) -> AbstractContextManager[object]:
    """Add no other nodes."""
    return nullcontext()


@contextmanager
def rig(
    folder: Path, port: int, *, limited: bool = True, company: Company = alone
) -> Iterator[Rig]:
    """Run two nodes, the first with a past, on `port` and the next one, and on these plus 1000.

    `company` is entered with the URL of the first node before the second one starts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    expired = _live_a_past_life(folder / "a", port)
    reference = folder / "reference" / "api"
    reference.mkdir(parents=True, exist_ok=True)
    (reference / "network.json").write_text('{"chain_id": "reference-v03"}')
    variables = {
        **TRAINING,
        **({} if limited else UNLIMITED),
        "MESHNODE_SPONSOR_TASKS": str(SPONSORED),
        "MESHNODE_REFERENCE_DIR": str(folder / "reference"),
        "MESHNODE_LIMITS_NATIVE_REQUESTS_PER_MINUTE": "1000000",
    }
    second = _issue(folder / "a", "second", "--fund", "1000")
    with (
        node(folder / "a", port, variables=variables) as url,
        company(url),
        node(folder / "b", port + 1, "--tracker", url, variables=TRAINING) as other,
    ):
        for one in (url, other):
            until(f"{one} has no peer", partial(_has_peers, one))
        settings = {
            "url": url,
            "grpc": f"127.0.0.1:{port + GRPC_PORT_OFFSET}",
            "token": TOKEN,
            "expired_token": expired,
            "second_token": second,
            "request_id": _make_a_request(folder, url),
            **described(url),
        }
        yield Rig((url, other), settings)


def _has_peers(url: str) -> bool:
    return bool((ask(url, "GET", "/api/v1/peers") or {}).get("total"))


def train(running: Rig) -> None:
    """Let the nodes train, and wait until they have agreed once more."""
    before = _syncs(running.urls[0])
    for url in running.urls:
        training = {"enabled": True, "diloco_steps": STEPS}
        ask(url, "PATCH", "/api/v1/config", {"training": training})

    def agreed() -> bool:
        verified = ask(running.urls[0], "GET", "/api/training/verify") or {}
        return bool(_syncs(running.urls[0]) > before and verified.get("is_working"))

    until("the nodes do not train", agreed)


def _syncs(url: str) -> int:
    found = ask(url, "GET", "/api/training/global") or {}
    return int(found.get("successful_syncs", 0))


def rest(running: Rig) -> None:
    """Stop the training of the nodes, which would slow everything else down."""
    for url in running.urls:
        ask(url, "PATCH", "/api/v1/config", {"training": {"enabled": False}})


def described(url: str) -> dict[str, Any]:
    """Return the settings that a `conformance.toml` of the reference node has."""
    network = ask(url, "GET", "/api/network")
    model = ask(url, "GET", "/api/v1/network")["architecture"]
    balance = ask(url, "GET", "/api/v1/wallet/balance")
    own = recipes()["meshnode"].target
    return {
        **own,
        "profiles": sorted(profile.value for profile in SERVED),
        "reference": ["/reference/v03/api/network"],
        "public_key": balance["address"],
        "artifact": network["genesis_sha256"],
        "pipeline": {
            **own["pipeline"],
            "absent_shard": model["layers"] + FIRST_ABSENT_SHARD,
            "hidden_shape": [1, 2, model["hidden_dim"]],
            "past_entries": model["layers"] - 1,
        },
    }
