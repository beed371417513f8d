"""The model card: what the model is, how it was made, and unselected samples of its text.

``python -m tools.default_model.card DIR`` writes the card of a finished asset again, from its
``metrics.json`` and new samples. The prompts, the seed and the settings of the samples are fixed
here, so that nobody can select the best of many.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from meshnode.domain.generation import GenerationRequest
from meshnode.model.loading import load_model
from meshnode.model.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from meshnode.model.decoder import Decoder
    from meshnode.model.tokenizer import Tokenizer

CARD_FILE, METRICS_FILE = "MODEL_CARD.md", "metrics.json"

PROMPTS = (
    "Once upon a time",
    "Hello",
    "How are you?",
    "The capital of France is",
    "What is the capital of France?",
    "Q: What is 2 plus 3?\nA:",
    "What is a node?",
    "The sun",
    "My name is",
    "In the morning",
    "The",
    "Write a poem",
    "Tell me a story about a fox",
    "Explain quantum physics",
)

_CARD = """# The default model of meshnode

A Llama-family decoder of {parameters:,} parameters: {layers} layers, hidden size {hidden},
{heads} heads with {kv_heads} key-value heads, a byte-level BPE vocabulary of {vocab} tokens,
context {context}, tied embeddings, bfloat16 on disk. It exists so that a node has something to
serve at its first start, and so that up to {layers} nodes can share it.

**Text.** Every training document is made by `tools/default_model/corpus`: small grammars with
state (who, where, which thing), written for this project. No other text was used. Licence of text
and weights: Apache-2.0, as the rest of the repository.

**Training.** {steps} steps of AdamW, {tokens:,} token positions, {minutes} minutes on {threads}
CPU thread(s), torch {torch}, with `meshnode.model.training`. To make it again:
`python -m tools.default_model.train --out DIR`.

**Measure.** Held-out loss {loss:.3f} nats per token (perplexity {perplexity:.2f}) over {documents}
documents of another seed, none of which occurs in the training documents. They come from the same
grammars, so this says how well the model learned the grammars, and nothing about other text.

**Limits.** It knows short stories, a few hundred facts, sums of small numbers, and small talk about
itself. It mixes up names now and then, adds wrongly beyond small numbers, and states falsehoods
with confidence. Not for any use in which an answer matters.

## Samples

Each prompt once, as it came: greedy, and at temperature 0.7 with top_k 50 and seed 1; at most 100
tokens. `⏎` is a line break, `…` means that the limit was reached.
"""


def continuation(
    decoder: Decoder,
    tokenizer: Tokenizer,
    ends: Collection[int],
    prompt: str,
    *,
    temperature: float,
    max_tokens: int = 100,
) -> tuple[str, bool]:
    """Return the model's continuation of ``prompt``, and whether the model ended it itself."""
    sampler = Sampler(GenerationRequest(prompt=prompt, temperature=temperature, seed=1))
    tokens = tokenizer.encode(prompt)
    pieces: list[bytes] = []
    with torch.inference_mode():
        for _ in range(max_tokens):
            token = sampler.choose(decoder(torch.tensor([tokens]), last_only=True)[0, -1])
            if token in ends:
                return b"".join(pieces).decode(errors="replace"), True
            tokens.append(token)
            pieces.append(tokenizer.piece(token))
    return b"".join(pieces).decode(errors="replace"), False


def model_card(
    decoder: Decoder,
    tokenizer: Tokenizer,
    metrics: Mapping[str, object],
    *,
    max_tokens: int = 100,
) -> str:
    """Return the text of ``MODEL_CARD.md``."""
    config = decoder.config
    seconds = metrics["wall_seconds"]
    lines = [
        _CARD.format(
            parameters=config.parameters,
            layers=config.num_layers,
            hidden=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            vocab=config.vocab_size,
            context=config.context_length,
            steps=metrics["steps"],
            tokens=metrics["tokens"],
            minutes=round(float(str(seconds)) / 60),
            threads=metrics["threads"],
            torch=metrics["torch"],
            loss=metrics["held_out_loss"],
            perplexity=metrics["held_out_perplexity"],
            documents=metrics["held_out_documents"],
        )
    ]
    for prompt in PROMPTS:
        shown = prompt.replace("\n", "⏎")
        lines.append(f"**`{shown}`**\n")
        for name, temperature in (("greedy", 0.0), ("0.7", 0.7)):
            text, ended = continuation(
                decoder,
                tokenizer,
                config.eos_token_ids,
                prompt,
                temperature=temperature,
                max_tokens=max_tokens,
            )
            lines.append(f"- {name}: `{text.replace(chr(10), '⏎')}{'' if ended else ' …'}`")
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the card of the asset in the folder ``arguments[0]``."""
    directory = Path(arguments[0])
    model = load_model(directory, threads=1)
    metrics = json.loads((directory / METRICS_FILE).read_text(encoding="utf-8"))
    card = model_card(model.decoder, model.tokenizer, metrics)
    (directory / CARD_FILE).write_text(card, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
