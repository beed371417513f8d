"""One real node, judged as a client by the suite's peer, with a second real node behind the peer.

The checks that wait for pings take minutes and are left to `meshnode-conformance peer`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.catalogue import Effect, Profile
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.peer.peer import Patience, Peer, Setup
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Standing
from spec_tests.processes.nodes import SOON_S, running_node

CHECKS = {
    "peer-watch", "peer-calls-back", "peer-not-found", "peer-unavailable", "peer-exhausted",
    "peer-invalid", "peer-lies-about-shapes", "peer-lies-with-nan",
}  # fmt: skip
DIRECT = {"MESHNODE_PIPELINE_CHAIN": "false"}
"""PipelineForward instead of SwarmForward, whose messages the document does not show."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("client")
    with running_node(folder / "second", "--layers", "4-7") as second:
        behind = (f"http://127.0.0.1:{second.port}", f"127.0.0.1:{second.port + 1000}")
        # Only reached when a test fails: how quick a node is, is not judged here.
        patience = Patience(first_s=SOON_S, recover_s=SOON_S)
        with (
            Peer(Setup(behind=behind, patience=patience, sole=True)) as peer,
            running_node(
                folder / "node", "--layers", "0-3", "--tracker", peer.url, **DIRECT
            ) as node,
        ):
            target = Target(
                f"http://127.0.0.1:{node.port}",
                profiles=frozenset({Profile.PEER}),
                grpc=f"127.0.0.1:{node.port + 1000}",
                token=node.token,
                allow=frozenset(Effect),
                budget=20.0,
                timeout_s=30.0,
                edition=DRAFT,
            )
            yield Runner(target, peer=peer, names=CHECKS).run()


@pytest.mark.slow
def test_nothing_of_a_client_is_violated(run: Run) -> None:
    assert run.faults == {}
    wrong = {
        item.requirement.id: item.reason
        for item in run.results
        if item.standing in (Standing.VIOLATED, Standing.INCONCLUSIVE)
    }
    assert wrong == {}


@pytest.mark.slow
def test_what_such_a_client_shows_is_proved(run: Run) -> None:
    proved = {item.requirement.id for item in run.results if item.standing is Standing.PROVED}
    shown = {
        "CL-PORT-001", "CL-MSG-001", "CL-MSG-004", "CL-MSG-005", "CL-SHAPE-001", "CL-DHT-001",
        "CL-DHT-004", "CL-CALL-001", "CL-CALL-002", "CL-CODE-001", "CL-CODE-003", "CL-CODE-004",
        "CL-CODE-005", "CL-LIE-001", "CL-LIE-002",
    }  # fmt: skip
    assert shown <= proved
