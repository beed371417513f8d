"""Sponsored training by two workers in two stages: pay, refusals, retries and interruptions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import Rejected
from meshnode.domain.errors import StartupError
from meshnode.domain.work import (
    ForeignMessage,
    ForeignTask,
    NoAssignment,
    NotLeased,
)
from meshnode.services.work.training_worker import AssignmentChanged, Interrupted, StageJournal
from spec_tests.domain.chain.net import ALICE, BOB
from spec_tests.services.ledger.ledgers import LedgerSource, eventually, running_ledger, until
from spec_tests.services.work.leases import leased, round_reached, signed
from spec_tests.services.work.models_chain import (
    FIRST,
    SECOND,
    DirectGateway,
    ask,
    fresh_execution,
    hurry,
    make_worker,
    running_chain,
    shared_execution,
    sponsoring,
    work,
    work_until_done,
)


async def test_two_workers_train_and_the_chain_pays(tmp_path: Path) -> None:
    execution = shared_execution()
    async with (
        running_chain(tmp_path / "chain", execution) as ledger,
        sponsoring(ledger, tmp_path / "sponsor", tasks=2) as sponsor,
    ):
        before = (await ask(ledger, "/account", public_key=ALICE.key))["balance"]
        gateway = DirectGateway(ledger, sponsor)
        workers = [
            make_worker(gateway, FIRST, 0, tmp_path / "first", ledger),
            make_worker(gateway, SECOND, 1, tmp_path / "second", ledger),
        ]
        served = float.fromhex((await ask(ledger, "/summary"))["serving_loss_hex"])
        for number in (1, 2):
            await work_until_done(*workers)
            summary = await round_reached(ledger, number)
            evaluation = summary["last_training_evaluation"]
            loss = float.fromhex(evaluation["validation_loss_hex"])
            assert evaluation["promoted"] is (loss < served)
            assert (summary["serving_root"] == summary["model_root"]) is (loss < served)
            served = min(served, loss)
            assert execution.checkpoint(summary["model_root"])
        await eventually(lambda: sponsor.status()["active_operations"] == 0)
        status = sponsor.status()
        assert (status["sponsor"], status["remaining_tasks"]) == (ALICE.key, 0)
        # Each worker gets half of 800,000 for each of the two rounds. The sponsor pays the fees,
        # and also earns the validator's share, because it is the validator.
        for who in (FIRST, SECOND):
            assert (await ask(ledger, "/account", public_key=who.key))["balance"] == 800_000
        await hurry(ledger)
        after = (await ask(ledger, "/account", public_key=ALICE.key))["balance"]
        assert after == before - 4 * 1000 + 2 * 200_000
        # The budget is used up: workers may go on polling, but no task is reserved.
        for worker in workers:
            assert await work(worker) is None
        await hurry(ledger, 2)
        assert (await ask(ledger, "/summary"))["lease"] is None


async def test_another_node_replays_it_from_genesis(tmp_path: Path) -> None:
    """A follower that starts with only the model reaches the same state, block by block."""
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor") as sponsor,
    ):
        gateway = await leased(ledger, sponsor, tmp_path / "w")
        for stage, who in enumerate((FIRST, SECOND)):
            await work_until_done(make_worker(gateway, who, stage, tmp_path / "w", ledger))
        root = (await round_reached(ledger, 1))["model_root"]
        await hurry(ledger)
        fresh = fresh_execution(tmp_path / "fresh")
        async with running_ledger(
            tmp_path / "follower",
            None,
            LedgerSource(ledger),
            document=ledger.genesis_bytes,
            model=fresh,
        ) as follower:
            await until(follower, ledger.height)
            # On the way, the follower has compared its state root with that of every header.
            summary = await ask(follower, "/summary")
            assert (summary["round"], summary["model_root"]) == (1, root)
            assert fresh.checkpoint(root) == shared_execution().checkpoint(root)


async def test_a_sponsor_that_restarts_goes_on_with_its_lease(tmp_path: Path) -> None:
    folder = tmp_path / "sponsor"
    async with running_chain(tmp_path / "chain", shared_execution()) as ledger:
        async with sponsoring(ledger, folder) as sponsor:
            gateway = await leased(ledger, sponsor, tmp_path / "w")
            first = make_worker(gateway, FIRST, 0, tmp_path / "w", ledger)
            task = await work_until_done(first)
        lease = (await ask(ledger, "/summary"))["lease"]
        async with sponsoring(ledger, folder) as sponsor:
            assert sponsor.status()["remaining_tasks"] == 0
            gateway.sponsor = sponsor
            # The sponsor lost the first stage's result with its memory; the worker's journal has
            # it.
            assert await work_until_done(first) == task == lease["task_id"]
            second = make_worker(gateway, SECOND, 1, tmp_path / "w", ledger)
            assert await work_until_done(second) == task
            await round_reached(ledger, 1)


async def test_a_lease_runs_out_and_the_sponsor_goes_on(tmp_path: Path) -> None:
    async with running_chain(tmp_path / "chain", shared_execution()) as ledger:
        async with sponsoring(ledger, tmp_path / "sponsor", tasks=1) as sponsor:
            await leased(ledger, sponsor, tmp_path / "w")
            lease = (await ask(ledger, "/summary"))["lease"]
            burned = (await ask(ledger, "/summary"))["burned"]
            await hurry(ledger, lease["expires"] - ledger.height + 1)
            await eventually(lambda: sponsor.status()["active_operations"] == 0)
            summary = await ask(ledger, "/summary")
            assert summary["lease"] is None
            assert summary["burned"] >= burned + 2_000_000
            assert sponsor.status()["workers_by_stage"] == [0, 0]
        with pytest.raises(NoAssignment):
            await sponsor.result(signed(ledger, FIRST, "result", job_id="0" * 64, result={}))


Bend = Callable[[str, Any], Any]


def _assignment(change: Callable[[dict[str, Any]], Any], seed: str) -> Bend:
    """Return a ``Bend`` that changes the sponsor's assignment and signs it again."""

    def bend(path: str, value: Any) -> Any:
        if path == "/work/poll" and value["assignment"] is not None:
            body = json.loads(json.dumps(value["assignment"]["body"]))
            change(body)
            return {"assignment": sign_envelope(body, seed)}
        return value

    return bend


