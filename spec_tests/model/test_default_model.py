"""The shipped model: its files, its equality in other libraries, and the sense of its texts."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer as Backend
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from meshnode.domain.errors import StartupError
from meshnode.model import run as training_run
from meshnode.model.decoder import Decoder
from meshnode.model.loading import DEFAULT_MODEL, LoadedModel, load_model
from meshnode.model.training import IGNORED
from tools.default_model import train
from tools.default_model.asset import MAX_ASSET_BYTES
from tools.default_model.card import continuation
from tools.default_model.corpus import (
    HELD_OUT_SEED,
    MIXTURE,
    TRAINING_SEED,
    document,
    documents,
    words,
)
from tools.default_model.packing import packed_batches, single_batches
from tools.default_model.settings import CONTEXT, Reading, Settings, Stage
from tools.default_model.vocabulary import BEGIN_ID, END_ID, document_tokens, train_tokenizer

PROMPTS = ("Once upon a time", "Hello", "Q: What is 2 plus 3?\nA:", "Ärger im 東京 🙂 ", "")


@functools.cache
def shipped() -> LoadedModel:
    return load_model(DEFAULT_MODEL)


@functools.cache
def metrics() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DEFAULT_MODEL / "metrics.json").read_text())
    return document


def write(prompt: str, max_tokens: int, temperature: float = 0.0) -> tuple[str, bool]:
    model = shipped()
    return continuation(
        model.decoder,
        model.tokenizer,
        model.eos_token_ids,
        prompt,
        temperature=temperature,
        max_tokens=max_tokens,
    )


def test_the_asset_is_small_whole_and_never_pickled() -> None:
    files = {path.name: path.stat().st_size for path in DEFAULT_MODEL.iterdir()}
    assert files.keys() == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "metrics.json",
        "MODEL_CARD.md",
    }
    assert sum(files.values()) <= MAX_ASSET_BYTES


def test_it_has_eight_layers_and_is_stored_in_bfloat16() -> None:
    card = shipped().card
    assert card.layers == tuple(range(8))
    assert card.context_length == 512
    assert card.parameters == metrics()["parameters"]
    with safe_open(DEFAULT_MODEL / "model.safetensors", "pt") as file:
        names = list(file.keys())
        assert {file.get_slice(name).get_dtype() for name in names} == {"BF16"}
        # The weights are tied: the head is the embedding, which is stored once.
        assert "lm_head.weight" not in names


def test_transformers_reads_the_same_tokens() -> None:
    theirs = AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    assert isinstance(theirs, PreTrainedTokenizerFast)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (BEGIN_ID, END_ID)
    for prompt in PROMPTS:
        ids = shipped().tokenizer.encode(prompt)
        assert ids[0] == BEGIN_ID
        assert theirs(prompt)["input_ids"] == ids
        assert theirs.decode(ids, skip_special_tokens=True) == prompt


def test_transformers_computes_the_same_logits() -> None:
    theirs = AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)
    for prompt in (PROMPTS[0], PROMPTS[3], document(HELD_OUT_SEED, 0)):
        tokens = torch.tensor([shipped().tokenizer.encode(prompt)])
        with torch.inference_mode():
            difference = shipped().decoder(tokens) - theirs(tokens).logits
        assert difference.abs().max() < 1e-4


def test_eight_nodes_with_a_layer_each_compute_the_same() -> None:
    tokens = torch.tensor([shipped().tokenizer.encode("The sun")])
    with torch.inference_mode():
        hidden = tokens
        for layer in range(8):
            hidden = load_model(DEFAULT_MODEL, [layer]).decoder(hidden)
        assert torch.equal(hidden, shipped().decoder(tokens))


def test_the_recorded_held_out_loss_is_what_the_asset_has() -> None:
    sample = metrics()["held_out_sample"]
    texts = [document(HELD_OUT_SEED, index) for index in sample["indices"]]
    backend = Backend.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    measured = train.held_out_loss(shipped().decoder, backend, texts)
    assert measured.tokens == sample["tokens"]
    assert measured.loss == pytest.approx(sample["loss"], abs=2e-4)
    # The sample is the first of the held-out documents, and none is a training document.
    seen = set(islice(documents(TRAINING_SEED), 5000))
    assert not seen.intersection(texts)
    assert abs(sample["loss"] - metrics()["held_out_loss"]) < 0.2


def test_the_asset_belongs_to_the_corpus_and_the_settings_that_are_checked_in() -> None:
    digest = train.sha256(islice(documents(TRAINING_SEED), train.CORPUS_DIGEST_DOCUMENTS))
    assert digest == metrics()["corpus_sha256"]
    settings = Settings.from_document(metrics()["settings"])
    assert settings == Settings()
    assert settings.config().document() == shipped().decoder.config.document()
    assert metrics()["tokens"] == metrics()["steps"] * settings.batch_tokens
    assert metrics()["steps"] == settings.steps
    assert sum(reading.steps for reading in settings.readings) == settings.steps


def test_the_tokenizer_can_be_made_again() -> None:
    again = train_tokenizer(metrics()["settings"]["vocab_size"])
    stored = Backend.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    assert json.loads(again.to_str()) == json.loads(stored.to_str())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("The capital of France is", "Paris"),
        ("What is the capital of France?", "Paris"),
        ("what is the capital of japan", "Tokyo"),
        ("Q: What is 2 plus 3?\nA:", "5"),
        ("How are you?", "thank you"),
        ("What is a node?", "node"),
        ("Who are you?", "language model"),
    ],
)
def test_it_knows_what_it_was_taught(prompt: str, expected: str) -> None:
    text, ended = write(prompt, 60)
    assert expected in text
    # In the "Q:" form, more questions may follow the first answer.
    assert ended or prompt.startswith("Q:")


@pytest.mark.parametrize("prompt", ["Once upon a time", "Tell me a story about a fox"])
def test_its_stories_are_about_someone_and_come_to_an_end(prompt: str) -> None:
    text, ended = write(prompt, 400)
    assert ended
    assert text.rstrip().endswith((".", '"', "!"))
    assert text.count('"') % 2 == 0
    # The first character that the story names must be named at least three times.
    names = {*words.GIRLS, *words.BOYS, *words.SHE_PETS, *words.HE_PETS}
    spoken = [word.strip('.,!?"') for word in text.split()]
    mentioned = [word for word in spoken if word in names]
    assert mentioned.count(mentioned[0]) >= 3
    if "fox" in prompt:
        assert "fox" in text


@given(seed=st.integers(0, 2**31), index=st.integers(0, 2**31))
def test_a_document_is_a_function_of_its_seed_and_index(seed: int, index: int) -> None:
    text = document(seed, index)
    assert text == document(seed, index)
    assert text == text.strip()
    assert "{" not in text
    assert text.count('"') % 2 == 0


def test_every_kind_of_document_fits_a_row() -> None:
    backend = Backend.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    for _, maker in MIXTURE:
        for seed in range(40):
            text = maker(words.Pen(random.Random(seed)))
            assert 2 < len(document_tokens(backend, text)) <= CONTEXT


@given(
    sizes=st.lists(st.integers(2, 40), max_size=60),
    length=st.integers(39, 70),
    rows=st.integers(1, 4),
)
def test_packing_keeps_documents_whole_and_apart(sizes: list[int], length: int, rows: int) -> None:
    # Token 0 begins and token 1 ends a document; the tokens between are its number plus 2.
    texts = [[0, *[place + 2] * (size - 2), 1] for place, size in enumerate(sizes)]
    found: list[list[int]] = []
    for batch in packed_batches(texts, length=length, size=rows, pad=99):
        assert batch.inputs.shape == batch.targets.shape
        assert batch.inputs.shape[1] == length
        for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            assert inputs[0] == 0
            starts = [place for place, token in enumerate(inputs) if token == 0]
            assert 0 not in targets
            for start, stop in zip(starts, [*starts[1:], length], strict=True):
                counted = [token for token in targets[start:stop] if token != IGNORED]
                assert inputs[start + 1 : start + len(counted)] == counted[:-1]
                found.append([0, *counted])
    assert sorted(found) == sorted(texts)


@given(sizes=st.lists(st.integers(2, 40), max_size=60), area=st.integers(40, 400))
def test_single_batches_hold_each_document_once_in_a_row_of_its_own(
    sizes: list[int], area: int
) -> None:
    texts = [[0, *[place + 2] * (size - 2), 1] for place, size in enumerate(sizes)]
    found: list[list[int]] = []
    for batch in single_batches(texts, area=area, pad=99, rng=random.Random(1)):
        assert batch.inputs.numel() <= area
        for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            counted = [token for token in targets if token != IGNORED]
            assert inputs[: len(counted)] == [0, *counted[:-1]]
            found.append([0, *counted])
    assert sorted(found) == sorted(texts)


def test_a_training_run_that_is_stopped_and_resumed_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=16,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        batch_tokens=512,
        stages=(Stage(3, 1e-3, 1, 0), Stage(3, 5e-4, 0, 2)),
        readings=(Reading(4, long=False, cut=0.5), Reading(2, long=True, cut=0.0)),
    )
    monkeypatch.setattr(training_run, "CHECKPOINT_SECONDS", -1)
    monkeypatch.setattr(train, "train_tokenizer", lambda size: train_tokenizer(size, count=200))
    whole = train.Run(settings, tmp_path)
    whole.train()

    def stop(run: training_run.TrainingRun) -> None:
        if run.trainer.step_count == 2:
            raise KeyboardInterrupt

    stopped = train.Run(settings, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(train, "show_progress", stop)
        with pytest.raises(KeyboardInterrupt):
            stopped.train()
    resumed = train.Run(settings, tmp_path)
    assert resumed.run.resume()
    assert resumed.trainer.step_count == 2
    resumed.train()
    for name, tensor in whole.trainer.state().items():
        assert torch.equal(tensor, resumed.trainer.state()[name]), name
    assert resumed.read == whole.read
    with pytest.raises(StartupError, match="other settings"):
        train.Run(replace(settings, seed=2), tmp_path).run.resume()


def test_attention_starts_by_copying_what_it_attends_to() -> None:
    settings = Settings()
    model = Decoder(settings.config())
    train.start_weights(model, torch.Generator().manual_seed(1))
    tokens = torch.tensor([[BEGIN_ID, *range(300, 340)]])
    with torch.inference_mode():
        logits = model(tokens)[0, -1]
    assert logits[300:340].mean() > logits.mean() + logits.std() / 2


def test_a_text_in_two_parts_is_the_same_text() -> None:
    backend = Backend.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    rng = random.Random(1)
    text = document(HELD_OUT_SEED, 3)
    whole = document_tokens(backend, text)
    variants = [document_tokens(backend, text, rng) for _ in range(100)]
    assert any(variant != whole for variant in variants)
    for variant in variants:
        assert (variant[0], variant[-1]) == (BEGIN_ID, END_ID)
        assert backend.decode(variant[1:-1]) == text
