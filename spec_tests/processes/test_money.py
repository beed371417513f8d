"""Money in real nodes: no atom is lost when a busy node is killed, and training is paid."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from spec_tests.processes import forking
from spec_tests.processes.calls import NODE
from spec_tests.processes.chain_files import (
    client,
    require_conserved,
    require_kept,
    require_private,
    secrets_of,
)
from spec_tests.processes.nodes import (
    ANSWERS_WITHIN_S,
    Node,
    environment,
    issue_token,
    running_node,
    wait_until,
)

pytestmark = pytest.mark.process

STRANGER = "02fc9b11d0ce24506121dcbad78d9a809fd52770ae77230e46b00b6249eb624161"
ATOMS = 1_000_000
QUICK = {"MESHNODE_SETTLE_EVERY_S": "0.2"}


class Spender(threading.Thread):
    """The user of a token, who sends, stakes and buys inference until the node is gone."""

    def __init__(self, node: Node, token: str, seed: int) -> None:
        super().__init__()
        self.node, self.token, self.random = node, token, random.Random(seed)
        self.sent = self.maybe = self.bought = self.answered = 0
        self.odd: list[str] = []
        """Answers that should not have come: neither success, nor a refusal that is expected."""

    def run(self) -> None:
        while True:
            what = self.random.choice(["send", "send", "stake", "inference"])
            amount = self.random.randint(1, 5000)
            path, body = {
                "send": ("/wallet/send", {"to": STRANGER, "amount": amount / ATOMS}),
                # A little more than the least that a first stake can be.
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


@pytest.mark.slow
def test_kill_9_between_many_spenders_loses_and_makes_no_atom(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tokens: dict[str, str] = {}
    sent = maybe = bought = 0
    with running_node(data, **QUICK) as node:
        for name in ("alice", "bob"):
            tokens[name] = issue_token(data, name, "50", **QUICK)
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
            # The last spender is the operator, who would pay itself.
            bought += sum(spender.bought for spender in spenders[:-1])
        require_conserved(data)
    with running_node(data, **QUICK) as node:

        def account(public_key: str) -> dict[str, Any]:
            found: dict[str, Any] = node.ask(
                "GET", f"/api/account?public_key={public_key}", token=None
            ).json
            return found

        def pending() -> float:
            path = "/api/v1/wallet/balance"
            balances = [node.ask("GET", path, token=one).json for one in tokens.values()]
            found: float = sum(balance["balances"]["pending"] for balance in balances)
            return found

        # Charges that remain unsettled are less than a fee for each token.
        wait_until(lambda: pending() < len(tokens) * 0.001)
        # Confirmed payments have arrived. Those cut off by the kill may have arrived, once each.
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


@pytest.mark.slow
def test_a_sponsor_and_two_workers_train_a_round(tmp_path: Path) -> None:
    """A round is trained and paid by users' commands alone: nodes, keys, workers, accounts."""
    with running_node(tmp_path / "data", MESHNODE_SPONSOR_TASKS="1") as node:
        gateway = f"http://127.0.0.1:{node.port}"
        workers = []
        for stage in (0, 1):
            home = tmp_path / f"home{stage}"
            assert client(home, node, "key", "new").returncode == 0
            arguments = ["worker", "--gateway", gateway, "--data-dir", str(home)]
            arguments += ["--stage", str(stage), "--tasks", "1"]
            workers.append(forking.start([NODE], arguments, environment(OMP_NUM_THREADS="1")))
        try:
            for worker in workers:
                said = worker.stdout.read()
                assert (worker.wait(ANSWERS_WITHIN_S), "returned task" in said) == (0, True), said
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
                    worker.wait()
                worker.stdout.close()

        def get(path: str) -> dict[str, Any]:
            found: dict[str, Any] = node.ask("GET", path, token=None).json
            return found

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
        # A promoted model is served from now on; one that is not promoted is not.
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
