"""When a gateway lies to a payer, either nothing is signed or nothing is paid twice."""

from functools import partial
from typing import Any

import pytest

from spec_tests.client.gateway import lying
from spec_tests.client.user import DONE, MISUSED, REFUSED, UNKNOWN, Client
from spec_tests.domain.chain.net import BOB


def test_a_refusal_that_was_a_lie_is_noticed_before_paying_again(client: Client) -> None:
    def refuse(answer: dict[str, Any]) -> None:
        answer["result"].update(code=1, log="Insufficient available balance")

    client.gateway.fail("broadcast_tx_sync", lying(refuse))
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == UNKNOWN
    assert client.states == ["committed"]
    assert int(client.gateway.net.account(BOB)["total"]) == 4_000_000


def change(name: str, value: object) -> Any:
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
    client: Client, path: str, lie: Any, status: int
) -> None:
    assert client.do("status") == DONE
    client.gateway.fail(path, lying(lie), 2)
    assert client.do("infer", "Hello?") == status
    assert client.states == []


def test_a_lie_about_the_nonce_cannot_pay_twice(client: Client) -> None:
    assert client.do("transfer", BOB.key, "1") == DONE
    # A nonce from the past is refused, because this client has used it.
    client.gateway.fail("/api/account", lying(change("nonce", 0)), 2)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    # A nonce from the future is refused by the network, and the client remembers the payment.
    client.gateway.fail("/api/account", lying(change("nonce", 3)), 2)
    assert client.do("transfer", BOB.key, "1") == REFUSED
    assert client.do("transfer", BOB.key, "1") == UNKNOWN
    assert client.states == ["committed", "refused"]
    (entry, _) = client.json("outbox")[1]
    assert client.do("outbox", "forget", entry["application_id"]) == DONE
    assert client.do("transfer", BOB.key, "1") == DONE
    assert int(client.gateway.net.account(BOB)["total"]) == 5_000_000


def with_value(answer: dict[str, Any], value: str) -> None:
    answer["result"]["response"].update(value=value)


def test_a_value_that_is_not_base64_is_a_lie(client: Client) -> None:
    for value in ("é", "e30", "e30=é", "!!!!"):
        client.gateway.fail("abci_query", lying(partial(with_value, value=value)))
        status, answer = client.json("account")
        assert (status, answer["error"]) == (REFUSED, "/stake: the value is not JSON")


def test_an_answer_to_another_question_is_not_taken(client: Client) -> None:
    for name, value in (("owner", BOB.key), ("model_root", "0" * 64), ("output", {"text": "x"})):
        client.gateway.fail("/api/inference/request", lying(change(name, value)), 1000)
        status, answer = client.json("infer", "Hello?", "--wait", "0.1")
        assert (status, "error" in answer) == (UNKNOWN, True)
        client.gateway.rules.clear()
        assert client.do("outbox", "resume") == DONE
