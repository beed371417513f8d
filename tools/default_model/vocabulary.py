"""The tokenizer of the default model: byte-level BPE from the corpus, with begin and end tokens.

Bytes are the alphabet, so every text has tokens; each digit is a token of its own, so that the
model can learn sums. ``encode`` adds the begin token; only the model generates the end token.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .corpus import TRAINING_SEED, documents

if TYPE_CHECKING:
    import random

BEGIN, END = "<|begin|>", "<|end|>"
BEGIN_ID, END_ID = 0, 1
SAMPLE_DOCUMENTS = 20_000


def train_tokenizer(vocab_size: int, count: int = SAMPLE_DOCUMENTS) -> Tokenizer:
    """Return a tokenizer trained on the first ``count`` documents, the same in every run."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(islice(documents(TRAINING_SEED), count), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, BEGIN_ID)],
    )
    return tokenizer


def document_tokens(
    tokenizer: Tokenizer, text: str, rng: random.Random | None = None, cut: float = 0.1
) -> list[int]:
    """Return the tokens of a text between the begin and end tokens.

    With ``rng``, a fraction ``cut`` of the texts is cut in two at a random place and the parts are
    encoded separately, so that the model also sees prompts that end within a word or with a space.
    """
    parts = [text]
    if rng is not None and rng.random() < cut:
        place = rng.randrange(1, min(len(text), 120))
        parts = [text[:place], text[place:]]
    ids: list[int] = [BEGIN_ID]
    for part in parts:
        ids += tokenizer.encode(part, add_special_tokens=False).ids
    return [*ids, END_ID]


def tokenizer_config(context_length: int) -> dict[str, object]:
    """Return the ``tokenizer_config.json`` with which ``transformers`` loads the tokenizer."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "add_bos_token": True,
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
