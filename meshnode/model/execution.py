"""What the chain computes with a model: answers, features, training steps (native network 6).

Terms: the *profile* is everything that an answer's or a step's bits depend on besides the model and
the adapter: the arithmetic of ``model.exact``, greedy choice, lengths, the update rule. A
*task* is one round's work in two *stages*: features, then the update; each stage has a *receipt*,
the body that its worker signs.

Invariants: nothing here reads a clock, a file or a random number; equal inputs have equal results
on every machine whose :func:`profile_vector` is the expected one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from meshnode.domain.chain.canonical import Digest, Json, digest
from meshnode.domain.chain.errors import InvalidPrompt
from meshnode.domain.chain.jobs import request_root
from meshnode.domain.chain.tasks import batch_index
from meshnode.model.adapter import (
    Adapter,
    mean_loss,
    seeded_normal,
    sequence_loss,
    tensor_document,
    update,
)
from meshnode.model.config import DecoderConfig
from meshnode.model.dataset import SEQUENCE_LENGTH, Dataset
from meshnode.model.decoder import Decoder
from meshnode.model.documents import ModelUnreadable
from meshnode.model.exact_decoder import ExactCache, ExactDecoder, Float32
from meshnode.model.tokenizer import Tokenizer, TokenizerFailed

ARITHMETIC = "meshnode-exact-v1"
PROMPT_TOKENS = 256
PROFILE_VECTOR = "85628e6c554890c39f16ccf59a8dcb335e9c8cf740359451531dc43ebb040a26"
"""The result of :func:`profile_vector` on a machine that computes as the chain does."""
CONFORMANCE_PROMPT = "What is the capital of France?"
CONFORMANCE_TOKENS = 16
CONFORMANCE_STEPS = 3
REMEMBERED_FEATURES = 160
"""Enough for all sequences of a data set; 32 KB each with a hidden size of 128."""


@dataclass(frozen=True, slots=True)
class RoundUpdate:
    """One round's update, with what its receipts say."""

    adapter: Adapter
    feature_root: Digest
    gradient_root: Digest
    loss_hex: str

    def update_document(self) -> dict[str, Json]:
        """The fields that the second stage's receipt adds to those of the first."""
        return {
            "result_root": self.adapter.root,
            "gradient_root": self.gradient_root,
            "loss_hex": self.loss_hex,
        }


class ChainModel:
    """A model under the profile. Its methods may be called from any thread, one at a time."""

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        eos_token_ids: frozenset[int],
        dataset: Dataset,
        output_tokens: int,
    ) -> None:
        """Copy the weights of an unpacked ``decoder``. Raises ModelUnreadable."""
        if decoder.config.context_length < SEQUENCE_LENGTH:
            raise ModelUnreadable(f"the model's context is shorter than {SEQUENCE_LENGTH} tokens")
        self.decoder = ExactDecoder(decoder, PROMPT_TOKENS + output_tokens)
        self.dataset = dataset
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        # The cache has room for all sequences: the model is frozen, so each is computed once.
        self._features = lru_cache(maxsize=REMEMBERED_FEATURES)(self._compute_features)

    @property
    def config(self) -> DecoderConfig:
        """The model's shape."""
        return self.decoder.config

    def prompt_tokens(self, prompt: str, max_tokens: int) -> list[int]:
        """The prompt as the model reads it. Raises InvalidPrompt if it does not fit."""
        if self._tokenizer.fewest_tokens(prompt) > PROMPT_TOKENS:
            raise InvalidPrompt
        try:
            tokens = self._tokenizer.encode(prompt)
        except TokenizerFailed:
            raise InvalidPrompt from None
        longest = min(PROMPT_TOKENS, self.decoder.positions - max_tokens)
        if not 1 <= len(tokens) <= longest:
            raise InvalidPrompt
        return tokens

    def answer(self, adapter: Adapter, prompt: str, max_tokens: int) -> dict[str, Json]:
        """Generate greedily, up to ``max_tokens`` tokens or an end-of-text token."""
        tokens = self.prompt_tokens(prompt, max_tokens)
        chosen = greedy(self.decoder, adapter, tokens, max_tokens, self._eos_token_ids)
        text = b"".join(self._tokenizer.piece(token) for token in chosen)
        return {
            "text": text.decode("utf-8", "replace"),
            "token_ids": list(chosen),
            "model_root": adapter.root,
            "request_root": request_root(prompt, max_tokens),
        }

    def round_tokens(self, batch_domain: str, round_number: int) -> tuple[int, ...]:
        """The sequence that a round trains on."""
        train = self.dataset.train
        return train[batch_index(batch_domain, round_number, len(train))]

    def features(self, tokens: Sequence[int]) -> Float32:
        """Features ``[n, hidden]`` of a training sequence."""
        return self._features(tuple(tokens))

    def step(self, adapter: Adapter, tokens: Sequence[int], features: Float32) -> RoundUpdate:
        """One update from ``features`` ``[n, hidden]`` of ``tokens``."""
        done = update(adapter, self.decoder.head, features, tokens)
        root = digest(features_document(features))
        return RoundUpdate(done.adapter, root, done.gradient_root, done.loss.hex())

    def validation_loss(self, adapter: Adapter) -> float:
        """Mean loss over the validation sequences."""
        losses = [
            sequence_loss(adapter, self.decoder.head, self.features(tokens), tokens)
            for tokens in self.dataset.validation
        ]
        return mean_loss(losses)

    def conformance(self, batch_domain: str) -> dict[str, Json]:
        """Digests of an answer and of three steps, which a chain's genesis records."""
        adapter = Adapter.initial(self.config.hidden_size)
        answer = self.answer(adapter, CONFORMANCE_PROMPT, CONFORMANCE_TOKENS)
        steps: list[Json] = []
        for number in range(CONFORMANCE_STEPS):
            tokens = self.round_tokens(batch_domain, number)
            step = self.step(adapter, tokens, self.features(tokens))
            adapter = step.adapter
            loss = self.validation_loss(adapter).hex()
            steps.append({"feature_root": step.feature_root, "validation_loss_hex": loss})
            steps.append(step.update_document())
        return {"inference_root": digest(answer), "three_steps": digest(steps)}

    def _compute_features(self, tokens: tuple[int, ...]) -> Float32:
        features = self.decoder.features(list(tokens))
        # All callers share the cached array.
        features.flags.writeable = False
        return features


