"""When a holder fails in mid-generation, the events continue unchanged (interface 7.3)."""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import trio

from meshnode.domain.errors import (
    ComputationFailed,
    InvalidRequest,
    LayersUnavailable,
    MeshnodeError,
    RateLimited,
    Unavailable,
)
from meshnode.domain.generation import TokenEvent
from meshnode.rpc.errors import CallRefused, Code
from meshnode.services.generation import Generation
from spec_tests.model.small_models import VOCAB_SIZE
from spec_tests.services.executor.generations import complete
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    LIMITS,
    PIPELINE,
    SAMPLED,
    Cluster,
    Holder,
    alone,
    cluster,
    small_model,
    start_holder,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
OWN = range(2)
FIRST, LAST = range(2, 4), range(4, 6)
CALL_S = 3.0
"""Call timeout in seconds, only for tests where a holder freezes: slow ones exceed it too."""
IMPATIENT = replace(PIPELINE, call_s=CALL_S)

Fault = Callable[[Holder], Awaitable[Any]]


async def dies(holder: Holder) -> None:
    holder.relay.kill()
    await trio.sleep_forever()


async def freezes(holder: Holder) -> None:
    holder.relay.freeze()
    await trio.sleep_forever()


def refuses(code: Code) -> Fault:
    async def refuse(holder: Holder) -> None:
        raise CallRefused(code, "for a test")

    return refuse


def says(**answer: object) -> Fault:
    async def say(holder: Holder) -> dict[str, object]:
        return answer

    return say


NAN = struct.pack("<f", math.nan) * VOCAB_SIZE
FAULTS: dict[str, Fault] = {
    "dead": dies,
    "frozen": freezes,
    "not_found": refuses(Code.NOT_FOUND),
    "exhausted": refuses(Code.RESOURCE_EXHAUSTED),
    "unavailable": refuses(Code.UNAVAILABLE),
    "internal": refuses(Code.INTERNAL),
    "forgotten": says(success=False, error_message="session unknown or behind"),
    "failed": says(success=False, error_message="the computation failed"),
}
AT_THE_END: dict[str, Fault] = {
    "nan": says(success=True, logits=NAN, logits_shape=[1, 1, VOCAB_SIZE], is_final=True),
    "short": says(success=True, logits=b"123", logits_shape=[1, 1, VOCAB_SIZE], is_final=True),
    "shape": says(success=True, logits=NAN, logits_shape=[VOCAB_SIZE], is_final=True),
    "bomb": says(
        success=True,
        logits=lz4.frame.compress(bytes(4 * 1000 * VOCAB_SIZE)),
        logits_shape=[1, 1000, VOCAB_SIZE],
        is_final=True,
    ),
    "much": says(
        success=True, logits=bytes(1 << 20), logits_shape=[1, 1, VOCAB_SIZE], is_final=True
    ),
}
"""Faults of the last holder, the only one that answers with logits."""

FIRST_CALL, IN_PROMPT, IN_STREAM = 0, 1, 11


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("failover") / "model")


@pytest.fixture(scope="module")
def undisturbed(directory: Path) -> str:
    return trio.run(lambda: alone(directory, SAMPLED, **NONE))


def fails_at(holder: Holder, number: int, fault: Fault, *, once: bool = True) -> None:
    async def script(current: int) -> Any:
        if current == number or (current > number and not once):
            return await fault(holder)
        return None

    holder.gate.script = script


async def read_into(events: list[Any], generation: Generation) -> None:
    """Append each event to ``events``, so that those before a failure are kept."""
    async for event in generation:
        events.append(event)  # noqa: PERF401 - a comprehension would lose them


CASES = [
    *[(name, place, IN_STREAM, True) for name in FAULTS for place in (0, 2)],
    *[(name, 2, IN_STREAM, False) for name in ("dead", "frozen", "not_found", "forgotten")],
    *[(name, 2, IN_STREAM, True) for name in AT_THE_END],
    ("dead", 0, FIRST_CALL, True),
    ("dead", 2, IN_PROMPT, True),
    ("not_found", 2, FIRST_CALL, False),
    ("frozen", 0, IN_PROMPT, False),
]


