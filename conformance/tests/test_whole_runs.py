"""The toy conforms: every check runs, every MUST that has a check is proved, and nothing fails."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from conformance.catalogue import Effect, Level, Origin, Profile
from conformance.editions import DRAFT
from conformance.ended import Run
from conformance.judging import sent
from conformance.judging.toy.node import EXPIRED, NATIVE_SETTINGS, SECOND, TOKEN
from conformance.judging.toy.serving import Serving, Toy
from conformance.run import Runner
from conformance.suite import checks
from conformance.target import Target
from conformance.tests.conftest import Judge
from conformance.verdict import Exit, Outcome, Standing


@pytest.fixture(scope="module")
def untouched() -> Iterator[Serving]:
    """Serve a toy whose history no other test has filled: its first page shows all kinds."""
    with Toy() as serving:
        yield serving


@pytest.fixture(scope="module")
def whole(untouched: Serving) -> Run:
    """Run all checks once."""
    everything = Target(
        untouched.url,
        # A run of `peer` judges what is asked of clients.
        profiles=frozenset(Profile) - {Profile.PEER},
        burst_s=0.2,
        timeout_s=60,
        **NATIVE_SETTINGS,
        grpc=untouched.grpc,
        token=TOKEN,
        expired_token=EXPIRED,
        second_token=SECOND,
        allow=frozenset(Effect),
        budget=100,
        edition=DRAFT,
    )
    return Runner(everything).run()


def test_a_conforming_target_passes_everything(whole: Run) -> None:
    assert whole.faults == {}
    blamed = {
        item.requirement.id: item.reason
        for item in whole.results
        if item.outcome in (Outcome.FAIL, Outcome.WARN, Outcome.OPEN)
    }
    assert blamed == {}
    assert whole.residue == []
    assert whole.ended() is Exit.CONFORMS


# Numbers and texts of which one or two sizes are enough, or of which the toy takes no more.
OF_FEW_SIZES = (
    # Names and digests, which have one form.
    r".* (node_id|key|public_key|model_hash|id|ip|method|jsonrpc|path|to|model|role|session_id)",
    r".* (request_id|data)",
    # The toy has seven blocks, four layers and little money, and tensors of one form.
    r".* (before|height|offset|N)", r"GetWeights .*", r"GossipGradient (layer_gradients|model) .*",
    r"Pipeline\w+ (grad_shape|hidden_shape|target_shard|grad_output|position_ids).*",
    r"Pipeline\w+ (training_labels|past_key_values|use_cache).*",
    r"POST .*/(stake|unstake) amount",
    # Shares and times, and switches.
    r".* (temperature|top_p|_|debug|learning_rate|timestamp|enabled|stream|include_usage)",
    r".* (round_id|ttl)",
    # A sender is drawn for DHTPing, and the same one searches; a node has so many threads.
    r"DHT(Find\w+|Store) sender .*", r".* (cpu_threads|stop length|not_in_the_document)",
    # What the document does not show, and where the suite's own node is.
    r".* (from|from_address|sender|account|address|no_such_key|sender_url)",
    # How large it may be is not said.
    r".* top_k",
    # The profile of OpenAI's routes is small and exact.
    r"POST /v1/.*",
)  # fmt: skip


def test_what_is_sent_comes_in_several_sizes(whole: Run) -> None:
    found = sent.sizes(whole.exchanges)
    assert len(found) > 60
    few = {field: sizes for field, sizes in found.items() if len(sizes) < 3}
    known = re.compile("|".join(OF_FEW_SIZES))
    assert {field: sizes for field, sizes in few.items() if not known.fullmatch(field)} == {}


# MUSTs that a conforming toy cannot show.
NEEDS_ANOTHER_TARGET = {
    "TR-VERIFY-013", "TR-VERIFY-014", "TR-RULE-001",  # training that does not work
    "NA-ERR-006", "NA-ERR-007", "NA-ERR-028", "NA-ERR-033",  # 429
    "NT-RULE-002",  # a node that is not ready
    "NA-PATCH-111",  # a restart
    "NT-RULE-126",  # accounts that name their public key
    "NA-ERR-060",  # details of other errors than those that have some
    "NT-RULE-040",  # blocks that name hashes of transactions
}  # fmt: skip


def test_every_checked_must_is_exercised_against_the_toy(whole: Run) -> None:
    idle = {
        item.requirement.id
        for item in whole.results
        if item.requirement.level is Level.MUST
        and item.requirement.check
        # Those have a toy of their own.
        and "signer" not in item.requirement.needs
        and item.standing is Standing.NOT_EXERCISED
    }
    assert idle == NEEDS_ANOTHER_TARGET


def test_every_check_finds_something(whole: Run) -> None:
    silent = {
        name
        for name, check in checks().items()
        if check.profiles & whole.target.profiles
        and "signer" not in check.needs
        and not any(item.requirement.id in check.proves and item.findings for item in whole.results)
    }
    # The toy's training is healthy, so there is nothing to compare, and no command restarts it; it
    # takes one sequence at a time, and has few rewards; its native resources name neither roots
    # nor files.
    native = {"native-adapter-file", "native-newest-root"}
    of_others = {"training-agreement", "restart-kept", "rewards-named"}
    assert silent == of_others | native


def test_the_order_of_the_checks_does_not_change_their_results(whole: Run) -> None:
    runs = [Runner(replace(whole.target, seed=seed), shuffle=True).run() for seed in (1, 2)]
    orders = [list(dict.fromkeys(item.check for item in run.exchanges)) for run in (whole, *runs)]
    assert orders[0] != orders[1] != orders[2]
    for run in runs:
        assert run.faults == {}
        assert outcomes(run) == outcomes(whole)


def outcomes(run: Run) -> dict[str, Outcome]:
    """Return the outcomes, without that of what only an account's first stake shows."""
    found = {item.requirement.id: item.outcome for item in run.results}
    del found["NA-WALLET-022"]
    return found


