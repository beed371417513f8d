"""What the document leaves open is allowed: on a peculiar target no MUST fails or stays open."""

from collections.abc import Iterator

import pytest

from conformance.catalogue import Profile
from conformance.checks import gossip
from conformance.judging.hooks import Grpc, Http
from conformance.judging.peculiarities import ROWS
from conformance.judging.toy.answers import no_grpc_hook, same_request
from conformance.judging.toy.serving import Serving
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome

# More than libraries take by themselves; a whole run of the toy sends what the document asks for.
LARGE_BYTES = 5 * 1024 * 1024


@pytest.fixture(autouse=True, scope="module")
def small_messages() -> Iterator[None]:
    """Gossip a smaller gradient: a hundred of 99 MiB would take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "NEARLY_BYTES", LARGE_BYTES)
        yield


@pytest.mark.parametrize(
    ("http_hook", "grpc_hook"),
    [
        # Each is a whole run, so most of them wait for the slow tests.
        pytest.param(
            *hooks, id=name.replace(" ", "-"), marks=() if n % 5 == 0 else pytest.mark.slow
        )
        for n, (name, *hooks) in enumerate(ROWS)
    ],
)
def test_an_odd_target_stays_green(
    http_hook: Http, grpc_hook: Grpc, toy: Serving, judge: Judge
) -> None:
    toy.node.http_hook, toy.node.grpc_hook = http_hook, grpc_hook
    toy.node.rewrite = getattr(http_hook, "rewrite", same_request)
    http = {Profile.NODE_API, Profile.TRAINING, Profile.NATIVE_API}
    grpc = {Profile.GRPC, Profile.DHT, Profile.PIPELINE}
    run = judge(examples=3, profiles=frozenset(http if grpc_hook is no_grpc_hook else grpc))
    assert run.faults == {}
    blamed = {
        item.requirement.id: item.reason
        for item in run.results
        if item.outcome is Outcome.FAIL
        or (item.outcome is Outcome.OPEN and item.requirement.level.value == "MUST")
    }
    assert blamed == {}


def test_there_are_at_least_50_variants() -> None:
    assert len(ROWS) >= 50
