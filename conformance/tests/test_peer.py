"""The suite as a peer: it finds each fault of a client, and none in one that has none."""

from itertools import pairwise
from typing import Any

import pytest

from conformance import cli, messages
from conformance.catalogue import Level, Profile, load
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.findings import Findings
from conformance.judging.client.faults import Fault, fields, rules
from conformance.judging.client.judge import judge as judge_client
from conformance.judging.client.manners import Manners
from conformance.judging.toy.serving import Serving, Toy
from conformance.peer import requests
from conformance.peer.keepalive import fault, proof, regular, rests
from conformance.peer.tap import ACK, DATA, END_STREAM, HEADERS, PING, Link, Mark
from conformance.peer.watch import PEER, Call
from conformance.report import document, text
from conformance.tests.conftest import Judge
from conformance.verdict import Exit, Outcome, Ruling, Standing

# What else has to fail, because the fault violates it as well.
TOGETHER = {
    "CL-DHT-001": {"CL-DHT-003"}, "CL-DHT-010": {"CL-DHT-004"}, "CL-CODE-008": {"CL-CALL-005"},
    "CL-GOSSIP-001": {"CL-GOSSIP-011"}, "CL-CALL-011": {"CL-CALL-010"},
}  # fmt: skip
# What a fault that is about something else may bring with it: more than three attempts.
OFTEN = "CL-CALL-002"
SOUND: dict[str, dict[str, Any]] = {
    "DHTPing": {}, "DHTFindNode": {"target_id": bytes(20)}, "DHTFindValue": {"key": bytes(20)},
    "DHTStore": {"key": bytes(20), "value": "127.0.0.1:8000"},
    "GetWeights": {"shard_range": "0-1"},
    "GetCheckpoint": {"model_hash": "a" * 64, "min_version": 1},
    "GossipGradient": {
        "node_id": "a" * 40, "round_id": 1, "model_hash": "a" * 64, "timestamp": 1.0,
        "batch_size": 1, "loss": 2.5, "layer_gradients": {"a": b"b"}, "signature": "s", "ttl": 1,
    },
    "PipelineForward": {
        "session_id": "s", "request_id": "r", "hidden_states": bytes(8), "hidden_shape": [1, 2, 1],
        "attention_mask": b"a", "position_ids": b"p", "past_key_values": [b"k"], "use_cache": True,
        "source_shard": 1, "target_shard": 2, "training_labels": b"l", "sender_url": "h:1",
    },
    "PipelineBackward": {
        "session_id": "s", "request_id": "r", "grad_output": bytes(8), "grad_shape": [1, 2, 1],
        "target_shard": 2,
    },
}  # fmt: skip
RULES, FIELDS = list(rules()), list(fields())


def violated(run: Run) -> set[str]:
    return {item.requirement.id for item in run.results if item.standing is Standing.VIOLATED}


@pytest.mark.parametrize("row", RULES, ids=[f"{row.requirement}-{row.name}" for row in RULES])
def test_a_fault_of_a_client_is_noticed_by_the_requirement_that_it_violates(row: Fault) -> None:
    run = judge_client(row.manners, {row.check}, edition=DRAFT)
    assert run.faults == {}
    allowed = {row.requirement, OFTEN, *TOGETHER.get(row.requirement, ())}
    assert row.requirement in violated(run)
    assert violated(run) <= allowed
    must = load()[row.requirement].level is Level.MUST
    assert run.ended() is Exit.VIOLATED if must else run.ended() is not Exit.VIOLATED


def test_gradients_that_never_come_back_are_noticed_behind_another_check() -> None:
    row = next(row for row in RULES if row.requirement == "PL-BWD-002")
    run = judge_client(row.manners, {"back-to-each", row.check}, edition=DRAFT)
    assert "back-to-each" in run.skipped
    assert row.requirement in violated(run)


