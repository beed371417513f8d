"""Real reference nodes to judge against, started as a user would, with a past and a neighbour.

What a fresh node cannot show is made beforehand: a stake that is no longer locked and a token that
has expired come from a first life of the node whose clock goes forty days slow; peers come from a
second node; an inference request from the client's command line.
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

TOKEN = "judge-operator-token-0123456789"  # noqa: S105 - of nodes that live for minutes
DAYS_SLOW = 40
READY_WITHIN_S = 90.0
# The past is told by the clocks that Python programs read.
PAST = f"""
import time
slow = {DAYS_SLOW} * 86400
real, real_ns = time.time, time.time_ns
time.time = lambda: real() - slow
time.time_ns = lambda: real_ns() - slow * 10**9
from meshnode.cli import main
main()
"""


class NotReady(Exception):
    """A node did not come up, or did not do what it was asked for; the message has its log."""


@dataclass(frozen=True)
class Rig:
    """Nodes that run; the first is to be judged. `settings` is its `[target]`."""

    urls: tuple[str, ...]
    settings: dict[str, Any]


def ask(url: str, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
    """Ask a node something as its operator; give the JSON, or None where there is no answer."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, content, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own node
            return json.loads(answer.read())
    except (OSError, ValueError):
        return None


def until(what: str, condition: Any, within_s: float = READY_WITHIN_S) -> Any:
    """Wait for a condition and give what it gave; `NotReady` names what did not come about."""
    ends = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > ends:
            raise NotReady(what)
        time.sleep(0.2)
    return value


def environment(**variables: str) -> dict[str, str]:
    """Give the environment of a node: nothing of the judge's own settings, and the token."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MESHNODE_")}
    # Torch's threads would fight with each other's nodes for few cores.
    return {**inherited, "MESHNODE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **variables}


def run_command(*arguments: str, past: bool = False) -> str:
    """Run a command of the program and give what it said; `NotReady` where it failed."""
    program = ["-c", PAST] if past else ["-m", "meshnode"]
    return run_program(program, *arguments)


def run_program(program: list[str], *arguments: str) -> str:
    """Run a program of the node's own Python; give what it said, or `NotReady` where it failed."""
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
) -> Iterator[str]:
    """Run one node and give its URL; it is stopped at the end."""
    program = ["-c", PAST] if past else ["-m", "meshnode"]
    command = [sys.executable, *program, "--port", str(port), "--data-dir", str(folder), *arguments]
    url = f"http://127.0.0.1:{port}"
    if ask(url, "GET", "/api/v1/status") is not None:
        raise NotReady(f"{url} is that of another node, which somebody left running")
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment(**(variables or {})), stdout=log, stderr=log
        )

    def answers() -> bool:
        # Another node may have the port.
        if process.poll() is not None:
            raise NotReady(f"the node of {url} ended: see {folder}.log")
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
    """Stake, and issue a token for a day, forty days ago; give the token."""
    with node(folder, port, past=True) as url:
        staked = ask(url, "POST", "/api/v1/wallet/stake", {"amount": 100, "duration_days": 30})
        if not staked or not staked.get("success"):
            raise NotReady(f"no stake in the past: {staked}")
        return _issue(folder, "expired", "--days", "1", past=True)


def _issue(folder: Path, name: str, *options: str, past: bool = False) -> str:
    said = run_command(
        "token", "issue", "--name", name, *options, "--data-dir", str(folder), past=past
    )
    return str(re.findall(r"shown this once: (\S+)", said)[0])


def _make_a_request(folder: Path, url: str) -> str:
    """Pay for an answer with the command line; give the request's id."""
    mine = ("--json", "--data-dir", str(folder / "client"))
    made = json.loads(run_command("key", "new", *mine))
    address = made.get("public_key") or made["address"]
    ask(url, "POST", "/api/v1/wallet/send", {"to": address, "amount": 1, "memo": "judge"})
    said = json.loads(
        run_command("infer", *mine, "--gateway", url, "--max-tokens", "4", "--price-ceiling", "0.5",
             "Once upon a time")
    )  # fmt: skip
    return str(said["id"])


# For mutants: thousands of requests from one address are no abuse here.
UNLIMITED = {
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_ADDRESS": "100000",
    "MESHNODE_LIMITS_BURST_PER_ADDRESS": "100000",
    "MESHNODE_LIMITS_REQUESTS_PER_SECOND_PER_TOKEN": "100000",
    "MESHNODE_LIMITS_BURST_PER_TOKEN": "100000",
}
SPONSORED = 2
# Inner steps of a round.
STEPS = 2
TRAINING = {"MESHNODE_TRAINING_DILOCO_STEPS": str(STEPS), "MESHNODE_TRAINING_BATCH_SIZE": "1"}
Company = Callable[[str], AbstractContextManager[object]]


def alone(url: str) -> AbstractContextManager[object]:
    """Have nobody else there."""
    return nullcontext()


@contextmanager
def rig(
    folder: Path, port: int, *, limited: bool = True, company: Company = alone
) -> Iterator[Rig]:
    """Run two nodes, the first with a past; `port` and the one after it are used, and + 1000.

    `company` is entered with the URL of the first before the second is there.
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
            "grpc": f"127.0.0.1:{port + 1000}",
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
    """Let the nodes train, round after round, and wait until they have agreed once more."""
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
    """Let the nodes train no more: they would take the time of everything else."""
    for url in running.urls:
        ask(url, "PATCH", "/api/v1/config", {"training": {"enabled": False}})


def described(url: str) -> dict[str, Any]:
    """Give what a `conformance.toml` of the reference node says of it."""
    network = ask(url, "GET", "/api/network")
    model = ask(url, "GET", "/api/v1/network")["architecture"]
    balance = ask(url, "GET", "/api/v1/wallet/balance")
    return {
        "profiles": ["node-api", "training", "native-api", "grpc", "dht", "pipeline"],
        "legacy_gone": ["/api/auth/register", "/api/register", "/api/users"],
        "legacy_redirected": ["/login", "/signup"],
        "reference": ["/reference/v03/api/network"],
        "rpc": "jsonrpc",
        "public_key": balance["address"],
        "artifact": network["genesis_sha256"],
        "field_map": {
            "/api/network height": "height",
            "/api/network hash": "latest_block_hash",
            "/api/network money": ["initial_supply", "issued", "burned"],
            "/api/blocks height": "blocks[].height",
            "/api/block height": "height",
            "/api/block hash": "hash",
            "/api/training round": "records[].round",
            "/api/account money": ["balance", "locked", "total"],
            "/api/validators money": "validators[].bond",
            "/api/inference money": ["fee_atoms", "price_per_max_token_atoms"],
        },
        "pipeline": {
            "format": "float32",
            "shard": 1,
            "absent_shard": model["layers"] + 1000,
            "hidden_shape": [1, 2, model["hidden_dim"]],
            "past_entries": model["layers"] - 1,
            "last": True,
            "training": True,
        },
    }
