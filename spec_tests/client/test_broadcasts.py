"""A payment whose broadcast is lost, or whose client is killed, is made at most once."""

from functools import partial
from typing import Any

import pytest

from meshnode.client.gateway import Broadcast, Gateway
from spec_tests.client.gateway import after, before, cut, cut_short, garbage, giant, unavailable
from spec_tests.client.user import DONE, REFUSED, UNKNOWN, Client, be_patient
from spec_tests.domain.chain.net import ALICE, BOB, VALIDATOR
from spec_tests.ports import free_port
from spec_tests.processes import changes, forking
from spec_tests.processes.calls import NODE
from spec_tests.processes.nodes import environment

LOST_BEFORE = [before(cut), before(unavailable), before(garbage), before(giant), before(cut_short)]

LOST_AFTER = [after(cut), after(unavailable), after(garbage), after(giant), after(cut_short)]


@pytest.mark.parametrize("fault", LOST_BEFORE + LOST_AFTER)
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_broadcast_pays_exactly_once(client: Client, fault: Any, times: int) -> None:
    client.gateway.fail("broadcast_tx_sync", fault, times)
    status, value = client.json("infer", "Hello?")
    assert (status, value["status"]) == (DONE, "completed")
    assert client.balance() == 5_000_000 - 32_000 - 1000
    # All broadcasts have the same bytes: nothing was signed twice.
    assert len(set(client.gateway.broadcasts)) == 1


@pytest.mark.parametrize("fault", LOST_BEFORE + LOST_AFTER)
def test_a_transfer_whose_broadcast_is_lost_pays_exactly_once(client: Client, fault: Any) -> None:
    client.gateway.fail("broadcast_tx_sync", fault)
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.balance() == 5_000_000 - 1_000_000 - 1000
    assert len(set(client.gateway.broadcasts)) == 1


def test_a_request_is_looked_up_by_its_id_before_it_is_sent_again(client: Client) -> None:
    client.gateway.fail("broadcast_tx_sync", before(cut))
    assert client.do("infer", "Hello?") == DONE
    seen = client.gateway.seen
    first = seen.index("broadcast_tx_sync")
    assert seen[first + 1] == "/api/inference/request"
    assert "broadcast_tx_sync" in seen[first + 1 :]


@pytest.mark.parametrize("lost", [before(unavailable), after(unavailable)])
def test_an_unknown_outcome_blocks_further_payments_until_it_is_known(
    client: Client, lost: Any
) -> None:
    gateway = client.gateway
    gateway.auto = False
    gateway.fail("broadcast_tx_sync", lost, 4)
    status, value = client.json("transfer", BOB.key, "1")
    assert status == UNKNOWN
    # Any other payment is refused, and nothing is signed for it.
    for arguments in (["transfer", BOB.key, "2"], ["infer", "Hello?"]):
        refused, answer = client.json(*arguments)
        assert (refused, answer["application_id"]) == (UNKNOWN, value["application_id"])
    assert client.states == ["signed"]
    gateway.auto = True
    gateway.commit()
    assert client.do("outbox", "resume") == DONE
    assert client.states == ["committed"]
    assert len(set(gateway.broadcasts)) <= 1
    assert client.do("transfer", BOB.key, "2") == DONE
    assert int(gateway.net.account(BOB)["total"]) == 6_000_000


def test_a_payment_that_reached_no_gateway_was_not_made(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.do("status") == DONE
    reached = Gateway.broadcast

    def gone(gateway: Gateway, raw: bytes) -> Broadcast:
        return reached(Gateway(gateway.api, f"http://127.0.0.1:{free_port()}"), raw)

    monkeypatch.setattr(Gateway, "broadcast", gone)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.states == ["unsent"]
    monkeypatch.setattr(Gateway, "broadcast", reached)
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.states == ["committed"]


def test_too_many_requests_are_not_a_lost_broadcast(client: Client) -> None:
    def busy(handler: Any) -> None:
        handler.send(429, {"error": "slow down"}, Retry_After="0")

    client.gateway.fail("broadcast_tx_sync", before(busy), 1)
    assert client.do("transfer", BOB.key, "1") == DONE
    client.gateway.fail("broadcast_tx_sync", before(busy), 4)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.states == ["committed", "unsent"]


def test_the_wait_for_an_answer_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch, broadcast_s=1)

    def slow(handler: Any) -> None:
        handler.connection.recv(1)  # until the client hangs up

    client.gateway.fail("broadcast_tx_sync", after(slow))
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.balance() == 5_000_000 - 1_000_000 - 1000


def test_a_request_that_never_arrived_is_void_once_it_has_expired(client: Client) -> None:
    client.gateway.fail("broadcast_tx_sync", before(unavailable), 4)
    assert client.do("infer", "Hello?") == UNKNOWN
    for _ in range(10):
        client.gateway.net.block()
    assert client.do("infer", "Hello?") == DONE
    assert client.states == ["void", "committed"]
    assert client.balance() == 5_000_000 - 32_000 - 1000


def test_a_nonce_used_elsewhere_is_found_in_the_blocks(client: Client) -> None:
    client.gateway.fail("broadcast_tx_sync", before(unavailable), 4)
    assert client.do("transfer", BOB.key, "1") == UNKNOWN
    client.gateway.net.do(ALICE, "transfer", to=VALIDATOR.key, amount=5)
    assert client.json("outbox", "resume")[1][0]["state"] == "superseded"
    assert client.do("transfer", BOB.key, "1") == DONE


@pytest.mark.process
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("arguments", [("infer", "Hello?"), ("transfer", BOB.key, "1")])
def test_killed_between_signing_and_the_answer(client: Client, moment: str, arguments: Any) -> None:
    die = partial(changes.die_around_broadcast, moment=moment)
    line = ["--data-dir", str(client.folder), *arguments, "--gateway", client.gateway.url]
    killed = forking.run([die, NODE], line, environment(), 300)
    assert killed.returncode == -9
    assert client.states == ["signed"]
    before_resuming = list(client.gateway.broadcasts)
    assert client.do("outbox", "resume") == DONE
    assert client.states == ["committed"]
    # What is sent after the restart was signed before the kill.
    assert len(set(client.gateway.broadcasts)) == 1
    sent = client.gateway.broadcasts
    assert (sent == before_resuming) == (moment == "after")
    cost = 33_000 if arguments[0] == "infer" else 1_001_000
    assert client.balance() == 5_000_000 - cost