@pytest.mark.parametrize(("fault", "place", "number", "relay"), CASES)
async def test_another_holder_takes_over(
    directory: Path, undisturbed: str, fault: str, place: int, number: int, relay: bool
) -> None:
    limits = replace(IMPATIENT if fault == "frozen" else PIPELINE, relay=relay)
    held = [FIRST, FIRST, LAST, LAST]
    async with cluster(directory, OWN, held, limits=limits, **NONE) as nodes:
        bad, good = nodes.holders[place], nodes.holders[place + 1]
        fails_at(bad, number, (FAULTS | AT_THE_END)[fault])
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert bad.gate.forwards > number
        if fault == "forgotten":
            # Nothing is wrong with the holder; it gets a new session.
            assert len(bad.gate.sessions) == 2
        else:
            assert good.gate.forwards > 0
            assert len(bad.gate.sessions) == 1
        assert (bad.node_id in nodes.book.suspected) == (fault in ("dead", "frozen", "unavailable"))
        if fault not in ("dead", "frozen"):
            await nodes.settled()


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("dead", Unavailable),
        ("frozen", Unavailable),
        ("not_found", LayersUnavailable),
        ("exhausted", RateLimited),
        ("internal", ComputationFailed),
        ("failed", ComputationFailed),
    ],
)
async def test_without_another_holder_it_ends_with_a_typed_error(
    directory: Path, fault: str, failure: type[MeshnodeError]
) -> None:
    limits = IMPATIENT if fault == "frozen" else PIPELINE
    async with cluster(directory, OWN, [FIRST, LAST], limits=limits, **NONE) as nodes:
        bad = nodes.holders[1]
        fails_at(bad, IN_STREAM, FAULTS[fault], once=False)
        events: list[TokenEvent] = []
        async with await nodes.pipeline.open(GREEDY) as generation:
            with pytest.raises(failure):
                await read_into(events, generation)
        assert [event.index for event in events] == list(range(len(events)))
        assert 0 < len(events) == generation.usage.completion_tokens
        if fault == "not_found":
            assert len(bad.gate.sessions) == 1, "never retried on this peer"
        elif fault not in ("dead", "frozen"):
            assert len(bad.gate.sessions) == 3
            await nodes.settled()


async def test_a_holder_that_recovers_is_used_again(directory: Path, undisturbed: str) -> None:
    async with cluster(directory, OWN, [FIRST, LAST], **NONE) as nodes:
        bad = nodes.holders[1]
        fails_at(bad, IN_STREAM, FAULTS["unavailable"])
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert len(bad.gate.sessions) == 2
        await nodes.settled()


async def test_all_streams_of_a_dead_holder_go_on(directory: Path) -> None:
    requests = [replace(SAMPLED, seed=seed) for seed in range(6)]
    texts: dict[int, str] = {}
    async with cluster(directory, OWN, [FIRST, LAST, LAST], **NONE) as nodes:

        async def one(place: int) -> None:
            texts[place], _ = await complete(nodes.pipeline, requests[place])

        async with trio.open_nursery() as nursery:
            for place in range(len(requests)):
                nursery.start_soon(one, place)
            while sum(holder.gate.forwards for holder in nodes.holders[1:]) < 60:  # noqa: ASYNC110
                await trio.sleep(0.001)
            used = [len(holder.gate.sessions) for holder in nodes.holders[1:]]
            nodes.holders[1].relay.kill()
        # The sessions were spread over both last holders; all end at the remaining one.
        assert all(used)
        await nodes.settled(nodes.holders[0], nodes.holders[2])
    for place in (0, 5):
        assert texts[place] == await alone(directory, requests[place], **NONE)
    assert len(texts) == len(requests)


async def test_a_holder_that_thaws_is_used_again(directory: Path, undisturbed: str) -> None:
    async with cluster(directory, OWN, [FIRST, LAST], limits=IMPATIENT, **NONE) as nodes:
        bad = nodes.holders[0]
        fails_at(bad, IN_STREAM, FAULTS["frozen"])
        nodes.nursery.start_soon(thaws, nodes, bad)
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert nodes.book.suspected[0] == bad.node_id
        await nodes.settled()


async def thaws(nodes: Cluster, holder: Holder) -> None:
    while not nodes.book.suspected:  # noqa: ASYNC110 - a list tells no event
        await trio.sleep(0.01)
    holder.relay.thaw()


async def test_a_holder_that_forgets_again_is_left(directory: Path, undisturbed: str) -> None:
    async with cluster(directory, OWN, [FIRST, LAST, LAST], **NONE) as nodes:
        bad, good = nodes.holders[1:]
        fails_at(bad, IN_STREAM, FAULTS["forgotten"], once=False)
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert len(bad.gate.sessions) == 2
        assert good.gate.forwards > IN_STREAM
        await nodes.settled()


async def test_what_another_holder_accepts_counts_against_the_one_that_refuses(
    directory: Path, undisturbed: str
) -> None:
    async with cluster(directory, OWN, [FIRST, LAST, LAST], **NONE) as nodes:
        _, bad, good = nodes.holders
        fails_at(bad, IN_STREAM, refuses(Code.INVALID_ARGUMENT), once=False)
        for _ in range(2):
            text, _ = await complete(nodes.pipeline, SAMPLED)
            assert text == undisturbed
        # At most once relayed and once directly; then it is left alone.
        assert len(bad.gate.sessions) <= 2
        assert good.gate.forwards > IN_STREAM
        await nodes.settled()