def test_a_sound_client_is_proved_in_everything() -> None:
    run = judge_client(Manners(), edition=DRAFT)
    assert run.faults == {}
    assert run.ended() is Exit.CONFORMS
    of_clients = [item for item in run.results if item.requirement.profile is Profile.PEER]
    left = {
        item.requirement.id: item.standing
        for item in of_clients
        if item.standing is not Standing.PROVED and item.requirement.level is not Level.OBSERVE
    }
    assert left == {}
    seen = {item.requirement.id: item for item in of_clients}["CL-LIE-003"]
    assert seen.findings[0].message == "not noticed: status 200"


def test_every_requirement_of_clients_has_a_fault() -> None:
    needed = {
        item.id
        for item in load().values()
        if item.profile is Profile.PEER and item.level is not Level.OBSERVE and not item.message
    }
    # LIM-004 permits something, which nobody can violate; what comes back has mutants of its own.
    needed = {ident for ident in needed if "callback" not in load()[ident].needs} | {"LIM-004"}
    assert needed - {row.requirement for row in (*RULES, *FIELDS)} == {"LIM-004"}


class Found(Findings):
    """Findings without exchanges."""

    def __init__(self) -> None:
        super().__init__("a test", frozenset(requests.PROVES), DRAFT)

    def failed(self) -> set[str]:
        return {item.requirement for item in self.findings if item.ruling is Ruling.FAILS}


def judged(operation: str, body: bytes) -> Found:
    found = Found()
    call = Call(PEER, operation, body, 0.0, "192.0.2.1", 5.0, (), None, code="OK")
    requests.judge(found, [call], {})
    return found


def request(operation: str) -> bytes:
    asked = messages.OPERATIONS[operation][0]
    fields = dict(SOUND[operation])
    if operation.startswith("DHT"):
        fields["sender"] = messages.make("DHTNodeInfo", node_id=bytes(20), ip="h", port=1)
    return messages.make(asked, **fields).SerializeToString()


@pytest.mark.parametrize("row", FIELDS, ids=[row.name for row in FIELDS])
def test_a_field_at_another_number_or_of_another_type_is_noticed(row: Fault) -> None:
    name = row.name.partition(".")[0]
    operation = next(o for o, (asked, _) in messages.OPERATIONS.items() if asked == name)
    body = request(operation)
    assert judged(operation, body).failed() == set()
    assert row.requirement in judged(operation, row.manners.rewrite(operation, body)).failed()


def test_an_edition_that_has_no_clients_reports_their_faults_and_fails_nothing() -> None:
    run = judge_client(Manners(id_bytes=16), {"peer-watch"}, edition=2)
    assert run.ended() is Exit.CONFORMS
    result = next(item for item in run.results if item.requirement.id == "CL-DHT-001")
    assert (result.standing, result.outcome, result.scored) == (
        Standing.VIOLATED, Outcome.NOTE, False,
    )  # fmt: skip
    limits = next(item for item in run.results if item.requirement.id == "LIM-001")
    assert not limits.scored
    shown = text.render(document.build(run))
    assert "VIOLATED, NOT SCORED  CL-DHT-001" in shown


def link(*marks: Mark, closed_at: float | None = None) -> Link:
    made = Link(("192.0.2.1", 1), 0.0, http2=True, closed_at=closed_at)
    for mark in marks:
        made.note(mark)
    return made


def ping(at: float) -> Mark:
    return Mark(at, True, PING, 0, 0, 8)


def answer(at: float) -> Mark:
    return Mark(at, False, PING, ACK, 0, 8)


