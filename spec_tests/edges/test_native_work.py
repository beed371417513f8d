"""Interface 4.2 rule 7: the worker protocol's HTTP edge; the sponsor interprets envelopes."""

import json
import time
from pathlib import Path

import pytest
import trio

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.context import TrainingReplay
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import InvalidSignature
from meshnode.domain.chain.records import Lease
from meshnode.domain.work import WorkNetwork
from meshnode.services.work.sponsor import Sponsor
from spec_tests.domain.chain.net import ALICE
from spec_tests.edges.native_gateway import FakeSponsor, Gateway, start_gateway

ENVELOPE = {"body": {"kind": "poll", "time": 1}, "public_key": ALICE.key, "signature": "00"}


class NoReplays:
    """A model for tests without leases: replaying one is an error."""

    def train(self, lease: Lease) -> TrainingReplay:
        raise AssertionError(lease)


@pytest.fixture
async def gateway(nursery: trio.Nursery, tmp_path: Path) -> Gateway:
    return await start_gateway(nursery, tmp_path, with_index=False)


async def test_rule_7_envelopes_reach_the_sponsor_as_they_were_signed(gateway: Gateway) -> None:
    poll = await gateway.ask("POST", "/work/poll", ENVELOPE)
    assert (poll.status, poll.json) == (200, {"assignment": None})
    result = await gateway.ask("POST", "/work/result", ENVELOPE)
    assert (result.status, result.json) == (200, {"accepted_for_submission": True})
    assert gateway.sponsor.heard == [ENVELOPE, ENVELOPE]
    assert (await gateway.get("/work/status"))["sponsor"] == ALICE.key


async def test_bodies_are_bounded_and_say_their_length(gateway: Gateway) -> None:
    for path, limit in (("/work/poll", 4096), ("/work/result", 2_000_000)):
        padded = json.dumps(ENVELOPE).encode()
        assert (await gateway.ask("POST", path, padded.ljust(limit))).status == 200
        for body in (padded.ljust(limit + 1), b""):
            answer = await gateway.ask("POST", path, body)
            assert (answer.status, answer.json["error"]) == (400, "Invalid work request size")
        chunked = {"Transfer-Encoding": "chunked"}
        assert (await gateway.ask("POST", path, ENVELOPE, headers=chunked)).status == 400
    assert len(gateway.sponsor.heard) == 2


async def test_what_is_not_strict_json_never_reaches_the_sponsor(gateway: Gateway) -> None:
    for body in (b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b"\xff", b"[" * 100 + b"]" * 100):
        for path in ("/work/poll", "/work/result"):
            answer = await gateway.ask("POST", path, body)
            assert answer.status == 400
            assert answer.json["error"]
    assert gateway.sponsor.heard == []


async def test_a_refused_envelope_is_400_in_the_sponsors_words(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: FakeSponsor, envelope: Json) -> dict[str, Json]:
        await trio.lowlevel.checkpoint()
        raise InvalidSignature

    monkeypatch.setattr(FakeSponsor, "poll", refuse)
    answer = await gateway.ask("POST", "/work/poll", ENVELOPE)
    assert (answer.status, answer.json) == (400, {"error": "Signature verification failed"})


async def test_a_node_that_sponsors_nothing_has_no_work(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    network = WorkNetwork("test-work", "test-chain-1")
    idle = Sponsor(NoReplays(), None, network)
    gateway = await start_gateway(nursery, tmp_path, sponsor=idle, with_index=False)
    status = await gateway.get("/work/status")
    assert set(status) == {
        "chain_id",
        "sponsor",
        "remaining_tasks",
        "active_operations",
        "workers_by_stage",
        "payment",
    }
    assert (status["sponsor"], status["remaining_tasks"]) == (None, None)
    assert (status["active_operations"], status["workers_by_stage"]) == (0, [0, 0])
    body = network.body("poll", time.time(), stage=0)
    poll = await gateway.ask("POST", "/work/poll", sign_envelope(body, ALICE.seed))
    assert (poll.status, poll.json) == (200, {"assignment": None})
    body = network.body("result", time.time(), job_id="0" * 64)
    result = await gateway.ask("POST", "/work/result", sign_envelope(body, ALICE.seed))
    assert result.status == 400
    assert (await gateway.get("/work/status"))["workers_by_stage"] == [1, 0]
