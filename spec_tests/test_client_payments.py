"""Paying: what is checked before signing, and what happens when the network fails in between."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support_chain import ALICE, BOB, VALIDATOR, actor
from support_gateway import (
    ChainGateway,
    after,
    before,
    cut,
    cut_short,
    garbage,
    giant,
    lying,
    run_client,
    serving,
    unavailable,
)
from support_process import environment

from meshnode.client import commands, follow, payments
from meshnode.client.gateway import Gateway, Patience
from meshnode.client.outbox import Outbox
from meshnode.client.paying import infer_wish
from meshnode.client.payments import compose
from meshnode.client.session import Session
from meshnode.domain.chain.envelope import application_id
from meshnode.domain.identity import key_from_seed
from meshnode.domain.keyfile import plain_key_file

DONE, REFUSED, MISUSED, UNKNOWN = 0, 1, 2, 3
VECTORS = json.loads((Path(__file__).parent / "vectors" / "chain.json").read_text())


class Client:
    """A user of one gateway, with a key that has money."""

    def __init__(self, gateway: ChainGateway, folder: Path, capsys: Any) -> None:
        self.gateway, self.folder, self.capsys = gateway, folder, capsys
        (folder / "client").mkdir(parents=True)
        path = folder / "client" / "key.json"
        path.write_bytes(plain_key_file(key_from_seed(ALICE.seed)))
        path.chmod(0o600)

    def do(self, *arguments: str) -> int:
        return run_client(self.folder, *arguments, "--gateway", self.gateway.url)

    def json(self, *arguments: str) -> tuple[int, Any]:
        self.capsys.readouterr()
        status = self.do(*arguments, "--json")
        return status, json.loads(self.capsys.readouterr().out)

    @property
    def states(self) -> list[str]:
        with Outbox(self.folder / "client") as outbox:
            return [entry.state for entry in reversed(outbox.recent(100))]

    def balance(self) -> int:
        return int(self.gateway.net.account(ALICE)["total"])


@pytest.fixture
def client(tmp_path, capsys, monkeypatch) -> Iterator[Client]:
    monkeypatch.setattr(payments, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(follow, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(commands, "Session", partial(Session, patience=Patience(5, 1)))
    with serving(ChainGateway()) as gateway:
        yield Client(gateway, tmp_path / "home", capsys)


@pytest.mark.parametrize("recorded", VECTORS["requests"])
def test_request_ids_of_recorded_runs(recorded: dict[str, Any]) -> None:
    body = recorded["body"]
    request = body["request"]
    wish = infer_wish(
        body["provider"],
        body["model_root"],
        request["prompt"],
        request["max_tokens"],
        body["price"],
        body["expires"],
    )
    composed = compose(wish, body["chain_id"], body["nonce"])
    assert application_id(composed, recorded["owner"]) == recorded["id"]


def test_a_transfer(client: Client) -> None:
    status, value = client.json("transfer", BOB.key, "1.25")
    assert (status, value["state"], value["height"]) == (DONE, "committed", 1)
    assert int(client.gateway.net.account(BOB)["total"]) == 3_000_000 + 1_250_000
    # Two identifiers, and each says which it is.
    assert value["application_id"] != value["transaction_hash"].lower()


def test_a_paid_answer(client: Client) -> None:
    status, value = client.json("infer", "What is the capital of France?")
    assert (status, value["status"]) == (DONE, "completed")
    assert value["output"]["text"] == "WHAT IS THE CAPITAL OF FRANCE?"
    assert client.balance() == 5_000_000 - 32_000 - 1000
    # Kept here, also when the chain has forgotten it.
    client.gateway.fail("/api/inference/request", before(unavailable), times=100)
    assert client.json("request", value["id"]) == (DONE, value)


def test_an_expired_request(client: Client) -> None:
    client.gateway.answers = False
    assert client.json("infer", "Hello?", "--wait", "0.05")[0] == UNKNOWN
    for _ in range(10):
        client.gateway.net.block()
    (entry,) = client.json("outbox", "resume")[1]
    assert entry["note"] == "expired"
    status, value = client.json("request", entry["application_id"])
    assert (status, value["status"]) == (REFUSED, "expired")
    assert client.balance() == 5_000_000 - 1000


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["transfer", BOB.key, "6"], REFUSED),
        (["transfer", BOB.key[:-1], "1"], MISUSED),
        (["transfer", BOB.key.upper(), "1"], MISUSED),
        (["transfer", BOB.key, "0.0000001"], MISUSED),
        (["infer", "x", "--price-ceiling", "0.032999"], REFUSED),
        (["infer", "x", "--max-tokens", "65"], MISUSED),
        (["infer", ""], MISUSED),
        (["infer", "x" * 16_384], MISUSED),
        (["infer", "\udcff"], MISUSED),
        (["bond", "0.3", "--consensus-key", "nowhere"], MISUSED),
        (["unbond", "nowhere"], MISUSED),
    ],
)
def test_what_is_refused_before_signing(client: Client, arguments: list[str], status: int) -> None:
    assert client.do(*arguments) == status
    assert client.states == []
    assert client.gateway.broadcasts == []


def test_the_ceiling_includes_the_fee(client: Client) -> None:
    assert client.do("infer", "x", "--price-ceiling", "0.033") == DONE


def test_what_the_network_refuses_costs_nothing_and_frees_the_nonce(client: Client) -> None:
    assert client.do("unstake", "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.states == ["refused", "committed"]


LOST_BEFORE = [before(cut), before(unavailable), before(garbage), before(giant), before(cut_short)]
LOST_AFTER = [after(cut), after(unavailable), after(garbage), after(giant), after(cut_short)]


@pytest.mark.parametrize("fault", LOST_BEFORE + LOST_AFTER)
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_broadcast_pays_exactly_once(client: Client, fault, times: int) -> None:
    client.gateway.fail("broadcast_tx_sync", fault, times)
    status, value = client.json("infer", "Hello?")
    assert (status, value["status"]) == (DONE, "completed")
    assert client.balance() == 5_000_000 - 32_000 - 1000
    # Whatever was sent again was the same bytes.
    assert len(set(client.gateway.broadcasts)) == 1


@pytest.mark.parametrize("fault", LOST_BEFORE + LOST_AFTER)
def test_the_same_for_transfers(client: Client, fault) -> None:
    client.gateway.fail("broadcast_tx_sync", fault)
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.balance() == 5_000_000 - 1_000_000 - 1000
    assert len(set(client.gateway.broadcasts)) == 1


def test_after_a_lost_answer_the_same_id_comes_before_the_same_bytes(client: Client) -> None:
    client.gateway.fail("broadcast_tx_sync", before(cut))
    assert client.do("infer", "Hello?") == DONE
    seen = client.gateway.seen
    first = seen.index("broadcast_tx_sync")
    assert seen[first + 1] == "/api/inference/request"
    assert "broadcast_tx_sync" in seen[first + 1 :]


@pytest.mark.parametrize("lost", [before(unavailable), after(unavailable)])
def test_an_unknown_outcome_blocks_further_payments_until_it_is_known(client: Client, lost) -> None:
    gateway = client.gateway
    gateway.auto = False
    gateway.fail("broadcast_tx_sync", lost, 4)
    status, value = client.json("transfer", BOB.key, "1")
    assert status == UNKNOWN
    # Another payment is refused, whatever it is, and nothing is signed for it.
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


def test_a_gateway_that_nobody_reached_got_nothing(client: Client, monkeypatch) -> None:
    assert client.do("status") == DONE
    reached = payments._broadcast

    def gone(gateway, raw):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        return reached(Gateway(gateway.api, f"http://127.0.0.1:{port}"), raw)

    monkeypatch.setattr(payments, "_broadcast", gone)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.states == ["unsent"]
    monkeypatch.setattr(payments, "_broadcast", reached)
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.states == ["committed"]


def test_too_many_requests_are_not_a_lost_broadcast(client: Client) -> None:
    def busy(handler) -> None:
        handler.send(429, {"error": "slow down"}, Retry_After="0")

    client.gateway.fail("broadcast_tx_sync", before(busy), 1)
    assert client.do("transfer", BOB.key, "1") == DONE
    client.gateway.fail("broadcast_tx_sync", before(busy), 4)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.states == ["committed", "unsent"]


def test_a_slow_answer_is_waited_for_only_so_long(client: Client) -> None:
    def slow(handler) -> None:
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


def test_a_refusal_that_was_a_lie_is_noticed_before_paying_again(client: Client) -> None:
    def refuse(answer: dict[str, Any]) -> None:
        answer["result"].update(code=1, log="Insufficient available balance")

    client.gateway.fail("broadcast_tx_sync", lying(refuse))
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == UNKNOWN
    assert client.states == ["committed"]
    assert int(client.gateway.net.account(BOB)["total"]) == 4_000_000


def change(name: str, value: object):
    return lambda answer: answer.update({name: value})


@pytest.mark.parametrize(
    ("path", "lie", "status"),
    [
        ("/api/network", change("chain_id", "other"), MISUSED),
        ("/api/network", change("genesis_sha256", "0" * 64), MISUSED),
        ("/api/inference", change("chain_id", "other"), MISUSED),
        ("/api/inference", change("genesis_sha256", "0" * 64), MISUSED),
        ("/api/inference", change("price_per_max_token_atoms", "2000"), REFUSED),
        ("/api/inference", change("fee_atoms", "2000"), REFUSED),
        ("/api/inference", change("model_root", "0" * 64), REFUSED),
        ("/api/inference", change("provider", None), REFUSED),
        ("/api/inference", change("provider", "03"), MISUSED),
        ("/api/inference", change("provider_online", False), REFUSED),
        ("/api/network", change("ready", False), REFUSED),
        ("/api/account", change("balance", "10"), REFUSED),
        ("/api/account", change("public_key", BOB.key), REFUSED),
        ("/api/account", change("nonce", True), REFUSED),
    ],
)
def test_a_lie_before_signing_means_that_nothing_is_signed(
    client: Client, path: str, lie, status: int
) -> None:
    assert client.do("status") == DONE
    client.gateway.fail(path, lying(lie), 2)
    assert client.do("infer", "Hello?") == status
    assert client.states == []


def test_a_lie_about_the_nonce_cannot_pay_twice(client: Client) -> None:
    assert client.do("transfer", BOB.key, "1") == DONE
    # One from the past: it was used.
    client.gateway.fail("/api/account", lying(change("nonce", 0)), 2)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    # One from the future: refused by the network, and remembered.
    client.gateway.fail("/api/account", lying(change("nonce", 3)), 2)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == UNKNOWN
    assert client.states == ["committed", "refused"]
    (entry, _) = client.json("outbox")[1]
    assert client.do("outbox", "forget", entry["application_id"]) == DONE
    assert client.do("transfer", BOB.key, "1") == DONE
    assert int(client.gateway.net.account(BOB)["total"]) == 5_000_000


def test_an_answer_to_another_question_is_not_taken(client: Client) -> None:
    for name, value in (("owner", BOB.key), ("model_root", "0" * 64), ("output", {"text": "x"})):
        client.gateway.fail("/api/inference/request", lying(change(name, value)), 1000)
        status, answer = client.json("infer", "Hello?", "--wait", "0.1")
        assert (status, "error" in answer) == (UNKNOWN, True)
        client.gateway.rules.clear()
        assert client.do("outbox", "resume") == DONE


def test_bond_unbond_and_withdraw(client: Client, tmp_path) -> None:
    path = tmp_path / "consensus.key"
    newcomer = actor("newcomer")
    path.write_text(newcomer.seed)
    assert client.do("bond", "0.5", "--consensus-key", str(path)) == DONE
    client.gateway.net.skip(6)
    rows = client.json("validators")[1]["validators"]
    assert newcomer.consensus_key in [row["public_key"] for row in rows]
    assert client.do("unbond", newcomer.consensus_key) == DONE
    client.gateway.net.skip(20)
    assert client.do("withdraw", str(path)) == DONE
    assert client.balance() == 5_000_000 - 3 * 1000


def test_stake_and_unstake(client: Client) -> None:
    assert client.do("stake", "1", "--days", "1") == DONE
    assert client.json("account")[1]["stake"]["amount"] == 1_000_000
    client.gateway.net.block(seconds=2 * 86_400)
    assert client.do("unstake", "1") == DONE


def test_an_answer_cannot_steer_the_terminal(client: Client, monkeypatch) -> None:
    answer = "one\n\ttwo \x1b[2J\x9b1m\u202ethree \N{WOMAN}\u200d\N{ROCKET}"
    output = lying(lambda record: record["output"].update(text=answer))
    for _ in range(20):
        client.gateway.fail("/api/inference/request", output)
    client.capsys.readouterr()
    assert client.do("infer", "Hello?") == DONE
    shown = client.capsys.readouterr().out
    assert shown.startswith("one\n\ttwo \ufffd[2J\ufffd1m\ufffdthree \N{WOMAN}\u200d\N{ROCKET}\n")


def test_the_seed_is_nowhere_but_in_its_file(client: Client) -> None:
    client.gateway.fail("broadcast_tx_sync", before(unavailable), 4)
    for arguments in (
        ["status"],
        ["transfer", BOB.key, "1"],
        ["outbox", "resume"],
        ["infer", "Hello?", "--json"],
        ["stake", "9"],
        ["unstake", "1"],
        ["outbox"],
        ["account", "--json"],
    ):
        if arguments[0] == "stake":
            arguments += ["--days", "1"]
        client.do(*arguments)
    told = "".join(client.capsys.readouterr())
    assert ALICE.seed not in told
    for path in client.folder.rglob("*"):
        if path.is_file() and path.name != "key.json":
            assert ALICE.seed.encode() not in path.read_bytes(), path


STOPPED = """
import os, signal, sys
from meshnode.client import payments
{patch}
sys.path.insert(0, {tests!r})
from pathlib import Path
from support_gateway import run_client
run_client(Path({folder!r}), *{arguments!r})
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
BEFORE_SENDING = f"payments._broadcast = lambda gateway, raw: {DIE}"
AFTER_SENDING = f"""
send = payments._broadcast
def broadcast(gateway, raw):
    send(gateway, raw)
    {DIE}
payments._broadcast = broadcast
"""


@pytest.mark.process
@pytest.mark.parametrize("patch", [BEFORE_SENDING, AFTER_SENDING])
@pytest.mark.parametrize("arguments", [("infer", "Hello?"), ("transfer", BOB.key, "1")])
def test_killed_between_signing_and_the_answer(client: Client, patch: str, arguments) -> None:
    program = STOPPED.format(
        patch=patch,
        tests=str(Path(__file__).parent),
        folder=str(client.folder),
        arguments=(*arguments, "--gateway", client.gateway.url),
    )
    killed = subprocess.run(
        [sys.executable, "-c", program], env=environment(), check=False, timeout=60
    )
    assert killed.returncode == -9
    assert client.states == ["signed"]
    before_resuming = list(client.gateway.broadcasts)
    assert client.do("outbox", "resume") == DONE
    assert client.states == ["committed"]
    # What was sent later is what was signed before.
    assert len(set(client.gateway.broadcasts)) == 1
    sent = client.gateway.broadcasts
    assert (sent == before_resuming) == (patch is AFTER_SENDING)
    cost = 33_000 if arguments[0] == "infer" else 1_001_000
    assert client.balance() == 5_000_000 - cost
