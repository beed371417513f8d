"""Derived faults: they cover the interface, and the judge catches a sample of every kind."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from conformance.catalogue import load
from conformance.judging.derived.allowed import allowances, reason
from conformance.judging.derived.interface import NODE_ROUTES, ROUTES
from conformance.judging.derived.judge import (
    CAUGHT,
    NOT_SHOWN,
    PASSED,
    DerivedJudge,
    every_fault,
    impatient,
    spread,
)
from conformance.judging.derived.table import NodeTable, render
from conformance.judging.derived.when import conditional, conditions_of
from conformance.judging.mutants.fields import PLACES
from conformance.judging.toy.node import ToyNode
from conformance.judging.toy.serving import Toy, toy_target
from conformance.messages import MESSAGES, OPERATIONS

FAULTS = {(fault.kind, fault.name): fault for fault in every_fault()}
# Each was missed, or only advised, before the checks of edition 2.
ONCE_MISSED = [
    ("another shape", "GET /api/v1/peers a bare array"),
    ("effect not happening", "POST /api/v1/wallet/send on the sender's history"),
    ("number of another sign", "GET /api/v1/metrics metrics network.bytes_sent"),
    ("parameter ignored", "GET /api/v1/wallet/transactions offset"),
    ("service of another name", "node.v1.NodeService"),
    ("field at another number", "DHTPingResponse responder"),
    ("time off by 2 hours", "POST /api/v1/wallet/send transfer timestamp"),
]


def test_every_field_of_the_catalogue_has_its_faults() -> None:
    for item in load().values():
        if item.field and item.field.of in PLACES:
            name = f"{' '.join(PLACES[item.field.of])} {item.field.of} {item.field.path}"
            for kind in ("field missing", "field of another type", "field null"):
                if item.field.aspect != "present" and not (
                    kind == "field null" and item.field.aspect.endswith("?")
                ):
                    assert (kind, name) in FAULTS


def test_every_message_and_operation_has_its_faults() -> None:
    for name, message in MESSAGES.items():
        for field in message.DESCRIPTOR.fields:
            found = [kind for kind, of in FAULTS if of == f"{name} {field.name}"]
            assert any("at another number" in kind for kind in found), (name, field.name)
    for operation in OPERATIONS:
        assert ("operation missing", f"{operation} UNIMPLEMENTED") in FAULTS


def test_every_route_of_the_catalogue_is_in_the_table() -> None:
    named = {
        (match[1], match[2])
        for item in load().values()
        if "-ROUTE-" in item.id and (match := re.match(r"(GET|POST|PATCH) (/[\w/.-]+)", item.text))
    }
    assert named
    known = [(route.method, route.path.removeprefix("/api/v1")) for route in ROUTES]
    known += [(route.method, route.path) for route in ROUTES]
    lacking = {
        (method, path)
        for method, path in named
        if not any(method == m and path.startswith(p.rstrip("/")) for m, p in known)
    }
    assert lacking == set()
    assert len(NODE_ROUTES) == 17


def test_no_two_faults_have_one_name() -> None:
    assert len(FAULTS) == len(every_fault()) > 2500


def test_every_allowance_names_faults_and_gives_a_sentence() -> None:
    faults = [*FAULTS.values()]
    faults += [conditional(one, when) for one in FAULTS.values() for when in conditions_of(one)]
    for entry in allowances():
        assert any(entry.fits(fault) for fault in faults), entry
        assert entry.because.endswith("."), entry


def test_a_beginning_of_the_faults_has_a_share_of_every_kind() -> None:
    faults = spread(every_fault())
    many = {fault.kind for fault in faults if fault.kind in ("field missing", "pair swapped")}
    assert {fault.kind for fault in faults[:100]} >= many
    assert spread(every_fault())[:50] != faults[50:100]


@pytest.fixture(scope="module")
def judged() -> Iterator[DerivedJudge]:
    """Yield a judge of a toy of its own, which waits only a moment for a transaction."""
    node = ToyNode()
    with Toy(node) as served:
        target = replace(impatient(toy_target(served)), timeout_s=60, inference_timeout_s=60)
        yield DerivedJudge(node, target, node.reset)


@pytest.mark.parametrize(("kind", "name"), ONCE_MISSED, ids=[name for _, name in ONCE_MISSED])
def test_what_was_missed_once_is_caught(kind: str, name: str, judged: DerivedJudge) -> None:
    ended = judged.judge(FAULTS[kind, name])
    assert ended.how == CAUGHT, ended


def test_a_fault_that_changes_nothing_is_not_shown(judged: DerivedJudge) -> None:
    fault = FAULTS["page limit", "GET /api/v1/wallet/transactions 100 rows"]
    assert judged.judge(fault).how == NOT_SHOWN


def test_the_table_counts_by_kind_and_says_why(judged: DerivedJudge) -> None:
    caught = judged.judge(FAULTS["field missing", "GET /api/v1/health health healthy"])
    other = replace(caught, how=PASSED, by=(), fault=FAULTS["another status", "GET /healthz 204"])
    table = NodeTable("a node", (caught, other), 3, 1, ())
    text = "\n".join(render([table]))
    assert "| field missing | 1 | 0 | 0 | 0 | 100.0% |" in text
    assert "| another status | 0 | 0 | 1 | 0 | - |" in text
    assert str(reason(other.fault)) in text
    assert table.gaps() == []


@pytest.mark.slow
def test_a_sample_of_every_kind_is_caught_or_allowed(judged: DerivedJudge) -> None:
    ended = judged.judge_all(spread(every_fault(), seed=1)[:100])
    missed = [
        (item.fault.kind, item.fault.name, item.how)
        for item in ended
        if item.how not in (CAUGHT, NOT_SHOWN) and reason(item.fault) is None
    ]
    assert missed == []
