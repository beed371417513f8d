"""Relations that only some states of a node show, each kept and each broken."""

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from conformance.catalogue import Profile
from conformance.checks.wallet import AMOUNT
from conformance.judging.hooks import on, put
from conformance.judging.toy.answers import Asked, Response, Sent
from conformance.judging.toy.node import COST, SECOND, TOKEN
from conformance.judging.toy.serving import Serving
from conformance.probe import probe
from conformance.target import Target
from conformance.tests.conftest import Judge
from conformance.verdict import Standing

PROOFS, INFERENCE = "/api/v1/proofs", "/api/v1/inference"
STAKE, BALANCE = "/api/v1/wallet/stake", "/api/v1/wallet/balance"
SEND = "/api/v1/wallet/send"


def standing(judge: Judge, ident: str, **changes: Any) -> Standing:
    run = judge(ident, **changes)
    assert run.faults == {}
    return next(item.standing for item in run.results if item.requirement.id == ident)


@pytest.fixture(autouse=True)
def fresh(toy: Serving) -> None:
    toy.node.reset()


class Charging:
    """Takes a number of units from the second account for each generation."""

    def __init__(self, toy: Serving, amount: float) -> None:
        self.toy, self.amount = toy, amount

    def __call__(self, asked: Asked, response: Response) -> None:
        """Charge a generation that was made."""
        if asked.path == INFERENCE and response.status == 200 and response.events is None:
            response.json["cost"]["amount"] = 0.5
            # The toy has taken its own price already.
            self.toy.node.tokens[SECOND].available -= self.amount - COST


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0.5, Standing.PROVED), (0.75, Standing.VIOLATED), (0.0, Standing.NOT_EXERCISED)],
)
def test_a_charge_is_not_above_its_cost(
    amount: float, expected: Standing, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = Charging(toy, amount)
    assert standing(judge, "NA-WALLET-023") is expected


@pytest.mark.parametrize(
    ("total", "expected"),
    [(0.2, Standing.PROVED), (0.1, Standing.PROVED), (0.3, Standing.VIOLATED)],
)
def test_all_rewards_are_not_above_their_sum(
    total: float, expected: Standing, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = on(PROOFS, put("stats.total_reward", total))
    assert standing(judge, "NA-SANE-024") is expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("multiplier", 1.1, Standing.PROVED),
        ("multiplier", 2.5, Standing.VIOLATED),
        ("unlock_date", "2031-01-01", Standing.VIOLATED),
    ],
)
def test_the_first_stake_is_in_the_balance_as_it_was_told(
    key: str, value: Any, expected: Standing, toy: Serving, judge: Judge
) -> None:
    def hook(asked: Asked, response: Response) -> None:
        # Nothing is staked before each try.
        if asked.path == STAKE and response.status == 200:
            response.json["stake"][key] = value

    toy.node.http_hook = hook
    # The first account has a stake already.
    assert standing(judge, "NA-WALLET-022", second_token=None) is Standing.NOT_EXERCISED
    toy.node.reset()
    assert standing(judge, "NA-WALLET-022") is expected


