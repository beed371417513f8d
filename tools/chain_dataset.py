"""Writes the text on which chains train: ``meshnode/assets/dataset/corpus.json``.

The text is a list of documents from the default model's corpus. They are made with another seed
than its training text, so the model has seen hardly any of them. A chain cuts them into sequences
with its model's tokenizer (``meshnode/model/dataset.py``). Run it in the repository's root:
``python -m tools.chain_dataset``.

Existing chains keep their data set, whose digest is in their genesis; new text is for new chains.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.default_model.corpus import document

SEED = 20_261_121
CHARACTERS = 80_000
"""Twice the text of 132 sequences of 64 tokens with the default tokenizer."""
TARGET = Path(__file__).parent.parent / "meshnode" / "assets" / "dataset" / "corpus.json"


def corpus() -> list[str]:
    """Return different documents with at least ``CHARACTERS`` characters together."""
    chosen: dict[str, None] = {}
    size = index = 0
    while size < CHARACTERS:
        text = document(SEED, index)
        index += 1
        if text not in chosen:
            chosen[text] = None
            size += len(text)
    return list(chosen)


def written(documents: list[str]) -> bytes:
    """Return the bytes of the file."""
    return (json.dumps(documents, ensure_ascii=False, indent=0) + "\n").encode()


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(written(corpus()))
