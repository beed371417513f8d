"""A small model that guesses what a large one will say (decision 0231).

Terms: the *target* is the model whose tokens are guessed; its draft has the same vocabulary. A
*draft session* has the keys and values of one generation's text in the draft.

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


class DraftModel:
    """A draft, ready to compute."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._decoder = loaded.decoder
        self.weight_bytes = loaded.weight_bytes
        """Memory that the weights take."""
        self.context_length = loaded.card.context_length
        config, layers = loaded.decoder.config, loaded.card.num_layers
        self.kv_bytes = kv_bytes_per_token(config, layers, loaded.decoder.cache_dtype)
        """Memory of one position of a session."""

    def session(self, positions: int) -> DraftSession:
        """A session for at most so many positions."""
        decoder, capacity = self._decoder, min(positions, self.context_length)
        layers, dtype = len(decoder.held), decoder.cache_dtype
        return DraftSession(self, KVCache.allocate(decoder.config, layers, capacity, dtype))

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
        self._cache = cache
        self._tokens: list[int] = []
        """Those whose keys and values are in the cache."""

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """At most ``count`` tokens that may follow ``text``."""
        pairs = zip(self._tokens, text, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        # The last token is computed again, for what follows it.
        shared = min(shared, len(text) - 1)
        del self._tokens[shared:]
        self._cache.length = shared
        found: list[int] = []
        new = list(text[shared:])
        while len(found) < count and self._cache.length + len(new) <= self._cache.capacity:
            token = self._model.most_likely(new, self._cache)
            self._tokens += new
            found.append(token)
            new = [token]
        return found


def load_draft(name: str, target: ModelFacts, model: Path, dtype: str) -> DraftModel | None:
    """The draft that ``--draft`` names for a target from the path ``model``; None if there is none.

    Without a name it is the one that ships for the default model. Blocks. Raises ModelUnreadable
    for files that cannot be used, and for a draft with another vocabulary.
    """
    shipped = not name and model == DEFAULT_MODEL and DEFAULT_DRAFT.exists()
    if name == NO_DRAFT or not (name or shipped):
        return None
    path = DEFAULT_DRAFT if shipped else Path(name)
    draft = load_model(path, dtype=dtype)
    alike = draft.tokenizer.has_vocabulary_of(target.tokenizer)
    if not alike or draft.card.vocab_size != target.card.vocab_size:
        raise ModelUnreadable(f"{path}: a draft needs the vocabulary of the model it drafts for")
    return DraftModel(draft)
