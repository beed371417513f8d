"""Paid inferences on a cluster: requests, answers, and what became of each."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshnode.domain.chain.canonical import Json, digest, encode
from meshnode.domain.chain.envelope import application_id
from spec_tests.domain.chain.net import CHAIN_ID, Actor, answer_to
from spec_tests.processes.comet.background import Background
from spec_tests.processes.comet.cluster import CLIENT, PROVIDER, Cluster, Validator, results_of
from spec_tests.processes.comet.rpc import Refused, Silent

PRICE = 8000
EXPIRES_AFTER = 8
"""Blocks; the longest time that the tests' profile allows."""
STEP_S = 0.1


@dataclass
class Inferences(Background):
    """Asks for one answer after another, and gives it, through any validator that answers."""

    cluster: Cluster
    random: random.Random
    ended: dict[str, str] = field(default_factory=dict)
    """The last state of each job that a validator has shown as ended."""
    _job: str = ""
    _asked: dict[str, Json] = field(default_factory=dict)

    def require_none_lost(self, folder: Path) -> None:
        """Every answer that was seen as paid was paid, each once."""
        paid = paid_jobs(folder)
        assert all(count == 1 for count in paid.values()), paid
        lost = [
            job for job, state in self.ended.items() if state == "completed" and job not in paid
        ]
        assert not lost, lost

    def _run(self) -> None:
        while not self._stop.wait(STEP_S):
            if running := self.cluster.running:
                try:
                    self._advance(self.random.choice(running))
                except (Silent, Refused):
                    continue

    def _advance(self, by: Validator) -> None:
        state = _query(by, "/job", id=self._job) if self._job else {"status": "none"}
        if state["status"] == "pending":
            self._answer(by, state)
            return
        if state["status"] in ("completed", "expired"):
            self.ended[self._job] = state["status"]
            self._job, self._asked = "", {}
        nonce = _query(by, "/account", public_key=CLIENT.key)["nonce"]
        summary = _query(by, "/summary")
        # A request that no block took in time is made again, under the same nonce.
        if not self._asked or self._asked["nonce"] != nonce or _is_late(self._asked, summary):
            self._ask(nonce, summary)
        _send(by, CLIENT, self._asked)

    def _ask(self, nonce: int, summary: dict[str, Any]) -> None:
        self._asked = {
            "kind": "infer",
            "chain_id": CHAIN_ID,
            "nonce": nonce,
            "provider": PROVIDER.key,
            "model_root": summary["serving_root"],
            "request": {"prompt": f"question {nonce}", "max_tokens": 8},
            "price": PRICE,
            "expires": summary["height"] + EXPIRES_AFTER,
        }
        self._job = application_id(self._asked, CLIENT.key)

    def _answer(self, by: Validator, job: dict[str, Any]) -> None:
        request = job["request"]
        answer = answer_to(request["prompt"], request["max_tokens"], job["model_root"])
        nonce = _query(by, "/account", public_key=PROVIDER.key)["nonce"]
        body: dict[str, Json] = {"kind": "respond", "chain_id": CHAIN_ID, "nonce": nonce}
        _send(by, PROVIDER, {**body, "job_id": job["id"], "result_root": digest(answer)})


def paid_jobs(folder: Path) -> Counter[str]:
    """How often each job's provider was paid, in the blocks of a ledger."""
    return Counter(
        reference
        for _, result in results_of(folder)
        for _, _, reason, reference in result[6]
        if reason == "provider payment"
    )


def _is_late(asked: dict[str, Json], summary: dict[str, Any]) -> bool:
    return int(str(asked["expires"])) < int(summary["height"]) + 3


def _query(by: Validator, path: str, **options: Json) -> dict[str, Any]:
    data = encode(options).hex()
    answer = by.call("abci_query", path=path, data=data)["response"]
    if answer["code"]:
        # It was not accepted so far, or it ended long ago.
        if path == "/job":
            return {"status": "none"}
        raise Refused(answer["log"])
    return dict(json.loads(base64.b64decode(answer["value"])))


def _send(by: Validator, who: Actor, body: dict[str, Json]) -> None:
    by.call("broadcast_tx_sync", tx=base64.b64encode(who.sign(body)).decode())
