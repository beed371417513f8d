"""Adds to the answers of real nodes what two nodes on one machine cannot show within a minute.

The additions conform to the document and give the mutants something to break: a reward in the
history, a proof in the list, a page of updates. Without any hook the layer must pass every check.
"""

import copy
from typing import Any
from urllib.parse import parse_qs, urlsplit

from conformance.judging.toy.answers import Response

STAMP = "2026-01-02T03:04:05Z"
PROOF = {"id": "p1", "type": "forward", "layer": 1, "timestamp": STAMP, "verified": True,
         "reward": 0.1}  # fmt: skip
STATS = {"total_submitted": 2, "total_verified": 2, "total_reward": 0.2}
REWARD = {"id": "reward-of-the-layer", "type": "reward", "amount": 0.1, "timestamp": STAMP,
          "details": {"proof_id": "p1", "role": "worker"}}  # fmt: skip
ROUNDS = 9


def complete(method: str, target: str, authorization: str | None, response: Response) -> None:
    """Complete one answer, if it is from a route that needs it."""
    parts = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if method != "GET" or not isinstance(response.json, dict):
        return
    if parts.path == "/api/v1/proofs" and response.status == 200:
        _listed(response.json, "proofs", [PROOF, {**PROOF, "id": "p2"}], query)
        response.json.setdefault("stats", STATS)
    if parts.path == "/api/v1/wallet/transactions" and response.status == 200:
        _with_reward(response.json)
    if parts.path == "/api/training" and response.status == 200 and not response.json["records"]:
        before = int(query.get("before", ROUNDS + 1))
        rounds = [{"round": number} for number in range(before - 1, 0, -1)]
        _listed(response.json, "records", rounds, query)


def _with_reward(page: dict[str, Any]) -> None:
    """Add a reward behind the last entry of the whole list, so that pages still fit together."""
    entries, total = page["transactions"], page["total"]
    if page["offset"] + len(entries) == total and len(entries) < page["limit"]:
        page["transactions"] = [*entries, copy.deepcopy(REWARD)]
    page["total"] = total + 1


def _listed(document: dict[str, Any], key: str, entries: list[Any], query: dict[str, str]) -> None:
    document[key] = copy.deepcopy(entries[: int(query.get("limit", 20))])
