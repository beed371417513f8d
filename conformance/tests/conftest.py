"""Fixtures: one toy for all tests of a session; each test begins with it as new, without hooks."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conformance import passive, session
from conformance.catalogue import SERVED, Effect, Level, load
from conformance.checks import clock, node_sanity, wallet
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging.hooks import Grpc, Http
from conformance.judging.mutants.rules import AGAIN
from conformance.judging.toy.answers import no_grpc_hook, no_http_hook, same_call, same_request
from conformance.judging.toy.node import EXPIRED, NATIVE_SETTINGS, SECOND, TOKEN
from conformance.judging.toy.serving import Serving, Toy
from conformance.run import Runner
from conformance.target import Target
from conformance.verdict import Outcome, Ruling

Judge = Callable[..., Run]
Noticed = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def seen_at_once() -> Iterator[None]:
    """Wait a moment for a transaction or another second: the toy shows both at once or never.

    Its clock is that of the suite, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "NEAR", timedelta(0))
        patch.setattr(wallet, "LISTED_WITHIN_S", 0.5)
        patch.setattr(node_sanity, "STANDS_STILL_S", 1.5)
        yield


@pytest.fixture(scope="session")
def served() -> Iterator[Serving]:
    """Serve the toy."""
    with Toy() as serving:
        yield serving


@pytest.fixture
def toy(served: Serving) -> Iterator[Serving]:
    """Yield the conforming toy as new, to which a test may add hooks."""
    served.node.reset()
    yield served
    served.node.http_hook = no_http_hook
    served.node.grpc_hook = no_grpc_hook
    served.node.rewrite = same_request
    served.node.rewrite_call = same_call


@pytest.fixture
def target(toy: Serving) -> Target:
    """Return the toy as a target that allows everything, with few generated inputs."""
    return Target(
        toy.url,
        profiles=SERVED,
        burst_s=0.2,
        **NATIVE_SETTINGS,
        grpc=toy.grpc,
        token=TOKEN,
        expired_token=EXPIRED,
        second_token=SECOND,
        allow=frozenset(Effect),
        budget=100,
        timeout_s=60,
        inference_timeout_s=60,
        examples=6,
        # What is new is judged too.
        edition=DRAFT,
    )


@pytest.fixture
def judge(target: Target) -> Judge:
    """Return a function that runs the suite against the toy: `judge("NA-SSE-002", timeout_s=1)`."""

    def run(*idents: str, **changes: Any) -> Run:
        return Runner(replace(target, **changes), only=idents).run()

    return run


class Until(Runner):
    """A run that ends with the first check that finds one requirement violated."""

    def __init__(self, target: Target, ident: str) -> None:
        super().__init__(target, only=[ident], first_violation=True)
        self.ident = ident

    def _violated(self) -> bool:
        failed = (item.requirement for item in self._findings if item.ruling is Ruling.FAILS)
        return self.ident in failed


@pytest.fixture
def noticed(toy: Serving, judge: Judge, target: Target) -> Noticed:
    """Return a function that requires that a mutant is noticed by its requirement.

    A MUST has to be the only one that fails, but for those that may go ``together`` with it; a
    SHOULD has to be reported without any MUST failing.
    """

    def check(ident: str, http: Http, grpc: Grpc, together: Collection[str] = ()) -> None:
        toy.node.http_hook, toy.node.grpc_hook = http, grpc
        toy.node.rewrite = getattr(http, "rewrite", same_request)
        if ident in passive.PROVES:
            # Every check shows it; the first that does is enough.
            run = Until(replace(target, examples=10), ident).run()
        else:
            run = judge(ident, examples=10)
        assert run.faults == {}
        result = next(item for item in run.results if item.requirement.id == ident)
        failed = {item.requirement.id for item in run.results if item.outcome is Outcome.FAIL}
        must = load()[ident].level is Level.MUST
        assert result.outcome is (Outcome.FAIL if must else Outcome.WARN), result
        assert failed - set(together) - (AGAIN - {ident}) == ({ident} if must else set())

    return check


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder, without tokens in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in session.ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
