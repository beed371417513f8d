"""Money in real nodes: many tokens at once, killed in between; and a round of paid training."""

from __future__ import annotations

import http.client
import json
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from support_process import (
    ANSWERS_WITHIN_S,
    Node,
    command,
    environment,
    run,
    running_node,
    wait_until,
)
from support_processes import client, require_conserved, require_kept, require_private, secrets_of

pytestmark = pytest.mark.process

STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
ATOMS = 1_000_000
QUICK = {"MESHNODE_SETTLE_EVERY_S": "0.2"}


class Spender(threading.Thread):
    """One token's user: sends, stakes and asks until the node is gone."""

    def __init__(self, node: Node, token: str, seed: int) -> None:
        super().__init__()
        self.node, self.token, self.random = node, token, random.Random(seed)
        self.sent = self.maybe = self.bought = self.answered = 0
        self.odd: list[str] = []
        """Answers that should not have come."""

    def run(self) -> None:
        while True:
            what = self.random.choice(["send", "send", "stake", "inference"])
            amount = self.random.randint(1, 5000)
            path, body = {
                "send": ("/wallet/send", {"to": STRANGER, "amount": amount / ATOMS}),
                # The least that a first stake can be, and a little.
                "stake": ("/wallet/stake", {"amount": 1 + amount / ATOMS, "duration_days": 30}),
                "inference": ("/inference", {"prompt": "Once upon", "max_tokens": 3}),
            }[what]
            self.maybe += amount if what == "send" else 0
            try:
                answer = self.node.ask("POST", "/api/v1" + path, body, token=self.token)
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 200:
                self.answered += 1
                self.sent += amount if what == "send" else 0
                self.bought += (
                    round(answer.json["cost"]["amount"] * ATOMS)
                    if "cost" in str(answer.json)
                    else 0
                )
            elif answer.status not in (429, 503):
                self.odd.append(f"{what}: {answer.status} {answer.body!r}")
            elif what == "send" and answer.status == 429:
                self.maybe -= amount


def test_kill_9_between_many_spenders_loses_and_makes_no_atom(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tokens: dict[str, str] = {}
    sent = maybe = bought = 0
    with running_node(data, **QUICK) as node:
        for name in ("alice", "bob"):
            arguments = ("token", "issue", "--name", name, "--fund", "50", "--data-dir", str(data))
            issued = run(*arguments, **QUICK)
            assert ": 50 done" in issued.stdout, issued
            tokens[name] = issued.stdout.split("shown this once: ")[1].split()[0]
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    for turn in range(2):
        with running_node(data, **QUICK) as node:
            spenders = [Spender(node, one, turn) for one in (*tokens.values(), node.token)]
            for spender in spenders:
                spender.start()
            wait_until(lambda group=spenders: all(one.answered > 3 for one in group))
            node.signal(signal.SIGKILL)
            node.wait()
            for spender in spenders:
                spender.join()
                assert not spender.odd
                sent, maybe = sent + spender.sent, maybe + spender.maybe
            # The operator pays itself.
            bought += sum(spender.bought for spender in spenders[:-1])
        require_conserved(data)
    with running_node(data, **QUICK) as node:

        def account(public_key: str) -> dict:
            return node.ask("GET", f"/api/account?public_key={public_key}", token=None).json

        def pending() -> float:
            path = "/api/v1/wallet/balance"
            balances = [node.ask("GET", path, token=one).json for one in tokens.values()]
            return sum(balance["balances"]["pending"] for balance in balances)

        # What was charged and not yet settled is less than a fee for each.
        wait_until(lambda: pending() < len(tokens) * 0.001)
        # What was confirmed has arrived; what was cut off may have, once.
        assert sent <= int(account(STRANGER)["total"]) <= maybe
        poor = node.ask(
            "POST", "/api/v1/wallet/send", {"to": STRANGER, "amount": 60}, token=tokens["bob"]
        )
        assert (poor.status, poor.json["error"]["code"]) == (402, "INSUFFICIENT_BALANCE")
        details = poor.json["error"]["details"]
        balance = node.ask("GET", "/api/v1/wallet/balance", token=tokens["bob"]).json
        assert details == {"required": 60.001, "available": balance["balances"]["available"]}
        entries = node.ask("GET", "/api/v1/wallet/transactions?limit=100", token=tokens["bob"]).json
        log = node.log()
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    require_conserved(data)
    require_private(data)
    said = log + json.dumps(entries) + json.dumps(poor.json)
    require_kept(secrets_of(data), [data], said)
    assert all(token not in said for token in tokens.values())
    assert bought


def test_a_sponsor_and_two_workers_train_a_round(tmp_path: Path) -> None:
    """Everything by the commands that a user has: nodes, keys, workers, accounts."""
    with running_node(tmp_path / "data", MESHNODE_SPONSOR_TASKS="1") as node:
        gateway = f"http://127.0.0.1:{node.port}"
        workers = []
        for stage in (0, 1):
            home = tmp_path / f"home{stage}"
            assert client(home, node, "key", "new").returncode == 0
            arguments = ["worker", "--gateway", gateway, "--data-dir", str(home)]
            arguments += ["--stage", str(stage), "--tasks", "1"]
            workers.append(
                subprocess.Popen(
                    command(*arguments),
                    env=environment(OMP_NUM_THREADS="1"),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        try:
            for worker in workers:
                said, _ = worker.communicate(timeout=ANSWERS_WITHIN_S)
                assert (worker.returncode, "returned task" in said) == (0, True), said
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
                    worker.wait()
                worker.stdout.close()

        def get(path: str) -> dict:
            return node.ask("GET", path, token=None).json

        (record,) = wait_until(lambda: get("/api/training")["records"])
        assert (record["round"], len(record["workers"])) == (1, 2)
        for stage, worker in enumerate(record["workers"]):
            home = tmp_path / f"home{stage}"
            told = json.loads(client(home, node, "account", "--json").stdout)
            assert (told["public_key"], told["balance"]) == (worker, "400000")
        network = get("/api/network")
        assert (network["round"], network["issued"]) == (1, "1000000")
        assert network["model_root"] == record["model_root"]
        evaluation = network["last_training_evaluation"]
        # Promoted exactly when it is better, and served from then on.
        assert evaluation["promoted"] == (network["serving_root"] == record["model_root"])
        assert get("/work/status")["remaining_tasks"] == 0
        assert get("/api/model/checkpoint.json")["model_root"] == record["model_root"]
        answered = client(
            tmp_path / "home0", node, "infer", "Once upon a time", "--max-tokens", "4"
        )
        assert answered.returncode == 0, answered
        node.signal(signal.SIGKILL)
        node.wait()
    require_conserved(tmp_path / "data")
    for name in ("data", "home0", "home1"):
        require_private(tmp_path / name)
