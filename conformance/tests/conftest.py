"""Fixtures: one toy for all tests of a session, without a hook at the start of each."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import cli
from conformance.catalogue import Effect, Profile
from conformance.run import Run, Runner
from conformance.target import Target
from conformance.tests.toy import (
    EXPIRED,
    NATIVE_SETTINGS,
    TOKEN,
    no_grpc_hook,
    no_http_hook,
)
from conformance.tests.toy_serving import Serving, Toy

Judge = Callable[..., Run]


@pytest.fixture(scope="session")
def served() -> Iterator[Serving]:
    """Serve the toy."""
    with Toy() as serving:
        yield serving


@pytest.fixture
def toy(served: Serving) -> Iterator[Serving]:
    """Give the toy as it conforms; a test may hang hooks into it."""
    yield served
    served.node.http_hook = no_http_hook
    served.node.grpc_hook = no_grpc_hook


@pytest.fixture
def target(toy: Serving) -> Target:
    """Give the toy as a target that allows everything, with few generated inputs."""
    return Target(
        toy.url,
        profiles=frozenset(Profile),
        burst_s=0.2,
        **NATIVE_SETTINGS,
        grpc=toy.grpc,
        token=TOKEN,
        expired_token=EXPIRED,
        allow=frozenset(Effect),
        budget=100,
        timeout_s=60,
        inference_timeout_s=60,
        examples=6,
    )


@pytest.fixture
def judge(target: Target) -> Judge:
    """Give a function that runs the suite against the toy: `judge("NA-SSE-002", timeout_s=1)`."""

    def run(*idents: str, **changes: object) -> Run:
        return Runner(replace(target, **changes), only=idents).run()  # type: ignore[arg-type]

    return run


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder, with no token in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in cli.ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
