"""Every figure that a node shows is measured: it changes over a scenario, or is listed here.

The scenario has what a node does: peers, inference over two nodes, payments, stakes, claims of work
and their rewards, and training. A figure that stays the same all the time, on both nodes, is either
a constant by the document or a figure that nobody computes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshnode.services.keystore import Keystore
from spec_tests.processes.nodes import Node, running_node, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONSTANT = (
    # Limits, prices and sizes that a genesis, a model or the query itself sets.
    r"/(api/network|healthz)\.params\..*",
    r"/api/inference\.(max_tokens|request_lifetime_blocks)",
    r"/api/model\..*parameter_count",
    r"/api/model\.execution\..*",
    r"/api/v1/layers\..*",
    r"/api/v1/network\.architecture\..*",
    r"/v1/models\.data\[\]\.(max_model_len|created|weights_version)",
    r"/api/v1/wallet/transactions\.(limit|offset)",
    # This machine has no accelerator, or the engine does not use it.
    r"/api/v1/status\.resources\.gpu_memory_(used|total)",
)
"""Figures that stay the same by the document, as patterns."""
ELSEWHERE = (
    # One block maker and one claim; one of two nodes drives, and none only relays.
    r"/api/blocks\.blocks\[\]\.transactions\[\]\..*",
    r"/(api/network|healthz)\.(total_voting_power|validator_count)",
    r"/api/validators\.(total|validators\[\]\.power)",
    r"/api/v1/proofs\.proofs\[\]\.(layer|reward)",
    r"/api/v1/network\.nodes\.(drivers|workers)",
    r"/api/v1/wallet/balance\.balances\.pending",
    # Nobody infers or trains on the chain, and no holder fails.
    r"/(api/network|healthz|api/inference)\.pending_(inference|requests)",
    r"/(api/network|healthz|api/model|api/model/checkpoint\.json)\.round",
    r"/api/model\.(serving_)?validation_loss",
    r"/api/training\.indexed_rounds",
    r"/api/v1/metrics\.pipeline\.failovers",
    # A pipeline that trains has no rounds.
    r"/api/training/global\..*",
    r"/api/training/status\..*",
    r"/(api/network|healthz)\.earliest_block_height",
    r"/api/v1/metrics\.training\.gradients_(accepted|submitted)",
    r"/api/v1/(status|network)\.training\..*",
)
"""Figures that move in other scenarios, which have tests of their own."""
DOCUMENTS = ("/api/manifest", "/network/genesis.json", "/network/dataset.json", "/api/v1/config")
"""Answers that are documents or settings: they stay as they were written."""
TRAINS = {
    "MESHNODE_TRAINING_BATCH_SIZE": "1",
    "MESHNODE_TRAINING_DILOCO_STEPS": "2",
    "MESHNODE_TRAINING_TEXT": "chain",
}
PARAMETERS = (
    "/{",
    "/events",
    "/artifacts",
    "/reference",
    "/openapi.json",
    "/rpc",
    "/join",
    "/work/",
)


class Figures:
    """All numbers in the answers to GET requests, by route and place, with the values seen."""

    def __init__(self, node: Node) -> None:
        document = node.ask("GET", "/openapi.json", token=None).json
        self.routes = [
            path
            for path, operations in document["paths"].items()
            if "get" in operations and not any(part in path for part in PARAMETERS)
        ]
        self.seen: defaultdict[str, set[float]] = defaultdict(set)

    def look(self, node: Node) -> None:
        for path in self.routes:
            answer = node.ask("GET", path)
            if answer.status in (200, 503) and answer.body[:1] in (b"{", b"["):
                for place, number in numbers(answer.json):
                    self.seen[path + place].add(number)

    @property
    def constant(self) -> set[str]:
        return {place for place, values in self.seen.items() if len(values) == 1}


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from numbers(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner, f"{place}[]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, value


def test_no_figure_is_a_constant_that_the_document_does_not_make_one(tmp_path: Path) -> None:
    with running_node(tmp_path / "a", "--layers", "0-3", **TRAINS) as a:
        figures = Figures(a)
        figures.look(a)
        tracker = f"http://127.0.0.1:{a.port}"
        with running_node(tmp_path / "b", "--layers", "4-7", "--tracker", tracker, **TRAINS) as b:

            def look() -> None:
                figures.look(a)
                figures.look(b)

            def until(condition: Any) -> None:
                wait_until(condition)
                look()

            until(lambda: a.ask("GET", "/api/v1/peers").json["peers"])
            account = Keystore(tmp_path / "b").node_key.public_key
            until(lambda: b.ask("GET", "/api/v1/wallet/balance").status == 200)
            a.ask("POST", "/api/v1/wallet/send", {"to": account, "amount": 3})
            until(
                lambda: b.ask("GET", "/api/v1/wallet/balance").json["balances"]["available"] == 3.0
            )
            stake = {"amount": 2, "duration_days": 1}
            assert b.ask("POST", "/api/v1/wallet/stake", stake).status == 200
            body = {"prompt": "Once upon a time", "max_tokens": 24}
            assert a.ask("POST", "/api/v1/inference", body).status == 200
            until(lambda: b.ask("GET", "/api/v1/metrics").json["rewards"]["pending"] >= 0.01)
            until(lambda: b.ask("GET", "/api/v1/proofs").json["stats"]["total_verified"])
            for node in (a, b):
                change = {"training": {"enabled": True}}
                assert node.ask("PATCH", "/api/v1/config", change).status == 200
            until(lambda: a.ask("GET", "/api/v1/metrics").json["training"]["steps_total"] > 2)
            assert a.ask("POST", "/api/v1/inference", body).status == 200
            b.ask("POST", "/api/v1/wallet/unstake", {"amount": 1})
            look()
            kinds = b.ask("GET", "/api/v1/wallet/transactions").json["transactions"]
            roles = {one["details"]["role"] for one in kinds if one["type"] == "reward"}
            # The holder of the last layers did this work as a validator (decision 0156).
            assert roles == {"validator"}
            joinable = b.ask("GET", "/api/network", token=None).json["bootstrap_peers"]
            assert tracker in joinable
    constant = {place for place in figures.constant if not place.startswith(DOCUMENTS)}
    listed = re.compile("|".join((*CONSTANT, *ELSEWHERE)))
    assert [place for place in sorted(constant) if not listed.fullmatch(place)] == []
