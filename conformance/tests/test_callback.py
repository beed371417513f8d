"""What comes back to the suite in an ordinary run: it is judged, and nothing else is asked for."""

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from conformance import cli, messages
from conformance.catalogue import Profile
from conformance.compiled import grpc
from conformance.editions import DRAFT, FOURTH
from conformance.ended import Run
from conformance.judging.toy import calls
from conformance.judging.toy.answers import no_grpc_hook
from conformance.judging.toy.serving import Toy, toy_target
from conformance.peer.callback import listening
from conformance.run import Runner
from conformance.target import BadConfiguration, Target
from conformance.verdict import EXIT_CODES, Exit, Standing

CHECKS = {
    "peer-backward", "back-not-found", "back-unavailable", "back-own", "peer-gossip", "peer-watch",
}  # fmt: skip
# The source_shard of the suite's passes, as 64 bits.
NOBODY = 2**64 - 1
ELSEWHERE = "another command judges it"
# A busy machine may hold up an attempt that a node makes at once, which then looks like a pause.
TRIES = 3


class Insists(calls.ToyShard):
    """Answers once a gradient has been passed on, and tries three times at once."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        url = self._graphs.get((request.session_id, request.request_id), "")
        if operation != "PipelineBackward" or not url:
            return super().call(operation, request, metadata)
        for _ in range(3):
            try:
                calls.pass_on(url, request)
            except grpc.RpcError:
                continue
            return {"success": True}
        return {"success": False, "error_message": "the node before this one takes no gradients"}


class Halves(calls.ToyShard):
    """Names half of the shape of a gradient that it passes on."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation == "PipelineBackward":
            *outer, width = request.grad_shape
            request = messages.make(
                f"{operation}Request",
                session_id=request.session_id,
                request_id=request.request_id,
                grad_output=request.grad_output,
                grad_shape=[*outer, width // 2],
                target_shard=request.target_shard,
            )
        return super().call(operation, request, metadata)


class Flat(calls.ToyShard):
    """Leaves the sequences out of the shape of a gradient that it passes on."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation == "PipelineBackward":
            request = messages.parse(f"{operation}Request", request.SerializeToString())
            del request.grad_shape[0]
        return super().call(operation, request, metadata)


class Identity(calls.ToyShard):
    """Passes gradients on as they came."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation == "PipelineBackward":
            request.grad_output = request.grad_output[::-1]
        return super().call(operation, request, metadata)


class Misnumbers(calls.ToyShard):
    """Writes target_shard at a number that the message does not have."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation == "PipelineBackward":
            request = messages.parse(f"{operation}Request", request.SerializeToString())
            request.ClearField("target_shard")
            other = messages.encode_field(messages.WireField(6, messages.VARINT, NOBODY))
            request.MergeFromString(other)
        return super().call(operation, request, metadata)


class SeesNoSender(calls.ToyShard):
    """Keeps a pass for its labels, and does not know where it came from."""

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        if operation != "PipelineForward" or not request.training_labels:
            return super().call(operation, request, {})
        self._graphs[request.session_id, request.request_id] = ""
        same = {"hidden_states": request.hidden_states, "hidden_shape": request.hidden_shape}
        return {"request_id": request.request_id, "success": True, "loss": 2.5, **same}


class Returns(calls.ToyShard):
    """Passes gradients on itself, once `changed`; tries again after each of some statuses."""

    def __init__(self, again: str = "", pause_s: float = 0.05) -> None:
        super().__init__()
        self.again, self.pause_s = again, pause_s

    def changed(self, request: Any) -> Any:
        """Return what goes back."""
        return request

    def call(self, operation: str, request: Any, metadata: dict[str, str]) -> Any:
        key = (request.session_id, request.request_id)
        url = self._graphs.pop(key, None) if operation == "PipelineBackward" else None
        if url is None:
            return super().call(operation, request, metadata)
        threading.Thread(target=self._send, args=(url, self.changed(request))).start()
        return {"success": True}

    def _send(self, url: str, request: Any) -> None:
        for _ in range(3):
            try:
                if request is not None:
                    calls.pass_on(url, request)
            except grpc.RpcError as error:
                if error.code().name == self.again:
                    # It goes out as before.
                    request.grad_output = request.grad_output[::-1]
                    time.sleep(self.pause_s)
                    continue
            return


class Stale(Returns):
    """Sends the gradients of the pass before."""

    before = b""

    def changed(self, request: Any) -> Any:
        now, request.grad_output = request.grad_output, self.before or request.grad_output
        self.before = now
        return request


class Constant(Returns):
    """Sends gradients that are all alike."""

    def changed(self, request: Any) -> Any:
        request.grad_output = bytes(len(request.grad_output))
        return request


class ShortNames(Returns):
    """Cuts the names of passes."""

    def changed(self, request: Any) -> Any:
        request.request_id = request.request_id[:64]
        return request


class OncePerSession(Returns):
    """Sends back the first gradients of a session alone."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: set[str] = set()

    def changed(self, request: Any) -> Any:
        known = request.session_id in self.sessions
        self.sessions.add(request.session_id)
        return None if known else request


def judged(
    *,
    edition: int = DRAFT,
    sends_back: bool = True,
    shard: calls.ToyShard | None = None,
    names: Collection[str] = CHECKS,
) -> Run:
    with Toy() as served:
        served.node.pipeline = shard or served.node.pipeline
        target = replace(toy_target(served), edition=edition)
        target = replace(target, absent={Profile.PEER: ELSEWHERE})
        if not sends_back:
            # It takes each gradient as if it had been the first node.
            served.node.grpc_hook = lambda called, request, answer: (
                {"success": True} if called == "PipelineBackward" else answer
            )
            served.node.pipeline.call = lambda operation, request, metadata: (  # type: ignore[method-assign]
                {"success": True} if operation == "PipelineBackward"
                else type(served.node.pipeline)().call(operation, request, metadata)
            )  # fmt: skip
        with listening(target, None) as peer:
            run = Runner(target, names=names, peer=peer).run()
        served.node.grpc_hook = no_grpc_hook
    assert run.faults == {}
    return run


def clients(run: Run) -> dict[str, Standing]:
    return {
        item.requirement.id: item.standing
        for item in run.results
        if item.requirement.profile is Profile.PEER and item.requirement.check
    }


def test_gradients_that_come_back_are_judged_and_nothing_that_did_not_come() -> None:
    run = judged()
    found = clients(run)
    for ident in (
        "PL-BWD-002",
        "PL-BWD-004",
        "PL-BWD-005",
        "PL-BWD-014",
        "PL-BWD-020",
        "PL-BWD-021",
        "PL-BWD-022",
        "PL-BWD-023",
        "PL-BWD-024",
        "CL-CODE-007",
        "CL-MSG-002",
    ):
        assert found[ident] is Standing.PROVED, ident
    assert Standing.VIOLATED not in found.values()
    # A toy that calls nobody else is no client, and no share of its falls for that.
    assert Standing.NOT_EXERCISED not in found.values()
    apart = {item.requirement.id: item.reason for item in run.results}
    assert apart["CL-MSG-001"] == ELSEWHERE


def test_a_node_that_sends_nothing_back_is_named() -> None:
    assert clients(judged(sends_back=False))["PL-BWD-002"] is Standing.VIOLATED


def test_a_node_whose_gradients_are_those_that_came_is_named() -> None:
    found = {item.requirement.id: item.standing for item in judged(shard=Identity()).results}
    assert found["PL-BWD-014"] is Standing.VIOLATED


def test_a_node_that_writes_target_shard_at_another_number_is_named() -> None:
    assert clients(judged(shard=Misnumbers()))["CL-MSG-002"] is Standing.VIOLATED


def test_a_node_that_insists_is_named_although_it_refuses_what_the_suite_has_refused() -> None:
    found = clients(judged(shard=Insists()))
    assert found["CL-CODE-007"] is Standing.VIOLATED


def test_gradients_that_name_another_shape_than_that_of_their_pass_are_named() -> None:
    assert clients(judged(shard=Halves()))["PL-BWD-005"] is Standing.VIOLATED


def test_gradients_whose_shape_fits_one_sequence_only_are_named() -> None:
    assert clients(judged(shard=Flat()))["PL-BWD-005"] is Standing.VIOLATED


def test_a_node_that_keeps_passes_for_their_labels_is_named_if_it_sees_no_sender() -> None:
    assert clients(judged(shard=SeesNoSender()))["PL-BWD-002"] is Standing.VIOLATED


@pytest.mark.parametrize(
    ("ident", "shard"),
    [
        ("PL-BWD-020", Stale()),
        ("PL-BWD-021", Constant()),
        ("PL-BWD-022", ShortNames()),
        ("PL-BWD-023", OncePerSession()),
        ("PL-BWD-024", Returns(again="INVALID_ARGUMENT")),
        ("PL-BWD-025", Returns(again="RESOURCE_EXHAUSTED", pause_s=0.0)),
    ],
)
def test_gradients_of_others_or_sent_again_are_named(ident: str, shard: calls.ToyShard) -> None:
    names = {"back-own", "back-not-found"}
    found = (clients(judged(shard=shard, names=names))[ident] for _ in range(TRIES))
    assert Standing.VIOLATED in found


def test_older_editions_do_not_listen() -> None:
    assert set(clients(judged(edition=FOURTH - 1)).values()) == {Standing.NOT_APPLICABLE}


def test_the_suite_listens_where_the_node_is_or_where_it_is_told_to() -> None:
    near = Target("http://127.0.0.1:1", grpc="127.0.0.1:1001", edition=DRAFT)
    far = replace(near, url="http://192.0.2.1:8000")
    with listening(near, None) as peer:
        assert peer is not None
        assert peer.url.startswith("http://127.0.0.1:")
        assert not peer.setup.told
    with listening(far, None) as peer:
        assert peer is None
    with listening(replace(near, grpc=None), None) as peer:
        assert peer is None


@pytest.mark.parametrize("address", ["nowhere", ":80", "127.0.0.1:65000", "127.0.0.1:0"])
def test_an_address_to_listen_at_that_is_none_is_refused(address: str) -> None:
    target = Target("http://127.0.0.1:1", grpc="127.0.0.1:1001", edition=DRAFT)
    with pytest.raises(BadConfiguration, match="--listen"), listening(target, address):
        pass


def test_the_option_reaches_the_listener(capsys: pytest.CaptureFixture[str]) -> None:
    with Toy() as served:
        options = ["--listen", "nowhere", "GEN-001"]
        assert cli.main(["run", served.url, *options]) == EXIT_CODES[Exit.CONFIGURATION]
    assert "--listen: 'nowhere' is not HOST:PORT" in capsys.readouterr().err