async def test_what_all_holders_refuse_is_a_wrong_request(directory: Path) -> None:
    limits = replace(PIPELINE, relay=False)
    async with cluster(directory, OWN, [FIRST, LAST, LAST], limits=limits, **NONE) as nodes:
        for holder in nodes.holders[1:]:
            fails_at(holder, FIRST_CALL, refuses(Code.INVALID_ARGUMENT), once=False)
        with pytest.raises(InvalidRequest):
            await complete(nodes.pipeline, GREEDY)
        # The only holder may as well be the one that is wrong.
        nodes.book.peers.pop()
        with pytest.raises(ComputationFailed):
            await complete(nodes.pipeline, GREEDY)
        assert all(holder.gate.forwards < 3 for holder in nodes.holders[1:])
        await nodes.settled()


async def test_equal_logits_for_all_tokens_are_not_believed(
    directory: Path, undisturbed: str
) -> None:
    zeros = says(
        success=True,
        logits=bytes(4 * VOCAB_SIZE),
        logits_shape=[1, 1, VOCAB_SIZE],
        is_final=True,
    )
    async with cluster(directory, OWN, [FIRST, LAST, LAST], **NONE) as nodes:
        fails_at(nodes.holders[1], IN_STREAM, zeros, once=False)
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert nodes.holders[2].gate.forwards
        await nodes.settled()


async def test_the_holder_that_made_wrong_states_is_found(
    directory: Path, undisturbed: str
) -> None:
    """A holder refuses wrong states, and the driver replaces the holder that made them."""
    async with cluster(directory, OWN, [FIRST, FIRST, LAST], **NONE) as nodes:
        maker, other, reader = nodes.holders

        async def refuses_relayed_calls(number: int) -> None:
            if number >= IN_STREAM and reader.gate.swarm:
                raise CallRefused(
                    Code.INVALID_ARGUMENT, "hidden_states: has numbers that are not finite"
                )

        async def sends_nan(number: int) -> dict[str, Any] | None:
            if number > IN_STREAM and not maker.gate.swarm:
                return {"success": True, "hidden_states": NAN[: 64 * 4], "hidden_shape": [1, 1, 64]}
            return None

        reader.gate.script, maker.gate.script = refuses_relayed_calls, sends_nan
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert other.gate.forwards
        await nodes.settled()


async def test_a_holder_that_cannot_relay_is_called_directly(
    directory: Path, undisturbed: str
) -> None:
    async with cluster(directory, OWN, [FIRST, LAST], **NONE) as nodes:

        async def script(_: int) -> None:
            if nodes.holders[0].gate.swarm:
                raise CallRefused(Code.UNIMPLEMENTED, "operation not implemented")

        nodes.holders[0].gate.script = script
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        await nodes.settled()


async def test_one_failure_after_another(directory: Path, undisturbed: str) -> None:
    """A holder of each stage fails, and one of the replacements fails too."""
    held = [FIRST, FIRST, FIRST, LAST, LAST]
    async with cluster(directory, OWN, held, **NONE) as nodes:
        fails_at(nodes.holders[0], 4, FAULTS["dead"])
        fails_at(nodes.holders[1], 7, FAULTS["internal"])
        fails_at(nodes.holders[3], 16, FAULTS["dead"])
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert nodes.holders[2].gate.forwards or nodes.holders[1].gate.forwards
        assert nodes.holders[4].gate.forwards


async def test_a_holder_that_comes_back_with_other_layers_is_left(
    directory: Path, undisturbed: str
) -> None:
    """A holder that answers with logits instead of states is replaced."""
    limits = replace(PIPELINE, relay=False)
    async with cluster(directory, OWN, [FIRST, FIRST, LAST], limits=limits, **NONE) as nodes:
        fails_at(
            nodes.holders[0],
            IN_STREAM,
            says(success=True, logits=NAN, logits_shape=[1, 1, VOCAB_SIZE], is_final=True),
        )
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert nodes.holders[1].gate.forwards
        await nodes.settled()


async def layers_without_a_holder(nodes: Cluster) -> str:
    with pytest.raises(LayersUnavailable) as caught:
        await nodes.pipeline.open(GREEDY)
    return str(caught.value)


async def test_missing_layers_are_named_before_anything_begins(directory: Path) -> None:
    async with cluster(directory, OWN, [LAST], **NONE) as nodes:
        assert await layers_without_a_holder(nodes) == "no reachable node holds layers 2-3"
    async with cluster(directory, range(2, 4), [OWN, LAST], **NONE) as nodes:
        assert "does not hold the first layer" in await layers_without_a_holder(nodes)


async def test_a_holder_with_less_memory_than_the_generation_needs_is_left_at_once(
    directory: Path, undisturbed: str
) -> None:
    """The driver replaces a holder with too short a context after one call."""
    a_position = len(LAST) * 2 * 2 * 16 * 4
    small = replace(LIMITS, kv_bytes=40 * a_position)
    async with cluster(directory, OWN, [FIRST, LAST], **NONE) as nodes:
        poor = await start_holder(
            nodes.nursery, directory, LAST, "0" * 40, nodes.book, nodes.pool, small
        )
        assert poor.executor.card.context_length == 40
        nodes.book.peers.append(poor.peer)
        text, _ = await complete(nodes.pipeline, SAMPLED)
        assert text == undisturbed
        assert poor.gate.forwards == 1
        await nodes.settled()
