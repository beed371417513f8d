"""A chain's training data: token sequences to which its genesis commits (native network 5).

The text ships with the package; each chain splits it with its own model's tokenizer, so the data
set is as much a part of a chain as its model. Terms: each round trains on one of the *training*
sequences and is measured on all *validation* sequences; every sequence has 64 tokens.

Invariant: the published bytes are canonical JSON, and ``Dataset.read(dataset.data) == dataset``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from meshnode.domain.chain.canonical import Json, JsonLimits, digest, encode, parse
from meshnode.domain.chain.errors import MalformedJson
from meshnode.model.documents import ModelUnreadable
from meshnode.model.tokenizer import Tokenizer

CORPUS = Path(__file__).parent.parent / "assets" / "dataset" / "corpus.json"
SEQUENCE_LENGTH = 64
TRAINING_SEQUENCES = 128
VALIDATION_SEQUENCES = 4
_LIMITS = JsonLimits(size=1 << 20, depth=8, fractions=False)
"""132 sequences take about 60 KB."""

Sequence = tuple[int, ...]


@dataclass(frozen=True)
class Dataset:
    """The sequences, and where they come from."""

    selection: str
    tokenizer_revision: str
    train: tuple[Sequence, ...]
    validation: tuple[Sequence, ...]

    @cached_property
    def data(self) -> bytes:
        """``dataset.json``, byte for byte."""
        return encode({"dataset_root": self.root, **self._content()})

    @cached_property
    def root(self) -> str:
        """The digest of everything but the root itself."""
        return digest(self._content())

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the published bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def _content(self) -> dict[str, Json]:
        return {
            "selection": self.selection,
            "tokenizer_revision": self.tokenizer_revision,
            "train": self.train,
            "validation": self.validation,
        }

    @classmethod
    def read(cls, data: bytes, vocab_size: int) -> Dataset:
        """Read published bytes. Raises ModelUnreadable unless this model can be trained on them."""
        try:
            document = parse(data, _LIMITS)
        except MalformedJson as error:
            raise ModelUnreadable(f"the chain's data set is damaged: {error}") from None
        if not isinstance(document, dict):
            raise ModelUnreadable("the chain's data set is damaged: not an object")
        dataset = cls(
            selection=str(document.get("selection")),
            tokenizer_revision=str(document.get("tokenizer_revision")),
            train=_sequences(document.get("train"), TRAINING_SEQUENCES, vocab_size),
            validation=_sequences(document.get("validation"), VALIDATION_SEQUENCES, vocab_size),
        )
        if dataset.data != data:
            raise ModelUnreadable(
                "the chain's data set is damaged: not what it would be written as"
            )
        return dataset


def make_dataset(tokenizer: Tokenizer, revision: str, end_of_text: int | None) -> Dataset:
    """Cut the packaged corpus into sequences; ``end_of_text``, if any, follows each document.

    Raises ModelUnreadable if the tokenizer makes too few tokens of the corpus.
    """
    text = CORPUS.read_bytes()
    closing = [] if end_of_text is None else [end_of_text]
    documents = (tokenizer.encode(document) + closing for document in json.loads(text))
    tokens = list(chain.from_iterable(documents))
    count = TRAINING_SEQUENCES + VALIDATION_SEQUENCES
    if len(tokens) < count * SEQUENCE_LENGTH:
        raise ModelUnreadable(f"the tokenizer makes only {len(tokens)} tokens of the chain's text")
    sequences = tuple(
        tuple(tokens[place * SEQUENCE_LENGTH : (place + 1) * SEQUENCE_LENGTH])
        for place in range(count)
    )
    return Dataset(
        selection=f"corpus sha256:{hashlib.sha256(text).hexdigest()}, in order, cut every "
        f"{SEQUENCE_LENGTH} tokens",
        tokenizer_revision=revision,
        train=sequences[:TRAINING_SEQUENCES],
        validation=sequences[TRAINING_SEQUENCES:],
    )


def _sequences(value: Json, count: int, vocab_size: int) -> tuple[Sequence, ...]:
    if not isinstance(value, list) or len(value) != count:
        raise ModelUnreadable(f"the chain's data set is damaged: not {count} sequences")
    for sequence in value:
        if not isinstance(sequence, list) or len(sequence) != SEQUENCE_LENGTH:
            raise ModelUnreadable("the chain's data set is damaged: a sequence has a wrong length")
        if not all(type(token) is int and 0 <= token < vocab_size for token in sequence):
            raise ModelUnreadable("the chain's data set has tokens that the model does not know")
    return tuple(tuple(sequence) for sequence in value)  # type: ignore[arg-type]
