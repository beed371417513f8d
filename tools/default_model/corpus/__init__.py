"""The corpus of the default model: documents made by grammars with state, from a seed.

Terms: a *document* is one text that the model reads between its begin and end tokens; the
*mixture* says how often each kind of document occurs. Invariants: document ``i`` of seed ``s`` is
always the same text; held-out documents come from another seed, and none of them equals a training
document exactly (``train.py`` checks by hash).

All sentences were written for this project; Apache-2.0, as the rest of the repository.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from . import facts, forms, life, stories, sums, talk
from .words import Pen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRAINING_SEED = 20_261_120
HELD_OUT_SEED = 7

# Weights count documents, not tokens: a story is about eight times as long as a question.
MIXTURE: tuple[tuple[int, Callable[[Pen], str]], ...] = (
    (17, stories.story),
    (8, stories.asked_story),
    (4, stories.any_story),
    (22, facts.question),
    (12, facts.statement),
    (11, sums.arithmetic),
    (7, talk.greeting),
    (8, talk.about_self),
    (5, talk.unknown),
    (2, talk.conversation),
    (1, talk.joke),
    (5, forms.introduction),
    (3, forms.letter),
    (2, forms.recipe),
    (3, forms.weather),
    (5, forms.poem),
    (7, forms.scene),
    (10, life.episode),
    (3, forms.how_to),
)
# Sums are learned late and by repetition, after the forms of questions and answers.
_WITH_DRILL = (*MIXTURE, (14, sums.drill))
_FROM = ((64_000, _WITH_DRILL), (0, MIXTURE))
"""Each mixture with the first document that it applies to."""

_MAKERS = tuple(
    (first, tuple(maker for weight, maker in mixture for _ in range(weight)))
    for first, mixture in _FROM
)


def document(seed: int, index: int) -> str:
    """Return document ``index`` of the corpus with this seed."""
    pen = Pen(random.Random(f"{seed}:{index}"))
    return pen.pick(next(makers for first, makers in _MAKERS if index >= first))(pen)


def documents(seed: int, start: int = 0) -> Iterator[str]:
    """Yield the endless corpus with this seed, from document ``start`` on."""
    index = start
    while True:
        yield document(seed, index)
        index += 1
