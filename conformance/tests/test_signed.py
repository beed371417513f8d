"""Signed requests: each fault of a chain is named, a sound one is proved, a signer may fail."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.catalogue import load
from conformance.checks import payers, signed, signed_requests, signed_wrong
from conformance.ended import Run
from conformance.judging.toy.serving import Toy, toy_target
from conformance.judging.toy.signing import FAULTS, QUEUE, SigningToy
from conformance.run import Runner
from conformance.target import BadConfiguration, make_target
from conformance.verdict import Standing

SIGNER = shlex.join([sys.executable, "-m", "conformance.judging.toy.signing"])
CHECKS = {"signed-request", "signed-wrongly", "without-answer", "signed-kept", "work-forged"}
# Which are seen by another check, or later only, than the requirement's own.
ELSEWHERE = {"hidden": {"signed-request", "without-answer"}, "dropped": CHECKS, "rewritten": CHECKS,
             "revived": {"without-answer"}}  # fmt: skip
# A request under its own hash is not under its ID either, and one nonce lets one in twice.
TOGETHER = {
    "one id": {"ST-001"},
    "same nonce": {"NT-RULE-051"},
    "worker": {"NT-RULE-039"},
    "free": {"NT-RULE-173"},
    "forgetful": {"NT-RULE-101"},
    "rewritten": {"NT-RULE-123"},
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is done with everything sooner than a node in a network."""
    for module, name, seconds in (
        (signed_requests, "REST_S", 0.2), (signed_requests, "BLOCK_S", 2.0),
        (signed_requests, "SEEN_S", 0.1), (signed_requests, "EARLY_S", 0.5),
        (signed, "BLOCK_S", 2.0), (signed_wrong, "ACCEPTED_S", 1.0), (payers, "BLOCK_S", 2.0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)


def judged(fault: str, signer: str = SIGNER, names: set[str] = CHECKS) -> Run:
    with Toy(SigningToy(fault=fault)) as served:
        target = replace(toy_target(served), signer=signer, inference_timeout_s=5.0)
        places = {**target.field_map, signed.QUEUE: (QUEUE,)}
        target = replace(target, field_map=places)
        return Runner(target, names=names).run()


def standings(run: Run, standing: Standing) -> set[str]:
    return {item.requirement.id for item in run.results if item.standing is standing}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_chain_is_noticed_by_the_requirement_that_it_violates(fault: str) -> None:
    names = ELSEWHERE.get(fault, {load()[FAULTS[fault]].check or ""})
    run = judged(fault, names=names)
    assert run.faults == {}
    found = standings(run, Standing.VIOLATED)
    assert FAULTS[fault] in found
    assert found <= {FAULTS[fault], *TOGETHER.get(fault, ())}


def test_a_hash_that_stays_while_the_chain_grows_is_noticed() -> None:
    run = judged("frozen", names={"signed-request"})
    assert "NT-RULE-037" in standings(run, Standing.VIOLATED)


def test_a_sound_chain_is_proved_in_everything() -> None:
    run = judged("")
    assert (run.faults, standings(run, Standing.VIOLATED)) == ({}, set())
    assert set(FAULTS.values()) <= standings(run, Standing.PROVED)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("raise SystemExit(3)", "offers no request"),
        ("raise SystemExit('no key')", "ended with 1: no key"),
        ("print('{')", "the signer's line: "),
        ("print('{}')", "has no path or no body"),
        ("""print('{"path": "/rpc", "body": {}, "cost": 1.5}')""", "cost is no text"),
        ("""print('{"path": "/rpc", "body": {}, "hash": 5}')""", "hash: no text"),
        ("""print('{"path": "/rpc", "body": {}, "expires": "5"}')""", "expires is no height"),
    ],
)
def test_a_signer_that_makes_no_message_is_a_reason_and_not_a_fault(script: str, why: str) -> None:
    run = judged("", shlex.join([sys.executable, "-c", script]), {"signed-request"})
    assert run.faults == {}
    assert why in run.skipped["signed-request"]


def test_a_signer_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    run = judged("", str(tmp_path / "none"), {"signed-request"})
    assert "the signer: " in run.skipped["signed-request"]


def test_a_chain_that_refuses_sound_requests_is_not_judged_by_what_it_refuses() -> None:
    # The signer signs for another node's chain, so that nothing fits.
    script = (
        "import json, sys; from conformance.judging.toy.signing import sign; "
        "from conformance.signer import Kind; made = sign(sys.argv[1], Kind.FOREIGN); "
        "print(json.dumps(made))"
    )
    run = judged("", shlex.join([sys.executable, "-c", script]), CHECKS - {"work-forged"})
    # That they are refused is said once, as advice.
    assert standings(run, Standing.VIOLATED) == {"NT-RULE-105"}
    assert "a sound request is refused too" in run.skipped["signed-wrongly"]


@pytest.mark.parametrize("words", ["", "'"])
def test_a_signer_is_a_command(words: str) -> None:
    with pytest.raises(BadConfiguration, match="signer: "):
        make_target({"url": "http://127.0.0.1:1", "signer": words})
