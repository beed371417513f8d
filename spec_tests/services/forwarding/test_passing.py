"""design: drivers that fail, hang and lie, and what their client gets, in virtual time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
import trio

from meshnode.domain.errors import (
    ComputationFailed,
    FalseResults,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unavailable,
    Unsupported,
)
from meshnode.domain.generation import TokenEvent
from meshnode.domain.shares import Requester, Standing
from meshnode.rpc.errors import Code
from meshnode.services.forwarding.messages import COMPUTATION_FAILED, KINDS, failed_answer
from meshnode.services.forwarding.passing import MAX_ATTEMPTS
from meshnode.services.pipeline.policy import ROUNDS
from meshnode.wire import node_pb2 as pb
from spec_tests.services.forwarding.simulated import (
    CALL_S,
    HASH,
    TOKEN_S,
    TOKENS,
    Answers,
    Script,
    SimulatedDriver,
    SimulatedNetwork,
    failed,
    final,
    hangs,
    honest_text,
    refuses,
    says,
    taken,
    then,
    token,
)

NEAR, FAR = 1.0, 50.0


def network(*scripts: Script) -> SimulatedNetwork:
    """Drivers with these scripts, the nearest first."""
    return SimulatedNetwork(
        *(
            SimulatedDriver(f"driver{number}", script, latency_ms=NEAR + number)
            for number, script in enumerate(scripts)
        )
    )


def text_of(tokens: list[TokenEvent]) -> str:
    return "".join(each.text for each in tokens)


async def test_the_answer_of_a_driver_is_passed_on(autojump_clock: object) -> None:
    nodes = SimulatedNetwork(SimulatedDriver("a"), SimulatedDriver("b", latency_ms=FAR))
    generation = nodes.generation()
    tokens, finished = await nodes.pass_on(generation)
    assert text_of(tokens) == honest_text()
    assert [each.index for each in tokens] == list(range(TOKENS))
    assert finished.usage == generation.usage
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (3, TOKENS)
    assert str(finished.finish_reason) == "length"
    assert finished.timing.total_ms == pytest.approx(TOKENS * TOKEN_S * 1e3)
    assert generation.model_hash == HASH
    assert nodes.tokens == TOKENS
    # The nearest one was asked, once, and knows this node by its credential alone.
    near, far = nodes.simulated
    assert (len(near.requests), len(far.requests)) == (1, 0)
    assert set(near.metadata[0]) == {"peer-session"}
    assert near.requests[0].request_id == ""


async def test_nothing_of_the_client_but_its_standing_is_sent(autojump_clock: object) -> None:
    for standing, paid in ((Standing.PAYING, True), (Standing.FREE, False)):
        nodes = network(says(failed("UNAVAILABLE")))
        whose = Requester(standing, "alice's token")
        with pytest.raises(Unavailable):
            await nodes.pass_on(nodes.generation(requester=whose))
        (driver,) = nodes.simulated
        assert {each.forwarded.paid for each in driver.requests} == {paid}
        said = b"".join(each.SerializeToString() for each in driver.requests)
        assert b"alice" not in said + repr(driver.metadata).encode()


@dataclass
class Spans:
    """A trace of a generation, and of its calls."""

    ended_with: list[str] = field(default_factory=list)

    @property
    def metadata(self) -> dict[str, str]:
        return {"traceparent": "00-abc"}

    def calling(self, positions: int) -> Spans:
        assert positions == 3
        return self

    def sampled(self, began: float, ended: float) -> None:
        raise AssertionError("no token is chosen here")

    def ended(self, reason: str = "") -> None:
        self.ended_with.append(reason)


async def test_the_calls_of_a_trace_are_part_of_it(autojump_clock: object) -> None:
    nodes = network(hangs, then(TOKENS, final(TOKENS)))
    generation, spans = nodes.generation(), Spans()
    generation.trace = spans
    await nodes.pass_on(generation)
    bad, good = nodes.simulated
    for driver in (bad, good):
        assert set(driver.metadata[0]) == {"peer-session", "traceparent"}
    gone, fine = spans.ended_with
    assert gone
    assert not fine
    # A client that leaves ends the call too.
    generation, spans = nodes.generation(1), Spans()
    generation.trace, nodes.simulated = spans, [bad]
    with trio.move_on_after(1.0):
        await nodes.pass_on(generation)
    assert spans.ended_with == ["cancelled"]


BEFORE_THE_FIRST_TOKEN: dict[str, Script] = {
    "hangs": hangs,
    "hangs later": then(0, hangs=True),
    "is gone": refuses(Code.UNAVAILABLE),
    "does not know this node": refuses(Code.UNAUTHENTICATED),
    "is full": refuses(Code.RESOURCE_EXHAUSTED),
    "crashes": refuses(Code.INTERNAL),
    "has another version": says(pb.InferenceResponse(text="hello")),
    "ends at once": says(),
    "ends after it took it": says(taken()),
    "has a token before it took it": says(token(0, "x")),
    "begins in the middle": says(taken(), token(1, "x")),
    "ends without a token": says(taken(), final(0)),
    "drains": says(failed("UNAVAILABLE", message="the node is draining")),
    "lacks a layer": says(failed("LAYERS_UNAVAILABLE", message="no reachable node holds layer 3")),
    "has a full queue": says(failed("RATE_LIMITED", retry_after=9)),
    "waited in vain": says(taken(), failed("OVERLOADED")),
    "could not compute": says(taken(), failed(COMPUTATION_FAILED)),
    "refuses what others take": says(failed("INVALID_REQUEST", field="prompt", message="no")),
    "says what nobody knows": says(failed("SOMETHING")),
}


@pytest.mark.parametrize("script", BEFORE_THE_FIRST_TOKEN.values(), ids=BEFORE_THE_FIRST_TOKEN)
async def test_another_driver_answers(autojump_clock: object, script: Script) -> None:
    nodes = network(script, then(TOKENS, final(TOKENS)))
    began = trio.current_time()
    tokens, _ = await nodes.pass_on()
    assert text_of(tokens) == honest_text()
    assert trio.current_time() - began <= CALL_S
    bad, good = nodes.simulated
    assert (len(bad.requests), len(good.requests)) == (1, 1)
    assert (bad.left, good.left) == (1, 1)


IN_MID_STREAM: dict[str, Script] = {
    "hangs": then(3, hangs=True),
    "is gone": refuses(Code.UNAVAILABLE, after=3),
    "ends": then(3),
    "repeats a token": then(3, token(2, "x")),
    "skips a token": then(3, token(4, "x")),
    "miscounts": then(3, final(2, "sentence")),
    "could not compute": then(3, failed(COMPUTATION_FAILED)),
    "stops": then(3, failed("UNAVAILABLE")),
}


@pytest.mark.parametrize("script", IN_MID_STREAM.values(), ids=IN_MID_STREAM)
async def test_another_driver_goes_on_with_the_same_text(
    autojump_clock: object, script: Script
) -> None:
    nodes = network(script, then(TOKENS, final(TOKENS)))
    tokens, finished = await nodes.pass_on()
    assert text_of(tokens) == honest_text()
    assert [each.index for each in tokens] == list(range(TOKENS))
    # Each token is counted once, and so paid for once.
    assert finished.usage.completion_tokens == nodes.tokens == TOKENS


async def test_without_a_seed_all_drivers_get_the_same_one(autojump_clock: object) -> None:
    nodes = network(then(3), then(TOKENS, final(TOKENS)))
    tokens, _ = await nodes.pass_on(nodes.generation(seed=None))
    first, second = (each.requests[0].seed for each in nodes.simulated)
    assert first == second
    assert text_of(tokens) == honest_text(first)
    other = network(then(TOKENS, final(TOKENS)))
    await other.pass_on(other.generation(seed=None))
    assert other.simulated[0].requests[0].seed != first


async def test_another_text_does_not_follow_the_one_that_was_begun(autojump_clock: object) -> None:
    nodes = network(then(3), says(taken(), token(0, "other")))
    generation = nodes.generation()
    with pytest.raises(Unavailable):
        await nodes.pass_on(generation)
    assert generation.usage.completion_tokens == 3


async def test_no_more_than_was_asked_for_is_passed_on(autojump_clock: object) -> None:
    """A driver cannot make a client pay for more tokens, or this node keep more text."""
    greedy = then(TOKENS, token(TOKENS, "more"))
    nodes = network(greedy)
    generation = nodes.generation()
    with pytest.raises(Unavailable):
        await nodes.pass_on(generation)
    assert generation.usage.completion_tokens == TOKENS
    flood = network(says(taken(), token(0, "x" * 5000)))
    generation = flood.generation()
    with pytest.raises(Unavailable):
        await flood.pass_on(generation)
    assert generation.usage.completion_tokens == 0


FAILURES: list[MeshnodeError] = [
    InvalidRequest("prompt", "is odd"),
    PromptTooLong("prompt", "is long"),
    Unsupported("tools", "are not here"),
    RateLimited(7, "full"),
    Overloaded("no place"),
    LayersUnavailable("no reachable node holds layers 2-3"),
    Unavailable("the node is draining"),
    FalseResults(),
    ComputationFailed(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_a_failure_is_that_of_the_driver(
    autojump_clock: object, error: MeshnodeError
) -> None:
    nodes = network(says(failed_answer(error, "")))
    with pytest.raises(type(error)) as caught:
        await nodes.pass_on()
    assert type(caught.value) is type(error)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))
    assert {type(each) for each in FAILURES} == {kind for kind, _ in KINDS} | {ComputationFailed}


async def test_words_of_a_driver_are_short_and_printable(autojump_clock: object) -> None:
    nodes = network(says(failed("UNAVAILABLE", message="a\x1b[31m\n" + "b" * 9000)))
    with pytest.raises(Unavailable) as caught:
        await nodes.pass_on()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 200


async def test_false_results_end_the_generation(autojump_clock: object) -> None:
    """Nothing of the text can be believed, and the wallet charges nothing for it."""
    nodes = network(then(3, failed("FALSE_RESULTS")), then(TOKENS, final(TOKENS)))
    with pytest.raises(FalseResults):
        await nodes.pass_on()
    assert not nodes.simulated[1].requests


async def test_two_refusals_are_believed(autojump_clock: object) -> None:
    refusal = says(failed("INVALID_REQUEST", field="stop", message="is odd"))
    nodes = network(refusal, refusal, then(TOKENS, final(TOKENS)))
    with pytest.raises(InvalidRequest) as caught:
        await nodes.pass_on()
    assert caught.value.field == "stop"
    assert not nodes.simulated[2].requests


async def test_attempts_have_an_end(autojump_clock: object) -> None:
    began = trio.current_time()
    nodes = network(*[says(failed("UNAVAILABLE", message="busy"))] * 2)
    with pytest.raises(Unavailable, match="busy"):
        await nodes.pass_on()
    assert [len(each.requests) for each in nodes.simulated] == [ROUNDS] * 2
    many = network(*[hangs] * (2 * MAX_ATTEMPTS))
    with pytest.raises(Unavailable):
        await many.pass_on()
    assert sum(len(each.requests) for each in many.simulated) == MAX_ATTEMPTS
    assert trio.current_time() - began < (MAX_ATTEMPTS + 1) * CALL_S


async def test_without_a_driver(autojump_clock: object) -> None:
    nodes = SimulatedNetwork(SimulatedDriver("a", layers=(1, 2)))
    with pytest.raises(LayersUnavailable, match="knows no node that does"):
        await nodes.pass_on()


async def test_a_driver_that_failed_is_asked_last_for_a_while(autojump_clock: object) -> None:
    nodes = network(hangs, then(TOKENS, final(TOKENS)))
    for _ in range(3):
        await nodes.pass_on()
    bad, good = nodes.simulated
    assert (len(bad.requests), len(good.requests)) == (1, 3)
    assert nodes.suspected == [bad.node_id]
    # It is asked again if there is no other.
    nodes.simulated = [bad]
    bad.script = then(TOKENS, final(TOKENS))
    await nodes.pass_on()


async def test_requests_are_spread_over_the_drivers(autojump_clock: object) -> None:
    nodes = SimulatedNetwork(*(SimulatedDriver(name, latency_ms=FAR) for name in "abc"))
    nodes.simulated[0].latency_ms = NEAR
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(nodes.pass_on, nodes.generation(number))
    assert [len(each.requests) for each in nodes.simulated] == [2, 2, 2]


async def test_a_slow_driver_that_says_so_is_waited_for(autojump_clock: object) -> None:
    async def slow(request: pb.InferenceRequest) -> Answers:
        for _ in range(60):
            yield taken()
            await trio.sleep(1.0)
        yield token(0, "late")
        yield final(1, "stop", notes=["mixed"])

    nodes = network(slow)
    generation = nodes.generation()
    tokens, finished = await nodes.pass_on(generation)
    assert text_of(tokens) == "late"
    assert str(finished.finish_reason) == "stop"
    assert generation.notes == ["mixed"]


HOP = {
    "node_id": "c" * 40,
    "layers": "0-3",
    "steps": 2,
    "queue_ms": 1,
    "compute_ms": 2.5,
    "network_ms": 0,
}


def hops(count: int = 1, **changes: object) -> str:
    return json.dumps({"hops": [HOP | changes] * count})


@pytest.mark.parametrize(
    ("trace", "count"),
    [
        (hops(), 1),
        ("", 0),
        ("[]", 0),
        ("{}", 0),
        ('{"hops": 7}', 0),
        ('{"hops": [7]}', 0),
        (hops(layers="all"), 0),
        (hops(compute_ms=-1), 0),
        (hops(compute_ms="x"), 0),
        (hops(node_id="c"), 0),
        (hops(5000), 0),
        ("[" * 20_000, 0),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_the_trace_has_the_drivers_hops(
    autojump_clock: object, trace: str, count: int
) -> None:
    nodes = network(then(1, final(1, trace=trace)))
    generation = nodes.generation()
    await nodes.pass_on(generation)
    found = nodes.recorder.trace(generation.id)
    assert found is not None
    assert len(found.hops) == count
    assert found.paths == 1
    if count:
        assert found.hops[0].compute_ms == 2.5