def call(at: float, stream: int) -> list[Mark]:
    return [
        Mark(at, True, HEADERS, 0, stream, 10), Mark(at, True, DATA, END_STREAM, stream, 10),
        Mark(at + 0.1, False, DATA, 0, stream, 10),
        Mark(at + 0.1, False, HEADERS, END_STREAM, stream, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "until", "faulty", "proved"),
    [
        pytest.param(link(), 39, False, False, id="not yet due"),
        pytest.param(link(), 41, True, False, id="overdue"),
        pytest.param(link(closed_at=35.0), 99, False, False, id="closed in time"),
        pytest.param(link(ping(30), answer(30)), 45, False, True, id="on time"),
        pytest.param(link(ping(30), answer(30)), 71, True, False, id="only one"),
        pytest.param(link(ping(5), ping(35), ping(65)), 70, False, True, id="its own rhythm"),
        pytest.param(link(ping(5)), 20, False, False, id="one that may be the first"),
        pytest.param(link(ping(10), ping(20)), 25, True, False, id="too often"),
        pytest.param(link(*call(20, 1), ping(50.1)), 60, False, True, id="after a call"),
    ],
)
def test_pings_are_judged_where_a_connection_rests(
    made: Link, until: float, faulty: bool, proved: bool
) -> None:
    found = list(rests(made, until))
    assert any(fault(rest) for rest in found) == faulty
    assert any(proof(rest) for rest in found) == (proved and not faulty)


def test_pings_that_keep_their_rhythm_between_calls_are_seen() -> None:
    calls = [mark for number in range(1, 20) for mark in call(5.0 * number, 2 * number - 1)]
    marks = sorted([*calls, ping(32), ping(62), ping(92)], key=lambda mark: mark.at)
    assert regular(link(*marks))
    assert not any(proof(rest) for rest in rests(link(*marks), 96))
    measuring = sorted([*calls, ping(20.2), ping(32), ping(62)], key=lambda mark: mark.at)
    assert not regular(link(*measuring))


def test_a_connection_knows_its_calls_in_flight() -> None:
    begun = link(Mark(1, True, HEADERS, 0, 1, 10), Mark(1, True, DATA, END_STREAM, 1, 10))
    assert begun.streams == {1}
    assert [rest.calls for rest in rests(begun, 50)][-1] == 1
    begun.note(Mark(2, False, HEADERS, END_STREAM, 1, 10))
    assert begun.streams == set()
    assert all(a.ends == b.begins for a, b in pairwise(rests(begun, 50)))


@pytest.mark.usefixtures("elsewhere")
def test_a_peer_that_nobody_calls_proves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    port = str(free_port())
    listen = ("--listen", f"127.0.0.1:{port}")
    assert cli.main(["peer", "http://127.0.0.1:1", *listen, "--wait", "0.1"]) == 5
    said = capsys.readouterr()
    assert f"The peer is at http://127.0.0.1:{port}, its gRPC at 127.0.0.1:" in said.err
    assert "MUST   0 proved, 0 violated" in said.out


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("address", ["8400", "127.0.0.1:http", "127.0.0.1:65000", "taken"])
def test_an_address_at_which_no_peer_can_be_is_refused(
    address: str, toy: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = toy.url.removeprefix("http://") if address == "taken" else address
    assert cli.main(["peer", toy.url, "--listen", listen]) == 4
    assert "--listen" in capsys.readouterr().err


@pytest.mark.usefixtures("elsewhere")
def test_nobody_behind_the_peer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    behind = ("--behind", "http://127.0.0.1:1")
    assert cli.main(["peer", "http://127.0.0.1:1", *listen, *behind]) == 4
    assert "--behind: 127.0.0.1:1001: UNAVAILABLE" in capsys.readouterr().err


def free_port() -> int:
    with Toy() as served:
        return int(served.url.rpartition(":")[2])


def test_a_run_without_a_peer_says_which_command_has_one(judge: Judge) -> None:
    run = judge("CL-CODE-004", "CL-PORT-001", edition=DRAFT, profiles=frozenset(Profile))
    reasons = {item.requirement.id: item.reason for item in run.results}
    assert "meshnode-conformance peer" in reasons["CL-PORT-001"]
    assert "meshnode-conformance peer" in reasons["CL-CODE-004"]
