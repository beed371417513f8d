"""Paying: each kind of transaction, what it costs, and what is refused before signing."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from meshnode.client.paying import infer_wish
from meshnode.client.payments import compose
from meshnode.domain.account_address import address_of
from meshnode.domain.chain.envelope import application_id
from spec_tests.client.gateway import before, lying, unavailable
from spec_tests.client.user import DONE, MISUSED, REFUSED, UNKNOWN, Client
from spec_tests.domain.chain.net import ALICE, BOB, actor

VECTORS = json.loads(
    (Path(__file__).parents[1] / "domain" / "chain" / "vectors" / "chain.json").read_text()
)


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
    # The payment has two different identifiers, each under its own name.
    assert value["application_id"] != value["transaction_hash"].lower()


def test_an_address_is_an_account_and_one_wrong_character_is_not_paid(client: Client) -> None:
    address = address_of(BOB.key)
    wrong = address[:20] + ("q" if address[20] != "q" else "p") + address[21:]
    assert client.do("transfer", wrong, "1") == MISUSED
    assert "does not match its checksum" in client.capsys.readouterr().err
    assert client.states == []
    assert client.do("transfer", address, "1") == DONE
    assert int(client.gateway.net.account(BOB)["total"]) == 3_000_000 + 1_000_000
    for given in (address, BOB.key):
        assert client.json("account", given)[1]["address"] == address
    assert f"address {address}" in text_of(client, "account", BOB.key)


def text_of(client: Client, *arguments: str) -> str:
    client.capsys.readouterr()
    assert client.do(*arguments) == DONE
    return str(client.capsys.readouterr().out)


def test_a_paid_answer(client: Client) -> None:
    status, value = client.json("infer", "What is the capital of France?")
    assert (status, value["status"]) == (DONE, "completed")
    assert value["output"]["text"] == "WHAT IS THE CAPITAL OF FRANCE?"
    assert client.balance() == 5_000_000 - 32_000 - 1000
    # The client keeps the answer, and needs no gateway to show it again.
    client.gateway.fail("/api/inference/request", before(unavailable), times=100)
    assert client.json("request", value["id"]) == (DONE, value)


def test_the_charge_is_shown_before_it_is_signed(client: Client) -> None:
    assert client.do("infer", "What is the capital of France?", "--max-tokens", "8") == DONE
    before, _, after = client.capsys.readouterr().err.partition("signed: ")
    assert "0.009 in all, 0.008 for 8 tokens and a fee of 0.001" in before
    assert "All of it is charged, also when the answer is shorter" in before
    assert after
    assert client.balance() == 5_000_000 - 8_000 - 1000


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
        (["infer", "x", "--max-tokens", "0"], MISUSED),
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


def test_a_prompt_on_standard_input_is_text(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    assert client.do("infer", "-") == MISUSED
    assert client.states == []


def test_a_height_is_a_number_of_blocks(client: Client) -> None:
    for height in ("0", "-1", "1.0", "9" * 5000):
        assert client.do("block", height) == MISUSED
    client.gateway.net.block()
    assert client.do("block", "1") == DONE


def test_the_ceiling_includes_the_fee(client: Client) -> None:
    assert client.do("infer", "x", "--price-ceiling", "0.033") == DONE


def test_what_the_network_refuses_costs_nothing_and_frees_the_nonce(client: Client) -> None:
    assert client.do("unstake", "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == DONE
    assert client.states == ["refused", "committed"]


def test_bond_unbond_and_withdraw(client: Client, tmp_path: Path) -> None:
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


def test_an_answer_cannot_steer_the_terminal(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
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
