"""A small model that guesses what a large one will say (decision 0231).

Terms: the *target* is the model whose tokens are guessed; its draft has the same vocabulary. A
*narrow copy* is a draft that is the target itself, with all layers, in a narrower format. A *draft
session* has the keys and values of one generation's text in the draft.

Invariant: the draft decides no token. What it proposes is the token that it finds most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import torch

from meshnode.model.documents import ModelUnreadable
from meshnode.model.kv import KVCache, kv_bytes_per_token
from meshnode.model.loading import ASSETS, DEFAULT_MODEL, LoadedModel, ModelFacts, load_model

DEFAULT_DRAFT = ASSETS / "draft"
"""The draft that ships with the default model."""
NO_DRAFT = "none"
NARROW_COPIES = ("int8", "int4")
"""Formats that name the target itself as its draft."""


CACHES_BYTES = 1 << 28
"""Memory that the keys and values of all sessions of a draft may take."""
PIECE = 32
"""Positions that a session reads at once, so that the thread is soon free for a step."""


class DraftModel:
    """A draft, ready to compute."""

    def __init__(self, loaded: LoadedModel, sessions: int = 1) -> None:
        """``sessions`` is how many there may be at once, if they fit."""
        self._decoder = loaded.decoder
        self.weight_bytes = loaded.weight_bytes
        """Memory that the weights take."""
        self.context_length = loaded.card.context_length
        config, layers = loaded.decoder.config, loaded.card.num_layers
        position_bytes = kv_bytes_per_token(config, layers, loaded.decoder.cache_dtype)
        self._room = min(sessions * self.context_length, CACHES_BYTES // position_bytes)
        """Positions that sessions have not taken."""
        self.caches_bytes = self._room * position_bytes
        """Memory that the sessions may take together."""

    def session(self, positions: int) -> DraftSession | None:
        """A session for at most so many positions; None while others have the memory for it."""
        decoder, capacity = self._decoder, min(positions, self.context_length)
        if capacity > self._room:
            return None
        self._room -= capacity
        layers, dtype = len(decoder.held), decoder.cache_dtype
        return DraftSession(self, KVCache.allocate(decoder.config, layers, capacity, dtype))

    def closed(self, capacity: int) -> None:
        """Take back what a session had."""
        self._room += capacity

    @torch.inference_mode()
    def most_likely(self, tokens: Sequence[int], cache: KVCache) -> int:
        """Append tokens to a cache; the token that most likely follows."""
        layers = self._decoder.held
        logits = self._decoder.run(layers, torch.tensor([tokens]), [cache], last=1)
        return int(logits[0, -1].argmax())


class DraftSession:
    """One generation's text in the draft. Calls block, and must not overlap."""

    def __init__(self, model: DraftModel, cache: KVCache) -> None:
        self._model = model
        self._cache: KVCache | None = cache
        self._tokens: list[int] = []
        """Those whose keys and values are in the cache."""

    def close(self) -> None:
        """Free its memory. It proposes nothing any more."""
        if self._cache is not None:
            self._model.closed(self._cache.capacity)
        self._cache = None

    def behind(self, text: Sequence[int]) -> bool:
        """Whether more is missing of ``text`` than a session reads at once."""
        capacity = 0 if self._cache is None else self._cache.capacity
        return min(len(text), capacity) - len(self._tokens) > PIECE

    def read(self, text: Sequence[int]) -> list[int]:
        """Compute positions of a text that it is behind, as many as at once; proposes none."""
        cache = self._cache
        if cache is not None:
            self._keep(text, cache)
            self._most_likely(text[cache.length : cache.length + PIECE], cache)
        return []

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """At most ``count`` tokens that may follow ``text``."""
        cache = self._cache
        if cache is None:
            return []
        # The last token is computed again, for what follows it.
        self._keep(text[:-1], cache)
        found: list[int] = []
        new = text[cache.length :]
        while len(found) < count and cache.length + len(new) <= cache.capacity:
            token = self._most_likely(new, cache)
            found.append(token)
            new = [token]
        return found

    def _keep(self, text: Sequence[int], cache: KVCache) -> None:
        """Forget all positions but those that the text begins with."""
        pairs = zip(self._tokens, text, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        del self._tokens[shared:]
        cache.length = shared

    def _most_likely(self, tokens: Sequence[int], cache: KVCache) -> int:
        token = self._model.most_likely(tokens, cache)
        self._tokens += tokens
        return token


def load_draft(
    name: str, target: ModelFacts, model: Path, dtype: str, sessions: int
) -> DraftModel | None:
    """The draft that ``--draft`` names for a target from the path ``model``; None if there is none.

    Without a name it is the one that ships for the default model; a format names a narrow copy.
    There are at most so many ``sessions`` at once. Blocks. Raises ModelUnreadable for files that
    cannot be used, and for a draft with another vocabulary.
    """
    shipped = not name and model == DEFAULT_MODEL and DEFAULT_DRAFT.exists()
    if name == NO_DRAFT or not (name or shipped):
        return None
    if name in NARROW_COPIES:
        try:
            return DraftModel(load_model(model, dtype=name), sessions)
        except ModelUnreadable as error:
            # A node that fetched the model has the files of its own layers.
            raise ModelUnreadable(f"the draft {name} needs all layers: {error}") from None
    path = DEFAULT_DRAFT if shipped else Path(name)
    draft = load_model(path, dtype=dtype)
    alike = draft.tokenizer.has_vocabulary_of(target.tokenizer)
    if not alike or draft.card.vocab_size != target.card.vocab_size:
        raise ModelUnreadable(f"{path}: a draft needs the vocabulary of the model it drafts for")
    return DraftModel(draft, sessions)