def test_silent_requirements_are_never_judged(whole: Run) -> None:
    for item in whole.results:
        if item.requirement.origin is Origin.SILENT:
            assert item.standing in (Standing.SILENT, Standing.NOT_APPLICABLE)
            assert item.outcome in (Outcome.NOTE, Outcome.SKIP)


def test_reading_only_is_the_default_and_sends_nothing_else(judge: Judge) -> None:
    run = judge(allow=frozenset())
    sent = {
        item.request["method"]
        for item in run.exchanges
        # /rpc takes queries as POST.
        if item.kind == "http" and not item.request["url"].endswith("/rpc")
    }
    assert sent == {"GET"}
    called = {item.request["operation"] for item in run.exchanges if item.kind == "grpc"}
    assert not called & {"DHTStore", "GossipGradient", "PipelineForward", "UnaryInference"}
    skipped = {item.requirement.id: item.reason for item in run.results}
    assert skipped["NA-SSE-002"] == "needs --allow spend"
    assert skipped["NA-PATCH-101"] == "needs --allow mutate"
    assert run.ended() is Exit.CONFORMS


def test_a_profile_that_is_not_declared_is_not_applicable(judge: Judge) -> None:
    run = judge(profiles=frozenset())
    assert {item.standing for item in run.results} == {Standing.NOT_APPLICABLE}
    assert run.exchanges == []
    assert run.ended() is Exit.NOTHING_PROVED


def test_without_a_token_what_needs_one_is_not_exercised(judge: Judge) -> None:
    run = judge(token=None, expired_token=None)
    reasons = {item.requirement.id: item.reason for item in run.results}
    assert reasons["NA-LAYERS-001"] == "the target declares no token"
    assert run.ended() is Exit.CONFORMS


def test_the_budget_ends_spending(judge: Judge) -> None:
    run = judge(budget=0.002)
    assert run.spent <= 0.005
    assert "budget" in run.skipped["inference-parameters"]
    assert run.ended() is Exit.CONFORMS


def test_the_same_seed_sends_the_same_bodies(judge: Judge) -> None:
    runs = [judge("NA-INF-003", seed=3), judge("NA-INF-003", seed=3), judge("NA-INF-003", seed=4)]
    bodies = [
        [item.request["body"]["text"] for item in run.exchanges if "body" in item.request]
        for run in runs
    ]
    assert bodies[0] == bodies[1] != bodies[2]
