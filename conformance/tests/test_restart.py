"""What a node says after a restart that the operator's command makes."""

import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.catalogue import Effect
from conformance.checks import restart
from conformance.ended import Run
from conformance.judging.hooks import CONFIG
from conformance.judging.toy.answers import Asked, Response
from conformance.judging.toy.node import ToyNode
from conformance.judging.toy.serving import Serving
from conformance.target import BadConfiguration, make_target
from conformance.tests.conftest import Judge
from conformance.verdict import Outcome, Standing

IDS = ("NA-PATCH-111", "NA-PATCH-112", "ST-009", "NA-SANE-022", "NA-WALLET-021")
RESTART = "/restart-of-the-test"
Forget = Callable[[ToyNode], object]


class Restarting:
    """Restarts the toy when the command asks for it, and lets it forget something."""

    def __init__(
        self, node: ToyNode, forget: Forget, *, needs: bool = True, ends: bool = True
    ) -> None:
        self.node, self.forget, self.needs, self.ends = node, forget, needs, ends
        self.original = {section: dict(inner) for section, inner in node.config.items()
                         if isinstance(inner, dict)}  # fmt: skip

    def __call__(self, asked: Asked, response: Response) -> None:
        """Restart, or say that a change needs it."""
        if asked.path == RESTART:
            response.status = 200
            if self.ends:
                self.node.began = time.monotonic()
            self.forget(self.node)
        if (asked.method, asked.path, response.status) == ("PATCH", CONFIG, 200):
            response.json["restart_required"] = self.needs


def command(toy: Serving) -> str:
    ask = f"import urllib.request as u; u.urlopen({toy.url + RESTART!r}, data=b'')"
    return shlex.join([sys.executable, "-c", ask])


def judged(toy: Serving, judge: Judge, forget: Forget, **how: Any) -> Run:
    # As if it had run for an hour.
    toy.node.began = time.monotonic() - 3600
    toy.node.http_hook = Restarting(toy.node, forget, **how)
    run = judge(*IDS, restart_command=command(toy))
    assert run.faults == {}
    return run


def outcomes(run: Run) -> dict[str, Outcome]:
    return {item.requirement.id: item.outcome for item in run.results if
            item.requirement.id in IDS}  # fmt: skip


def unchanged(node: ToyNode) -> None:
    """Forget nothing."""


def without_changes(node: ToyNode) -> None:
    hook = node.http_hook
    assert isinstance(hook, Restarting)
    for section, inner in hook.original.items():
        node.config[section] = dict(inner)


def without_stake(node: ToyNode) -> None:
    for account in node.tokens.values():
        account.staked = 0.0


def without_history(node: ToyNode) -> None:
    for account in node.tokens.values():
        account.history.clear()


@pytest.fixture(autouse=True)
def fresh(toy: Serving) -> None:
    toy.node.reset()
    account = next(iter(toy.node.tokens.values()))
    account.history.insert(0, {"id": "h", "type": "send", "amount": -0.5, "to": "somebody",
                               "timestamp": toy.node.started})  # fmt: skip


def test_what_a_node_keeps_is_proved(toy: Serving, judge: Judge) -> None:
    run = judged(toy, judge, unchanged)
    found = outcomes(run)
    assert {ident for ident in IDS if found[ident] is Outcome.PASS} == set(IDS) - {"NA-PATCH-112"}
    assert run.residue == []


@pytest.mark.parametrize(
    ("forget", "needs", "expected"),
    [
        (without_changes, True, {"NA-PATCH-111": Outcome.FAIL}),
        (without_changes, False, {"NA-PATCH-112": Outcome.WARN}),
        (without_stake, True, {"ST-009": Outcome.WARN}),
        (without_history, True, {"NA-WALLET-021": Outcome.WARN}),
        (lambda node: node.config.update(node_id="another"), True, {"NA-SANE-022": Outcome.WARN}),
    ],
)
def test_what_a_node_forgets_is_noticed(
    forget: Forget, needs: bool, expected: dict[str, Outcome], toy: Serving, judge: Judge
) -> None:
    found = outcomes(judged(toy, judge, forget, needs=needs))
    assert {i: o for i, o in found.items() if o in (Outcome.FAIL, Outcome.WARN)} == expected


def test_a_node_that_goes_on_proves_nothing(
    toy: Serving, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "READY_S", 0.1)
    run = judged(toy, judge, without_changes, ends=False)
    result = next(item for item in run.results if item.requirement.id == "NA-PATCH-111")
    assert result.standing is Standing.NOT_EXERCISED
    assert "has not restarted" in result.reason


@pytest.mark.parametrize("words", [f"{sys.executable} -c 'exit(3)'", "/no/such/program"])
def test_a_command_that_fails_proves_nothing(words: str, toy: Serving, judge: Judge) -> None:
    run = judge(*IDS, restart_command=words)
    assert run.faults == {}
    assert Standing.VIOLATED not in {item.standing for item in run.results}
    reason = next(item.reason for item in run.results if item.requirement.id == "ST-009")
    assert reason.startswith("the restart command ")


def test_nothing_is_restarted_without_being_allowed(toy: Serving, judge: Judge) -> None:
    asked: list[str] = []
    toy.node.http_hook = lambda sent, response: asked.append(sent.path)
    judge(*IDS, restart_command=command(toy), allow=frozenset(Effect) - {Effect.INTRUSIVE})
    judge(*IDS, restart_command=None)
    assert RESTART not in asked


def test_nothing_is_changed_without_being_allowed(toy: Serving, judge: Judge) -> None:
    methods: list[str] = []
    toy.node.http_hook = lambda sent, response: methods.append(sent.method)
    judge(*IDS, restart_command="true", allow=frozenset({Effect.INTRUSIVE}))
    assert "PATCH" not in methods


@pytest.mark.parametrize("words", ["", "'unfinished"])
def test_a_command_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(BadConfiguration, match="restart_command"):
        make_target({"url": "http://127.0.0.1:1", "restart_command": words})
