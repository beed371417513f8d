"""What rounding weights, keys and values costs: ``python -m bench.quality`` (decision 0153).

Perplexity of the default model in each format, beside llama.cpp's format of the same size with the
same tokens: on held-out text of the grammar that the model was trained on, and on a text that it
has never seen the like of. Texts are cut into windows of 256 tokens, each read from its beginning.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import torch

from bench.llama_peer import FORMATS, llama, write_gguf
from meshnode.model.kv import KVCache
from meshnode.model.loading import DEFAULT_MODEL, LoadedModel, load_model
from tools.default_model.train import held_out_documents

WINDOW = 256
TEXT = """
The river had been rising since noon, and by the time the ferryman tied up his boat the lower
meadow was under water. He counted the sheep on the hill twice, got two different numbers, and
decided that the larger one was right. In the kitchen his daughter was reading aloud from a
newspaper that was nine days old. A bridge had been opened in the capital; a minister had cut a
ribbon, and a brass band had played until the rain drove it under the trees. "They will want one
here next," she said. Her father hung his coat by the stove. A bridge, he answered, does not wait
for anybody, does not talk about the weather, and never falls asleep on the wrong bank. She
laughed, because all three had happened that week. Later, when the lamp was out, they heard the
water against the lowest step, and then, much later, they heard it go away again. In the morning
the mud had drawn a line along the wall, a hand's width below the line of the year before. He took
a knife and scratched the date beside it, as his mother had done, and her father, so that whoever
lived there afterwards could see at a glance how far one must expect the river to come.
"""
"""Written for this measurement: the model's vocabulary covers it, its grammar does not."""


def windows(model: LoadedModel, text: str) -> list[list[int]]:
    """The tokens of a text, in pieces of ``WINDOW``."""
    tokens = model.tokenizer.encode(text)
    return [tokens[start : start + WINDOW] for start in range(0, len(tokens) - 1, WINDOW)]


def perplexity(model: LoadedModel, pieces: list[list[int]]) -> float:
    """e to the mean negative logarithm of a token's probability."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for piece in pieces:
            tokens = torch.tensor([piece])
            dtype = model.decoder.cache_dtype
            config = model.decoder.config
            cache = KVCache.allocate(config, config.num_layers, len(piece), dtype)
            logits = model.decoder(tokens[:, :-1], [cache])[0].double()
            chosen = logits.log_softmax(-1).gather(-1, tokens[0, 1:, None])
            total, count = total - float(chosen.sum()), count + len(piece) - 1
    return math.exp(total / count)


def main() -> None:
    """Print one line for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=40, help="of the grammar")
    options = parser.parse_args()
    exact = load_model(DEFAULT_MODEL)
    texts = {
        "grammar": [
            piece
            for document in held_out_documents(set(), options.documents).values()
            for piece in windows(exact, document)
        ],
        "other": windows(exact, " ".join(TEXT.split())),
    }
    print(f"{'format':10} {'text':8} {'ours':>9} {'llama.cpp':>10} {'float32':>9}")
    plain = {name: perplexity(exact, pieces) for name, pieces in texts.items()}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in FORMATS:
            path = Path(folder) / f"{dtype}.gguf"
            write_gguf(DEFAULT_MODEL, path, dtype)
            model = load_model(DEFAULT_MODEL, dtype=dtype)
            with llama(path, 1, 1, WINDOW) as peer:
                for name, pieces in texts.items():
                    theirs = [-peer.log_likelihoods(piece) for piece in pieces]
                    mean = sum(map(sum, theirs)) / sum(map(len, theirs))
                    ours = perplexity(model, pieces)
                    line = f"{dtype:10} {name:8} {ours:9.4f} {math.exp(mean):10.4f}"
                    print(f"{line} {plain[name]:9.4f}", flush=True)


if __name__ == "__main__":
    main()
