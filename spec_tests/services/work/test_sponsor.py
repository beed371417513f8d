"""What a sponsor refuses, what it limits, and what it survives (interface 4.2; decision 0090)."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from meshnode.domain.chain.canonical import Json, digest
from meshnode.domain.chain.envelope import sign_envelope
from meshnode.domain.chain.errors import InvalidSignature, Rejected
from meshnode.domain.errors import StartupError, Unavailable
from meshnode.domain.work import (
    ForeignMessage,
    NoAssignment,
    UnknownStage,
    WrongWork,
)
from meshnode.services.work.sponsor import MAX_WORKERS, Sponsor
from spec_tests.domain.chain.net import BOB, CAROL
from spec_tests.services.ledger.ledgers import eventually
from spec_tests.services.work.leases import leased, signed
from spec_tests.services.work.models_chain import (
    FIRST,
    SECOND,
    DirectGateway,
    ask,
    do,
    hurry,
    make_worker,
    running_chain,
    shared_execution,
    sponsoring,
    work,
    work_until_done,
)


async def test_what_a_sponsor_refuses(tmp_path: Path) -> None:
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor") as sponsor,
    ):
        gateway = await leased(ledger, sponsor, tmp_path / "w")
        poll = signed(ledger, FIRST, "poll", stage=0)
        body: Any = poll["body"]
        for changes in (
            {"domain": "another/domain"},
            {"chain_id": "another"},
            {"kind": "result"},
            {"time": body["time"] - 62},
            {"time": body["time"] + 62},
            {"time": float(body["time"])},
        ):
            with pytest.raises(ForeignMessage):
                await sponsor.poll(sign_envelope({**body, **changes}, FIRST.seed))
        for stage in (2, -1, True, "0", None):
            with pytest.raises(UnknownStage):
                await sponsor.poll(signed(ledger, FIRST, "poll", stage=stage))
        with pytest.raises(InvalidSignature):
            await sponsor.poll({**poll, "body": {**body, "stage": 1}})
        # Unknown fields are tolerated.
        assignment = (await sponsor.poll(signed(ledger, FIRST, "poll", stage=0, more=1)))[
            "assignment"
        ]
        assert isinstance(assignment, dict)
        name = digest(assignment["body"])
        # No other worker gets or answers the assignment, and only the right result is accepted.
        assert await sponsor.poll(signed(ledger, SECOND, "poll", stage=0)) == {"assignment": None}
        assert await sponsor.poll(signed(ledger, FIRST, "poll", stage=1)) == {"assignment": None}
        for who, job in ((SECOND, name), (FIRST, "0" * 64)):
            with pytest.raises(NoAssignment):
                await sponsor.result(signed(ledger, who, "result", job_id=job, result={}))
        results: list[Json] = [None, {}, {"activation": {}, "receipt": {}, "more": 1}]
        for result in results:
            with pytest.raises(Rejected):
                await sponsor.result(signed(ledger, FIRST, "result", job_id=name, result=result))
        assigned: Any = assignment["body"]
        request = assigned["request"]
        activation = shared_execution().features(request["input_ids"])
        receipt = {"task_id": request["task_id"], "stage": 0}
        for wrong in (sign_envelope(receipt, FIRST.seed), sign_envelope(receipt, SECOND.seed)):
            with pytest.raises(WrongWork):
                await sponsor.result(
                    signed(
                        ledger,
                        FIRST,
                        "result",
                        job_id=name,
                        result={"activation": activation, "receipt": wrong},
                    )
                )
        # After all these refusals the right result is accepted; sending it twice does no harm.
        worker = make_worker(gateway, FIRST, 0, tmp_path / "w", ledger)
        await work_until_done(worker)
        sent = [value for path, value in gateway.posted if path == "/work/result"][-1]
        for _ in range(2):
            assert await sponsor.result(sent) == {"accepted_for_submission": True}


async def test_workers_and_operations_are_bounded(tmp_path: Path) -> None:
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor", tasks=0) as sponsor,
    ):
        status = sponsor.status()
        assert (status["sponsor"], status["remaining_tasks"]) == (None, None)
        from spec_tests.domain.chain.net import actor

        for number in range(MAX_WORKERS + 20):
            await sponsor.poll(signed(ledger, actor(f"w{number}"), "poll", stage=0))
        assert sponsor.status()["workers_by_stage"] == [MAX_WORKERS, 0]
        await hurry(ledger)
        assert (await ask(ledger, "/summary"))["lease"] is None


async def test_workers_that_have_gone_do_not_count(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    network: Any = _Network()
    sponsor = Sponsor(shared_execution(), None, network)
    await sponsor.poll({"stage": 0})
    assert sponsor.status()["workers_by_stage"] == [1, 0]
    await trio.sleep(11)
    assert sponsor.status()["workers_by_stage"] == [0, 0]


class _Network:
    chain_id = "x"

    def open(self, value: Any, kind: str, now: float) -> Any:
        from meshnode.domain.chain.envelope import AccountKey, ApplicationId, Envelope

        return Envelope(value, AccountKey(FIRST.key), "", ApplicationId("00" * 32))


async def test_a_sponsor_without_money_asks_again_and_counts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_chain(tmp_path / "chain", shared_execution()) as ledger,
        sponsoring(ledger, tmp_path / "sponsor", who=CAROL) as sponsor,
    ):
        gateway = DirectGateway(ledger, sponsor)
        for stage, who in enumerate((FIRST, SECOND)):
            await work(make_worker(gateway, who, stage, tmp_path / "w", ledger))
        await eventually(lambda: "Insufficient available balance" in caplog.text)
        await eventually(lambda: sponsor.status()["remaining_tasks"] == 1)
        await do(ledger, BOB, "transfer", to=CAROL.key, amount=3_000_000)
        await eventually(lambda: sponsor.status()["active_operations"] == 1)
        assert json.loads((tmp_path / "sponsor" / "sponsor.json").read_bytes()) == {"reserved": 1}


async def test_a_full_disk_delays_a_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshnode.services.work.sponsoring import TaskBudget

    budget = TaskBudget(tmp_path, 2)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshnode.services.work.sponsoring.write_private", full)
    with pytest.raises(Unavailable):
        await budget.count(1)
    assert budget.remaining == 2
    (tmp_path / "sponsor.json").write_text("[]")
    with pytest.raises(StartupError, match=r"sponsor\.json"):
        TaskBudget(tmp_path, 2)
