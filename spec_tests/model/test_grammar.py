"""Completions that are values of a JSON Schema: decision 0160."""

import json
from typing import Any

import pytest
import torch

from meshnode.domain.errors import InvalidRequest, Unsupported
from meshnode.domain.generation import GenerationRequest
from meshnode.model.grammar import Grammars
from meshnode.model.sampler import Sampler
from meshnode.model.tokenizer import Tokenizer
from spec_tests.model.small_models import END_OF_TEXT, VOCAB_SIZE, byte_level_backend

pytest.importorskip("llguidance", reason="llguidance is not installed")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level_backend())


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, frozenset({END_OF_TEXT}))


def text_of(tokenizer: Tokenizer, grammars: Grammars, schema: Any, seed: int) -> str:
    """What random logits make under a schema."""
    constraint = grammars.compile(json.dumps(schema))
    sampler = Sampler(GenerationRequest("", top_k=0, seed=seed), constraint)
    generator = torch.Generator().manual_seed(seed)
    text = b""
    for _ in range(400):
        token = sampler.choose(torch.randn(VOCAB_SIZE + 8, generator=generator))
        if token == END_OF_TEXT:
            return text.decode()
        text += tokenizer.piece(token)
    raise AssertionError("the text does not end")


def test_random_logits_make_values_of_the_schema(tokenizer: Tokenizer, grammars: Grammars) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "kind": {"enum": ["café", "🙂"]},
            "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        },
        "required": ["name", "kind", "sizes"],
        "additionalProperties": False,
    }
    for seed in range(10):
        value = json.loads(text_of(tokenizer, grammars, schema, seed))
        assert list(value) == ["name", "kind", "sizes"]
        assert value["kind"] in ("café", "🙂")
        assert len(value["name"]) <= 8
        assert all(type(size) is int for size in value["sizes"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "http://127.0.0.1:1/schema"},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "("},
        {"type": "string", "description": "x" * 70_000},
    ],
)
def test_schemas_that_cannot_be_kept_to_are_refused(grammars: Grammars, schema: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grammars.compile(json.dumps(schema))
    assert refused.value.field == "json_schema"
    assert len(str(refused.value)) < 200


def test_a_model_without_an_end_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(Unsupported, match="ends a text"):
        Grammars(tokenizer, frozenset()).compile("{}")
