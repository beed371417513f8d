"""Gradients of passes from two senders: the suite's own node, and a second address beside it."""

from typing import Any

from conformance.ended import Run
from conformance.judging.toy import calls
from conformance.judging.toy.serving import Toy, toy_target
from conformance.peer.callback import listening
from conformance.run import Runner
from conformance.verdict import Standing

IDENT = "PL-BWD-009"


def judged(shard: calls.ToyShard | None = None) -> Run:
    with Toy() as served:
        served.node.pipeline = shard or served.node.pipeline
        target = toy_target(served)
        with listening(target, None) as peer:
            run = Runner(target, names={"back-to-each"}, peer=peer).run()
    assert run.faults == {}
    return run


def standing(run: Run) -> Standing:
    return next(item.standing for item in run.results if item.requirement.id == IDENT)


class ToTheLatest(calls.ToyShard):
    """Sends all gradients to where the latest pass came from."""

    latest = ""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation == "PipelineForward":
            self.latest = request.sender_url
        self._graphs = dict.fromkeys(self._graphs, self.latest)
        return super().call(operation, request, metadata)


class ToTheFirst(calls.ToyShard):
    """Sends gradients to the first sender alone, and those of others nowhere."""

    first = ""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        self.first = self.first or getattr(request, "sender_url", "")
        for key, url in self._graphs.items():
            self._graphs[key] = url if url == self.first else ""
        return super().call(operation, request, metadata)


class AllToTheFirst(ToTheFirst):
    """Sends all gradients to the first sender."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        self.first = self.first or getattr(request, "sender_url", "")
        self._graphs = dict.fromkeys(self._graphs, self.first)
        return calls.ToyShard.call(self, operation, request, metadata)


def test_gradients_that_all_go_to_the_first_sender_are_named() -> None:
    assert standing(judged(AllToTheFirst())) is Standing.VIOLATED


def test_gradients_that_go_back_to_each_sender_are_proved() -> None:
    assert standing(judged()) is Standing.PROVED


def test_gradients_that_go_to_the_latest_sender_are_named() -> None:
    assert standing(judged(ToTheLatest())) is Standing.VIOLATED


def test_a_node_may_send_nothing_to_an_address_that_it_does_not_know() -> None:
    assert standing(judged(ToTheFirst())) is Standing.PROVED