def greedy(
    decoder: ExactDecoder,
    adapter: Adapter,
    prompt: list[int],
    max_tokens: int,
    eos_token_ids: frozenset[int],
) -> list[int]:
    """The completion's tokens, including an end-of-text token. The first of equal logits wins."""
    past, chosen, latest = ExactCache(), list[int](), prompt
    while len(chosen) < max_tokens:
        features = decoder.features(latest, past)[-1:]
        token = int(adapter.logits(features, decoder.head)[0].argmax())
        chosen.append(token)
        if token in eos_token_ids:
            break
        latest = [token]
    return chosen


def features_document(features: Float32) -> dict[str, Json]:
    """The tensor that stage 0 hands to stage 1: ``[1, n, hidden]``."""
    return tensor_document(features[None])


def feature_receipt(
    task_id: str, model_root: str, tokens: Sequence[int], feature_root: str
) -> dict[str, Json]:
    """What the first stage's worker signs."""
    return {
        "task_id": task_id,
        "model_root": model_root,
        "input_root": digest(list(tokens)),
        "feature_root": feature_root,
        "stage": 0,
    }


def update_receipt(
    task_id: str, model_root: str, tokens: Sequence[int], step: RoundUpdate
) -> dict[str, Json]:
    """What the second stage's worker signs."""
    first = feature_receipt(task_id, model_root, tokens, step.feature_root)
    return {**first, **step.update_document(), "stage": 1}


def profile_vector() -> str:
    """The digest of a small synthetic model's answer and steps, which tests only the arithmetic.

    All its weights come from SHA-256. A machine on which this is not ``PROFILE_VECTOR`` would
    sooner or later disagree with the others.
    """
    config = DecoderConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=80,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        context_length=SEQUENCE_LENGTH,
    )
    decoder = Decoder(config)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            values = seeded_normal(f"meshnode/profile-vector/v1/{name}", 0, parameter.numel())
            scaled = (values * 0.25 + (parameter.dim() == 1)).astype(np.float32)
            parameter.copy_(torch.from_numpy(scaled).view(parameter.shape))
    exact = ExactDecoder(decoder, SEQUENCE_LENGTH)
    adapter = Adapter.initial(config.hidden_size)
    steps: list[Json] = []
    for start in range(3):
        tokens = [(start + 7 * place) % config.vocab_size for place in range(SEQUENCE_LENGTH)]
        features = exact.features(tokens)
        done = update(adapter, exact.head, features, tokens)
        adapter = done.adapter
        steps.append([digest(features_document(features)), done.loss.hex(), adapter.root])
    answer = greedy(exact, adapter, [1, 2, 3], 24, frozenset())
    return digest([tuple(answer), steps])
