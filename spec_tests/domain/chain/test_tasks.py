"""Training tasks: leases, submissions, issuance, and the rule behind each refusal."""

import pytest

from meshnode.domain.chain.canonical import Json
from meshnode.domain.chain.envelope import sign_envelope
from spec_tests.domain.chain.net import (
    ALICE,
    BOB,
    CAROL,
    FEE,
    ROOT,
    VALIDATOR,
    Body,
    Net,
    balance,
    next_root,
    receipt_bodies,
)


def reservation(net: Net, **changes: Json) -> Body:
    summary = net.query("/summary")
    return {
        "task_kind": "train",
        "parent": summary["model_root"],
        "round": summary["round"],
        "workers": [BOB.key, CAROL.key],
        "request": {},
        "price": 0,
        **changes,
    }


def submission(task: str, round_number: int = 0, parent: str = ROOT) -> Body:
    bodies = receipt_bodies(task, parent, round_number)
    signed: list[Json] = [
        sign_envelope(body, who.seed) for body, who in zip(bodies, (BOB, CAROL), strict=True)
    ]
    return {"task_id": task, "result_root": next_root(round_number), "receipts": signed}


def test_a_training_step_is_issued_and_promoted() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    assert balance(net, ALICE) == 5_000_000 - 2_000_000 - FEE
    lease = net.query("/summary")["lease"]
    assert (lease["task_id"], lease["escrow"], lease["expires"]) == (task, 2_000_000, 6)
    assert net.query("/task")["lease"] == lease

    net.do(ALICE, "submit", **submission(task))
    assert balance(net, ALICE) == 5_000_000 - 2 * FEE
    assert (balance(net, BOB), balance(net, CAROL)) == (3_400_000, 400_000)
    summary = net.query("/summary")
    assert (summary["round"], summary["issued"], summary["lease"]) == (1, 1_000_000, None)
    assert summary["model_root"] == summary["serving_root"] == next_root(0)
    assert summary["last_training_evaluation"]["promoted"] is True
    net.skip(1)
    assert balance(net, VALIDATOR) == 10_200_000

    # The second step is worse on validation: it becomes the latest but is not served.
    task = net.do(ALICE, "reserve", **reservation(net))
    net.do(ALICE, "submit", **submission(task, 1, next_root(0)))
    summary = net.query("/summary")
    assert (summary["model_root"], summary["serving_root"]) == (next_root(1), next_root(0))
    assert summary["last_training_evaluation"]["promoted"] is False


def test_a_lease_that_runs_out_burns_the_bond() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    assert net.refused(BOB, "reserve", **reservation(net)) == "A task is already reserved"
    burned = net.query("/summary")["burned"]
    net.skip(4)
    assert net.query("/summary")["lease"] is not None
    assert "not reserved" in net.refused(ALICE, "submit", **submission(task))
    assert net.query("/summary")["burned"] == burned + 2_000_000


@pytest.mark.parametrize(
    ("changes", "log"),
    [
        ({"task_kind": "infer"}, "Use an independent inference request"),
        ({"parent": "0" * 64}, "Wrong task parent or round"),
        ({"round": 1}, "Wrong task parent or round"),
        ({"round": False}, "Wrong task parent or round"),
        ({"workers": [BOB.key]}, "Wrong number of worker identities"),
        ({"workers": BOB.key}, "Wrong number of worker identities"),
        ({"workers": [BOB.key, 5]}, "Invalid public key"),
        ({"price": 1}, "Invalid or exhausted training budget"),
        ({"price": False}, "Invalid or exhausted training budget"),
        ({"request": []}, "Invalid or exhausted training budget"),
    ],
)
def test_wrong_reservations_are_refused_with_the_reason(changes: Body, log: str) -> None:
    net = Net()
    assert net.refused(ALICE, "reserve", **reservation(net, **changes)) == log


def test_wrong_submissions_are_refused_with_the_reason() -> None:
    net = Net()
    task = net.do(ALICE, "reserve", **reservation(net))
    good = submission(task)
    receipts = good["receipts"]
    assert isinstance(receipts, list)
    wrong_body = sign_envelope({"stage": 0}, BOB.seed)
    stranger: list[Json] = [
        sign_envelope(body, ALICE.seed) for body in receipt_bodies(task, ROOT, 0)
    ]
    refusals: list[tuple[Body, str]] = [
        ({"task_id": "0" * 64}, "Task is not reserved by this account"),
        ({"receipts": []}, "Missing worker receipts"),
        ({"receipts": [1, 2]}, "Invalid signed envelope"),
        ({"receipts": receipts[::-1]}, "Worker receipt differs from full replay"),
        ({"receipts": stranger}, "Worker receipt differs from full replay"),
    ]
    for changes, log in refusals:
        assert net.refused(ALICE, "submit", **{**good, **changes}) == log
    net = Net()
    good = submission(net.do(ALICE, "reserve", **reservation(net)))
    receipts = good["receipts"]
    assert isinstance(receipts, list)
    refusals = [
        ({"receipts": [wrong_body, receipts[1]]}, "Worker receipt differs from full replay"),
        ({"result_root": "0" * 64}, "Result differs from full replay"),
    ]
    for changes, log in refusals:
        assert net.refused(ALICE, "submit", **{**good, **changes}) == log
    assert "not reserved" in net.refused(BOB, "submit", **good)
