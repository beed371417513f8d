"""Several requests on one connection, a token that gets 401 in between, and drawn keys."""

import random
from collections.abc import Iterator

import pytest

from conformance.checks.mixed_keys import CURVES, EDWARDS, TWIST, draw_edwards, draw_point
from conformance.commands import curl, in_turn
from conformance.httprequest import ANONYMOUS
from conformance.httpwire import HttpClient
from conformance.journal import Journal
from conformance.judging.mutants.mixed_native import RefusedAfter
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.serving import Serving
from conformance.secrecy import Redactor
from conformance.target import Target
from conformance.tests.conftest import Judge
from conformance.tests.test_lines_to_paste import has_curl, reproduced
from conformance.verdict import Standing

CONFIG, STATUS = "/api/v1/config", "/api/v1/status"


@pytest.fixture
def client(toy: Serving) -> Iterator[HttpClient]:
    journal = Journal(Redactor({}))
    yield HttpClient(toy.url, journal, timeout_s=5, max_wait_s=5)
    journal.close()


class Connections:
    """Remembers on which connection each request came, and may end or refuse some."""

    def __init__(self, limited: int = 0) -> None:
        """Answer the request with this number with 429."""
        self.seen: list[int] = []
        self.limited = limited

    def __call__(self, asked: Asked, response: Response) -> None:
        self.seen.append(asked.connection)
        if len(self.seen) == self.limited:
            response.status = 429


def test_requests_come_on_one_connection(toy: Serving, client: HttpClient, target: Target) -> None:
    toy.node.http_hook = connections = Connections()
    asked = [("GET", CONFIG, target.valid, None), ("GET", CONFIG, ANONYMOUS, None)] * 2
    answers = client.kept(asked)
    assert [answer.status for answer in answers] == [200, 401, 200, 401]
    assert len(set(connections.seen)) == 1
    client.call("GET", STATUS)
    assert len(set(connections.seen)) == 2


def test_a_target_that_ends_the_connection_gives_fewer_answers(
    toy: Serving, client: HttpClient
) -> None:
    def ends(asked: Asked, response: Response) -> None:
        response.headers = {"Connection": "close"}

    toy.node.http_hook = ends
    answers = client.kept([("GET", STATUS, ANONYMOUS, None)] * 3)
    assert [answer.status for answer in answers] == [200]


def test_a_connection_is_given_up_where_the_target_asks_to_wait(
    toy: Serving, client: HttpClient
) -> None:
    toy.node.http_hook = Connections(limited=2)
    assert len(client.kept([("GET", STATUS, ANONYMOUS, None)] * 3)) == 1


def test_commands_in_turn_are_one_command() -> None:
    commands = [curl("GET", f"http://n/{name}", None, None, None) for name in "ab"]
    assert in_turn(commands) == "curl -sS -i -N http://n/a --next -sS -i -N http://n/b"


@pytest.mark.skipif(not has_curl(), reason="there is no curl here")
def test_the_line_of_a_later_request_sends_those_before_it_on_one_connection(
    toy: Serving, client: HttpClient
) -> None:
    answers = client.kept([("GET", STATUS, ANONYMOUS, None), ("POST", CONFIG, ANONYMOUS, {})])
    toy.node.http_hook = connections = Connections()
    reproduced(answers[-1].exchange.reproduce)
    assert len(connections.seen) == 2
    assert len(set(connections.seen)) == 1


def test_a_token_that_gets_401_in_between_is_seen_whichever_check_runs(
    toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook = RefusedAfter(402)
    run = judge("NA-ERR-023", "NA-WALLET-037")
    found = next(item for item in run.results if item.requirement.id == "NA-AUTH-022")
    assert found.standing is Standing.VIOLATED
    assert "is served again" in found.findings[0].message


def test_a_token_that_is_refused_from_some_moment_on_has_expired(
    toy: Serving, judge: Judge
) -> None:
    class Expiring(Connections):
        def __call__(self, asked: Asked, response: Response) -> None:
            super().__call__(asked, response)
            if len(self.seen) > 5 and asked.authorized:
                response.status = 401

    toy.node.http_hook = Expiring()
    run = judge("NA-ERR-023")
    found = next(item for item in run.results if item.requirement.id == "NA-AUTH-022")
    assert found.standing is not Standing.VIOLATED


def test_a_drawn_point_is_on_both_curves() -> None:
    x = int(draw_point(random.Random(1)), 16)
    for prime, a, b in CURVES:
        assert x < prime
        assert pow(x**3 + a * x + b, (prime - 1) // 2, prime) == 1


def test_a_drawn_key_of_ed25519_is_on_the_curve() -> None:
    y = int.from_bytes(bytes.fromhex(draw_edwards(random.Random(1))), "little")
    square = (y * y - 1) * pow(TWIST * y * y + 1, -1, EDWARDS)
    assert y < EDWARDS
    assert pow(square, (EDWARDS - 1) // 2, EDWARDS) == 1