def test_without_a_second_account_nothing_excessive_is_unstaked(toy: Serving, judge: Judge) -> None:
    asked: list[Any] = []
    toy.node.http_hook = lambda sent, response: asked.append((sent.path, sent.body))
    assert standing(judge, "NA-WALLET-024", second_token=None) is Standing.NOT_EXERCISED
    assert not [body for path, body in asked if body and body.get("amount", 0) > 10_000
                and path.endswith("unstake")]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "expected"),
    [("0001...", Standing.PROVED), ("000102", Standing.PROVED), ("abc", Standing.VIOLATED)],
)
def test_an_identity_may_be_shortened(
    shown: str, expected: Standing, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = on("/api/training/global", put("local.node_id", shown))
    assert standing(judge, "TR-RULE-015") is expected


def short_default(asked: Asked, response: Response) -> None:
    """Generate three tokens where no maximum is named."""
    plain = asked.path == INFERENCE and response.status == 200 and response.events is None
    if plain and "max_tokens" not in asked.body:
        response.json["tokens_generated"] = 3


def miscounting(asked: Asked, response: Response) -> None:
    """Count one more token in the prompt of a stream."""
    if response.events:
        usage = response.events[-1]["usage"]
        usage.update(
            prompt_tokens=usage["prompt_tokens"] + 1, total_tokens=usage["total_tokens"] + 1
        )


class Uncounted:
    """Leaves streams, or their tokens, out of the metrics."""

    def __init__(self, key: str) -> None:
        self.key, self.left_out = key, 0

    def __call__(self, asked: Asked, response: Response) -> None:
        """Note what a stream adds, and take it away."""
        if response.events:
            tokens = self.key == "inference.tokens_generated"
            self.left_out += len(response.events) - 1 if tokens else 1
        if asked.path == "/api/v1/metrics" and response.status == 200:
            response.json["inference"][self.key.partition(".")[2]] -= self.left_out


@pytest.mark.parametrize(
    ("ident", "hook"),
    [
        ("NA-INF-035", short_default),
        ("NA-SSE-017", miscounting),
        ("NA-COUNT-004", Uncounted("inference.requests_total")),
        ("NA-COUNT-005", Uncounted("inference.tokens_generated")),
    ],
)
def test_a_stream_does_what_a_result_does(
    ident: str, hook: Any, toy: Serving, judge: Judge
) -> None:
    assert standing(judge, ident) is Standing.PROVED
    toy.node.http_hook = hook
    assert standing(judge, ident) is Standing.VIOLATED


def test_a_model_that_stops_anywhere_shows_no_default(toy: Serving, judge: Judge) -> None:
    made = count()

    def hook(asked: Asked, response: Response) -> None:
        if asked.path != INFERENCE or response.status != 200:
            return
        if response.events:
            response.events[-1]["usage"]["completion_tokens"] = next(made)
        else:
            response.json["tokens_generated"] = next(made)

    toy.node.http_hook = hook
    assert standing(judge, "NA-INF-035") is Standing.NOT_EXERCISED


def test_a_stream_that_ignores_stop_is_noticed(toy: Serving, judge: Judge) -> None:
    assert standing(judge, "NA-SSE-016") is Standing.PROVED

    def unstopped(sent: Sent) -> Sent:
        body = json.loads(sent.body) if sent.target == INFERENCE else {}
        if not body.get("stream"):
            return sent
        return replace(sent, body=json.dumps({**body, "stop": []}).encode())

    toy.node.rewrite = unstopped
    assert standing(judge, "NA-SSE-016") is Standing.VIOLATED


def test_a_responder_that_echoes_the_sender_is_noticed(toy: Serving, judge: Judge) -> None:
    toy.node.grpc_hook = lambda operation, request, answer: (
        {**answer, "responder": request.sender} if operation.startswith("DHT") else answer
    )
    assert standing(judge, "DH-001") is Standing.VIOLATED


def test_a_stream_may_leave_spaces_to_its_reader(toy: Serving, judge: Judge) -> None:
    def hook(asked: Asked, response: Response) -> None:
        for event in response.events or ():
            event["token"] = event["token"].strip()

    toy.node.http_hook = hook
    assert standing(judge, "NA-SSE-016") is Standing.PROVED


@pytest.mark.parametrize(
    ("gained", "expected"), [(0.0, Standing.PROVED), (AMOUNT, Standing.VIOLATED)]
)
def test_a_transfer_to_oneself_does_not_add_its_amount(
    gained: float, expected: Standing, toy: Serving, judge: Judge
) -> None:
    def hook(asked: Asked, response: Response) -> None:
        if asked.path == SEND and response.status == 200:
            toy.node.tokens[TOKEN].available += gained

    toy.node.http_hook = hook
    assert standing(judge, "NA-WALLET-025", edition=4) is expected


@pytest.mark.parametrize(
    ("lost", "expected"), [(0.0, Standing.PROVED), (AMOUNT, Standing.VIOLATED)]
)
def test_transfers_at_the_same_time_are_all_taken(
    lost: float, expected: Standing, toy: Serving, judge: Judge
) -> None:
    sent: list[Asked] = []

    def hook(asked: Asked, response: Response) -> None:
        if asked.path == SEND and response.status == 200:
            sent.append(asked)
            # The second of two writes back a balance that it read before the first.
            toy.node.tokens[TOKEN].available += lost if len(sent) % 4 == 0 else 0.0

    toy.node.http_hook = hook
    assert standing(judge, "NA-WALLET-026", edition=4) is expected


class Alike(dict[bytes, str]):
    """Takes keys that begin alike for one."""

    def get(self, key: bytes, default: Any = None) -> Any:
        """The value of any key with the same beginning."""
        return next((value for other, value in self.items() if other[:2] == key[:2]), default)


class Lowered(dict[bytes, str]):
    """Keeps values in small letters."""

    def __setitem__(self, key: bytes, value: str) -> None:
        super().__setitem__(key, value.lower())


@pytest.mark.parametrize(("kept", "ident"), [(Alike, "DH-007"), (Lowered, "DH-009")])
def test_keys_and_values_of_the_dht_are_kept_whole(
    kept: type[dict[bytes, str]], ident: str, toy: Serving, judge: Judge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert standing(judge, ident) is Standing.PROVED
    monkeypatch.setattr(toy.node.dht, "_stored", kept())
    assert standing(judge, ident) is Standing.VIOLATED


def test_a_search_for_a_value_lists_the_nodes_that_a_search_for_a_node_does(
    toy: Serving, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    closest, call = toy.node.dht._closest, toy.node.dht.call

    def elsewhere(operation: str, request: Any) -> Any:
        answer = call(operation, request)
        if operation == "DHTFindValue" and not answer["found"]:
            answer["nodes"] = closest(bytes(255 - byte for byte in request.key))
        return answer

    monkeypatch.setattr(toy.node.dht, "call", elsewhere)
    assert standing(judge, "DH-020") is Standing.VIOLATED


def test_a_node_that_spoils_all_bodies_is_judged_all_the_same(toy: Serving) -> None:
    def spoil(asked: Asked, response: Response) -> None:
        if response.json is not None:
            response.raw = b")]}',\n" + json.dumps(response.json).encode()
            response.json = None
            response.headers["Content-Type"] = "application/json"

    toy.node.http_hook = spoil
    assert Profile.NODE_API in probe(Target(url=toy.url)).profiles


def test_resources_in_an_envelope_are_found(toy: Serving) -> None:
    def wrap(asked: Asked, response: Response) -> None:
        if isinstance(response.json, dict):
            response.json = {"data": response.json}

    toy.node.http_hook = wrap
    assert Profile.NODE_API in probe(Target(url=toy.url)).profiles


class GoesOn:
    """A round that goes on with more steps than a later round would have."""

    def __init__(self) -> None:
        self.changed = False

    def __call__(self, asked: Asked, response: Response) -> None:
        """Show more steps than there are, once their number has been changed."""
        self.changed |= asked.method == "PATCH" and response.status == 200
        if asked.path == "/api/training/global" and self.changed:
            response.json["diloco"]["inner_step_count"] = 10**6


def test_a_round_may_have_more_steps_than_its_number_that_was_changed_meanwhile(
    toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = GoesOn()
    # The second of these reads the training again, after it has changed the configuration.
    run = judge("TR-RULE-013", "NA-ROUTE-018")
    assert run.faults == {}
    assert {item.standing for item in run.results if item.requirement.id == "TR-RULE-013"} == {
        Standing.PROVED
    }
