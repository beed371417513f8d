"""What the document leaves open is allowed: on a peculiar target no MUST fails or stays open.

A node has several peculiarities at once, so that there are few runs; each of them alone is a run of
``nox -s deep``.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.catalogue import Profile
from conformance.checks import gossip
from conformance.judging.hooks import Grpc, Http
from conformance.judging.peculiarities import GRPC_VARIANTS, ROWS, VARIANTS
from conformance.judging.toy.answers import (
    Asked,
    Response,
    Sent,
    no_grpc_hook,
    same_request,
)
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome

# More than libraries take by themselves; a whole run of the toy sends what the document asks for.
LARGE_BYTES = 5 * 1024 * 1024
HTTP = frozenset({Profile.NODE_API, Profile.TRAINING, Profile.NATIVE_API})
GRPC = frozenset({Profile.GRPC, Profile.DHT, Profile.PIPELINE})
# So many of the runs are not slow tests.
QUICK = 3


class Together:
    """Several peculiarities of the HTTP answers of one node."""

    def __init__(self, hooks: list[Http]) -> None:
        self.hooks = hooks

    def __call__(self, asked: Asked, response: Response) -> None:
        """Change an answer in all ways."""
        for hook in self.hooks:
            hook(asked, response)

    def rewrite(self, sent: Sent) -> Sent:
        """Change a request in all ways."""
        for hook in self.hooks:
            sent = getattr(hook, "rewrite", same_request)(sent)
        return sent


def groups() -> Iterator[tuple[str, Http, Grpc]]:
    """Yield several peculiarities of HTTP, unlike one another, with each one of gRPC."""
    names = list(VARIANTS)
    for at, (name, hook) in enumerate(GRPC_VARIANTS.items()):
        chosen = names[at :: len(GRPC_VARIANTS)]
        yield ", ".join([name, *chosen]), Together([VARIANTS[one] for one in chosen]), hook


def params(rows: list[tuple[str, Http, Grpc]], quick: int, mark: Any) -> list[Any]:
    """Return the rows as parameters, marked but for the first ones."""
    return [
        pytest.param(http, grpc, id=name.replace(" ", "-"), marks=() if at < quick else mark)
        for at, (name, http, grpc) in enumerate(rows)
    ]


def shown_by(grpc: Grpc) -> frozenset[Profile]:
    """Return the profiles that show a peculiarity; one of gRPC may need an odd answer of HTTP."""
    return HTTP if grpc is no_grpc_hook else GRPC


@pytest.fixture(autouse=True, scope="module")
def small_messages() -> Iterator[None]:
    """Gossip a smaller gradient: a hundred of 99 MiB would take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "NEARLY_BYTES", LARGE_BYTES)
        yield


@pytest.fixture
def judge_odd(toy: Serving, judge: Judge) -> Any:
    """Judge the toy with hooks: nothing is blamed, and nothing that is a MUST stays open."""

    def run(http: Http, grpc: Grpc, profiles: frozenset[Profile]) -> None:
        toy.node.http_hook, toy.node.grpc_hook = http, grpc
        toy.node.rewrite = getattr(http, "rewrite", same_request)
        run = judge(examples=3, profiles=profiles)
        assert run.faults == {}
        blamed = {
            item.requirement.id: item.reason
            for item in run.results
            if item.outcome is Outcome.FAIL
            or (item.outcome is Outcome.OPEN and item.requirement.level.value == "MUST")
        }
        assert blamed == {}

    return run


@pytest.mark.parametrize(("http", "grpc"), params([*groups()], QUICK, pytest.mark.slow))
def test_an_odd_target_stays_green(http: Http, grpc: Grpc, judge_odd: Any) -> None:
    judge_odd(http, grpc, HTTP | GRPC)


SINGLE = [row for row in ROWS if row[0] not in {*VARIANTS, *GRPC_VARIANTS}]


@pytest.mark.parametrize(("http", "grpc"), params(SINGLE, 0, pytest.mark.slow))
def test_a_peculiarity_that_fits_no_other_stays_green(
    http: Http, grpc: Grpc, judge_odd: Any
) -> None:
    judge_odd(http, grpc, shown_by(grpc))


@pytest.mark.parametrize(("http", "grpc"), params(ROWS, 0, pytest.mark.long))
def test_each_peculiarity_stays_green(http: Http, grpc: Grpc, judge_odd: Any) -> None:
    judge_odd(http, grpc, shown_by(grpc))


def test_there_are_at_least_50_variants() -> None:
    assert len(ROWS) >= 50
