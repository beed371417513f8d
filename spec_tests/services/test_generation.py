"""A generation's states follow their table, and its repr shows nothing of the client's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshnode.domain.errors import Unavailable
from meshnode.domain.generation import GenerationRequest
from meshnode.domain.transitions import IllegalTransition
from meshnode.services import generation as module
from meshnode.services.generation import TRANSITIONS, Generation, GenerationState
from spec_tests.domain.transition_tables import documented, draw, pairs

EVENTS: tuple[Callable[[Generation], None], ...] = (
    lambda generation: generation.admit(1.0),
    lambda generation: generation.advance(b"confidential", end_of_text=True, now=2.0),
    lambda generation: generation.fail(Unavailable("stopped"), 2.0),
    lambda generation: generation.cancel(2.0),
)


def queued() -> Generation:
    request = GenerationRequest("a secret", stop=("another",))
    return Generation(
        request, id="gen-1", prompt=[7, 8, 9], most_tokens=5, opened_at=0.0, leave=lambda _: None
    )


def test_the_documented_table_is_the_one_in_use() -> None:
    assert draw(pairs(TRANSITIONS)) == draw(documented(module))


def test_states_change_as_the_table_says() -> None:
    taken: set[tuple[str, str]] = set()
    for beginning in ((), EVENTS[:1]):
        for event in EVENTS:
            generation = queued()
            for earlier in beginning:
                earlier(generation)
            before = generation.state
            try:
                event(generation)
            except IllegalTransition:
                assert generation.state is before
            else:
                taken.add((before.name, generation.state.name))
    assert draw(taken) == draw(pairs(TRANSITIONS))


@pytest.mark.parametrize("event", EVENTS)
def test_an_ended_generation_is_never_continued(event: Callable[[Generation], None]) -> None:
    for end in EVENTS[2:]:
        generation = queued()
        end(generation)
        state = generation.state
        with pytest.raises(IllegalTransition):
            event(generation)
        assert generation.ended
        assert generation.state is state


def test_a_repr_has_id_state_and_positions_and_no_text() -> None:
    generation = queued()
    assert repr(generation) == "<gen-1 queued, 3 of at most 8 tokens>"
    generation.admit(1.0)
    generation.advance(b"confidential", end_of_text=False, now=2.0)
    assert repr(generation) == "<gen-1 computing, 4 of at most 8 tokens>"
    assert generation.state is GenerationState.COMPUTING
    assert "secret" not in repr(generation.request)
    assert "another" not in repr(generation.request)
