"""Guesses change no token, whether they are right, wrong, or lost on the way (decision 0230)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio

from meshnode.domain.generation import GenerationRequest
from meshnode.model.draft import DraftModel
from meshnode.rpc.errors import CallRefused, Code
from meshnode.services.pipeline import guessing
from spec_tests.services.executor.generations import complete, read
from spec_tests.services.pipeline.pipelines import (
    GREEDY,
    PIPELINE,
    SAMPLED,
    alone,
    cluster,
    loaded,
    small_model,
    spans,
)

NONE: dict[str, Any] = {"eos_token_ids": frozenset()}
DEPTH = 12


@dataclass
class Prophet:
    """A draft that knows the text, and is wrong as often as a test says."""

    text: Sequence[int]
    """The prompt and the whole completion."""
    wrong: float
    random: Random = field(default_factory=lambda: Random(0))

    def session(self, positions: int) -> Prophet:
        return self

    def behind(self, text: Sequence[int]) -> bool:
        return False

    def close(self) -> None:
        """Nothing is kept."""

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        known = list(self.text[len(text) : len(text) + count])
        known += [0] * (count - len(known))
        return [
            self.random.randrange(90) if self.random.random() < self.wrong else token
            for token in known
        ]

    @property
    def as_draft(self) -> DraftModel:
        return cast(DraftModel, self)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("guessing") / "model")


@pytest.fixture(autouse=True)
def always_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guess as many tokens as possible, whatever they cost."""
    depth: Callable[..., int] = lambda costs, rate, proposal_ms=0.0: DEPTH  # noqa: E731
    monkeypatch.setattr(guessing, "best_depth", depth)


async def tokens_of(directory: Path, request: GenerationRequest) -> list[int]:
    """The tokens of the prompt, and of what one node generates."""
    tokenizer = loaded(directory).tokenizer
    text = await alone(directory, request, **NONE)
    prompt = tokenizer.encode(request.prompt)
    return [*prompt, *tokenizer.encode(text, special=False)]


@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "direct"])
@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
async def test_the_tokens_are_those_of_one_node(directory: Path, wrong: float, relay: bool) -> None:
    own, *rest = spans(2, 4)
    draft = Prophet(await tokens_of(directory, GREEDY), wrong)
    limits = replace(PIPELINE, relay=relay)
    async with cluster(directory, own, rest, limits=limits, draft=draft.as_draft, **NONE) as nodes:
        for request in (GREEDY, SAMPLED, replace(SAMPLED, top_k=0), replace(GREEDY, logprobs=2)):
            text, finished = await complete(nodes.pipeline, request)
            assert text == await alone(directory, request, **NONE)
            assert finished.usage.completion_tokens == request.max_tokens
        figures = nodes.hops.speculation
        assert figures.proposed > 0
        if not wrong:
            assert figures.accepted > 0
        await nodes.settled()


async def test_a_stop_string_in_the_middle_of_accepted_guesses_ends_the_text(
    directory: Path,
) -> None:
    own, *rest = spans(3)
    text = await alone(directory, GREEDY, **NONE)
    request = replace(GREEDY, stop=(text[8:11],))
    draft = Prophet(await tokens_of(directory, GREEDY), 0.0)
    async with cluster(directory, own, rest, draft=draft.as_draft, **NONE) as nodes:
        found, finished = await complete(nodes.pipeline, request)
        assert found == await alone(directory, request, **NONE)
        assert finished.usage.completion_tokens < GREEDY.max_tokens
        await nodes.settled()


@pytest.mark.parametrize("kind", ["dies", "refuses", "forgets"])
@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "direct"])
async def test_a_failure_while_guesses_are_in_flight_changes_no_token(
    directory: Path, kind: str, relay: bool
) -> None:
    own, *rest = spans(2, 4)
    draft = Prophet(await tokens_of(directory, SAMPLED), 0.2)
    limits = replace(PIPELINE, relay=relay)
    async with cluster(
        directory, own, [*rest, *rest], limits=limits, draft=draft.as_draft, **NONE
    ) as nodes:
        for holder in nodes.holders:

            async def script(number: int, holder: Any = holder) -> dict[str, Any] | None:
                if number != 6:
                    return None
                if kind == "dies":
                    holder.relay.kill()
                    nodes.book.peers.remove(holder.peer)
                    await trio.sleep_forever()
                if kind == "forgets":
                    return {"success": False, "error_message": "session unknown or behind"}
                raise CallRefused(Code.RESOURCE_EXHAUSTED, "for a test")

            # Of each two holders of the same layers, one fails.
            if holder in nodes.holders[:2]:
                holder.gate.script = script
        async with await nodes.pipeline.open(SAMPLED) as generation:
            events, _ = await read(generation)
        assert "".join(event.text for event in events) == await alone(directory, SAMPLED, **NONE)
        assert len(events) == SAMPLED.max_tokens


async def test_a_holder_that_knows_nothing_of_guesses_works_the_plain_way(
    directory: Path,
) -> None:
    own, *rest = spans(2, 4)
    draft = Prophet(await tokens_of(directory, GREEDY), 0.0)
    async with cluster(directory, own, rest, draft=draft.as_draft, **NONE) as nodes:
        nodes.holders[1].messages = 0
        nodes.book.peers = [holder.peer for holder in nodes.holders]
        text, _ = await complete(nodes.pipeline, GREEDY)
        assert text == await alone(directory, GREEDY, **NONE)
        assert nodes.hops.speculation.proposed == 0
        await nodes.settled()
