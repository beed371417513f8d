"""Any content of a work message, and any answer of a gateway, is at worst refused."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.envelope import open_envelope, sign_envelope
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.chain.records import Lease
from meshnode.domain.errors import MeshnodeError
from meshnode.domain.work import (
    OPERATIONS,
    WINDOW_S,
    ForeignMessage,
    WorkNetwork,
    check_assignment,
    job_id,
)
from meshnode.services.work.sponsor import Sponsor
from meshnode.services.work.training_worker import StageJournal, TrainingWorker
from spec_tests.domain.chain.net import ALICE
from spec_tests.services.work.models_chain import FIRST, SECOND, node_key, shared_execution

NETWORK = WorkNetwork("test/work", "test-chain")
NOW = 1_800_000_000.5

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8)
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
names = st.sampled_from(["stage", "job_id", "result", "time", "kind", "request", "worker"])
fields = st.dictionaries(names, values | st.sampled_from([0, 1]), max_size=4)


@given(kind=st.sampled_from(["poll", "result"]), changes=fields, whole=values, raw=st.booleans())
def test_any_message_to_a_sponsor(kind: str, changes: Any, whole: Any, raw: bool) -> None:
    async def tell() -> None:
        sponsor = Sponsor(shared_execution(), node_key(ALICE), NETWORK, clock=lambda: NOW)
        body = {**NETWORK.body(kind, NOW), **changes}
        message = whole if raw else sign_envelope(body, FIRST.seed)
        for hear in (sponsor.poll, sponsor.result):
            try:
                answer = await hear(message)
            except Rejected:
                continue
            assert answer == {"assignment": None}

    trio.run(tell)


LEASE = Lease("ab" * 32, ALICE.key, (FIRST.key, SECOND.key), "cd" * 32, 0, 1, 99)


@given(result=values, receipt=values, right_names=st.booleans(), stage=st.sampled_from([0, 1]))
def test_any_result_of_an_operation(
    result: Any, receipt: Any, right_names: bool, stage: int
) -> None:
    """Any result that a replay does not give is refused."""

    async def tell() -> None:
        sponsor = Sponsor(shared_execution(), node_key(ALICE), NETWORK, clock=lambda: NOW)
        lease = Lease(
            LEASE.task_id,
            LEASE.owner,
            LEASE.workers,
            shared_execution().genesis_facts().model_root,
            0,
            1,
            99,
        )
        worker = (FIRST, SECOND)[stage]
        async with trio.open_nursery() as nursery:
            operation: dict[str, Any] = {"operation": OPERATIONS[stage]}
            nursery.start_soon(sponsor.compute, lease, stage, operation)
            await trio.testing.wait_all_tasks_blocked()
            poll = sign_envelope(NETWORK.body("poll", NOW, stage=stage), worker.seed)
            assignment: Any = (await sponsor.poll(poll))["assignment"]
            data = "activation" if stage == 0 else "weights"
            signed = sign_envelope({"body": receipt}, worker.seed)
            sent = {data: result, "receipt": signed} if right_names else result
            body = NETWORK.body("result", NOW, job_id=digest(assignment["body"]), result=sent)
            with pytest.raises(Rejected):
                await sponsor.result(sign_envelope(body, worker.seed))
            nursery.cancel_scope.cancel()

    trio.run(tell)


class Answers:
    """A gateway that returns the answers it was made with."""

    def __init__(self, poll: Any, task: Any, summary: Any) -> None:
        self._poll = poll
        self._queries = {"/task": task, "/summary": summary}

    def post(self, path: str, value: Json) -> dict[str, Any]:
        assert path == "/work/poll", "nothing was to be returned"
        return {"assignment": self._poll}

    def query(self, path: str) -> Any:
        return self._queries[path]


objects = st.dictionaries(
    st.sampled_from(["lease", "chain_id", "round", "model_root", "input_ids", "weights", "height"]),
    values | st.sampled_from(["test-chain", {"owner": ALICE.key, "workers": [FIRST.key]}]),
)


@given(task=objects, summary=objects, changes=fields, offered=values, signed=st.booleans())
def test_any_answer_to_a_worker(
    task: Any, summary: Any, changes: Any, offered: Any, signed: bool
) -> None:
    body = {**NETWORK.body("assignment", NOW, worker=FIRST.key, stage=0), **changes}
    assignment = sign_envelope(body, ALICE.seed) if signed else offered
    with tempfile.TemporaryDirectory() as folder:
        worker = TrainingWorker(
            Answers(assignment, task, {**summary, "lease": task.get("lease")}),
            shared_execution(),
            node_key(FIRST),
            0,
            NETWORK,
            StageJournal(Path(folder), 0),
            clock=lambda: NOW,
        )
        try:
            assert worker.work_once() is None
        except MeshnodeError:
            assert not list(Path(folder).iterdir())


@given(st.integers(-3 * WINDOW_S, 3 * WINDOW_S))
def test_messages_are_good_for_a_minute_either_way(late: int) -> None:
    message = sign_envelope(NETWORK.body("poll", NOW), FIRST.seed)
    if abs(late) <= WINDOW_S:
        assert NETWORK.open(message, "poll", NOW + late).signer == FIRST.key
    else:
        with pytest.raises(ForeignMessage):
            NETWORK.open(message, "poll", NOW + late)


def test_a_job_is_named_by_its_assignment() -> None:
    body = NETWORK.body("assignment", NOW, worker=FIRST.key, stage=0, request={})
    assert job_id(open_envelope(sign_envelope(body, ALICE.seed))) == digest(body)


def test_the_right_assignment_is_accepted() -> None:
    lease = {
        "task_id": "ab" * 32,
        "owner": ALICE.key,
        "workers": [FIRST.key, SECOND.key],
        "round": 0,
        "parent": "cd" * 32,
        "expires": 9,
    }
    common: dict[str, Any] = {"input_ids": [1, 2], "weights": {"a": 1}}
    task = {**common, "lease": lease, "round": 0, "model_root": "cd" * 32}
    request = {**common, "task_id": "ab" * 32, "operation": "update", "activation": {}}
    body = NETWORK.body("assignment", NOW, worker=SECOND.key, stage=1, request=request)
    assignment = open_envelope(sign_envelope(body, ALICE.seed))
    check = partial(check_assignment, assignment, SECOND.key, 1)
    assert check(task, 9) == request
    for changed, height in (
        (task, 10),
        ({**task, "lease": {**lease, "owner": FIRST.key}}, 9),
        ({**task, "lease": {**lease, "round": 1}}, 9),
        ({**task, "lease": {**lease, "parent": "00" * 32}}, 9),
    ):
        with pytest.raises(Rejected):
            check(changed, height)