def _chain(**changes: Any) -> Bend:
    return lambda path, value: {**value, **changes} if path == "/task" else value


@pytest.mark.parametrize(
    ("bend", "refusal"),
    [
        (_assignment(lambda b: None, BOB.seed), NotLeased),
        (_assignment(lambda b: b.update(worker=SECOND.key), ALICE.seed), NotLeased),
        (_assignment(lambda b: b.update(stage=1), ALICE.seed), NotLeased),
        (_assignment(lambda b: b.update(time=b["time"] - 100), ALICE.seed), ForeignMessage),
        (_assignment(lambda b: b.update(request=[]), ALICE.seed), ForeignTask),
        (_assignment(lambda b: b["request"].update(operation="update"), ALICE.seed), ForeignTask),
        (_assignment(lambda b: b["request"].update(task_id="0" * 64), ALICE.seed), ForeignTask),
        (_assignment(lambda b: b["request"].update(more=1), ALICE.seed), ForeignTask),
        (_assignment(lambda b: b["request"]["input_ids"].reverse(), ALICE.seed), ForeignTask),
        (_assignment(lambda b: b["request"].update(weights={}), ALICE.seed), ForeignTask),
        (_chain(lease=None), ForeignTask),
        (_chain(chain_id="another"), ForeignTask),
        (_chain(round=1), ForeignTask),
        (_chain(input_ids=[1] * 64), ForeignTask),
        (lambda path, value: {} if path == "/task" else value, ForeignTask),
        (
            lambda path, value: {**value, "height": 10**6} if path == "/summary" else value,
            NotLeased,
        ),
    ],
)
async def test_a_worker_believes_the_chain_and_not_the_sponsor(
    tmp_path: Path, bend: Bend, refusal: type[Rejected]
) -> None:
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor") as sponsor,
    ):
        gateway = await leased(ledger, sponsor, tmp_path / "w")
        gateway.bend = bend
        worker = make_worker(gateway, FIRST, 0, tmp_path / "w", ledger)
        with pytest.raises(refusal):
            await work(worker)
        assert not list((tmp_path / "w").iterdir()), "nothing was begun"


