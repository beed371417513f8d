"""Writes the text that chains train on: ``meshnode/assets/dataset/corpus.json``.

A list of documents from the default model's corpus, made with a seed of its own, so that the model
has seen none of them. A chain cuts them into sequences with its own model's tokenizer
(``meshnode/model/dataset.py``). Run it in the repository's root: ``python -m tools.chain_dataset``.

Existing chains keep their data set, whose digest is in their genesis; new text is for new chains.
"""

from __future__ import annotations

import json
from pathlib import Path

from tools.default_model.corpus import document

SEED = 20_261_121
CHARACTERS = 80_000
"""Twice what 132 sequences of 64 tokens take with the default tokenizer."""
TARGET = Path(__file__).parent.parent / "meshnode" / "assets" / "dataset" / "corpus.json"


def corpus() -> list[str]:
    """Documents of ``CHARACTERS`` characters together, each different from the others."""
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
    """The file's bytes."""
    return (json.dumps(documents, ensure_ascii=False, indent=0) + "\n").encode()


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(written(corpus()))