async def test_a_worker_does_not_sign_for_a_wrong_activation(tmp_path: Path) -> None:
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor") as sponsor,
    ):
        gateway = await leased(ledger, sponsor, tmp_path / "w")
        await work_until_done(make_worker(gateway, FIRST, 0, tmp_path / "w", ledger))
        await eventually(lambda: sponsor.status()["active_operations"] == 1)
        other = shared_execution().features([5] * 64)
        gateway.bend = _assignment(lambda b: b["request"].update(activation=other), ALICE.seed)
        with pytest.raises(ForeignTask):
            await work_until_done(make_worker(gateway, SECOND, 1, tmp_path / "w", ledger))


class Killed(BaseException):
    """Stands for kill -9: the code under test does not catch it and cleans nothing up."""


@pytest.mark.parametrize("moment", ["before begin", "after begin", "after finish", "sent"])
async def test_a_worker_that_is_killed_never_does_an_operation_twice(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    features = shared_execution().features

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(shared_execution(), name)

        def features(self, tokens: Any) -> Any:
            computed.append("features")
            return features(tokens)

    begin, finish = StageJournal.begin, StageJournal.finish

    def dying_begin(journal: StageJournal, *about: str) -> None:
        if moment == "before begin":
            raise Killed
        begin(journal, *about)
        if moment == "after begin":
            raise Killed

    def dying_finish(journal: StageJournal, result: dict[str, Json]) -> None:
        finish(journal, result)
        if moment == "after finish":
            raise Killed

    def dies_after_sending(path: str, value: Any) -> Any:
        if path == "/work/result" and moment == "sent":
            raise Killed
        return value

    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor") as sponsor,
    ):
        gateway = await leased(ledger, sponsor, tmp_path / "w")

        def worker() -> Any:
            return make_worker(gateway, FIRST, 0, tmp_path / "w", ledger, execution=Counting())

        with monkeypatch.context() as patch:
            patch.setattr(StageJournal, "begin", dying_begin)
            patch.setattr(StageJournal, "finish", dying_finish)
            gateway.bend = dies_after_sending
            with pytest.raises(Killed):
                await work(worker())
        gateway.bend = lambda path, value: value
        if moment == "after begin":
            with pytest.raises(Interrupted):
                await work(worker())
            assert computed == []
            # A later lease would be another operation; here this one expires.
            lease = (await ask(ledger, "/summary"))["lease"]
            await hurry(ledger, lease["expires"] - ledger.height + 1)
            assert (await ask(ledger, "/summary"))["lease"] is None
            return
        if moment == "sent":
            # The sponsor has the result, and assigns nothing more to this worker.
            assert await work(worker()) is None
        else:
            assert await work(worker()) is not None
        assert computed == ["features"]
        await work_until_done(make_worker(gateway, SECOND, 1, tmp_path / "w", ledger))
        await round_reached(ledger, 1)


async def test_an_operation_that_changes_is_not_done(tmp_path: Path) -> None:
    journal = StageJournal(tmp_path, 0)
    assert journal.result("a", "1") is None
    journal.begin("a", "1")
    journal.finish({"x": 1})
    assert journal.result("a", "1") == {"x": 1}
    again = StageJournal(tmp_path, 0)
    assert again.result("a", "1") == {"x": 1}
    with pytest.raises(AssignmentChanged):
        again.result("a", "2")
    assert again.result("b", "2") is None
    (tmp_path / "worker-stage-0.json").write_bytes(b'{"task_id":')
    with pytest.raises(StartupError, match="damaged"):
        StageJournal(tmp_path, 0)
